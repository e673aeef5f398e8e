"""Fuzzes a receiver and a source of PGM with conversations.

A conversation is a list of packets, each with the time since the packet before. For every input,
each number of a session is reported once and in order. No limit is exceeded, and every packet that
is sent can be decoded. Both sides come to rest after the last packet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from struct import Struct
from typing import Any

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.pgm.outputs import (
    Apdu,
    DataLost,
    Multicast,
    Output,
    SessionEnded,
    SessionOpened,
    SourceRefused,
    Unicast,
)
from srmp_spark.pgm.receiving import assembler, receive_window, receiver, repairs, session
from srmp_spark.pgm.receiving.receiver import PgmReceiver
from srmp_spark.pgm.sending import repair_queue, source
from srmp_spark.pgm.sending.source import PgmSource
from srmp_spark.pgm.settings import PgmReceiverSettings, PgmSourceSettings
from srmp_spark.pgm.wire.addresses import Tsi, nla_of
from srmp_spark.pgm.wire.decoder import decode
from srmp_spark.pgm.wire.encoder import encode
from srmp_spark.pgm.wire.packets import Data, Fragment, Nak, Options, Packet, PacketType, Reset, Spm
from srmp_spark.pgm.wire.sequence import wrap
from tests.kit.fuzz import pgm_packets
from tests.kit.fuzz.judge import Outcome, Target, ViolationError
from tests.kit.fuzz.pgm_packets import summed

RECORD = Struct("!BH")
"""Record of a packet: hundredths of a second since the packet before, and length in octets."""
TICK_S = 0.01
PACKETS_MAX = 200
POLLS_MAX = 5_000
"""Most polls until both sides are at rest, that is, until no timer runs.

With these settings a session has 64 numbers with 12 timers each. At the limit the check fails.
"""

TSI, PORT = Tsi(b"\x0a\x0b\x0c\x0d\x0e\x0f", 0x1234), 7500
SOURCE, GROUP = nla_of("10.99.0.1"), nla_of("239.192.9.1")
RECEIVING = PgmReceiverSettings(
    rxw_sqns_max=64,
    rxw_bytes_max=70_000,
    buffer_bytes_max=80_000,
    sessions_max=3,
    session_idle=5.0,
    repair_secs=4.0,
    nak_ncf_retries=2,
    nak_data_retries=2,
)
SENDING = PgmSourceSettings(txw_secs=4.0, txw_adv_secs=1.0, txw_adv_ivl=1.0, txw_max_rte=100_000.0)


def written(steps: Iterable[tuple[int, Packet]]) -> bytes:
    """Return a conversation as bytes, from pairs of (time, packet).

    The time is in hundredths of a second since the packet before.
    """
    return b"".join(
        RECORD.pack(ticks, len(octets)) + octets
        for ticks, octets in ((t, encode(p)) for t, p in steps)
    )


def _spm(number: int, trail: int, lead: int, options: Options | None = None) -> Spm:
    return Spm(TSI, PORT, number, wrap(trail), wrap(lead), SOURCE, options or Options())


def _data(number: int, trail: int = 0, **more: Any) -> Data:  # noqa: ANN401  # fields of Data
    return Data(False, TSI, PORT, wrap(number), wrap(trail), b"apdu %d" % number)._replace(**more)


def seeds(directory: Path) -> list[bytes]:
    """Return plausible conversations, and one with all packets of OpenPGM in sequence."""
    ncf = Nak(PacketType.NCF, TSI, PORT, 1, SOURCE, GROUP, Options(nak_list=(2, 3)))
    fragments = [
        (1, _data(n, options=Options(fragment=Fragment(4, 7 * (n - 4), 21)), payload=b"1234567"))
        for n in (4, 6, 5)
    ]
    edge = 2**32
    return [
        written(
            [
                (0, _spm(0, 0, -1)),
                (1, _data(0)),
                (1, _data(4)),
                (8, ncf),
                (3, _data(1, is_repair=True)),
                (200, _spm(1, 3, 4, Options(fin=True))),
            ]
        ),
        written(
            [
                (0, _spm(0, 4, 3)),
                *fragments,
                (1, _data(7)),
                (9, _spm(1, 0, 9, Options(reset=Reset(True, 3)))),
            ]
        ),
        written(
            [
                (0, _data(edge - 2, edge - 2)),
                (1, _spm(0, edge - 2, edge + 1)),
                (9, _data(edge + 1, edge - 1)),
                (1, _data(edge, edge - 1)),
                (1, _data(edge - 1, edge - 1)),
            ]
        ),
        written(
            [
                (0, _spm(0, 0, 0)),
                (0, ncf._replace(type=PacketType.NAK)),
                (60, _data(70)),
                (60, _data(9)),
            ]
        ),
        b"".join(RECORD.pack(5, len(octets)) + octets for octets in pgm_packets.seeds(directory)),
    ]


def packets(data: bytes) -> Iterator[tuple[float, bytes]]:
    """Yield (seconds, packet with a correct checksum) for at most 200 packets of a conversation.

    The seconds are those since the packet before. Wrong lengths in the input are accepted: a packet
    may then be short or empty.
    """
    at = 0
    for _ in range(PACKETS_MAX):
        if len(data) - at < RECORD.size:
            return
        ticks, length = RECORD.unpack_from(data, at)
        at += RECORD.size
        yield ticks * TICK_S, summed(data[at : at + length])
        at += length


class Conversation:
    """A receiver and a source, which sends four APDUs, and all their outputs.

    Times are in seconds of a simulated clock.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.receiver = PgmReceiver(PORT, GROUP, lambda low, high: (low + high) / 2, RECEIVING)
        self.source = PgmSource(
            TSI, PORT, source=SOURCE, group=GROUP, now=self.now, settings=SENDING
        )
        for number in range(4):
            self.source.send(b"apdu %d" % number)
        self.out: list[Output] = []
        self.refused = 0
        self.polls = 0

    def hear(self, octets: bytes) -> None:
        """Pass one packet to the receiver and to the source.

        A packet that cannot be decoded is counted.
        """
        try:
            packet = decode(octets)
        except RemoteProtocolError:
            self.refused += 1
            return
        self.out += self.receiver.receive(packet, SOURCE, self.now)
        self.out += self.source.receive(packet, self.now)

    def wait(self, until: float) -> None:
        """Advance the time to ``until`` and run the timers that expire before."""
        while self.polls < POLLS_MAX:
            timers = [
                at
                for at in (self.receiver.next_timer(), self.source.next_timer())
                if at is not None
            ]
            if not timers or min(timers) > until:
                break
            self.now = max(self.now, min(timers))
            self.polls += 1
            self.out += self.receiver.poll(self.now)
            self.out += self.source.poll(self.now)
        self.now = max(self.now, until)


