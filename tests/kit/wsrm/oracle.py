"""States what must hold of a store, of acknowledgements, and of messages in flight.

The rules are written without the terms of the engines.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from srmp_spark.wsrm.codec.elements import ABSENT, SequenceAcknowledgement
from srmp_spark.wsrm.receiving.destination_effects import (
    InOrderMessage,
    SequenceChanges,
    SequenceRow,
)
from tests.kit.sim_disk import Synced

ASK_SLACK = 0.001
"""Seconds that a poll may be late. The clock of the simulator causes no longer delays."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction: new rows, and the changes of their sequences."""

    deliveries: list[InOrderMessage]
    changes: SequenceChanges


class Store(Synced[Commit]):
    """A queue on a simulated disk: rows in order, and the number of rows that the consumer took.

    Begin, finish and crash of a write are those of :class:`Synced`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, int, bytes]] = []
        """Stored rows as (sequence identifier, message number, body)."""
        self.sequences: dict[str, SequenceRow] = {}
        self.accepted: dict[str, int] = {}
        """Sequence identifier → number of accepted messages, for every sequence that ever existed.

        A LastMessage of version 1.0 counts here and has no row.
        """
        self.processed = 0

    def apply(self, transaction: Commit) -> None:
        """Add a transaction to the stored state. Called when the transaction has been synced."""
        self.rows += [
            (each.identifier, each.number, each.message.body) for each in transaction.deliveries
        ]
        for row in transaction.changes.sequences:
            self.sequences[row.identifier] = row
            self.accepted[row.identifier] = row.accepted
        for identifier in transaction.changes.removed:
            self.sequences.pop(identifier, None)

    @property
    def waiting(self) -> int:
        """Return the number of rows that the consumer has not taken."""
        return len(self.rows) - self.processed


@dataclass(slots=True)
class SourceJudge:
    """Judges which messages one source may send after the acknowledgements so far.

    ``window`` is the most messages in flight, ``interval`` the seconds between two polls. Each
    broken rule is added to ``problems``. ``now`` is in seconds of the simulated clock.
    """

    name: str
    window: int
    interval: float
    problems: list[str]
    heard: int = 0
    """Number of messages that the best acknowledgement so far covered.

    Acknowledgements of srmp-spark always cover 1 to n.
    """
    value: int = ABSENT
    """BufferRemaining of the last acknowledgement that was not outdated; ABSENT before."""
    sent: int = 0
    last_ask: float = 0.0
    zero_since: float | None = None
    marks: dict[str, int] = field(default_factory=dict)

    def acknowledged(self, ack: SequenceAcknowledgement, now: float) -> None:
        """Record an acknowledgement that arrived at ``now``. An outdated one changes nothing."""
        count = ack.ranges[-1][1] if ack.ranges else 0
        if count < self.heard:
            self.marks["old acknowledgement"] = self.marks.get("old acknowledgement", 0) + 1
            return
        self.heard = count
        if ack.buffer_remaining == ABSENT:
            return
        if ack.buffer_remaining == 0 and self.value != 0:
            self.zero_since = self.last_ask = now
        elif ack.buffer_remaining:
            self.zero_since = None
        self.value = ack.buffer_remaining

    def sends(self, number: int) -> None:
        """Judge message ``number``, which is sent for the first time.

        The numbers must be consecutive, and window and BufferRemaining must have room.
        """
        if number != self.sent + 1:
            self.problems.append(f"{self.name}: {number} leaves after {self.sent}")
        self.sent = number
        on_their_way = number - self.heard
        if self.value == 0:
            self.problems.append(f"{self.name}: {number} leaves while the destination says 0")
        elif on_their_way > self.window or (self.value != ABSENT and on_their_way > self.value):
            said = "nothing" if self.value == ABSENT else self.value
            self.problems.append(
                f"{self.name}: {on_their_way} on their way, the window is {self.window}, "
                f"the destination said {said}"
            )

    def asks(self, now: float) -> None:
        """Judge a poll at ``now``: the last BufferRemaining must have been 0."""
        self.last_ask = now
        if self.value != 0:
            self.problems.append(
                f"{self.name} polls, and the destination never said 0, or has said more since"
            )

    def check(self, now: float) -> None:
        """Judge whether the source has polled in time while BufferRemaining is 0."""
        if self.zero_since is not None and now - self.last_ask > self.interval + ASK_SLACK:
            self.problems.append(
                f"{self.name}: the destination said 0, and nobody asked for "
                f"{now - self.last_ask:.1f} s"
            )
            self.zero_since = None


def judge_acknowledgement(ack: SequenceAcknowledgement, store: Store, buffer: int) -> list[str]:
    """Return the problems of an acknowledgement that the destination sends now, one text each.

    ``buffer`` is the most rows that may wait for the consumer.
    """
    problems = []
    stored = store.accepted.get(ack.identifier, 0)
    if ack.nacks or len(ack.ranges) > 1 or (ack.ranges and ack.ranges[0][0] != 1):
        problems.append(f"ours hold 1 to n, this one {ack}")
    if ack.ranges and ack.ranges[-1][1] > stored:
        problems.append(f"{ack.ranges[-1][1]} is acknowledged, {stored} is stored")
    if ack.buffer_remaining == ABSENT:
        problems.append("an acknowledgement without BufferRemaining")
    elif ack.buffer_remaining > max(0, buffer - store.waiting):
        problems.append(
            f"BufferRemaining {ack.buffer_remaining}, room for {max(0, buffer - store.waiting)}"
        )
    return problems
