"""Simulate the life of a queue manager in two milliseconds; one seed is one repeatable run.

1. The whole run depends on ``Random(seed)``: the senders, their messages, the network's faults, the
   power failures, the duration of syncs, and the changes of the wall clock. Nothing else is random,
   and no real time passes.
2. *Safety*: With all faults, no acknowledged message may be lost and no message may be doubled. The
   order of each stream must be kept.
3. *Liveness*: The faults end. Within three of the longest resend intervals every sender must have
   an empty queue.
4. Then late copies of requests, up to 27 days old, still arrive. Only after them the oracle judges.

These steps are the receiving half. The same seed is then one life of a sending queue manager
(:mod:`.sending_simulation`).

    python -m tests.kit.simulation --seeds 10000
    python -m tests.kit.simulation --seed 4711 --trace
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import partial
from random import Random

from srmp_spark.message import Arrival, Message
from srmp_spark.names import split_url
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.encoder import encode
from srmp_spark.srmp.receiving.effects import Accepted, Pending, Refused
from srmp_spark.srmp.receiving.receiver import ReceiverSettings
from tests.kit import schedules
from tests.kit.decision_oracle import DecisionOracle
from tests.kit.oracle import Oracle, Verdict
from tests.kit.schedules import Log, Many, Simulated, digested
from tests.kit.sender_model import (
    RESEND_TABLE_S,
    DatagramSender,
    SenderModel,
    StreamSender,
)
from tests.kit.sending_simulation import SendingSimulation
from tests.kit.sim_clock import SimClock
from tests.kit.sim_disk import SimDisk
from tests.kit.sim_net import Answer, NetFaults, SimNet
from tests.kit.sim_outbox import SimSender
from tests.kit.sim_queue_manager import SimQueueManager, queue_url

MESSAGES_MAX = 60
"""Most messages of one run, over all senders: small runs find faults faster than long ones."""
SAFETY_S_MAX = 200.0
LIVENESS_S_MAX = 3 * RESEND_TABLE_S[-1]
STEPS_MAX = 20_000
"""Most steps of a run. A run takes some hundreds; at the limit it fails as an endless loop."""
CRASH_PROBABILITY_MAX = 0.02
DOWN_S_MAX = 60.0
CLOCK_JUMP_US_MAX = 10 * 365 * 86_400_000_000
ON_THE_WIRE_SHARE = 1 / 16
"""Share of the runs that encode messages as the bytes that Windows would write.

The other runs pass messages as objects.
"""
REFUSES_EXPIRED_SHARE = 0.6
"""Share of the runs in which the queue manager has ``--expired refuse``."""
BOUNDARY = "MSMQ - SOAP boundary, 4711"
SEEDS_PER_REPORT = 500

QUEUES = {"private$/orders": False, "private$/ledger": True, "invoices": True}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one seed: the oracle's verdict, further problems, and counts.

    ``digest`` is the SHA-256 of the event log, or empty.
    """

    seed: int
    verdict: Verdict
    problems: list[str] = field(default_factory=list)
    """Faults, one text each, that the oracle's verdict does not cover.

    Examples are messages that never arrive, a wrong 400, and a receipt for a message that was not
    sent.
    """
    steps: int = 0
    marks: Counter[str] = field(default_factory=Counter)
    digest: str = ""

    @property
    def clean(self) -> bool:
        """Return whether no fault was found."""
        return self.verdict.clean and not self.problems

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.verdict}" + "".join(
            f"\n  {problem}" for problem in self.problems[:5]
        )


