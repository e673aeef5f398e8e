"""What the tests of PGM share: a session, its addresses, and the packets that OpenPGM sent."""

from __future__ import annotations

from pathlib import Path

from srmp_spark.pgm.addresses import Tsi, nla_of

TSI = Tsi(bytes.fromhex("0a0b0c0d0e0f"), 0x1234)
DPORT = 7500
SOURCE, GROUP, RECEIVER = nla_of("10.99.0.1"), nla_of("239.192.9.1"), nla_of("10.99.0.2")
SAMPLES = Path(__file__).resolve().parents[1] / "data" / "pgm" / "openpgm_packets.txt"


def samples() -> dict[str, bytes]:
    """Name → packet."""
    lines = (line.split() for line in SAMPLES.read_text().splitlines())
    return {name: bytes.fromhex(text) for name, text in lines}
