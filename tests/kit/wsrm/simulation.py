"""Simulates reliable sessions in a few milliseconds; one seed always gives the same run.

- Everything is drawn from ``Random(seed)``: versions, network, clients, the speed of the consumer,
  the time at which it stops, and crashes.
- While faults are on, one to three sources send to one destination. Requests and answers are lost,
  doubled and delayed. Either side crashes and is restored from its store. The consumer stops and
  continues, so that the room of the queue is 0 for a while.
- The faults end, and the consumer works. Every message must become a row, and every sequence must
  end.
- The oracle (:mod:`.oracle`) judges each acknowledgement when it is sent and when it arrives, each
  message when it is sent, and each commit.

    python -m tests.kit.wsrm.simulation --seeds 10000
    python -m tests.kit.wsrm.simulation --seed 4711 --trace
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from random import Random

from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import ABSENT, AckRequested, SoapMessage
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion
from srmp_spark.wsrm.receiving.destination import RmDestination
from srmp_spark.wsrm.receiving.destination_effects import (
    DestinationSettings,
    Output,
    ReceiveDecision,
    Respond,
    RespondLater,
)
from srmp_spark.wsrm.sending.source import RmSource
from tests.kit import schedules
from tests.kit.schedules import Many, Outcome, Simulated, digested
from tests.kit.sim_clock import SimClock
from tests.kit.wsrm.client import Client
from tests.kit.wsrm.oracle import Commit, Store, judge_acknowledgement

MESSAGES_MAX = 25
"""Most messages of one client. Small runs find faults in less time than long ones."""
SPAN_S_MAX = 120.0
END_S_MAX = 1_200.0
"""Longest simulated time of a run after the end of the faults, in seconds.

