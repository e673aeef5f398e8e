"""Fuzzes the decoder of PGM packets.

The checksum would reveal nearly every change of a packet. So the checksum is corrected before the
packet is decoded, as an attacker would do.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.pgm.wire import addresses, decoder, encoder, options, packets
from srmp_spark.pgm.wire.addresses import Tsi, nla_of
from srmp_spark.pgm.wire.checksum import checksum, sum_of
from srmp_spark.pgm.wire.decoder import decode
from srmp_spark.pgm.wire.encoder import encode
from srmp_spark.pgm.wire.packets import (
    Data,
    Fragment,
    Nak,
    Options,
    PacketType,
    Poll,
    Polr,
    Reset,
    Spm,
    Spmr,
)
from tests.kit.fuzz.judge import Outcome, Target, ViolationError

REASON_MAX = 200
"""Most characters of a refusal. It must be one short line that never contains the payload."""
SECTION = "RFC 3208 "
SAMPLES = "openpgm_packets.txt"

TOKENS = (
    b"\x00\x04\x00\x08",
    b"\x00\x04\x00\x14",
    b"\x00\x04\xff\xff",
    b"\x8e\x04\x00\x00",
    b"\x0e\x04\x00\x00",
    b"\x8f\x04\x00\x40",
    b"\x03\x08\x00\x00\x00\x00\x00\x01",
    b"\x83\x08\x00\x00\x00\x00\x00\x01",
    b"\x8d\x04\x00\x00",
    b"\x81\x10\x00\x00",
    b"\x01\x10\x00\x00",
    b"\x81\x0c\x00\x00",
    b"\x82\x08\x00\x00\x00\x00\x00\x09",
    b"\x82\xfc\x00\x00",
    b"\x82\x04\x00\x00",
    b"\xa1\x04\x00\x00",
    b"\x21\x08\x00\x00zzzz",
    b"\x00\x01\x00\x00",
    b"\x00\x02\x00\x00",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x00\x00\x0b\xb8",
)
"""Options, address families, and numbers at the limits of lengths and windows."""


def written() -> list[bytes]:
    """Return one encoded packet of each type and form that OpenPGM does not send."""
    tsi, port, source, group = (
        Tsi(b"\x0a\x0b\x0c\x0d\x0e\x0f", 0x1234),
        7500,
        nla_of("10.99.0.1"),
        nla_of("239.192.9.1"),
    )
    six = nla_of("2001:db8::7")
    return [
        encode(packet)
        for packet in (
            Spm(tsi, port, 7, 10, 20, six, Options(join=11, fin=True, reset=Reset(True, 9))),
            Data(False, tsi, port, 20, 10, b"hello"),
            Data(
                True,
                tsi,
                port,
                20,
                10,
                b"hello",
                Options(fragment=Fragment(20, 0, 9), syn=True, fin=True),
            ),
            Nak(PacketType.NNAK, tsi, port, 12, six, six, Options(nak_list=(13, 14, 15))),
            Spmr(tsi, port),
            Poll(tsi, port, 1, 2, 0, source, 250_000, 0xDEADBEEF, 0xFF),
            Polr(tsi, port, 1, 2),
            Nak(PacketType.NCF, tsi, port, 12, source, group),
        )
    ]


def seeds(directory: Path) -> list[bytes]:
    """Return the valid packets: those of OpenPGM in ``directory``, and those of :func:`written`.

    ``directory`` is ``tests/data/pgm``.
    """
    return [
        bytes.fromhex(line.split()[1]) for line in (directory / SAMPLES).read_text().splitlines()
    ] + written()


def summed(packet: bytes) -> bytes:
    """Return ``packet`` with a correct checksum.

    A packet of less than 8 bytes is returned as it is.
    """
    if len(packet) < 8:
        return packet
    return (
        packet[:6]
        + checksum(sum_of(packet[:6] + b"\0\0" + packet[8:])).to_bytes(2, "big")
        + packet[8:]
    )


def parse(data: bytes) -> Outcome:
    """Decode one packet after correcting its checksum."""
    try:
        return Outcome(True, decode(summed(data)))
    except RemoteProtocolError as error:
        text = str(error)
        if (
            not error.section.startswith(SECTION)
            or len(text) > REASON_MAX
            or not text.isprintable()
        ):
            raise ViolationError(
                f"a refusal that cannot be told: {error.section!r} {text[:200]!r}"
            ) from None
        return Outcome(False, text)


def check(data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check that an accepted packet can be encoded and is decoded again as the same packet.

    With its original checksum the packet must be refused, or be decoded as the same packet.
    """
    if outcome.accepted and decode(encode(outcome.value)) != outcome.value:
        raise ViolationError(
            f"written and read again: {decode(encode(outcome.value))}, before: {outcome.value}"
        )
    try:
        as_it_is = decode(data)
    except RemoteProtocolError:
        return
    if not outcome.accepted or as_it_is != outcome.value:
        raise ViolationError(
            f"{as_it_is} with the checksum it had, {outcome.value} with the right one"
        )


def target(directory: Path) -> Target:
    """Return the target of this module. ``directory`` is ``tests/data/pgm``."""
    files = frozenset(
        str(module.__file__) for module in (addresses, decoder, encoder, options, packets)
    )
    return Target("pgm", seeds(directory), TOKENS, parse, check, files)
