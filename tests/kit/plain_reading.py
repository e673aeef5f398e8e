"""Reads an envelope with the general XML reader alone.

Tests compare the faster ways, which are in :mod:`srmp_spark.srmp.codec.decoder`, with this reading.
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
    """Return the message that ``envelope`` describes, with its attachments.

    ``body_id`` and ``extension_id`` are the Content-Ids of the attachments. Raises
    :class:`RemoteProtocolError` if the envelope is not well-formed, is not SRMP, or exceeds a
    limit.
    """
    return message_of(read_fields(envelope), body, extension, (body_id, extension_id))