def parse(data: bytes) -> Outcome:
    """Run a conversation, close the source, and run all timers of the next minute.

    The outcome is accepted if each packet could be decoded. Its value is the :class:`Conversation`.
    Raises :class:`ViolationError` if the receiver holds too many bytes.
    """
    conversation = Conversation()
    for seconds, octets in packets(data):
        conversation.wait(conversation.now + seconds)
        conversation.hear(octets)
        if conversation.receiver.budget.used > RECEIVING.buffer_bytes_max:
            raise ViolationError(f"{conversation.receiver.budget.used} octets are held")
    conversation.source.close(conversation.now)
    conversation.wait(conversation.now + 60.0)
    return Outcome(not conversation.refused, conversation)


def check(data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check that both sides are at rest and that each number was reported once and in order."""
    conversation: Conversation = outcome.value
    if (
        conversation.polls >= POLLS_MAX
        or len(conversation.receiver)
        or conversation.receiver.budget.used
    ):
        raise ViolationError(
            f"no rest after {conversation.polls} polls: {list(conversation.receiver)}"
        )
    following: dict[object, int | None] = {}
    for output in conversation.out:
        if isinstance(output, Multicast | Unicast):
            decode(output.packet)
        elif isinstance(output, SessionOpened):
            if following.get(output.session) is not None:
                raise ViolationError(f"{output.session} began twice")
            following[output.session] = output.first
        elif isinstance(output, SourceRefused):
            continue
        elif following.get(output.session) is None:
            raise ViolationError(f"{output} of a session that has not begun")
        elif isinstance(output, SessionEnded):
            following[output.session] = None
        elif isinstance(output, Apdu | DataLost):
            if output.first != following[output.session]:
                raise ViolationError(f"{following[output.session]} is next, and told is {output}")
            following[output.session] = wrap(output.last + 1)


def target(directory: Path) -> Target:
    """Return the target of this module. ``directory`` is ``tests/data/pgm``."""
    modules = (assembler, receive_window, receiver, repair_queue, repairs, session, source)
    files = frozenset(str(module.__file__) for module in modules)
    return Target(
        "pgm-session", seeds(directory), pgm_packets.TOKENS, parse, check, files, is_slow=True
    )
