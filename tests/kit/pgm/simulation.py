"""Simulates one multicast session in a few milliseconds; one seed always gives the same run.

- Everything is drawn from ``Random(seed)``: settings, network, messages, the time at which each
  receiver joins, the end of the session, and storms of NAKs.
- While faults are on, the source sends and up to three receivers listen. Hosts are cut off, NAKs
  storm, and a foreign host sends packets.
- The faults end. Then the source closes, resets, or falls silent. Every receiver must reach an end.
- The oracle (:mod:`.oracle`) judges each packet and event as it happens, and the whole run at the
  end. In *gentle* runs only new data are lost, windows are long and limits wide: then no data may
  be lost for good.

    python -m tests.kit.pgm.simulation --seeds 10000
    python -m tests.kit.pgm.simulation --seed 4711 --trace
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.pgm.outputs import LossReason, Multicast, Output, SourceRefused, Unicast
from srmp_spark.pgm.receiving.receiver import PgmReceiver
from srmp_spark.pgm.sending.source import PgmSource
from srmp_spark.pgm.sending.source_states import ANSWERS, PgmSourceState
from srmp_spark.pgm.settings import PgmReceiverSettings, PgmSourceSettings
from srmp_spark.pgm.wire.addresses import Tsi, nla_of
from srmp_spark.pgm.wire.decoder import decode
from srmp_spark.pgm.wire.encoder import encode
from srmp_spark.pgm.wire.packets import Data, Nak, Options, PacketType, Spm
from srmp_spark.pgm.wire.sequence import wrap
from tests.kit import schedules
from tests.kit.pgm.group import Group, GroupFaults
from tests.kit.pgm.oracle import ReceiverLedger, SourceLedger
from tests.kit.schedules import Many, Outcome, Simulated, digested
from tests.kit.sim_clock import SimClock

APDUS_MAX = 30
"""Most APDUs of one run. Small runs find faults in less time than long ones."""
SPAN_S_MAX = 8.0
END_S_MAX = 900.0
"""Longest simulated time of a run after the end of the faults, in seconds.

