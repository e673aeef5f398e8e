"""The headers after the UserMessage in a packet of a remote read ([MS-MQRR] 2.2.5.2 to 2.2.5.5).

SubqueueHeader and ExtendedAddressHeader "MUST" be present. Windows Server 2003 sends no trailer at
all ([MS-MQRR] <5>). Packets seen since then have an ExtensionHeader with Flags 0 or 2. So the
parser follows only HeaderSize and Flags.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.packets.host_address import HostAddress, parse_host_address
from srmp_spark.mqrr.packets.limits import NAMES_REMEMBERED, SUBQUEUE_NAME_SIZE, U16_MAX, U32_MAX
from srmp_spark.mqrr.packets.wire import fits, pad, padded, read_wchars, require, write_wchars

EXTENSION_SIZE, SUBQUEUE_SIZE, EXTENDED_ADDRESS_SIZE = 12, 148, 28

_DL, _SQ, _DI, _EA = 0x01, 0x02, 0x08, 0x10
_EXTENSION = Struct("<IIB3x")
_SUBQUEUE = Struct("<IIIII")
_U32 = Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubqueueHeader:
    """The subqueue of one message that was moved or is being moved.

    Ignore the header if ``subqueue_name`` is empty.
    """

    acknowledgement_class: int = 0
    """Bits 1 to 16 of its field, if the diagram is literal (bit 0 is TM, always 0).

    No packet with a value is public.
    """
    abort_counter: int = 0
    move_counter: int = 0
    last_move_time: int = 0
    """"Milliseconds since 1970" in 32 bits.

    The number wraps around every 49.7 days, so it gives no moment and is kept as a number.
    """
    subqueue_name: str = ""
    target_subqueue_name: str = ""

    def encode(self) -> bytes:
        """Encode the 148 bytes of the header.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        head = _SUBQUEUE.pack(
            SUBQUEUE_SIZE,
            fits(self.acknowledgement_class, U16_MAX, "AcknowledgementClass") << 1,
            fits(self.abort_counter, U32_MAX, "AbortCounter"),
            fits(self.move_counter, U32_MAX, "MoveCounter"),
            fits(self.last_move_time, U32_MAX, "LastMoveTime"),
        )
        return (
            head
            + _encode_subqueue_name(self.subqueue_name)
            + _encode_subqueue_name(self.target_subqueue_name)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterHeader:
    """The dead-letter queue that the application requested for one message."""

    path_name: str

    def encode(self) -> bytes:
        """Encode the header, padded with zeros.

        Raises :class:`LocalProtocolError` if the name does not fit into the header.
        """
        name = pad(write_wchars(self.path_name))
        return _U32.pack(fits(_U32.size + len(name), U32_MAX, "HeaderSize")) + name


@dataclass(frozen=True, slots=True, kw_only=True)
class Trailers:
    """The ExtensionHeader of one packet and the headers that it announces (``None``: absent)."""

    dead_letter_queue_invalid: bool = False
    """Bit DI: the dead-letter queue is invalid. The bit has a meaning only with a DeadLetterHeader.
    """
    subqueue: SubqueueHeader | None = None
    dead_letter: DeadLetterHeader | None = None
    received_from: HostAddress | None = None
    """The ExtendedAddressHeader. Ignore the address if its type is 0."""

    def encode(self) -> bytes:
        """Encode all trailers in the order of the document.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        flags = self.dead_letter_queue_invalid * _DI
        parts = []
        if self.subqueue is not None:
            flags |= _SQ
            parts.append(self.subqueue.encode())
        if self.dead_letter is not None:
            flags |= _DL
            parts.append(self.dead_letter.encode())
        if self.received_from is not None:
            flags |= _EA
            parts.append(_U32.pack(EXTENDED_ADDRESS_SIZE) + self.received_from.encode(16))
        following = b"".join(parts)
        return (
            _EXTENSION.pack(
                EXTENSION_SIZE, fits(len(following), U32_MAX, "RemainingHeadersSize"), flags
            )
            + following
        )


def begins_trailers(data: bytes, at: int, end: int) -> bool:
    """Return whether an ExtensionHeader can begin at ``at``, or the packet ends there.

    The function looks for the size of an ExtensionHeader.
    """
    return at == end or (
        at + EXTENSION_SIZE <= end and _U32.unpack_from(data, at)[0] == EXTENSION_SIZE
    )


def parse_trailers(data: bytes, at: int, end: int) -> tuple[Trailers, int]:
    """Parse the trailers that begin at ``at``; return the trailers and the offset of their end.

    Each header may be larger than this code expects: later versions append fields, and HeaderSize
    says how many bytes. Raises :class:`RemoteProtocolError` if a header is smaller than expected or
    larger than the bytes that are left.
    """
    start = at
    require(at, EXTENSION_SIZE, end, "ExtensionHeader", "[MS-MQRR] 2.2.5.2")
    size, remaining, flags = _EXTENSION.unpack_from(data, at)
    at += _header_size(size, EXTENSION_SIZE, at, end, "ExtensionHeader", "[MS-MQRR] 2.2.5.2")
    require(at, remaining, end, "RemainingHeadersSize", "[MS-MQRR] 2.2.5.2")
    end = at + remaining
    subqueue = dead_letter = received_from = None
    if flags & _SQ:
        subqueue, at = _parse_subqueue(data, at, end)
    if flags & _DL:
        dead_letter, at = _parse_dead_letter(data, at, end)
    if flags & _EA:
        require(at, EXTENDED_ADDRESS_SIZE, end, "ExtendedAddressHeader", "[MS-MQRR] 2.2.5.5")
        received_from = parse_host_address(data[at + _U32.size : at + EXTENDED_ADDRESS_SIZE])
        (size,) = _U32.unpack_from(data, at)
        at += _header_size(
            size, EXTENDED_ADDRESS_SIZE, at, end, "ExtendedAddressHeader", "[MS-MQRR] 2.2.5.5"
        )
    trailers = Trailers(
        dead_letter_queue_invalid=bool(flags & _DI),
        subqueue=subqueue,
        dead_letter=dead_letter,
        received_from=received_from,
    )
    assert start < at <= end, "a header ended outside of what it was given"
    return trailers, end


def _header_size(size: int, least: int, at: int, end: int, what: str, section: str) -> int:
    if size < least:
        raise RemoteProtocolError(
            f"{what} says it has {size} bytes and needs {least}", section=section
        )
    require(at, size, end, what, section)
    return size


def _parse_subqueue(data: bytes, at: int, end: int) -> tuple[SubqueueHeader, int]:
    section = "[MS-MQRR] 2.2.5.3"
    require(at, SUBQUEUE_SIZE, end, "SubqueueHeader", section)
    size, flags, abort_counter, move_counter, last_move_time = _SUBQUEUE.unpack_from(data, at)
    names = at + _SUBQUEUE.size
    header = SubqueueHeader(
        acknowledgement_class=flags >> 1 & U16_MAX,
        abort_counter=abort_counter,
        move_counter=move_counter,
        last_move_time=last_move_time,
        subqueue_name=read_wchars(data, names, SUBQUEUE_NAME_SIZE // 2),
        target_subqueue_name=read_wchars(data, names + SUBQUEUE_NAME_SIZE, SUBQUEUE_NAME_SIZE // 2),
    )
    return header, at + _header_size(size, SUBQUEUE_SIZE, at, end, "SubqueueHeader", section)


def _parse_dead_letter(data: bytes, at: int, end: int) -> tuple[DeadLetterHeader, int]:
    section = "[MS-MQRR] 2.2.5.4"
    require(at, _U32.size, end, "DeadLetterHeader", section)
    (size,) = _U32.unpack_from(data, at)
    _header_size(size, _U32.size, at, end, "DeadLetterHeader", section)
    name = read_wchars(data, at + _U32.size, (size - _U32.size) // 2)
    return DeadLetterHeader(path_name=name), min(at + padded(size), end)


@lru_cache(NAMES_REMEMBERED)
def _encode_subqueue_name(name: str) -> bytes:
    data = write_wchars(name)
    if len(data) > SUBQUEUE_NAME_SIZE:
        raise LocalProtocolError(
            f"a subqueue name has at most {SUBQUEUE_NAME_SIZE // 2 - 1} characters: {name[:80]!r}"
        )
    return data.ljust(SUBQUEUE_NAME_SIZE, b"\0")
