"""What is true of queues, consumers and queries: sets of (queue manager, queue, sequence), and nothing else.

This module knows nothing of the code that it judges. It is told what happened: a message arrived, rows are gone, a consumer
took rows by command, a query met a queue, a batch was read, committed. From that it says what must hold:

1. *Begin.* What a query reads of a queue is decided when it meets the queue, by its options at that moment: ``earliest``
   everything, ``latest`` what arrives from then on, ``unreceived`` what its consumer has not received, a number everything from
   there on. A queue that is made while the query runs has no rows from before the query: everything, and for ``unreceived``
   what its consumer has not received.
2. *Exact.* A batch holds no row that its query leaves out, and no row that an earlier batch of its checkpoint had.
3. *Whole.* When nothing happens any more and the query has run to the end, it has had every row that is still there and that it
   does not leave out, of the queues that its options name.
4. *Marks.* A consumer has received what it took by command, and rows of committed batches of checkpoints that ran as this
   consumer, and no other row. What a query had committed as this consumer before it planned again as it is received.
5. *Waiting.* What a consumer has not received, a new ``unreceived`` query of it reads: all of it, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Log(NamedTuple):
    """A queue of a queue manager."""

    queue_manager: str
    queue: str

    def __str__(self) -> str:
        return f"{self.queue} of {self.queue_manager}"


class Row(NamedTuple):
    """A message in a queue."""

    log: Log
    sequence: int

    def __str__(self) -> str:
        return f"{self.sequence} of {self.log}"


Rows = frozenset[Row]
NO_ROWS: Rows = frozenset()


def shown(rows: set[Row] | Rows) -> str:
    """Return rows as people write them."""
    found: dict[Log, list[str]] = {}
    for row in sorted(rows):
        found.setdefault(row.log, []).append(str(row.sequence))
    return "; ".join(f"{log}: {', '.join(sequences)}" for log, sequences in found.items())


@dataclass
class Met:
    """A queue that a query has met."""

    leaves_out: Rows
    """It may not read these."""
    may_leave_out: Rows
    """It need not read these: which of two moments counted nobody can say."""


@dataclass
class Checkpoint:
    """What a checkpoint has had."""

    name: str
    met: dict[Log, Met] = field(default_factory=dict)
    batches: dict[int, Rows] = field(default_factory=dict)
    """Rows that were read, by batch."""
    committed: set[int] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)
    """It has run as these."""
    committed_as: dict[int, str] = field(default_factory=dict)
    """By batch, the consumer that it ran as; it has none while it only peeks."""

    @property
    def had(self) -> set[Row]:
        """Every row of every batch."""
        return set().union(*self.batches.values())

    @property
    def processed(self) -> set[Row]:
        """Every row of a batch that is committed."""
        return set().union(*(self.batches.get(each, NO_ROWS) for each in self.committed))


class BrokenPromiseError(AssertionError):
    """What the model says and what happened differ."""


class Truth:
    """All rows, and who may have what."""

    def __init__(self) -> None:
        self.rows: set[Row] = set()
        """What is there."""
        self.gone: set[Row] = set()
        """What was purged, deleted or lost with a disk."""
        self.checkpoints: dict[str, Checkpoint] = {}
        self._taken: dict[str, set[Row]] = {}
        """By command, for each consumer."""
        self._must: dict[str, set[Row]] = {}
        """What each consumer has received for certain."""

    def checkpoint(self, name: str) -> Checkpoint:
        """Return a checkpoint, made when it is asked for."""
        return self.checkpoints.setdefault(name, Checkpoint(name))

    def of(self, log: Log) -> Rows:
        """Return the rows of a queue that are there."""
        return frozenset(row for row in self.rows if row.log == log)

    # --- what happens -----------------------------------------------------------------------------

    def arrived(self, rows: Rows) -> None:
        """Note that messages are stored."""
        _expect(
            not rows & (self.rows | self.gone),
            "sequences are never used again",
            rows & (self.rows | self.gone),
        )
        self.rows |= rows

    def went(self, rows: Rows) -> None:
        """Note that rows are no more: nobody can read them."""
        self.rows -= rows
        self.gone |= rows

    def took(self, consumer: str, rows: Rows, marks: Rows) -> None:
        """Note that a consumer took rows by command, when it had received ``marks``."""
        _expect(
            not rows & marks,
            f"`receive` gave consumer {consumer} rows that it had received before",
            rows & marks,
        )
        self._taken.setdefault(consumer, set()).update(rows)
        self._must.setdefault(consumer, set()).update(rows)

    def forgot(self, consumer: str, rows: Rows) -> None:
        """Note that the marks of these rows are lost with a disk."""
        self._must.get(consumer, set()).difference_update(rows)

    def read(self, name: str, batch: int, rows: list[Row]) -> None:
        """Note that a batch of a checkpoint was read, perhaps once more after a crash."""
        checkpoint, found = self.checkpoint(name), frozenset(rows)
        _expect(len(rows) == len(found), f"batch {batch} of {name} has a row twice", found)
        others = set().union(
            *(each for number, each in checkpoint.batches.items() if number != batch)
        )
        _expect(
            not found & others,
            f"batch {batch} of {name} has rows that an earlier batch had",
            found & others,
        )
        unmet = {row for row in found if row.log not in checkpoint.met}
        _expect(not unmet, f"{name} reads queues that it never met", unmet)
        left_out = {row for row in found if row in checkpoint.met[row.log].leaves_out}
        _expect(
            not left_out, f"batch {batch} of {name} has rows that its query leaves out", left_out
        )
        strange = {row for row in found if row not in self.rows and row not in self.gone}
        _expect(not strange, f"batch {batch} of {name} has rows that never arrived", strange)
        checkpoint.batches[batch] = checkpoint.batches.get(batch, NO_ROWS) | found

    def committed(self, name: str, batch: int, consumer: str | None) -> None:
        """Note that the sink has a batch for good; its query ran as ``consumer``, or only peeked."""
        checkpoint = self.checkpoint(name)
        checkpoint.committed.add(batch)
        if consumer is not None:
            checkpoint.committed_as[batch] = consumer

    def planned(self, name: str, consumer: str, logs: set[Log]) -> None:
        """Note that a query planned its next batch, and could reach the queue managers of ``logs``, which its options name."""
        checkpoint = self.checkpoint(name)
        batches = (
            checkpoint.batches.get(each, NO_ROWS)
            for each, by in checkpoint.committed_as.items()
            if by == consumer
        )
        processed = {row for rows in batches for row in rows if row.log in logs}
        self._must.setdefault(consumer, set()).update(processed)

    # --- what must hold ---------------------------------------------------------------------------

    def check_marks(self, consumer: str, marks: Rows) -> None:
        """Judge what a consumer has received of the rows that are there."""
        missing = (self._must.get(consumer, set()) & self.rows) - marks
        _expect(
            not missing,
            f"rows were processed and consumer {consumer} has not received them",
            missing,
        )
        may = set(self._taken.get(consumer, ()))
        for checkpoint in self.checkpoints.values():
            if consumer in checkpoint.consumers:
                may |= checkpoint.processed
        _expect(
            marks <= may,
            f"rows count as received by consumer {consumer}, and nobody has read them for it",
            marks - may,
        )

    def check_whole(self, name: str, logs: set[Log]) -> None:
        """Judge a checkpoint that has run to the end, with options that name ``logs``."""
        checkpoint = self.checkpoint(name)
        unmet = {log for log in logs if log not in checkpoint.met}
        _expect(
            not unmet,
            f"{name} has run to the end and never met {', '.join(map(str, unmet))}",
            set(),
        )
        due = {
            row
            for log in logs
            for row in self.of(log)
            if row not in checkpoint.met[log].leaves_out
            and row not in checkpoint.met[log].may_leave_out
        }
        _expect(
            due <= checkpoint.had,
            f"{name} has run to the end and never had rows that it must read",
            due - checkpoint.had,
        )


def _expect(holds: bool, what: str, rows: set[Row] | Rows) -> None:
    if not holds:
        raise BrokenPromiseError(f"{what}: {shown(rows)}" if rows else what)