The longest window, the silence that ends a session, and all retries fit into this time. A session
that has not ended at the limit is a problem.
"""
STEPS_MAX = 200_000
SEEDS_PER_REPORT = 200

TSI, PORT = Tsi(b"\x0a\x0b\x0c\x0d\x0e\x0f", 0x1234), 7500
GROUP = nla_of("239.192.9.1")
ADDRESSES = {
    name: nla_of(f"10.99.0.{number}")
    for number, name in enumerate(("source", "a", "b", "c", "stranger"), 1)
}
NAMES = {address: name for name, address in ADDRESSES.items()}
ODATA = int(PacketType.ODATA)


class Simulation:
    """Simulates the session of one seed."""

    def __init__(
        self,
        seed: int,
        *,
        source_class: type[PgmSource] = PgmSource,
        receiver_class: type[PgmReceiver] = PgmReceiver,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.random = random = Random(seed)
        self.clock = clock = SimClock()
        self.marks: Counter[str] = Counter()
        self.problems: list[str] = []
        self._log = log
        self.gentle = random.random() < 0.3
        self.group = Group(clock, random, GroupFaults.drawn(random))
        if self.gentle:
            self.group.spares = lambda packet: packet[4] != ODATA
        self.source_settings = self._draw_source_settings()
        first = wrap(random.choice((0, random.getrandbits(32), 2**32 - random.randint(0, 60))))
        self.source = source_class(
            TSI,
            PORT,
            source=ADDRESSES["source"],
            group=GROUP,
            now=clock.now,
            settings=self.source_settings,
            first=first,
        )
        self.ledger = SourceLedger(self.source_settings, first)
        self.group.join("source", self._source_hears)
        self._armed: dict[str, float] = {}
        self.receivers: dict[str, PgmReceiver] = {}
        self.ledgers: dict[str, ReceiverLedger] = {}
        self._receiver_class = receiver_class
        self.span = random.uniform(1.0, SPAN_S_MAX)
        self.ending = random.choices(("close", "reset", "silence"), (8, 1, 1))[0]
        self.is_silent = False
        self._heard: Counter[tuple[str, int]] = Counter()
        self._schedule()

    # --- drawing the run --------------------------------------------------------------------------

    def _draw_source_settings(self) -> PgmSourceSettings:
        random = self.random
        secs = 60.0 if self.gentle else random.choice((2.0, 5.0, 20.0, 60.0))
        rate = random.choice((4_000.0, 20_000.0, 70_000.0, 1e6))
        return PgmSourceSettings(
            txw_max_rte=rate,
            txw_secs=secs,
            txw_adv_secs=0.15 * secs,
            txw_adv_ivl=0.15 * secs,
            advance_delay_max=0.15 * secs,
            tpdu_max=random.choice((100, 300, 1472)),
            join_percent=random.choice((0, 0, 50, 75)),
            ncf_rate_max=random.choice((1000.0, 30.0)),
            txw_sqns_max=random.randint(4, 40)
            if secs <= 5.0 and random.random() < 0.4
            else 2**31 - 1,
        )

    def _draw_receiver_settings(self) -> PgmReceiverSettings:
        random = self.random
        fast = random.choice((1.0, 0.1))
        if self.gentle and self.source_settings.txw_max_rte < 1e6:
            # With faster timers all retries would be over before so slow a source has sent
            # the requested repairs.
            fast = 1.0
        is_small = not self.gentle and random.random() < 0.15
        return PgmReceiverSettings(
            nak_rb_ivl=(0.01 * fast, 0.05 * fast),
            nak_rpt_ivl=0.75 * fast,
            nak_rdata_ivl=2.0 * fast,
            nak_ncf_retries=10 if self.gentle else random.choice((10, 10, 2, 0)),
            repair_secs=70.0,
            session_idle=20.0,
            multicast_naks=random.random() < 0.7,
            honour_join=random.random() < 0.7,
            rxw_sqns_max=random.randint(2, 12) if is_small else 16_384,
            nak_rate_max=random.choice((100.0, 10.0)),
        )

    def _schedule(self) -> None:
        random, clock = self.random, self.clock
        for name in ("a", "b", "c")[: random.randint(1, 3)]:
            late = random.choice((0.0, 0.0, random.uniform(0.0, self.span)))
            clock.after(late, self._join, name, self._draw_receiver_settings())
            self.marks["joined late"] += late > 0
        clock.after(0.0, self._poll_source)
        for _ in range(random.randint(1, APDUS_MAX)):
            when = random.uniform(0.0, self.span)
            clock.after(when - when % random.choice((1e-9, 1.0)), self._send, self._drawn_apdu())
        if not self.gentle:
            if random.random() < 0.2:
                clock.after(
                    random.uniform(0.0, self.span),
                    self.group.cut,
                    random.choice("abc"),
                    random.uniform(0.0, 6.0),
                )
            if random.random() < 0.2:
                clock.after(random.uniform(0.0, self.span), self._storm, random.randint(10, 300))
            if random.random() < 0.2:
                clock.after(random.uniform(0.0, self.span), self._stranger, random.randint(1, 30))
        clock.after(self.span + random.uniform(0.0, 4.0), self._heal)

    def _drawn_apdu(self) -> bytes:
        random = self.random
        kind = random.random()
        size = (
            random.randint(1, 90)
            if kind < 0.6
            else random.randint(91, 1500)
            if kind < 0.97
            else random.randint(1501, 6000)
        )
        return random.randbytes(size)

    # --- hosts ------------------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        if self._log is not None:
            self._log(f"{self.clock.now:12.4f} {text}")

    def _send(self, apdu: bytes) -> None:
        if self.source.has_room(len(apdu)):
            self.ledger.apdus.append(apdu)
            self.source.send(apdu)
            self._note(f"send {len(apdu)}")
            self._poll_source()

    def _join(self, name: str, settings: PgmReceiverSettings) -> None:
        receiver = self._receiver_class(PORT, GROUP, self.random.uniform, settings)
        ledger = ReceiverLedger(name, self.ledger, settings)
        if settings.rxw_sqns_max < 100:
            ledger.allowed.add(LossReason.LIMIT)
        if self.ending == "reset":
            ledger.allowed.add(LossReason.RESET)
        if self.ending == "silence":
            ledger.allowed.add(LossReason.SILENT)
        self.receivers[name], self.ledgers[name] = receiver, ledger
        self.group.join(name, partial(self._receiver_hears, name))

    def _poll_source(self) -> None:
        if self.is_silent:
            return
        self._source_says(self.source.poll(self.clock.now))
        if self.source.state is PgmSourceState.CLOSED:
            return
        when = self.source.next_timer()
        if when is None:
            self.problems.append("the source has no timer")
        else:
            self._arm("source", when, self._poll_source)

    def _arm(self, name: str, when: float, poll: Callable[[], None]) -> None:
        armed = self._armed.get(name)
        if armed is None or when < armed:
            self._armed[name] = when
            self.clock.at(max(when, self.clock.now), self._alarm, name, when, poll)

    def _alarm(self, name: str, when: float, poll: Callable[[], None]) -> None:
        if self._armed.get(name) == when:
            del self._armed[name]
            poll()

    def _source_says(self, packets: Iterable[Multicast]) -> None:
        for multicast in packets:
            self.ledger.packet(multicast.packet, self.clock.now)
            self._trace("source", multicast.packet)
            self.group.multicast("source", multicast.packet)

    def _trace(self, sender: str, packet: bytes) -> None:
        if self._log is not None:
            told = decode(packet)
            self._note(
                f"{sender}: {told._replace(payload=b'') if isinstance(told, Data) else told}"
            )

    def _source_hears(self, octets: bytes, sender: str) -> None:
        if self.is_silent:
            return
        try:
            packet = decode(octets)
        except RemoteProtocolError:
            self.marks["damaged packet refused"] += 1
            return
        now, source = self.clock.now, self.source
        if (
            isinstance(packet, Nak)
            and packet.type is PacketType.NAK
            and source.state in ANSWERS
            and packet.tsi == TSI
        ):
            self.ledger.asked(packet.numbers, source.window.trail)
        self._source_says(source.receive(packet, now))
        self._poll_source()

    def _receiver_hears(self, name: str, octets: bytes, sender: str) -> None:
        try:
            packet = decode(octets)
        except RemoteProtocolError:
            self.marks["damaged packet refused"] += 1
            return
        if isinstance(packet, Data) and packet.is_repair:
            self._heard[name, packet.sequence_number] += 1
        self._receiver_says(
            name, self.receivers[name].receive(packet, ADDRESSES[sender], self.clock.now)
        )

    def _poll_receiver(self, name: str) -> None:
        self._receiver_says(name, self.receivers[name].poll(self.clock.now))

    def _receiver_says(self, name: str, outputs: list[Output]) -> None:
        ledger = self.ledgers[name]
        for output in outputs:
            if isinstance(output, Unicast):
                if output.to == ADDRESSES["source"]:
                    ledger.output(output, self.clock.now)
                self._trace(name, output.packet)
                self.group.unicast(name, NAMES[output.to], output.packet)
            elif isinstance(output, Multicast):
                self.group.multicast(name, output.packet)
            elif isinstance(output, SourceRefused):
                self.problems.append(f"{name}: {output}, of {len(ADDRESSES)} hosts")
            elif output.session.source == ADDRESSES["source"]:
                ledger.output(output, self.clock.now)
                self._note(f"{name}: {output!r}"[:160])
        when = self.receivers[name].next_timer()
        if when is not None:
            self._arm(name, when, partial(self._poll_receiver, name))

    # --- faults -----------------------------------------------------------------------------------

    def _storm(self, left: int) -> None:
        """Send a NAK for random numbers from a foreign host, and schedule ``left - 1`` more."""
        random, window = self.random, self.source.window
        numbers = [
            wrap(random.randint(window.trail - 3, window.lead + 3))
            for _ in range(random.choice((1, 1, 8)))
        ]
        nak = Nak(
            PacketType.NAK,
            TSI,
            PORT,
            numbers[0],
            ADDRESSES["source"],
            GROUP,
            Options(nak_list=tuple(numbers[1:])),
        )
        self.group.unicast("stranger", "source", encode(nak))
        if random.random() < 0.3:
            self.group.multicast(
                random.choice(("stranger", "source")), encode(nak._replace(type=PacketType.NCF))
            )
        self.marks["storm"] += 1
        if left > 1:
            self.clock.after(random.expovariate(500.0), self._storm, left - 1)

    def _stranger(self, left: int) -> None:
        """Send a packet from another host that uses the same TSI; schedule ``left - 1`` more.

        These packets belong to sessions of their own, and none to the session of the source.
        """
        random = self.random
        number = random.getrandbits(32)
        packet = random.choice(
            (
                Spm(
                    TSI,
                    PORT,
                    number,
                    number,
                    wrap(number + 5),
                    ADDRESSES["stranger"],
                    Options(fin=random.random() < 0.5),
                ),
                Data(random.random() < 0.5, TSI, PORT, number, number, b"forged"),
            )
        )
        self.group.multicast("stranger", encode(packet))
        self.marks["stranger"] += 1
        if left > 1:
            self.clock.after(random.expovariate(20.0), self._stranger, left - 1)

    def _heal(self) -> None:
        self._note("the faults end")
        self.group.faults = None
        self.ledger.healed_at = self.clock.now
        self.clock.after(self.random.uniform(0.0, 3.0), self._end)

    def _end(self) -> None:
        self._note(f"the end: {self.ending}")
        self.marks[f"end: {self.ending}"] += 1
        if self.ending == "silence":
            self.is_silent = True
        elif self.ending == "reset":
            self.source.reset(self.clock.now, 5)
        else:
            self.source.close(self.clock.now)
        self._poll_source()

    # --- the run ----------------------------------------------------------------------------------

    def run(self, seed: int) -> Outcome:
        """Run the simulation to its end and return the outcome, which names ``seed``."""
        clock, steps = self.clock, 0
        deadline = clock.now + self.span + END_S_MAX
        while steps < STEPS_MAX and clock.now < deadline and not self._all_ended() and clock.step():
            steps += 1
        if steps >= STEPS_MAX:
            self.problems.append(f"no end after {STEPS_MAX} steps")
        for name, ledger in self.ledgers.items():
            self.problems += ledger.verdict()
            self.marks.update(ledger.told)
            lost = [
                each
                for each in ledger.told
                if each.startswith("lost") and LossReason.JOINED.value not in each
            ]
            if self.gentle and self.ending == "close" and lost:
                self.problems.append(f"{name}: {lost} in a gentle run")
            kept = sum(
                session.window.octets
                for session in self.receivers[name]
                if session.window is not None
            )
            if kept != self.receivers[name].budget.used:
                self.problems.append(
                    f"{name}: sessions hold {kept} octets, the budget says "
                    f"{self.receivers[name].budget.used}"
                )
            ours = next(
                (
                    session
                    for session in self.receivers[name]
                    if session.key.source == ADDRESSES["source"]
                ),
                None,
            )
            if (
                ledger.ended is not None
                and ours is not None
                and ours.window is not None
                and ours.window.octets
            ):
                self.problems.append(f"{name}: {ours.window.octets} octets are held after the end")
        self.problems += dict.fromkeys(self.ledger.problems)
        self.marks["repairs heard"] += self._heard.total()
        self.marks["lost on the way"] += self.group.lost
        self.marks["wrapped"] += self.ledger.lead >= 2**32
        self.marks["gentle"] += self.gentle
        self.marks.update({f"source: {name}": times for name, times in self.source.counts.items()})
        return Outcome(seed, self.problems, steps, self.marks)

    def _all_ended(self) -> bool:
        return (
            self.group.faults is None
            and bool(self.ledgers)
            and all(each.ended is not None for each in self.ledgers.values())
        )


def run(
    seed: int,
    *,
    source_class: type[PgmSource] = PgmSource,
    receiver_class: type[PgmReceiver] = PgmReceiver,
    digest: bool = False,
    log: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one seed and return its outcome.

    With ``digest`` the outcome has the SHA-256 of the log, which must depend on the seed alone.
    """
    return digested(
        lambda log: Simulation(
            seed, source_class=source_class, receiver_class=receiver_class, log=log
        ).run(seed),
        log,
        digest=digest,
    )


def run_many(seeds: Iterable[int]) -> Many:
    """Run ``seeds`` until one fails."""
    return schedules.run_many(run, seeds)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    simulated = Simulated("tests.kit.pgm.simulation", __doc__, run, run_many, SEEDS_PER_REPORT)
    return schedules.main(simulated, arguments)


if __name__ == "__main__":
    sys.exit(main())
