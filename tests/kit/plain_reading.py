"""Read an envelope by the XML reader alone: each faster way is compared with it.

The faster ways are in :mod:`srmp_spark.srmp.codec.decoder`.
"""

from __future__ import annotations

from srmp_spark.message import Message
from srmp_spark.srmp.codec.envelope_reader import read_fields
from srmp_spark.srmp.codec.envelope_values import message_of


def read_envelope(
    envelope: bytes,
    body: bytes = b"",
    extension: bytes | None = None,
    *,
    body_id: bytes = b"",
    extension_id: bytes = b"",
) -> Message:
    """The message that ``envelope`` describes, with its attachments and their Content-Ids.

    Raises :class:`RemoteProtocolError` when it is not well-formed, not SRMP, or passes a limit.
    """
    return message_of(read_fields(envelope), body, extension, (body_id, extension_id))
