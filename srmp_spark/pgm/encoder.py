"""From a packet to octets (RFC 3208 8). Always with a checksum: OpenPGM drops data without one.

Raises :class:`LocalProtocolError` for what no packet can hold; nothing that :func:`~srmp_spark.pgm.decoder.decode` gave out is
refused.
"""

from __future__ import annotations

import struct

from srmp_spark.errors import LocalProtocolError
from srmp_spark.pgm.addresses import GSI_LENGTH, Nla, Tsi
from srmp_spark.pgm.checksum import checksum, sum_of
from srmp_spark.pgm.decoder import (
    AFI_LENGTHS,
    DATA_FIELDS,
    HEADER,
    NLA_FIELDS,
    NUMBER_FIELD,
    POLL_END_FIELDS,
    POLL_FIELDS,
    POLR_FIELDS,
    SPM_FIELDS,
    UPSTREAM,
)
from srmp_spark.pgm.limits import TPDU_MAX
from srmp_spark.pgm.options import write_options
from srmp_spark.pgm.packets import NO_OPTIONS, Data, Nak, Options, Packet, PacketType, Poll, Polr, Spm, Spmr

_AFIS = {length: afi for afi, length in AFI_LENGTHS.items()}


def encode(packet: Packet) -> bytes:
    """``packet`` as it goes behind an IP or UDP header."""
    try:
        if isinstance(packet, Data):
            return encode_data(packet, sum_of(packet.payload))
        kind, fields, options = _fields(packet)
        return _written(kind, packet.tsi, packet.destination_port, fields, options)
    except struct.error as error:
        raise LocalProtocolError(f"{packet!r} does not fit its fields: {error}") from None


def encode_data(packet: Data, payload_sum: int) -> bytes:
    """The same for data whose payload was summed before (:func:`~srmp_spark.pgm.checksum.sum_of`)."""
    kind = PacketType.RDATA if packet.is_repair else PacketType.ODATA
    fields = DATA_FIELDS.pack(packet.sequence_number, packet.trail)
    return _written(kind, packet.tsi, packet.destination_port, fields, packet.options, packet.payload, payload_sum)


def _fields(packet: Spm | Nak | Spmr | Poll | Polr) -> tuple[PacketType, bytes, Options]:
    if isinstance(packet, Spm):
        fields = SPM_FIELDS.pack(packet.sequence_number, packet.trail, packet.lead) + _nla(packet.path)
        return PacketType.SPM, fields, packet.options
    if isinstance(packet, Nak):
        fields = NUMBER_FIELD.pack(packet.sequence_number) + _nla(packet.source) + _nla(packet.group)
        return packet.type, fields, packet.options
    if isinstance(packet, Poll):
        fields = POLL_FIELDS.pack(packet.sequence_number, packet.round, packet.sub_type) + _nla(packet.path)
        return PacketType.POLL, fields + POLL_END_FIELDS.pack(packet.back_off_us, packet.random, packet.mask), NO_OPTIONS
    if isinstance(packet, Polr):
        return PacketType.POLR, POLR_FIELDS.pack(packet.sequence_number, packet.round, 0), NO_OPTIONS
    return PacketType.SPMR, b"", NO_OPTIONS


def _nla(nla: Nla) -> bytes:
    if len(nla) not in _AFIS:
        raise LocalProtocolError(f"an address of {len(nla)} octets is neither IPv4 nor IPv6")
    return NLA_FIELDS.pack(_AFIS[len(nla)], 0) + nla


def _written(
    kind: PacketType, tsi: Tsi, destination_port: int, fields: bytes, options: Options,
    payload: bytes = b"", payload_sum: int = 0,
) -> bytes:  # fmt: skip
    if len(tsi.gsi) != GSI_LENGTH:
        raise LocalProtocolError(f"a global source identifier has {GSI_LENGTH} octets, not {len(tsi.gsi)}")
    bits, extensions = (0, b"") if options is NO_OPTIONS else write_options(options, kind)
    ports = (tsi.source_port, destination_port)
    first, second = ports[::-1] if kind in UPSTREAM else ports
    header = HEADER.pack(first, second, kind, bits, 0, tsi.gsi, len(payload)) + fields + extensions
    if len(header) + len(payload) > TPDU_MAX:
        raise LocalProtocolError(f"TPDU_MAX is {TPDU_MAX}, got {len(header) + len(payload)}")
    total = checksum(sum_of(header) + payload_sum)
    return b"".join((header[:6], total.to_bytes(2, "big"), header[8:], payload))
