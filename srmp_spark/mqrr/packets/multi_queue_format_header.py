"""MultiQueueFormatHeader: all queues that a message was sent to ([MS-MQMQ] 2.2.20.1 to 2.2.20.3).

[MS-MQMQ] 2.2.18.1.4 says that names of queue managers and lists begin at a multiple of four after
their two-byte type. For a public name the sentence is missing. A public name is written aligned as
well. When read, a public name is tried aligned and unaligned: the variant that ends where
HeaderSize says is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.mqrr.guids import GUID_SIZE, guid_bytes, guid_text
from srmp_spark.mqrr.packets.limits import DIRECT_NAME_WCHARS_MAX, FORMAT_NAMES_MAX, U32_MAX
from srmp_spark.mqrr.packets.wire import fits, pad, padded, require, write_wchars
from srmp_spark.names import NULL_GUID

DESTINATION_ID, ADMIN_ID, RESPONSE_ID, SIGNATURE_ID = 0x0064, 0x00C8, 0x012C, 0x015E
"""Identifiers: HeaderID of the three lists, and ID of the signature."""

_ADDRESS_SECTION, _SIGNATURE_SECTION, _ELEMENT_SECTION = (
    "[MS-MQMQ] 2.2.20.2",
    "[MS-MQMQ] 2.2.20.3",
    "[MS-MQMQ] 2.2.18.1.4",
)
_ADDRESS = Struct("<IHHI")
_SIGNATURE = Struct("<HHI")
_U16, _U32 = Struct("<H"), Struct("<I")


class FormatType(IntEnum):
    """Kind of the name of one queue in a list: FormatType of an element."""

    PUBLIC = 1
    PRIVATE = 2
    DIRECT = 3
    DISTRIBUTION_LIST = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatNameElement:
    """MQFFormatNameElement: one queue of a list."""

    type: FormatType
    guid: str = NULL_GUID
    private_id: int = 0
    direct: str = ""
    """The direct name as received, with or without ``DIRECT=``.

    The document does not say whether ``DIRECT=`` is part of the name, and no packet is public.
    """

    @property
    def format_name(self) -> str:
        """Return the format name of the queue ([MS-MQMQ] 2.1)."""
        if self.type is FormatType.PUBLIC:
            return f"PUBLIC={self.guid}"
        if self.type is FormatType.PRIVATE:
            return f"PRIVATE={self.guid}\\{self.private_id:08x}"
        if self.type is FormatType.DISTRIBUTION_LIST:
            return f"DL={self.guid}"
        return self.direct if self.direct[:7].upper() == "DIRECT=" else f"DIRECT={self.direct}"

    def encode(self, before: int) -> bytes:
        """Encode the element, which begins ``before`` bytes after the start of its list's header.

        Its padding depends on that offset. Raises :class:`LocalProtocolError` if a number is out of
        range or a direct name contains a NUL.
        """
        out = _U16.pack(self.type)
        if self.type is FormatType.DIRECT:
            return out + write_wchars(self.direct)
        out += bytes(padded(before + len(out)) - before - len(out)) + guid_bytes(self.guid)
        if self.type is FormatType.PRIVATE:
            out += _U32.pack(fits(self.private_id, U32_MAX, "PrivateQueueIdentifier"))
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiQueueFormatHeader:
    """The destination, administration and response queues of one message, and a signature."""

    destination: tuple[FormatNameElement, ...]
    administration: tuple[FormatNameElement, ...] = ()
    response: tuple[FormatNameElement, ...] = ()
    signature: bytes = b""

    def encode(self) -> bytes:
        """Encode the three lists of queues and the signature, each padded.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        out = b""
        lists = (
            (DESTINATION_ID, self.destination),
            (ADMIN_ID, self.administration),
            (RESPONSE_ID, self.response),
        )
        for header_id, elements in lists:
            out += _encode_list(header_id, elements)
        return out + pad(
            _SIGNATURE.pack(SIGNATURE_ID, 0, fits(len(self.signature), U32_MAX, "Size"))
            + self.signature
        )


def _encode_list(header_id: int, elements: tuple[FormatNameElement, ...]) -> bytes:
    fits(len(elements), FORMAT_NAMES_MAX, "ElementCount")
    body = b""
    for element in elements:
        body += element.encode(_ADDRESS.size + len(body))
    body = pad(body)
    return _ADDRESS.pack(_ADDRESS.size + len(body), header_id, 0, len(elements)) + body


def begins_multi_queue_format_header(data: bytes, at: int, end: int) -> bool:
    """Return whether a MultiQueueFormatHeader can begin at ``at``.

    The function looks for the identifier of the first list.
    """
    return at + _ADDRESS.size <= end and _U16.unpack_from(data, at + 4)[0] == DESTINATION_ID


