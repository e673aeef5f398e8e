"""Decodes an HTTP body into a :class:`Message` ([MC-MQSRM] 3.1.5.1.1): split, then read.

    content ──mime.split──▶ envelope, body, extension
    envelope ──windows_layout──▶ Message                 only what Windows writes
        └─ None ──learned_layouts──▶ fields ──┐          layouts that were read before
            └─ new ──envelope_reader──▶ fields ──envelope_values──▶ Message     all others

The rules are in ``envelope_reader`` and ``envelope_values``. The two readers before them only save
time: each returns what the last reader would return, or leaves the envelope to the next reader
(tests/codec/test_differential.py). ``soap_action`` and the arrival are not in the bytes that this
module reads; the caller adds them.
"""

from __future__ import annotations

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Message
from srmp_spark.srmp.codec.envelope_reader import read_fields
from srmp_spark.srmp.codec.envelope_values import message_of
from srmp_spark.srmp.codec.learned_layouts import LearnedLayouts
from srmp_spark.srmp.codec.mime import Parts, split
from srmp_spark.srmp.codec.windows_layout import read_windows_envelope

_layouts = LearnedLayouts(read_fields)


def decode(content_type: bytes, content: bytes) -> Message:
    """Return the message in ``content``.

    ``content_type`` is the value of the HTTP field, unfolded (``http_head.unfold``). Raises only
    :class:`RemoteProtocolError`. Its ``status_hint`` is 400 (malformed), 413 (body longer than
    ``BODY_MAX``) or 415 (unsupported media type).
    """
    return decode_parts(content_type, content)[0]


def decode_parts(content_type: bytes, content: bytes) -> tuple[Message, Parts]:
    """Return the message of :func:`decode`, and the places of its parts in ``content``.

    Raises :class:`RemoteProtocolError` as :func:`decode` does.
    """
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
