"""A model of queues, consumers and queries: sets of (queue manager, queue, sequence).

This module does not use the code that it judges. The world reports the events to the model: a
message arrived, rows are gone, a consumer received rows by command, a query met a queue, a batch
was read or committed. From these events the model derives the rules that must hold:

1. *Begin.* A query's rows of a queue are decided when the query meets the queue, by its options at
   that moment. ``earliest`` means all rows. ``latest`` means the rows that arrive from then on.
   ``unreceived`` means the rows that its consumer has not received. A number means the rows from
   this sequence on. A queue that is made while the query runs has no rows from before the query.
   The query reads all its rows, or with ``unreceived`` those that its consumer has not received.
2. *Exact.* A batch holds no row that its query leaves out, and no row of an earlier batch of its
   checkpoint.
3. *Whole.* When no more events happen and the query has run to the end, it has read every row that
   still exists and that it does not leave out, of the queues that its options name.
4. *Marks.* A consumer has received the rows that it received by command, and rows of committed
   batches of checkpoints that ran as this consumer, and no other row. When a query plans again, the
   rows that it committed before as this consumer are received.
5. *Waiting.* A new ``unreceived`` query of a consumer reads exactly the rows that the consumer has
   not received.
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
    """A message in a queue, by its sequence."""

    log: Log
    sequence: int

    def __str__(self) -> str:
        return f"{self.sequence} of {self.log}"


Rows = frozenset[Row]
NO_ROWS: Rows = frozenset()


def shown(rows: set[Row] | Rows) -> str:
    """Return rows as readable text: the sequences of each queue."""
    found: dict[Log, list[str]] = {}
    for row in sorted(rows):
        found.setdefault(row.log, []).append(str(row.sequence))
    return "; ".join(f"{log}: {', '.join(sequences)}" for log, sequences in found.items())


@dataclass
class Met:
    """The rows that a query leaves out of a queue that it has met."""

    leaves_out: Rows
    """Rows that the query must not read."""
    may_leave_out: Rows
    """Rows that the query need not read, because it is unknown which of two moments counted."""


@dataclass
class Checkpoint:
    """The batches and queues of one checkpoint so far."""

    name: str
    met: dict[Log, Met] = field(default_factory=dict)
    batches: dict[int, Rows] = field(default_factory=dict)
    """Rows that were read, by batch."""
    committed: set[int] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)
    """Consumers as which the query of this checkpoint has run."""
    committed_as: dict[int, str] = field(default_factory=dict)
    """Batch → the consumer as which its query ran. A query that only peeks adds no entry."""

    @property
    def had(self) -> set[Row]:
        """Return every row of every batch that was read, committed or not."""
        return set().union(*self.batches.values())

    @property
    def processed(self) -> set[Row]:
        """Return every row of a committed batch."""
        return set().union(*(self.batches.get(each, NO_ROWS) for each in self.committed))


class BrokenPromiseError(AssertionError):
    """Raised when the events contradict the model. The text names the promise and the rows."""


class Truth:
    """All rows, and the rules about who may read them."""

    def __init__(self) -> None:
        self.rows: set[Row] = set()
        """Rows that exist now, in all queues."""
        self.gone: set[Row] = set()
        """Rows that were purged, deleted or lost with a disk."""
        self.checkpoints: dict[str, Checkpoint] = {}
        self._taken: dict[str, set[Row]] = {}
        """Rows that each consumer received by command."""
        self._must: dict[str, set[Row]] = {}
        """Rows that each consumer has certainly received."""

    def checkpoint(self, name: str) -> Checkpoint:
        """Return the checkpoint ``name``; the first call makes it."""
        return self.checkpoints.setdefault(name, Checkpoint(name))

    def of(self, log: Log) -> Rows:
        """Return the rows of the queue ``log`` that exist now."""
        return frozenset(row for row in self.rows if row.log == log)

    # --- what happens -----------------------------------------------------------------------------

    def arrived(self, rows: Rows) -> None:
        """Record that messages are stored as ``rows``.

        Raises :class:`BrokenPromiseError` if a sequence is used again.
        """
        _expect(
            not rows & (self.rows | self.gone),
            "sequences are never used again",
            rows & (self.rows | self.gone),
        )
        self.rows |= rows

    def went(self, rows: Rows) -> None:
        """Record that rows no longer exist, so no client can read them."""
        self.rows -= rows
        self.gone |= rows

    def took(self, consumer: str, rows: Rows, marks: Rows) -> None:
        """Record that a consumer received ``rows`` by command.

        ``marks`` are the rows that it had received before. Raises :class:`BrokenPromiseError` if
        one of the rows is among them.
        """
        _expect(
            not rows & marks,
            f"`receive` gave consumer {consumer} rows that it had received before",
            rows & marks,
        )
        self._taken.setdefault(consumer, set()).update(rows)
        self._must.setdefault(consumer, set()).update(rows)

    def forgot(self, consumer: str, rows: Rows) -> None:
        """Record that the marks of these rows are lost with a disk."""
        self._must.get(consumer, set()).difference_update(rows)

    def read(self, name: str, batch: int, rows: list[Row]) -> None:
        """Record that ``batch`` of the checkpoint ``name`` was read, perhaps again after a crash.

        Raises :class:`BrokenPromiseError` if the batch holds a row twice, a row of another batch, a
        row that the query leaves out, or one that never arrived.
        """
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
        """Record that the sink has stored ``batch`` of the checkpoint ``name`` permanently.

        ``consumer`` is the consumer as which the query ran, or ``None`` if the query only peeks.
        """
        checkpoint = self.checkpoint(name)
        checkpoint.committed.add(batch)
        if consumer is not None:
            checkpoint.committed_as[batch] = consumer

    def planned(self, name: str, consumer: str, logs: set[Log]) -> None:
        """Record that the query of the checkpoint ``name`` planned its next batch as ``consumer``.

        From now on its committed rows in the queues ``logs`` must be received. ``logs`` are the
        queues of its options whose queue managers it could reach.
        """
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
        """Check ``marks``, the existing rows that a consumer has received.

        Raises :class:`BrokenPromiseError` if a processed row is missing, or if a row counts that
        was never read for this consumer.
        """
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
        """Check a checkpoint whose query has run to the end, with options that name ``logs``.

        Raises :class:`BrokenPromiseError` if the query did not meet a queue, or did not read a row.
        """
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
