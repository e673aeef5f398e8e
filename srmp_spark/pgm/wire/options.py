"""Option extensions (RFC 3208 9): type, length and value after the header of a packet.

Every length is hostile. Each step is checked against three bounds: the packet's end, the total that
OPT_LENGTH states, and the option's own length. Nothing is read before it is known to lie inside all
three, and no length is subtracted from another one unchecked (CVE-2023-28250 was such an
underflow).

In these points this code is stricter than necessary. OPT_LENGTH is the first option (9.1, a MUST;
OpenPGM asserts it). The option with OPT_END ends where OPT_LENGTH says (9.1). No known option
occurs twice. Otherwise two readers could disagree about where the data begin. In these points it is
more tolerant: unknown options, and known options in a packet in which they have no meaning, are
ignored. Reserved bits are ignored too, because OpenPGM leaves them uninitialised.

The RFC's 9.2.4 says "Option Length = 12 octets" of OPT_FRAGMENT and draws 16; OpenPGM and Wireshark
use 16.
"""

from __future__ import annotations

from struct import Struct

from srmp_spark.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from srmp_spark.pgm.wire.limits import NAK_LIST_MAX, OPTIONS_MAX, RESET_ERROR_MAX
from srmp_spark.pgm.wire.packets import Fragment, Options, PacketType, Reset

OPT_PRESENT = 0x01
"""Bit of the header's Options field: the packet has options.

The RFC numbers bits from the left and calls it bit 0. All implementations of PGM use 0x01, and 0x80
for bit 7, OPT_PARITY.
"""
OPT_NETWORK = 0x02
OPT_PARITY = 0x80

OPT_END = 0x80
"""Bit of the Option Type field that marks the last option."""
OPT_LENGTH = 0x00
OPT_FRAGMENT = 0x01
OPT_NAK_LIST = 0x02
OPT_JOIN = 0x03
OPT_SYN = 0x0D
OPT_FIN = 0x0E
OPT_RST = 0x0F

_DATA = (PacketType.ODATA, PacketType.RDATA)
_MEANT_FOR: dict[int, frozenset[PacketType]] = {
    OPT_FRAGMENT: frozenset(_DATA),
    OPT_NAK_LIST: frozenset((PacketType.NAK, PacketType.NNAK, PacketType.NCF)),
    OPT_JOIN: frozenset((PacketType.SPM, *_DATA)),
    OPT_SYN: frozenset(_DATA),
    OPT_FIN: frozenset((PacketType.SPM, *_DATA)),
    OPT_RST: frozenset((PacketType.SPM,)),
}
_EXACTLY = {OPT_FRAGMENT: 16, OPT_JOIN: 8, OPT_SYN: 4, OPT_FIN: 4, OPT_RST: 4}
"""Option Length in octets of each option with a fixed length."""

_FIRST = Struct("!BBH")
_GENERAL = Struct("!BBH")
"""Layout of an option's beginning: type, length, and 16 bits.

The bits are reserved ones, F, OPX, U and bits that depend on the option.
"""
_FRAGMENT = Struct("!III")
_ONE_FRAGMENT = Struct("!BBHBBHIII")
_FRAGMENT_ALONE = bytes((OPT_LENGTH, 4, 0, _ONE_FRAGMENT.size, OPT_FRAGMENT | OPT_END, 16))
"""First bytes of options that consist of OPT_FRAGMENT alone; all their lengths are fixed."""
_NUMBER = Struct("!I")
_N_BIT = 0x40


def _refuse(what: str, section: str = "RFC 3208 9") -> RemoteProtocolError:
    return RemoteProtocolError(what, section=section)


def read_options(packet: bytes, at: int, kind: PacketType) -> tuple[Options, int]:
    """Parse the options that begin at offset ``at``; return (options, offset of their end).

    Options without a meaning in a packet of ``kind`` are ignored. Raises
    :class:`RemoteProtocolError` if lengths contradict each other, an option occurs twice or
    OPT_LENGTH or OPT_END is missing. Raises :class:`LimitExceededError` if a limit is exceeded.
    """
    if (
        packet[at : at + 6] == _FRAGMENT_ALONE
        and kind in _DATA
        and len(packet) - at >= _ONE_FRAGMENT.size
    ):
        # Nearly all packets with options have OPT_FRAGMENT alone.
        return (
            Options(Fragment(*_FRAGMENT.unpack_from(packet, at + 8))),
            at + _ONE_FRAGMENT.size,
        )
    if len(packet) - at < 4:
        raise _refuse("no room for OPT_LENGTH", "RFC 3208 9.1")
    first, length, total = _FIRST.unpack_from(packet, at)
    if first != OPT_LENGTH or length != 4:
        raise _refuse("the first option is not OPT_LENGTH", "RFC 3208 9.1")
    if total < 8 or total > len(packet) - at:
        raise _refuse(
            f"OPT_LENGTH says {total} octets, {len(packet) - at} are left", "RFC 3208 9.1"
        )
    end = at + total
    at += 4
    found: dict[int, tuple[int, int, int]] = {}
    count = 1
    is_last = False
    while not is_last:
        count += 1
        if count > OPTIONS_MAX:
            raise LimitExceededError("OPTIONS_MAX", OPTIONS_MAX, count, section="RFC 3208 9")
        if end - at < 4:
            raise _refuse("the options end without OPT_END", "RFC 3208 9.1")
        number, length, flags = _GENERAL.unpack_from(packet, at)
        is_last = bool(number & OPT_END)
        number &= OPT_END - 1
        if length < 4 or length > end - at:
            raise _refuse(f"option 0x{number:02x} has length {length}, {end - at} octets are left")
        if kind in _MEANT_FOR.get(number, ()):
            if number in found:
                raise _refuse(f"option 0x{number:02x} comes twice")
            if length != _EXACTLY.get(number, length):
                raise _refuse(f"option 0x{number:02x} has length {length}, not {_EXACTLY[number]}")
            found[number] = (at + 4, length - 4, flags)
        at += length
    if at != end:
        raise _refuse(
            f"OPT_END comes {end - at} octets before the end that OPT_LENGTH says", "RFC 3208 9.1"
        )
    return _options(packet, found), end


