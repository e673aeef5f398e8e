"""SoapHeader: the SOAP header and body that an application set ([MS-MQMQ] 2.2.20.7).

The header holds two texts of an even number of bytes. The document does not mention padding between
or after the texts, although every header is said to begin at a multiple of four. No packet with a
SoapHeader is public. So no padding is written, and 0 to 3 bytes of padding are accepted: each text
has an identifier by which its beginning is recognised.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.packets.limits import U32_MAX
from srmp_spark.mqrr.packets.wire import fits, padded, read_wchars, require, write_wchars

_SECTION = "[MS-MQMQ] 2.2.20.7"
_PART = Struct("<HHI")
_HEADER_SECTION_ID, _BODY_SECTION_ID = 0x0320, 0x0384


@dataclass(frozen=True, slots=True, kw_only=True)
class SoapHeader:
    """The SOAP header and SOAP body of one message, kept as received."""

    header: str
    body: str

    def encode(self) -> bytes:
        """Encode the header without padding.

        Raises :class:`LocalProtocolError` if a text contains a NUL.
        """
        out = b""
        for section_id, text in ((_HEADER_SECTION_ID, self.header), (_BODY_SECTION_ID, self.body)):
            data = write_wchars(text)
            out += (
                _PART.pack(
                    section_id, 0, fits(len(data) // 2, U32_MAX, "DataLength of a SoapHeader")
                )
                + data
            )
        return out


def parse_soap_header(data: bytes, at: int, end: int) -> tuple[SoapHeader, int]:
    """Parse the header at ``at``; return the header and the offset of its end, without padding.

    Raises :class:`RemoteProtocolError` if a text is cut or has another identifier.
    """
    start = at
    header, at = _parse_part(_HEADER_SECTION_ID, data, at, end)
    aligned = start + padded(at - start)
    if (
        aligned != at
        and not _begins(_BODY_SECTION_ID, data, at, end)
        and _begins(_BODY_SECTION_ID, data, aligned, end)
    ):
        at = aligned
    body, at = _parse_part(_BODY_SECTION_ID, data, at, end)
    return SoapHeader(header=header, body=body), at


def _begins(section_id: int, data: bytes, at: int, end: int) -> bool:
    return at + 2 <= end and data[at] | data[at + 1] << 8 == section_id


def _parse_part(section_id: int, data: bytes, at: int, end: int) -> tuple[str, int]:
    require(at, _PART.size, end, "a part of a SoapHeader", _SECTION)
    found, _, length = _PART.unpack_from(data, at)
    if found != section_id:
        raise RemoteProtocolError(
            f"a SoapHeader with section {found:#x} instead of {section_id:#x}", section=_SECTION
        )
    at += _PART.size
    require(at, 2 * length, end, "a text of a SoapHeader", _SECTION)
    return read_wchars(data, at, length), at + 2 * length