The longest pause between two attempts is a minute, and a sequence ends in three steps. A run that
is not over at the limit has a problem.
"""
STEPS_MAX = 100_000
SEEDS_PER_REPORT = 500

VERSIONS = (
    (SoapVersion.V1_1, AddressingVersion.V2004_08, RmVersion.V1_0),
    (SoapVersion.V1_2, AddressingVersion.V2005_08, RmVersion.V1_0),
    (SoapVersion.V1_1, AddressingVersion.V2005_08, RmVersion.V1_1),
    (SoapVersion.V1_2, AddressingVersion.V2005_08, RmVersion.V1_1),
)


@dataclass(slots=True)
class Faults:
    """Faults of the network: probabilities (0 to 1) of loss and of a copy, and the delay."""

    loss: float
    double: float
    delay: float
    """Longest delay of a message, in seconds."""


class Simulation:
    """Simulates the sessions of one seed."""

    def __init__(
        self,
        seed: int,
        *,
        source_class: type[RmSource] = RmSource,
        destination_class: type[RmDestination] = RmDestination,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.random = random = Random(seed)
        self.clock = SimClock()
        self.marks: Counter[str] = Counter()
        self.problems: list[str] = []
        self.log = log
        self.faults: Faults | None = Faults(
            random.choice((0.0, 0.1, 0.3)),
            random.choice((0.0, 0.1, 0.3)),
            random.choice((0.05, 1.0, 5.0)),
        )
        self.buffer = random.choice((1, 2, 2, 3, 5, 8))
        self.in_bytes = random.random() < 0.2
        """Whether each message is encoded and decoded on its way.

        Few runs do so, because it is slower and the codec has tests of its own.
        """
        self.is_silent = random.random() < 0.15
        """Whether the destination acts as a peer that does not know BufferRemaining."""
        self.is_strict = random.random() < 0.15
        """Whether the destination acts as a peer that drops messages while its queue is full."""
        self.settings = DestinationSettings(buffer=self.buffer, held_max=random.choice((0, 1, 64)))
        self._destination_class = destination_class
        self._identifiers = count(1)
        self.store = Store()
        self.destination = self._new_destination()
        self.life = 0
        """Counts the restarts of the destination. A timer or sync of an earlier life is ignored."""
        self._batch: list[tuple[ReceiveDecision, Callable[[SoapMessage | None], None]]] = []
        self.span = random.uniform(1.0, SPAN_S_MAX)
        self.is_consuming = False
        self._made: set[str] = set()
        self.clients = {
            name: self._new_client(name, source_class)
            for name in ("a", "b", "c")[: random.randint(1, 3)]
        }
        self._schedule()

    def note(self, text: str) -> None:
        """Write a line to the trace, if there is one."""
        if self.log is not None:
            self.log(f"{self.clock.now:12.4f} {text}")

    # --- drawing the run --------------------------------------------------------------------------

    def _new_destination(self) -> RmDestination:
        return self._destination_class(
            "http://qm/wsrm/q", lambda: f"urn:uuid:{next(self._identifiers)}", self.settings
        )

    def _new_client(self, name: str, source_class: type[RmSource]) -> Client:
        random = self.random
        client = Client(
            name,
            self,
            random.choice(VERSIONS),
            source_class,
            is_anonymous=random.random() < 0.5,
            window=random.choice((1, 3, 8, 20)),
            interval=random.choice((5.0, 30.0)),
            messages=random.randint(0, MESSAGES_MAX),
        )
        self.marks[f"version {client.settings.rm.name}"] += 1
        self.marks["anonymous" if client.settings.acks_to is None else "addressable"] += 1
        return client

    def _schedule(self) -> None:
        random, clock = self.random, self.clock
        for client in self.clients.values():
            clock.after(random.uniform(0.0, 2.0), client.begin)
            for _ in range(random.choice((0, 0, 1, 2))):
                clock.after(random.uniform(0.0, self.span), client.crash)
        for _ in range(random.choice((0, 0, 1, 2))):
            clock.after(random.uniform(0.0, self.span), self._crash)
        clock.after(random.uniform(0.0, self.span), self._start_consuming)
        if random.random() < 0.5:
            clock.after(random.uniform(0.0, self.span), self._stop_consuming)
        clock.after(self.span, self._heal)

    # --- the network ------------------------------------------------------------------------------

    def travel(self, message: SoapMessage, arrive: Callable[[SoapMessage], None]) -> None:
        """Carry a message one way over the network, which may lose, double or reorder it.

        ``arrive`` is called with each copy, after a random delay.
        """
        if self.in_bytes:
            message = decode(encode(message))
        faults, random = self.faults, self.random
        times = 1
        if faults is not None:
            if random.random() < faults.loss:
                self.marks["lost"] += 1
                return
            times = 2 if random.random() < faults.double else 1
            self.marks["doubled"] += times - 1
        for _ in range(times):
            self.clock.after(
                random.uniform(0.001, 0.01 if faults is None else faults.delay), arrive, message
            )

    # --- the destination --------------------------------------------------------------------------

    def post(self, message: SoapMessage, answer: Callable[[SoapMessage | None], None]) -> None:
        """Deliver a request to the destination, which answers when the request has been synced.

        ``answer`` is called with the response, or with ``None`` for an answer without content. It
        is not called if the answer is lost, or if the destination crashes before.
        """
        destination, header = self.destination, message.sequence
        if self.is_strict and header is not None and self.store.waiting >= self.buffer:
            known = destination.get(header.identifier)
            if known is not None and not known.knows(header.number):
                self.marks["dropped by a full queue"] += 1
                asked = (AckRequested(header.identifier),)
                message = replace(
                    message, sequence=None, body=b"", ack_requested=asked, action="urn:dropped"
                )
        received = destination.receive(message, None, self.clock.now, self.clock.utc())
        self._batch.append((received, answer))
        if not self.store.busy:
            self._begin()

    def _begin(self) -> None:
        batch, self._batch = self._batch, []
        deliveries = [delivery for received, _ in batch for delivery in received.deliveries]
        self.store.begin(Commit(deliveries, self.destination.changes()))
        self.clock.after(self.random.uniform(0.001, 0.05), self._synced, self.life, batch)

    def _synced(
        self, life: int, batch: list[tuple[ReceiveDecision, Callable[[SoapMessage | None], None]]]
    ) -> None:
        if life != self.life:
            return
        before = len(self.store.rows)
        proof = self.store.finish()
        for row in self.store.rows[before:]:
            self.note(f"row {row}")
        self._say(self._set_room())
        for (_, answer), outputs in zip(
            batch,
            self.destination.committed([received for received, _ in batch], proof, self.clock.now),
            strict=True,
        ):
            self._say(outputs, answer)
        if self._batch:
            self._begin()
        self._arm()

    def _say(
        self, outputs: list[Output], answer: Callable[[SoapMessage | None], None] | None = None
    ) -> None:
        for output in outputs:
            assert not isinstance(output, RespondLater), "none of our sources makes an Offer"
            message = output.message
            if message is not None:
                for ack in message.acknowledgements:
                    self.problems += judge_acknowledgement(ack, self.store, self.buffer)
                    self.marks["BufferRemaining 0"] += ack.buffer_remaining == 0
                if self.is_silent:
                    acks = tuple(
                        replace(ack, buffer_remaining=ABSENT) for ack in message.acknowledgements
                    )
                    message = replace(message, acknowledgements=acks)
            if isinstance(output, Respond):
                assert answer is not None, "only a request is answered"
                if message is None:
                    answer(None)
                else:
                    self.travel(message, answer)
            else:
                assert message is not None, "what is sent is a message"
                self.marks["sent to an address"] += 1
                name = output.endpoint.address.rpartition("/")[2]
                self.travel(message, self.clients[name].heard)

    def _set_room(self) -> list[Output]:
        """Report the room of the queue to the destination, and return the destination's outputs.

        A problem is recorded unless every source that has an address and was last sent
        BufferRemaining 0 is notified now.
        """
        waits = {
            each.identifier
            for each in self.destination
            if each.last_buffer_remaining == 0
            and not each.is_anonymous
            and each.state.name == "OPEN"
        }
        outputs = self.destination.set_room(max(0, self.buffer - self.store.waiting))
        said = [output.message for output in outputs if not isinstance(output, RespondLater)]
        told = {ack.identifier for message in said if message for ack in message.acknowledgements}
        if self.destination.flow.get_buffer_remaining() and waits - told:
            self.problems.append(
                f"room returned, and {sorted(waits - told)} were told 0 and not that"
            )
        return outputs

    def _poll(self) -> None:
        self._say(self.destination.poll(self.clock.now, self.clock.utc()))
        self._arm()

    def _arm(self) -> None:
        when = self.destination.next_timer()
        if when is not None:
            self.clock.at(max(when, self.clock.now), self._alarm, self.life, when)

    def _alarm(self, life: int, when: float) -> None:
        if life == self.life and self.destination.next_timer() == when:
            self._poll()

    def _crash(self) -> None:
        """Crash the destination as a power loss does, and restore it from the store.

        A transaction that is being written is either there as a whole or not at all.
        """
        self.note("the destination dies")
        self.marks["destination died"] += 1
        self.marks["died while it wrote"] += self.store.busy
        self.store.crash(self.random.random() < 0.5)
        self.life += 1
        self._batch = []
        self.destination = self._new_destination()
        self.destination.restore(
            self.store.sequences.values(), self.store.proof(), self.clock.now, self.clock.utc()
        )
        self._say(self._set_room())
        self._arm()

    # --- the consumer -----------------------------------------------------------------------------

    def _start_consuming(self) -> None:
        if not self.is_consuming:
            self.is_consuming = True
            self.note("the consumer works")
            self._consume()

    def _stop_consuming(self) -> None:
        if self.faults is not None:
            self.is_consuming = False
            self.note("the consumer stops")

    def _consume(self) -> None:
        if not self.is_consuming:
            return
        if self.store.waiting and not self.store.busy:
            self.store.processed += self.random.randint(1, self.store.waiting)
            self._say(self._set_room())
            self._arm()
        self.clock.after(self.random.uniform(0.05, 2.0), self._consume)

    def _heal(self) -> None:
        self.note("the faults end")
        self.faults = None
        self._start_consuming()

    # --- the run ----------------------------------------------------------------------------------

    def run(self, seed: int) -> Outcome:
        """Run the simulation to its end and return the outcome, which names ``seed``."""
        clock, steps = self.clock, 0
        deadline = clock.now + self.span + END_S_MAX
        while steps < STEPS_MAX and clock.now < deadline and not self._all_over() and clock.step():
            steps += 1
        for client in self.clients.values():
            self.problems += client.verdict(self.store)
            self.marks.update(client.judge.marks)
            self.marks["polled"] += client.polled
        if not self._all_over():
            self.problems.append(f"no end {END_S_MAX:.0f} s after the faults")
        known = Counter(row.create_id for row in self.store.sequences.values())
        self.problems += [
            f"{times} sequences for {message_id}"
            for message_id, times in known.items()
            if times > 1
        ]
        return Outcome(seed, list(dict.fromkeys(self.problems)), steps, self.marks)

    def _all_over(self) -> bool:
        return self.faults is None and all(client.is_over for client in self.clients.values())


def run(
    seed: int,
    *,
    source_class: type[RmSource] = RmSource,
    destination_class: type[RmDestination] = RmDestination,
    digest: bool = False,
    log: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one seed and return its outcome.

    With ``digest`` the outcome has the SHA-256 of the log, which must depend on the seed alone.
    """
    return digested(
        lambda log: Simulation(
            seed, source_class=source_class, destination_class=destination_class, log=log
        ).run(seed),
        log,
        digest=digest,
    )


def run_many(seeds: Iterable[int]) -> Many:
    """Run ``seeds`` until one fails."""
    return schedules.run_many(run, seeds)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    simulated = Simulated("tests.kit.wsrm.simulation", __doc__, run, run_many, SEEDS_PER_REPORT)
    return schedules.main(simulated, arguments)


if __name__ == "__main__":
    sys.exit(main())
