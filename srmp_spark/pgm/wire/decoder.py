"""Decodes a packet from octets (RFC 3208 8).

The checksum is verified first, because a damaged packet has no meaning. Data without a checksum are
refused ("The checksum is mandatory on data packets"); other packets may have none. TSDU Length must
be the number of octets after the options of a data packet. Other packets carry no data: their TSDU
Length and any octets after the packet are ignored.
"""

from __future__ import annotations

from struct import Struct

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.pgm.wire.addresses import Nla, Tsi
from srmp_spark.pgm.wire.checksum import is_good, sum_of
from srmp_spark.pgm.wire.limits import TPDU_MAX, TXW_SQNS_MAX
from srmp_spark.pgm.wire.options import OPT_PARITY, OPT_PRESENT, read_options
from srmp_spark.pgm.wire.packets import (
    NO_OPTIONS,
    Data,
    Nak,
    Options,
    Packet,
    PacketType,
    Poll,
    Polr,
    Spm,
    Spmr,
)
from srmp_spark.pgm.wire.sequence import SPACE, span

HEADER = Struct("!HHBBH6sH")
"""Layout of the common header of all packets.

The fields are source port, destination port, type, options, checksum, global source identifier and
TSDU length.
"""
SPM_FIELDS = Struct("!III")
DATA_FIELDS = Struct("!II")
DATA_HEADER = Struct("!HHBBH6sHII")
"""Layout of the common header and the fields of a data packet together."""
NUMBER_FIELD = Struct("!I")
NLA_FIELDS = Struct("!HH")
"""Layout before an address: address family identifier (NLA AFI) and a reserved half word."""
POLL_FIELDS = Struct("!IHH")
POLL_END_FIELDS = Struct("!III")
POLR_FIELDS = Struct("!IHH")

_NUMBERS = SPACE - 1
_DATA_AT = HEADER.size + DATA_FIELDS.size
AFI_LENGTHS = {1: 4, 2: 16}
"""Length of an NLA in octets, by address family: IPv4 and IPv6."""
UPSTREAM = (PacketType.NAK, PacketType.NNAK, PacketType.SPMR, PacketType.POLR)
"""Types of packets that receivers send to a source.

They have source and destination port in the opposite order.
"""
_KINDS = {int(kind): kind for kind in PacketType}
_ODATA, _RDATA = int(PacketType.ODATA), int(PacketType.RDATA)
_DATA = (_ODATA, _RDATA)
_TYPE_AT = 4


def decode(packet: bytes) -> Packet:
    """Decode ``packet``, which has no IP or UDP header, and return its values.

    Raises :class:`RemoteProtocolError` if the packet is invalid, and its subclass
    :class:`LimitExceededError` if a limit is exceeded.
    """
    if len(packet) < HEADER.size:
        raise RemoteProtocolError(f"{len(packet)} octets are no PGM header", section="RFC 3208 8")
    if len(packet) > TPDU_MAX:
        raise LimitExceededError("TPDU_MAX", TPDU_MAX, len(packet), section="RFC 3208 8")
    # Nearly all packets are data packets.
    if len(packet) >= _DATA_AT and packet[_TYPE_AT] in _DATA:
        return _data(packet)
    source_port, destination_port, type_field, options, checksum, gsi, _ = HEADER.unpack_from(
        packet
    )
    if checksum and not is_good(packet):
        raise RemoteProtocolError("the checksum is wrong", section="RFC 3208 8")
    kind = _KINDS.get(type_field)
    if kind is None:
        raise RemoteProtocolError(f"type 0x{type_field:02x} is unknown", section="RFC 3208 8")
    if options & OPT_PARITY:
        raise RemoteProtocolError(
            "parity packets are not part of it ([MC-MQSRM] 2.1.3)", section="RFC 3208 11"
        )
    has_options = bool(options & OPT_PRESENT)
    if kind in _DATA:
        raise RemoteProtocolError(
            f"{kind.name} of {len(packet)} octets is cut short", section="RFC 3208 8"
        )
    if kind in UPSTREAM:
        source_port, destination_port = destination_port, source_port
    tsi = Tsi(gsi, source_port)
    if kind is PacketType.SPM:
        return _spm(packet, tsi, destination_port, has_options)
    if kind is PacketType.POLL:
        return _poll(packet, tsi, destination_port, has_options)
    if kind is PacketType.POLR:
        number, round_number, _ = POLR_FIELDS.unpack_from(
            packet, _room(packet, HEADER.size, POLR_FIELDS.size, kind)
        )
        _rest(packet, HEADER.size + POLR_FIELDS.size, kind, has_options)
        return Polr(tsi, destination_port, number, round_number)
    if kind is PacketType.SPMR:
        _rest(packet, HEADER.size, kind, has_options)
        return Spmr(tsi, destination_port)
    return _nak(packet, kind, tsi, destination_port, has_options)


