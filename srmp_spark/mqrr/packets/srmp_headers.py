"""SRMPEnvelopeHeader and CompoundMessageHeader: a message sent over HTTP ([MS-MQRR] 2.2.5.1.2).

The first header holds the SOAP envelope as text. The second header holds the whole POST as received
and the place of the message's body in the POST. The document gives HeaderId no value. The packets
that were seen carry 0 and 500, so both values are written and any value is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.packets.limits import U16_MAX, U32_MAX
from srmp_spark.mqrr.packets.wire import fits, pad, padded, read_wchars, require, write_wchars

ENVELOPE_HEADER_ID = 0
COMPOUND_HEADER_ID = 500
"""HeaderId of a CompoundMessageHeader: the value of the only packets that were seen."""
COMPOUND_FIXED_SIZE = 16

_ENVELOPE_SECTION, _COMPOUND_SECTION = "[MS-MQRR] 2.2.5.1.2.1", "[MS-MQRR] 2.2.5.1.2.2"
_ENVELOPE = Struct("<HHI")
_COMPOUND = Struct("<HHIII")


@dataclass(frozen=True, slots=True, kw_only=True)
class SRMPEnvelopeHeader:
    """The SOAP envelope of one message."""

    header_id: int = ENVELOPE_HEADER_ID
    data: str
    """The envelope without its closing NUL."""

    def encode(self) -> bytes:
        """Encode the header with padding.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        text = write_wchars(self.data)
        length = fits(len(text) // 2, U32_MAX, "DataLength")
        return pad(_ENVELOPE.pack(fits(self.header_id, U16_MAX, "HeaderId"), 0, length) + text)


def parse_srmp_envelope_header(data: bytes, at: int, end: int) -> tuple[SRMPEnvelopeHeader, int]:
    """Parse the header at ``at``; return the header and the offset of the next one.

    DataLength counts **WCHARs** including the NUL. [MS-MQRR] says only "length"; the packet that
    was seen decides it (539 for 1,078 bytes). In CVE-2023-21554 the doubled count wrapped around 32
    bits before it was compared with the bytes that were left. Raises :class:`RemoteProtocolError`
    if the text is cut.
    """
    require(at, _ENVELOPE.size, end, "SRMPEnvelopeHeader", _ENVELOPE_SECTION)
    header_id, _, length = _ENVELOPE.unpack_from(data, at)
    require(at + _ENVELOPE.size, 2 * length, end, "the envelope", _ENVELOPE_SECTION)
    text = read_wchars(data, at + _ENVELOPE.size, length)
    return SRMPEnvelopeHeader(header_id=header_id, data=text), at + padded(
        _ENVELOPE.size + 2 * length
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompoundMessageHeader:
    """The HTTP POST of one message: request line, header fields and content."""

    header_id: int = COMPOUND_HEADER_ID
    data: bytes
    msg_body_offset: int
    msg_body_size: int
    """Size of the message's body in bytes; the body begins at ``msg_body_offset`` of ``data``."""
    missing: int = 0
    """Bytes of the header that the reader did not ask for, in the first of two sections.

    Usually these are the last bytes of ``data`` ([MS-MQRR] 2.2.6). If fewer than 16 bytes were
    sent, the fields before ``data`` are missing too.
    """

    @property
    def size(self) -> int:
        """Return the "size in bytes of CompoundMessageHeader", fixed part included.

        The server compares dwMaxCompoundMessageSize with this size ([MS-MQRR] 3.1.4.7).
        """
        return COMPOUND_FIXED_SIZE + len(self.data)

    @property
    def message_body(self) -> bytes:
        """Return the body of the message, or the part of the body that is present."""
        return self.data[self.msg_body_offset : self.msg_body_offset + self.msg_body_size]

    def encode_unpadded(self) -> bytes:
        """Encode the header without padding.

        Raises :class:`LocalProtocolError` if a value does not fit into its field, if bytes are
        missing, or if the body does not lie in the data.
        """
        if self.missing:
            raise LocalProtocolError(
                f"{self.missing} bytes of the compound message are missing; read the message again"
            )
        body, offset = (
            fits(self.msg_body_size, U32_MAX, "MsgBodySize"),
            fits(self.msg_body_offset, U32_MAX, "MsgBodyOffset"),
        )
        if body and offset + body > len(self.data):
            raise LocalProtocolError("the body of the message does not lie in the compound message")
        size = fits(len(self.data), U32_MAX, "HTTPBodySize")
        return (
            _COMPOUND.pack(fits(self.header_id, U16_MAX, "HeaderId"), 0, size, body, offset)
            + self.data
        )

    def encode(self) -> bytes:
        """Encode the header with padding.

        Raises :class:`LocalProtocolError` as :meth:`encode_unpadded` does.
        """
        return pad(self.encode_unpadded())


def parse_compound_message_header(
    data: bytes, at: int, end: int, *, missing: int = 0
) -> tuple[CompoundMessageHeader, int]:
    """Parse the header at ``at``; return the header and the offset of the next one.

    The last ``missing`` bytes of the header were not sent. HTTPBodySize, MsgBodySize and
    MsgBodyOffset count bytes. A body must lie in the data; the offset of an empty body does not
    matter. A reader may have asked for less than the 16 bytes before the data: then only the number
    of missing bytes is known. Raises :class:`RemoteProtocolError` if a part is cut elsewhere or the
    body does not lie in the data.
    """
    if missing and end - at < COMPOUND_FIXED_SIZE:
        if missing < COMPOUND_FIXED_SIZE - (end - at):
            raise RemoteProtocolError(
                "less than a CompoundMessageHeader was sent and is missing",
                section=_COMPOUND_SECTION,
            )
        return CompoundMessageHeader(
            data=b"", msg_body_offset=0, msg_body_size=0, missing=missing
        ), end
    require(at, COMPOUND_FIXED_SIZE, end, "CompoundMessageHeader", _COMPOUND_SECTION)
    header_id, _, http_body_size, msg_body_size, msg_body_offset = _COMPOUND.unpack_from(data, at)
    begin = at + COMPOUND_FIXED_SIZE
    if missing > http_body_size:
        raise RemoteProtocolError(
            f"{missing} bytes of a compound message of {http_body_size} were not sent",
            section="[MS-MQRR] 2.2.6",
        )
    require(begin, http_body_size - missing, end, "the compound message", _COMPOUND_SECTION)
    if msg_body_size and msg_body_offset + msg_body_size > http_body_size:
        raise RemoteProtocolError(
            f"a body of {msg_body_size} bytes at {msg_body_offset} does not lie in a "
            f"compound message of {http_body_size}",
            section=_COMPOUND_SECTION,
        )
    content = data[begin : begin + http_body_size - missing]
    header = CompoundMessageHeader(
        header_id=header_id,
        data=content,
        msg_body_offset=msg_body_offset,
        msg_body_size=msg_body_size,
        missing=missing,
    )
    return header, at + padded(COMPOUND_FIXED_SIZE + len(content))
