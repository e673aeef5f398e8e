"""What the tests of PGM share: a session, its addresses, and the packets that OpenPGM sent."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from srmp_spark.pgm.outputs import (
    Apdu,
    DataLost,
    Multicast,
    Output,
    SessionEnded,
    SessionOpened,
    Unicast,
)
from srmp_spark.pgm.receiving.receiver import PgmReceiver
from srmp_spark.pgm.sending.source import PgmSource
from srmp_spark.pgm.settings import PgmReceiverSettings, PgmSourceSettings
from srmp_spark.pgm.wire.addresses import Tsi, nla_of
from srmp_spark.pgm.wire.decoder import decode
from srmp_spark.pgm.wire.packets import NO_OPTIONS, Data, Nak, Options, Packet, PacketType, Spm
from srmp_spark.pgm.wire.sequence import wrap

TSI = Tsi(bytes.fromhex("0a0b0c0d0e0f"), 0x1234)
DPORT = 7500
SOURCE, GROUP, RECEIVER = nla_of("10.99.0.1"), nla_of("239.192.9.1"), nla_of("10.99.0.2")
OTHER = nla_of("10.99.0.3")
IPPROTO_PGM = 113
SAMPLES = Path(__file__).resolve().parents[1] / "data" / "pgm" / "openpgm_packets.txt"


def samples() -> dict[str, bytes]:
    """Name → packet."""
    lines = (line.split() for line in SAMPLES.read_text().splitlines())
    return {name: bytes.fromhex(text) for name, text in lines}


def captured() -> Iterator[tuple[float, bytes, bytes]]:
    """(time, source address, PGM packet) of a session that OpenPGM sent: little-endian pcap, Ethernet, IPv4."""
    octets, at = (SAMPLES.parent / "openpgm_session.pcap").read_bytes(), 24
    while at < len(octets):
        seconds, micros, length, _ = struct.unpack_from("<IIII", octets, at)
        ip = octets[at + 16 + 14 : at + 16 + length]
        if ip[9] == IPPROTO_PGM:
            total = int.from_bytes(ip[2:4], "big")
            yield seconds + micros / 1e6, ip[12:16], ip[(ip[0] & 15) * 4 : total]
        at += 16 + length


class Sender:
    """A source on a clock that the test turns."""

    def __init__(self, *, first: int = 0, **settings: Any) -> None:
        self.now = 1000.0
        self.settings = PgmSourceSettings(**settings)
        self.source = PgmSource(
            TSI,
            DPORT,
            source=SOURCE,
            group=GROUP,
            now=self.now,
            settings=self.settings,
            first=first,
        )

    def says(self) -> list[Packet]:
        """What leaves now."""
        return [decode(out.packet) for out in self.source.poll(self.now)]

    def until(self, when: float) -> list[tuple[float, Packet]]:
        """What leaves until ``when``, with its time."""
        left = [(self.now, packet) for packet in self.says()]
        while (at := self.source.next_timer()) is not None and at <= when:
            assert at > self.now - 1e-9, "a timer in the past"
            self.now = max(self.now, at)
            left += [(self.now, packet) for packet in self.says()]
        self.now = when
        return left

    def hears(self, *numbers: int, kind: PacketType = PacketType.NAK, **more: Any) -> list[Packet]:
        """A NAK comes; what leaves at once."""
        options = Options(nak_list=numbers[1:]) if len(numbers) > 1 else NO_OPTIONS
        nak = Nak(kind, TSI, DPORT, numbers[0], SOURCE, GROUP, options)._replace(**more)
        return [decode(out.packet) for out in self.source.receive(nak, self.now)]


class Listener:
    """A receiver on a clock that the test turns; every back-off is the longest."""

    def __init__(self, **settings: Any) -> None:
        self.now = 1000.0
        self.settings = PgmReceiverSettings(**settings)
        self.receiver = PgmReceiver(DPORT, GROUP, lambda low, high: high, self.settings)
        self.spms = 0

    def hears(self, packet: Packet, source: bytes = SOURCE) -> list[Output]:
        """``packet`` comes; what it gives out."""
        return self.receiver.receive(packet, source, self.now)

    def odata(self, number: int, payload: bytes = b"", trail: int = 0, **more: Any) -> list[Output]:
        """ODATA ``number``."""
        payload = payload or b"apdu %d" % number
        return self.hears(Data(False, TSI, DPORT, number, trail, payload)._replace(**more))

    def spm(self, trail: int, lead: int, **more: Any) -> list[Output]:
        """The next SPM."""
        self.spms += 1
        return self.hears(Spm(TSI, DPORT, self.spms, trail, wrap(lead), SOURCE)._replace(**more))

    def ncf(self, *numbers: int, kind: PacketType = PacketType.NCF) -> list[Output]:
        """Numbers are confirmed by the source, or asked for by another receiver."""
        nak = Nak(kind, TSI, DPORT, numbers[0], SOURCE, GROUP, Options(nak_list=numbers[1:]))
        return self.hears(nak, SOURCE if kind is PacketType.NCF else OTHER)

    def until(self, when: float) -> list[tuple[float, Output]]:
        """What comes of time alone until ``when``: but the NAKs that are multicast beside those to the source."""
        out: list[tuple[float, Output]] = []
        while (at := self.receiver.next_timer()) is not None and at <= when:
            self.now = max(self.now, at)
            out += [
                (self.now, each)
                for each in self.receiver.poll(self.now)
                if not isinstance(each, Multicast)
            ]
        self.now = when
        return out

    def asks(self, seconds: float) -> list[tuple[float, tuple[int, ...]]]:
        """(how long after now, numbers) of each NAK of the next ``seconds``."""
        begin, found = self.now, []
        for at, output in self.until(begin + seconds):
            assert isinstance(output, Unicast), output
            nak = decode(output.packet)
            assert isinstance(nak, Nak)
            found.append((round(at - begin, 6), nak.numbers))
        return found


def told(outputs: list[Output]) -> list[Any]:
    """Events in short: an APDU's octets, a loss as (first, last, reason), another as its class."""
    short: list[Any] = []
    for output in outputs:
        if isinstance(output, Apdu):
            short.append(output.data)
        elif isinstance(output, DataLost):
            short.append((output.first, output.last, output.reason))
        elif isinstance(output, SessionEnded):
            short.append(output.reason)
        elif isinstance(output, SessionOpened):
            short.append(("from", output.first))
    return short


def listening(**settings: Any) -> Listener:
    """Joined before the first number, with an SPM."""
    listener = Listener(**settings)
    assert told(listener.spm(0, -1)) == [("from", 0)]
    return listener