def _options(packet: bytes, found: dict[int, tuple[int, int, int]]) -> Options:
    fragment: Fragment | None = None
    if OPT_FRAGMENT in found:
        fragment = Fragment(*_FRAGMENT.unpack_from(packet, found[OPT_FRAGMENT][0]))
    join = _NUMBER.unpack_from(packet, found[OPT_JOIN][0])[0] if OPT_JOIN in found else None
    reset: Reset | None = None
    if OPT_RST in found:
        flags = found[OPT_RST][2]
        reset = Reset(bool(flags & _N_BIT), flags & RESET_ERROR_MAX)
    nak_list = _nak_list(packet, *found[OPT_NAK_LIST][:2]) if OPT_NAK_LIST in found else ()
    return Options(fragment, nak_list, join, OPT_SYN in found, OPT_FIN in found, reset)


def _nak_list(packet: bytes, at: int, length: int) -> tuple[int, ...]:
    if length % 4 or not length:
        raise _refuse(f"OPT_NAK_LIST has {length} octets of sequence numbers", "RFC 3208 9.3.5")
    if length // 4 > NAK_LIST_MAX:
        raise LimitExceededError("NAK_LIST_MAX", NAK_LIST_MAX, length // 4, section="RFC 3208 9.3")
    return tuple(number for (number,) in _NUMBER.iter_unpack(packet[at : at + length]))


def write_fragment(fragment: Fragment) -> bytes:
    """Encode OPT_FRAGMENT as the only option of a packet, and return the octets.

    Raises :class:`struct.error` if a number does not fit.
    """
    return _ONE_FRAGMENT.pack(
        OPT_LENGTH, 4, _ONE_FRAGMENT.size, OPT_FRAGMENT | OPT_END, 16, 0, *fragment
    )


def write_options(options: Options, kind: PacketType) -> tuple[int, bytes]:
    """Encode ``options``; return the bits of the header's Options field and the octets.

    Both are 0 and empty without options. Network-significant options are first (9.1). Raises
    :class:`LocalProtocolError` if an option does not belong to a packet of ``kind``, or if a list
    or error code exceeds its limit, and :class:`struct.error` if a number does not fit.
    """
    parts: list[tuple[int, int, bytes]] = []
    bits = OPT_PRESENT
    if options.nak_list:
        if len(options.nak_list) > NAK_LIST_MAX:
            raise LocalProtocolError(f"NAK_LIST_MAX is {NAK_LIST_MAX}, got {len(options.nak_list)}")
        bits |= OPT_NETWORK
        parts.append((OPT_NAK_LIST, 0, b"".join(map(_NUMBER.pack, options.nak_list))))
    if options.fragment is not None:
        parts.append((OPT_FRAGMENT, 0, _FRAGMENT.pack(*options.fragment)))
    if options.join is not None:
        parts.append((OPT_JOIN, 0, _NUMBER.pack(options.join)))
    if options.syn:
        parts.append((OPT_SYN, 0, b""))
    if options.fin:
        parts.append((OPT_FIN, 0, b""))
    if options.reset is not None:
        no_naks, error_code = options.reset
        if not 0 <= error_code <= RESET_ERROR_MAX:
            raise LocalProtocolError(f"RESET_ERROR_MAX is {RESET_ERROR_MAX}, got {error_code}")
        parts.append((OPT_RST, (_N_BIT if no_naks else 0) | error_code, b""))
    for number, _, _ in parts:
        if kind not in _MEANT_FOR[number]:
            raise LocalProtocolError(f"option 0x{number:02x} does not belong on {kind.name}")
    if not parts:
        return 0, b""
    written = b"".join(
        _GENERAL.pack(number | (OPT_END if place == len(parts) else 0), 4 + len(value), flags)
        + value
        for place, (number, flags, value) in enumerate(parts, 1)
    )
    return bits, _FIRST.pack(OPT_LENGTH, 4, 4 + len(written)) + written
