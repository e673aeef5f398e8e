"""A client of the simulator: a source of srmp-spark, its stored state, and its network path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Protocol

from srmp_spark.wsrm.codec.elements import EndpointReference, SoapMessage
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion
from srmp_spark.wsrm.sending.source import RmSource
from srmp_spark.wsrm.sending.source_effects import (
    Acknowledged,
    RmSourceSettings,
    SequenceEnded,
    SequenceOpened,
    Suspicious,
    Transmit,
)
from srmp_spark.wsrm.sending.source_states import OVER, RmSourceState
from tests.kit.sim_clock import SimClock
from tests.kit.wsrm.oracle import SourceJudge, Store

Versions = tuple[SoapVersion, AddressingVersion, RmVersion]


class World(Protocol):
    """The part of :class:`.simulation.Simulation` that a client uses."""

    clock: SimClock
    marks: Counter[str]
    problems: list[str]
    store: Store

    def note(self, text: str) -> None:
        """Write a line to the trace."""

    def travel(self, message: SoapMessage, arrive: Callable[[SoapMessage], None]) -> None:
        """Carry ``message`` over the network, and call ``arrive`` with each copy that arrives."""

    def post(self, message: SoapMessage, answer: Callable[[SoapMessage | None], None]) -> None:
        """Deliver a request to the destination.

        ``answer`` is called with the response, or with ``None`` for an answer without content. It
        is not called if the answer is lost, or if the destination crashes before.
        """


class Client:
    """Sends a number of messages in one sequence and ends the sequence.

    ``window`` is the most messages in flight, ``interval`` the seconds between two polls.
    """

    def __init__(
        self,
        name: str,
        world: World,
        versions: Versions,
        source_class: type[RmSource],
        *,
        is_anonymous: bool,
        window: int,
        interval: float,
        messages: int,
    ) -> None:
        self.name = name
        self._world = world
        soap, addressing, rm = versions
        self.settings = RmSourceSettings(
            to="http://qm/wsrm/q",
            soap=soap,
            addressing=addressing,
            rm=rm,
            window=window,
            poll_interval=interval,
            acks_to=None if is_anonymous else EndpointReference(f"http://client/{name}"),
        )
        self._source_class = source_class
        self._messages = messages
        self.source: RmSource | None = None
        self.judge = SourceJudge(name, window, interval, world.problems)
        self.acknowledged: set[int] = set()
        self.polled = 0
        self._life = 0

    @property
    def is_over(self) -> bool:
        """Return whether the sequence has ended and no timer of the source runs."""
        return (
            self.source is not None
            and self.source.state in OVER
            and self.source.next_timer() is None
        )

    def begin(self) -> None:
        """Make the source, enqueue all messages, request the end of the sequence, and send."""
        now = self._world.clock.now
        self.source = self._source_class(self.settings, f"urn:uuid:create-{self.name}", now)
        if self._messages:
            self.source.enqueue(self._messages)
        self._told(self.source.end(now))
        self._poll()

    def crash(self) -> None:
        """Kill the client between two steps and restore its source from the stored row.

        Each step is stored before any of its messages is sent, so no step is lost. Nothing happens
        before :meth:`begin`.
        """
        if self.source is None:
            return
        now = self._world.clock.now
        self._world.note(f"{self.name} dies")
        self._world.marks["source died"] += 1
        self._world.marks["source died while it polled"] += self.source.polling.timer_at is not None
        self._life += 1
        self.source = self._source_class.restored(self.settings, self.source.row(), now)
        self.judge.last_ask = now
        self._poll()

    def body(self, number: int) -> bytes:
        """Return the body of message ``number``."""
        return f"<m>{self.name}/{number}</m>".encode()

    def _poll(self) -> None:
        source, world = self.source, self._world
        assert source is not None, "it has begun"
        now = world.clock.now
        for output in source.poll(now):
            if isinstance(output, Transmit):
                if not output.is_again:
                    self.judge.sends(output.number)
                world.marks["sent again"] += output.is_again
                message_id = f"urn:uuid:{self.name}-{output.number}"
                message = source.envelope(output, "urn:a", self.body(output.number), message_id)
                world.note(f"{self.name}: {output}")
            else:
                message = output.message
                world.note(f"{self.name}: {message.action.rpartition('/')[2]}")
                if message.ack_requested:
                    self.polled += 1
                    self.judge.asks(now)
            world.travel(message, partial(world.post, answer=partial(self._answered, self._life)))
        self._arm()

    def _arm(self) -> None:
        assert self.source is not None, "it has begun"
        when = self.source.next_timer()
        clock = self._world.clock
        if when is not None:
            clock.at(max(when, clock.now), self._alarm, self._life, when)
        if self.judge.zero_since is not None and self.source.state not in OVER:
            clock.after(self.judge.interval + 0.01, self._check, self._life)

    def _alarm(self, life: int, when: float) -> None:
        assert self.source is not None, "it has begun"
        if life == self._life and self.source.next_timer() == when:
            self._poll()

    def _check(self, life: int) -> None:
        assert self.source is not None, "it has begun"
        if life == self._life and self.source.state not in OVER:
            self.judge.check(self._world.clock.now)

    def _answered(self, life: int, message: SoapMessage | None) -> None:
        # An answer to an earlier life is lost, because its connection ended with the client.
        if life == self._life and message is not None:
            self.heard(message)

    def heard(self, message: SoapMessage) -> None:
        """Handle a message from the destination, and send what may be sent now.

        Problems are added to the world's list.
        """
        if self.source is None:
            return
        now = self._world.clock.now
        for ack in message.acknowledgements:
            if ack.identifier == self.source.identifier and self.source.state not in OVER:
                self.judge.acknowledged(ack, now)
                self._world.note(f"{self.name} hears {ack.ranges} {ack.buffer_remaining}")
        self._told(self.source.received(message, now))
        self._poll()

    def _told(
        self, events: list[SequenceOpened | Acknowledged | SequenceEnded | Suspicious]
    ) -> None:
        assert self.source is not None, "it has begun"
        problems = self._world.problems
        for event in events:
            if isinstance(event, Acknowledged):
                stored = self._world.store.accepted.get(self.source.identifier, 0)
                for first, last in event.ranges:
                    self.acknowledged |= set(range(first, last + 1))
                    if last > stored:
                        problems.append(
                            f"{self.name} takes {last} for delivered, {stored} is stored"
                        )
            elif isinstance(event, SequenceEnded) and event.fault is not None:
                problems.append(f"{self.name}: {event.fault}")
            elif isinstance(event, Suspicious):
                problems.append(f"{self.name}: {event.reason}")

    def verdict(self, store: Store) -> list[str]:
        """Return the problems found at the end, one text each.

        Each message must be one row of ``store``, in order. The sequence must also have ended as
        TERMINATED, with every message acknowledged.
        """
        source = self.source
        if source is None:
            return [f"{self.name} never began"]
        rows = [
            (number, body)
            for identifier, number, body in store.rows
            if identifier == source.identifier and identifier
        ]
        expected = [(number, self.body(number)) for number in range(1, self._messages + 1)]
        problems = []
        if rows != expected:
            numbers = [number for number, _ in rows]
            problems.append(f"{self.name}: rows {numbers}, sent were 1 to {self._messages}")
        if source.state is not RmSourceState.TERMINATED:
            problems.append(f"{self.name} ended as {source.state.name}")
        elif not self.acknowledged >= set(range(1, self._messages + 1)):
            problems.append(f"{self.name} ended, and was not told of all")
        return problems