def _room(packet: bytes, at: int, size: int, kind: PacketType) -> int:
    """Return ``at`` if ``size`` octets of the packet begin at that offset.

    Raises :class:`RemoteProtocolError` if the packet is too short.
    """
    if len(packet) - at < size:
        raise RemoteProtocolError(
            f"{kind.name} of {len(packet)} octets is cut short", section="RFC 3208 8"
        )
    return at


def _rest(packet: bytes, at: int, kind: PacketType, has_options: bool) -> Options:
    return read_options(packet, at, kind)[0] if has_options else NO_OPTIONS


def _nla(packet: bytes, at: int, kind: PacketType) -> tuple[Nla, int]:
    afi, _ = NLA_FIELDS.unpack_from(packet, _room(packet, at, NLA_FIELDS.size, kind))
    length = AFI_LENGTHS.get(afi)
    if length is None:
        raise RemoteProtocolError(
            f"address family {afi} is neither IPv4 nor IPv6", section="RFC 3208 8"
        )
    at = _room(packet, at + NLA_FIELDS.size, length, kind)
    return packet[at : at + length], at + length


def _data(packet: bytes) -> Data:
    """Decode ODATA or RDATA, reading the header once.

    The function must be fast, because a stream has about ten thousand data packets a second. Raises
    :class:`RemoteProtocolError` if the packet is invalid, or a subclass if a limit is exceeded.
    """
    source_port, destination_port, kind, bits, checksum, gsi, tsdu_length, number, trail = (
        DATA_HEADER.unpack_from(packet)
    )
    if sum_of(packet) and checksum:
        raise RemoteProtocolError("the checksum is wrong", section="RFC 3208 8")
    if bits & OPT_PARITY:
        raise RemoteProtocolError(
            "parity packets are not part of it ([MC-MQSRM] 2.1.3)", section="RFC 3208 11"
        )
    if not checksum:
        raise RemoteProtocolError("data without a checksum", section="RFC 3208 8")
    at, options = _DATA_AT, NO_OPTIONS
    if bits & OPT_PRESENT:
        options, at = read_options(packet, at, _KINDS[kind])
    payload = packet[at:]
    if len(payload) != tsdu_length:
        raise RemoteProtocolError(
            f"TSDU Length says {tsdu_length}, {len(payload)} octets are left", section="RFC 3208 8"
        )
    if (number - trail) & _NUMBERS >= TXW_SQNS_MAX:
        raise RemoteProtocolError(
            f"number {number} lies outside the window that begins at {trail}",
            section="RFC 3208 3.3",
        )
    fragment = options.fragment
    if fragment is not None:
        if len(payload) > fragment.length:
            raise RemoteProtocolError(
                f"a fragment is longer than its APDU: {fragment}", section="RFC 3208 9.2.3"
            )
        if not payload and fragment.length:
            raise RemoteProtocolError("a fragment without data", section="RFC 3208 9.2.3")
    return Data(
        kind == _RDATA, Tsi(gsi, source_port), destination_port, number, trail, payload, options
    )


def _spm(packet: bytes, tsi: Tsi, destination_port: int, has_options: bool) -> Spm:
    kind = PacketType.SPM
    number, trail, lead = SPM_FIELDS.unpack_from(
        packet, _room(packet, HEADER.size, SPM_FIELDS.size, kind)
    )
    path, at = _nla(packet, HEADER.size + SPM_FIELDS.size, kind)
    spm = Spm(
        tsi, destination_port, number, trail, lead, path, _rest(packet, at, kind, has_options)
    )
    if spm.has_window and span(trail, lead) > TXW_SQNS_MAX:
        raise RemoteProtocolError(
            f"a window from {trail} to {lead} is none", section="RFC 3208 3.3"
        )
    return spm


def _nak(
    packet: bytes, kind: PacketType, tsi: Tsi, destination_port: int, has_options: bool
) -> Nak:
    (number,) = NUMBER_FIELD.unpack_from(
        packet, _room(packet, HEADER.size, NUMBER_FIELD.size, kind)
    )
    source, at = _nla(packet, HEADER.size + NUMBER_FIELD.size, kind)
    group, at = _nla(packet, at, kind)
    return Nak(
        kind, tsi, destination_port, number, source, group, _rest(packet, at, kind, has_options)
    )


def _poll(packet: bytes, tsi: Tsi, destination_port: int, has_options: bool) -> Poll:
    kind = PacketType.POLL
    number, round_number, sub_type = POLL_FIELDS.unpack_from(
        packet, _room(packet, HEADER.size, POLL_FIELDS.size, kind)
    )
    path, at = _nla(packet, HEADER.size + POLL_FIELDS.size, kind)
    back_off_us, random, mask = POLL_END_FIELDS.unpack_from(
        packet, _room(packet, at, POLL_END_FIELDS.size, kind)
    )
    _rest(packet, at + POLL_END_FIELDS.size, kind, has_options)
    return Poll(
        tsi, destination_port, number, round_number, sub_type, path, back_off_us, random, mask
    )
