"""An HTTP body into a :class:`Message` ([MC-MQSRM] 3.1.5.1.1): split, then read.

    content ──mime.split──▶ envelope, body, extension
    envelope ──windows_layout──▶ Message                          what Windows writes, and nothing else
        └─ None ──learned_layouts──▶ fields ──┐                   what has been written like this before
            └─ new ──envelope_reader──▶ fields ──envelope_values──▶ Message     everything; the rules live in these two

The first two give what the last would give or pass on (tests/codec/test_differential.py): they are only a matter of speed.
``soap_action`` and the arrival are not in the bytes seen here: the caller adds them.
"""

from __future__ import annotations

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Message
from srmp_spark.srmp.envelope_reader import read_fields
from srmp_spark.srmp.envelope_values import message_of
from srmp_spark.srmp.learned_layouts import LearnedLayouts
from srmp_spark.srmp.mime import Parts, split
from srmp_spark.srmp.windows_layout import read_windows_envelope

_layouts = LearnedLayouts(read_fields)


def decode(content_type: bytes, content: bytes) -> Message:
    """The message in ``content``; ``content_type`` is the value of the HTTP field, unfolded (``http_head.unfold``).

    Raises :class:`RemoteProtocolError` and nothing else: its ``status_hint`` is 400 (malformed), 413 (body above
    ``BODY_MAX``) or 415 (another media type).
    """
    return decode_parts(content_type, content)[0]


def decode_parts(content_type: bytes, content: bytes) -> tuple[Message, Parts]:
    """:func:`decode`, and where the parts lie in ``content``."""
    parts = split(content_type, content)
    (start, end), body_span, extension_span, body_id, extension_id = parts
    body = b"" if body_span is None else content[body_span[0] : body_span[1]]
    extension = None if extension_span is None else content[extension_span[0] : extension_span[1]]
    message = read_windows_envelope(content, start, end, body, extension)
    if message is None:
        try:
            text = content[start:end].decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError(
                "the envelope is not UTF-8", section="[MC-MQSRM] 2.2.2"
            ) from None
        message = message_of(_layouts.read(text), body, extension, (body_id, extension_id))
    return message, parts