class Simulation:
    """One run of the receiving half."""

    def __init__(
        self,
        seed: int,
        *,
        queue_manager_class: type[SimQueueManager] = SimQueueManager,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.clock = SimClock()
        self._lowest_offset_us = self.clock.utc_offset_us
        """The lowest of all offsets of the wall clock so far, in microseconds.

        The queue manager may distrust, for up to an hour, a clock that was set forward.
        """
        self.oracle = Oracle()
        self.net = SimNet(self.clock, random, NetFaults.drawn(random))
        self.on_the_wire = random.random() < ON_THE_WIRE_SHARE
        self.crash_probability = (
            random.uniform(0.0, CRASH_PROBABILITY_MAX) if random.random() < 0.8 else 0.0
        )
        self.heal_at = self.clock.now + random.uniform(20.0, SAFETY_S_MAX)
        self.disk = SimDisk()
        # Later features draw from a generator of their own, so that the schedule of a seed stays.
        self.extra = Random(f"{seed} expired")
        self.refuses_expired = self.extra.random() < REFUSES_EXPIRED_SHARE
        settings = ReceiverSettings(
            queue_quota_bytes=1,
            unknown_queue="retry",
            expired="refuse" if self.refuses_expired else "keep",
        )
        self.queue_manager = queue_manager_class(
            self.clock, self.disk, random, self._post_receipt, queues=QUEUES, settings=settings
        )
        self.decisions = DecisionOracle()
        self.disk.on_decided = self.decisions.decided
        self.disk.on_discarded = self.oracle.discarded
        self.queue_manager.judged = self._judged
        self._wrong: list[str] = []
        self.senders = self._make_senders()
        self._senders_by_host = {sender.name: sender for sender in self.senders}
        self.steps = 0
        self._log = log
        if log is not None:
            self.queue_manager.trace = self._note
        self._schedule()

    def _make_senders(self) -> list[SenderModel]:
        random = self.random
        senders: list[SenderModel] = []
        for number in range(random.randint(1, 4)):
            kind = random.choice((DatagramSender, StreamSender, StreamSender))
            queue = (
                "private$/orders"
                if kind is DatagramSender
                else random.choice(("private$/ledger", "invoices"))
            )
            name, guid = f"sender-{number}", f"5e4de400-0000-4000-8000-{number:012}"
            senders.append(
                kind(
                    name,
                    guid,
                    queue_url(queue),
                    self.clock,
                    random,
                    self.oracle,
                    partial(self._post_message, f"from {name}"),
                )
            )
            senders[-1].decisions = self.decisions
            senders[-1].says_ttrq = self.extra.random() < 0.5
        return senders

    def _schedule(self) -> None:
        """Draw the messages and faults of the run and put them on the clock's list."""
        random, clock = self.random, self.clock
        span = self.heal_at - clock.now
        hasty = random.random() < 0.45
        for number in range(random.randint(4, MESSAGES_MAX)):
            sender = random.choice(self.senders)
            expires = random.random() < (0.8 if hasty else 0.1)
            time_to_reach_queue = random.uniform(0.2, 40.0) if expires else None
            # Some of the drawn moments are rounded to whole tens of seconds, to make bursts.
            when = random.uniform(0.0, span)
            if random.random() < 0.5:
                when -= when % 10.0
            clock.after(when, sender.submit, f"{sender.name}-{number}", time_to_reach_queue)
        if random.random() < 0.2:
            clock.after(
                random.uniform(0.0, span),
                self._set_wall_clock,
                random.randint(-CLOCK_JUMP_US_MAX, CLOCK_JUMP_US_MAX),
            )
        if random.random() < 0.2:
            when = random.uniform(0.0, span)
            clock.after(when, self._fill_queues, 1)
            clock.after(random.uniform(when, span), self._fill_queues, 0)

        if random.random() < 0.2:
            # FoundationDB's swizzle-clog: links clog one after another and clear in another order.
            # No other fault of FoundationDB's simulator finds more bugs.
            for sender in self.senders:
                for link in (f"from {sender.name}", f"to {sender.name}"):
                    begin = random.uniform(0.0, span)
                    clock.after(begin, self.net.clog, link, random.uniform(begin, span) - begin)

    def _set_wall_clock(self, by_us: int) -> None:
        self.clock.utc_offset_us += by_us
        self._lowest_offset_us = min(self._lowest_offset_us, self.clock.utc_offset_us)
        self._note(f"wall clock set by {by_us} us")

    def _fill_queues(self, bytes_waiting: int) -> None:
        for queue in self.queue_manager.receiver.queues.values():
            queue.bytes_waiting = bytes_waiting

    def _post_message(self, link: str, message: Message, answered: Answer) -> None:
        if self.on_the_wire:
            self.net.post(
                link, self.queue_manager.receive, encode(message, boundary=BOUNDARY), answered
            )
        else:
            self.net.post(link, self.queue_manager.receive, message, answered)

    def _post_receipt(self, message: Message, answered: Answer) -> None:
        sender = self._senders_by_host[split_url(message.destination).host]
        if self.on_the_wire:
            message = decode(*encode(message, boundary=BOUNDARY))
        self.net.post(f"to {sender.name}", sender.receive, message, answered)

    def _judged(self, message: Message, arrival: Arrival, outcome: Refused | Pending) -> None:
        """Check the engine's decision about a message against its expiry.

        The engine must discard a late message if the operator wants it (2.2.5.1.1, 2.2.6.17). It
        must discard no other message.
        """
        key, until = message.body.decode(), message.time_to_reach_queue or message.expires_at
        is_late = until is not None and until < arrival.at and self.refuses_expired
        slowest_clock = arrival.at - self.clock.utc_offset_us + self._lowest_offset_us
        is_late_for_certain = until is not None and is_late and until < slowest_clock
        is_discarded = (
            outcome.reason == "expired"
            if isinstance(outcome, Refused)
            else SimQueueManager.is_discarded(outcome)
        )
        if is_discarded and any(row.key == key for rows in self.disk.rows.values() for row in rows):
            self._wrong.append(f"{key} was discarded and has its row")
        elif is_discarded and not is_late:
            self._wrong.append(f"{key} was discarded in time")
        elif is_late_for_certain and isinstance(outcome, Accepted):
            self._wrong.append(f"{key} was taken too late")
        elif is_discarded and isinstance(outcome, Refused):
            self._senders_by_host[key.rpartition("-")[0]].too_late.add(key)

    def _note(self, text: str) -> None:
        if self._log is not None:
            self._log(f"{self.clock.now:14.3f} {text}")

    def run(self) -> Outcome:
        """Run the whole life and return its result."""
        self._run_with_faults()
        problems = self._run_until_quiet()
        for rows in self.disk.rows.values():
            for row in rows:
                self.oracle.landed(row.key)
                self._note(f"landed {row.queue} {row.sequence} {row.key}")
        for sender in self.senders:
            problems += sender.faults_found
            self.queue_manager.marks.update(sender.marks)
        problems += self.decisions.verdict() + self._wrong
        return Outcome(
            self.seed, self.oracle.verdict(), problems, self.steps, self.queue_manager.marks
        )

    def _run_with_faults(self) -> None:
        random, clock, probability = self.random, self.clock, self.crash_probability
        while clock.now < self.heal_at and self.steps < STEPS_MAX and clock.step():
            self.steps += 1
            if probability and random.random() < probability and self.queue_manager.up:
                survives = random.random() < 0.5
                self._note(f"crash, transaction survives: {survives}")
                self.queue_manager.marks["crash"] += 1
                self.queue_manager.crash(survives)
                clock.after(random.uniform(0.1, DOWN_S_MAX), self._restart)

    def _restart(self) -> None:
        self._note("restart")
        self.queue_manager.start()

    def _run_until_quiet(self) -> list[str]:
        """End the faults and run until nothing is left to do. Return what is stuck, one text each.

        First every sender must empty its queue within the deadline.
        """
        self._note("the faults end")
        self.net.faults = None
        clock = self.clock
        deadline = clock.now + LIVENESS_S_MAX
        while (
            not all(sender.idle for sender in self.senders)
            and clock.now <= deadline
            and self.steps < STEPS_MAX
        ):
            if not clock.step():
                break
            self.steps += 1
        stuck = [
            f"{sender.name} still holds {len(sender.queue)} messages, awaits "
            f"{len(sender.awaited_delivery_receipts)} receipts"
            for sender in self.senders
            if not sender.idle
        ]
        while self.steps < STEPS_MAX and clock.step():
            self.steps += 1
        if self.steps >= STEPS_MAX:
            stuck.append(f"no end after {STEPS_MAX} steps")
        return stuck


def run(
    seed: int,
    queue_manager_class: type[SimQueueManager] | None = None,
    digest: bool = False,
    *,
    sender_class: type[SimSender] | None = None,
    log: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one seed: one life of a receiving queue manager, and one of a sending queue manager.

    If a class is given, it is used in its half, and the other half is left out. With ``digest`` the
    result holds the SHA-256 of the event log, which must depend only on the seed. ``log`` gets each
    line of the log.
    """
    return digested(partial(_run, seed, queue_manager_class, sender_class), log, digest=digest)


def _run(
    seed: int,
    queue_manager_class: type[SimQueueManager] | None,
    sender_class: type[SimSender] | None,
    log: Log | None,
) -> Outcome:
    outcomes = []
    if sender_class is None:
        outcomes.append(
            Simulation(
                seed, queue_manager_class=queue_manager_class or SimQueueManager, log=log
            ).run()
        )
    if queue_manager_class is None:
        outcomes.append(_run_sending(seed, sender_class or SimSender, log))
    return Outcome(
        seed,
        Verdict(
            *(
                _joined(getattr(outcome.verdict, word.name) for outcome in outcomes)
                for word in fields(Verdict)
            )
        ),
        _joined(outcome.problems for outcome in outcomes),
        sum(outcome.steps for outcome in outcomes),
        sum((outcome.marks for outcome in outcomes), Counter()),
    )


def _joined(lists: Iterable[list[str]]) -> list[str]:
    return [text for each in lists for text in each]


def _run_sending(
    seed: int, sender_class: type[SimSender], log: Callable[[str], None] | None
) -> Outcome:
    simulation = SendingSimulation(seed, sender_class=sender_class, log=log)
    problems = simulation.run()
    return Outcome(seed, simulation.oracle.verdict(), problems, simulation.steps, simulation.marks)


def run_many(seeds: Iterable[int]) -> Many:
    """Run ``seeds`` until one fails."""
    return schedules.run_many(run, seeds)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    simulated = Simulated("tests.kit.simulation", __doc__, run, run_many, SEEDS_PER_REPORT)
    return schedules.main(simulated, arguments)


if __name__ == "__main__":
    sys.exit(main())