def parse_multi_queue_format_header(
    data: bytes, at: int, end: int
) -> tuple[MultiQueueFormatHeader, int]:
    """Parse the header at ``at``; return the header and the offset of its end, without padding.

    Raises :class:`RemoteProtocolError` if a list or a name is cut. Raises
    :class:`LimitExceededError` if a list or a name exceeds its limit.
    """
    destination, at = _parse_list(DESTINATION_ID, data, at, end)
    administration, at = _parse_list(ADMIN_ID, data, at, end)
    response, at = _parse_list(RESPONSE_ID, data, at, end)
    require(at, _SIGNATURE.size, end, "MQFSignatureHeader", _SIGNATURE_SECTION)
    signature_id, _, size = _SIGNATURE.unpack_from(data, at)
    if signature_id != SIGNATURE_ID:
        raise RemoteProtocolError(
            f"an MQFSignatureHeader with ID {signature_id:#x}", section=_SIGNATURE_SECTION
        )
    at += _SIGNATURE.size
    require(at, size, end, "Signature", _SIGNATURE_SECTION)
    header = MultiQueueFormatHeader(
        destination=destination,
        administration=administration,
        response=response,
        signature=data[at : at + size],
    )
    return header, at + size


def _parse_list(
    header_id: int, data: bytes, start: int, end: int
) -> tuple[tuple[FormatNameElement, ...], int]:
    """Parse the MQFAddressHeader at ``start``; return its elements and the offset of its end.

    Raises :class:`RemoteProtocolError` if the list is cut or has another identifier,
    :class:`LimitExceededError` if it has more than ``FORMAT_NAMES_MAX`` elements.
    """
    require(start, _ADDRESS.size, end, "MQFAddressHeader", _ADDRESS_SECTION)
    size, found, _, count = _ADDRESS.unpack_from(data, start)
    if found != header_id or size < _ADDRESS.size:
        raise RemoteProtocolError(
            f"an MQFAddressHeader with HeaderID {found:#x} and size {size}",
            section=_ADDRESS_SECTION,
        )
    require(start, size, end, "MQFAddressHeader", _ADDRESS_SECTION)
    if count > FORMAT_NAMES_MAX:
        raise LimitExceededError(
            "FORMAT_NAMES_MAX", FORMAT_NAMES_MAX, count, section=_ADDRESS_SECTION
        )
    limit = start + size
    try:
        elements, at = _parse_elements(count, data, start, limit, public_aligned=True)
        exact = padded(at - start) == padded(size)
    except LimitExceededError:
        raise
    except RemoteProtocolError:
        exact = False
    if not exact:
        elements, _ = _parse_elements(count, data, start, limit, public_aligned=False)
    return elements, min(start + padded(size), end)


def _parse_elements(
    count: int, data: bytes, start: int, limit: int, *, public_aligned: bool
) -> tuple[tuple[FormatNameElement, ...], int]:
    at = start + _ADDRESS.size
    elements = []
    for _ in range(count):
        require(at, _U16.size, limit, "FormatType", _ELEMENT_SECTION)
        (kind,) = _U16.unpack_from(data, at)
        at += _U16.size
        if kind == FormatType.DIRECT:
            name, at = _parse_direct(data, at, limit)
            elements.append(FormatNameElement(type=FormatType.DIRECT, direct=name))
            continue
        if kind not in (FormatType.PUBLIC, FormatType.PRIVATE, FormatType.DISTRIBUTION_LIST):
            raise RemoteProtocolError(f"a format name of type {kind}", section=_ELEMENT_SECTION)
        if kind != FormatType.PUBLIC or public_aligned:
            at = start + padded(at - start)
        require(at, GUID_SIZE, limit, "the GUID of a format name", _ELEMENT_SECTION)
        guid, number = guid_text(data[at : at + GUID_SIZE]), 0
        at += GUID_SIZE
        if kind == FormatType.PRIVATE:
            require(at, _U32.size, limit, "PrivateQueueIdentifier", _ELEMENT_SECTION)
            (number,) = _U32.unpack_from(data, at)
            at += _U32.size
        elements.append(FormatNameElement(type=FormatType(kind), guid=guid, private_id=number))
    return tuple(elements), at


def _parse_direct(data: bytes, at: int, limit: int) -> tuple[str, int]:
    """Parse a direct name at ``at`` up to its NUL; return it and the offset after the NUL.

    ``limit`` is the offset at which the elements end. An odd byte before it is ignored, because a
    WCHAR has two bytes. Raises :class:`RemoteProtocolError` if the NUL is missing,
    :class:`LimitExceededError` if the name is longer than DIRECT_NAME_WCHARS_MAX.
    """
    stop = min(limit, at + 2 * DIRECT_NAME_WCHARS_MAX)
    stop -= stop - at & 1
    text = data[at:stop].decode("utf-16-le", "surrogatepass")
    name, nul, _ = text.partition("\0")
    if not nul:
        if len(text) and stop - at == 2 * DIRECT_NAME_WCHARS_MAX:
            raise LimitExceededError(
                "DIRECT_NAME_WCHARS_MAX",
                DIRECT_NAME_WCHARS_MAX,
                (limit - at) // 2,
                section="[MS-MQMQ] 2.2.18.1.4.1",
            )
        raise RemoteProtocolError(
            "a direct name without the NUL that ends it", section="[MS-MQMQ] 2.2.18.1.4.1"
        )
    return name, at + len(name.encode("utf-16-le", "surrogatepass")) + 2
