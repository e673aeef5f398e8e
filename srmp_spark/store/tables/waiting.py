"""Count the rows that wait in a queue, without a query: rows, bytes and age.

A row waits if the default consumer has not received it: it lies beyond the mark of that consumer,
and is not among the rows received beyond the mark ("ahead"). Holes, and rows that retention has
deleted, do not wait. Neighbouring rows share an entry, because a backlog of millions must not cost
memory per row. If some rows of an entry no longer wait, its bytes are counted in proportion. So the
sum is off by less than one entry, which is accurate enough for a quota. An entry without waiting
rows is forgotten.

The rest of an entry follows from three things alone: the mark, the set beyond it, and the holes. So
a caller that changes one of them states where (:meth:`WaitingRows.receive`,
:meth:`WaitingRows.cut`), and only the entries there are counted again. A mark in the middle of a
million rows costs one entry.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from srmp_spark.sequences.ranges import SEQUENCE_MAX, Range
from srmp_spark.sequences.sequence_set import SequenceSet, count_in_either
from srmp_spark.store.database.schema import row_key

ENTRY_ROWS = 256
"""Rows that share an entry: a million waiting rows are 4,000 entries."""
_FORGET = 1_024
"""Least number of entries without a waiting row before their places are freed.

The places are freed only if these entries are also half of all entries, because freeing moves the
others.
"""

_LAST = attrgetter("last")


@dataclass(slots=True)
class _Entry:
    """Counts of one run of neighbouring rows, ``first`` to ``last``, both included."""

    first: int
    last: int
    size: int
    """Bytes of the posts of all rows."""
    arrived_at: int
    """Arrival time of the first row, in microseconds since 1970, UTC."""
    left: int
    """Bytes of the rows that wait, in proportion."""
    waits: int
    """Number of rows that wait."""


class WaitingRows:
    """Counts the rows of one queue that wait for the default consumer, and their bytes.

    These are the rows above :attr:`received` without those that were received out of turn and those
    in :attr:`holes`.
    """

    __slots__ = ("_ahead", "_bytes", "_entries", "_gone", "_head", "holes", "received")

    def __init__(self, received: int = 0) -> None:
        self.received = received
        """Sequence up to which rows no longer wait.

        It is the mark, or the last row that retention has deleted.
        """
        self.holes = SequenceSet()
        """Sequences of rows that were purged or given up, above those that retention has deleted.

        Named consumers may be before the mark, so the holes below the mark are kept.
        """
        self._ahead = SequenceSet()
        """Sequences received beyond the mark: the consumer's own set."""
        self._entries: list[_Entry] = []
        """Entries in order; those before index ``_head`` are forgotten."""
        self._head = 0
        self._gone = 0
        """Number of entries from ``_head`` on without a waiting row."""
        self._bytes = 0

    @classmethod
    def load(cls, connection: sqlite3.Connection, queue_id: int, received: int) -> WaitingRows:
        """Count the rows that the store holds after the mark ``received``, and return the counts.

        Rows that were received beyond the mark are counted until :meth:`receive` is called.
        """
        (trimmed_to,) = connection.execute(
            "SELECT trimmed_to FROM queues WHERE id = ?", (queue_id,)
        ).fetchone()
        waiting = cls(max(received, trimmed_to))
        holes = "SELECT first, last FROM holes WHERE queue_id = ? AND last > ?"
        for first, last in connection.execute(holes, (queue_id, trimmed_to)):
            waiting.holes.add(first, last)
        span = (row_key(queue_id, waiting.received + 1), row_key(queue_id, SEQUENCE_MAX))
        sealed = trimmed_to
        what, where = (
            "SELECT first, last, bytes, arrived_first FROM",
            "WHERE id BETWEEN ? AND ? ORDER BY id",
        )
        for first, last, size, arrived in connection.execute(f"{what} segments {where}", span):
            waiting.add(first, size, arrived, last=last)
            sealed = last
        for first, last, size, arrived in connection.execute(f"{what} groups {where}", span):
            # A sealed group may still exist, so it is not counted again.
            if first > sealed:
                waiting.add(first, size, arrived, last=last)
        return waiting

    @property
    def bytes(self) -> int:
        """Return about how many bytes of posts wait; the error is less than one entry."""
        return self._bytes

    @property
    def last(self) -> int:
        """Return the sequence of the last row that waits, or of a neighbour just after this row.

        Return the mark if no row waits.
        """
        return self._entries[-1].last if self._head < len(self._entries) else self.received

    @property
    def oldest_arrived_at(self) -> int | None:
        """Return the time at which the oldest waiting row, or a neighbour just before it, arrived.

        The time is in microseconds since 1970, UTC; ``None`` if no row waits.
        """
        return self._entries[self._head].arrived_at if self._head < len(self._entries) else None

    def add(self, sequence: int, size: int, arrived_at: int, *, last: int | None = None) -> None:
        """Count a committed row, or the rows from ``sequence`` to ``last``, both included.

        ``size`` is the bytes of their posts. ``arrived_at`` is the arrival time of the first row,
        in microseconds since 1970, UTC. The rows must have higher sequences than all rows that were
        added before.
        """
        entries, end = self._entries, sequence if last is None else last
        entry = entries[-1] if self._head < len(entries) else None
        if entry is not None and entry.last + 1 == sequence and end - entry.first < ENTRY_ROWS:
            all_wait = entry.waits == entry.last - entry.first + 1
            entry.last = end
            entry.size += size
            entry.left += size
            entry.waits += end - sequence + 1
        else:
            all_wait = True
            entry = _Entry(sequence, end, size, arrived_at, size, end - sequence + 1)
            entries.append(entry)
        self._bytes += size
        if not all_wait or sequence <= self.received or self._is_taken(sequence):
            self._count(entry)
            self._forget()

    def receive(self, received: int, ahead: SequenceSet, touched: Sequence[Range] = ()) -> None:
        """Move the mark forward to ``received``, and recompute which rows wait.

        A lower mark than the present one is ignored. ``ahead`` is the consumer's set of rows
        received beyond the mark, which this object keeps and does not change. ``touched`` are the
        runs that were added to the set, ascending.
        """
        self.received = max(self.received, received)
        if ahead is not self._ahead:
            self._ahead = ahead
            touched = [(ahead.first, ahead.last)] if ahead else ()
        entries = self._entries
        while self._head < len(entries) and entries[self._head].last <= self.received:
            self._bytes -= entries[self._head].left
            self._gone -= entries[self._head].waits == 0
            self._head += 1
        if self._head < len(entries) and entries[self._head].first <= self.received:
            self._count(entries[self._head])
        self._count_each(touched)

    def cut(self, holes: Iterable[Range]) -> None:
        """Record that the rows in these closed ranges became holes, and so wait no longer.

        The ranges are ascending and disjoint.
        """
        holes = list(holes)
        for first, last in holes:
            self.holes.add(first, last)
        self._count_each(holes)

    def trim(self, to: int) -> None:
        """Forget the holes up to ``to``, because retention has deleted all rows up to ``to``.

        The counts and :attr:`received` stay as they are.
        """
        self.holes.discard_through(to)

    def copy(self) -> WaitingRows:
        """Return separate counts for another consumer, which has the same mark.

        That consumer has received nothing beyond the mark.
        """
        made = WaitingRows(self.received)
        made.holes = self.holes.copy()
        for entry in self._entries[self._head :]:
            rows = entry.last - entry.first + 1
            made._entries.append(
                _Entry(entry.first, entry.last, entry.size, entry.arrived_at, entry.size, rows)
            )
            made._bytes += entry.size
            made._count(made._entries[-1])
        made._forget()
        return made

    def _is_taken(self, sequence: int) -> bool:
        """Return whether any row from ``sequence`` on was received already or is a hole."""
        return any(each and each.last >= sequence for each in (self._ahead, self.holes))

    def _count_each(self, runs: Sequence[Range]) -> None:
        """Recompute the entries that the runs touch, and forget entries without a waiting row.

        The runs are ascending.
        """
        entries, at = self._entries, self._head
        for first, last in runs:
            at = bisect_left(entries, first, at, key=_LAST)
            while at < len(entries) and entries[at].first <= last:
                self._count(entries[at])
                if entries[at].last > last:
                    break
                at += 1
        self._forget()

    def _count(self, entry: _Entry) -> None:
        """Compute how many rows and bytes of an entry wait, and update the entry and the totals."""
        low, rows = max(entry.first, self.received + 1), entry.last - entry.first + 1
        wait = max(0, entry.last + 1 - low) - count_in_either(
            low, entry.last, self._ahead, self.holes
        )
        left = entry.size * wait // rows
        self._bytes += left - entry.left
        self._gone += (wait == 0) - (entry.waits == 0)
        entry.left, entry.waits = left, wait

    def _forget(self) -> None:
        """Free entries without a waiting row: at both ends at once, in between only if many.

        See :data:`_FORGET`.
        """
        entries = self._entries
        while self._head < len(entries) and not entries[self._head].waits:
            self._head += 1
            self._gone -= 1
        while self._head < len(entries) and not entries[-1].waits:
            entries.pop()
            self._gone -= 1
        useless = self._head + self._gone
        if useless == len(entries) or (useless >= _FORGET and 2 * useless >= len(entries)):
            self._entries = [entry for entry in entries[self._head :] if entry.waits]
            self._head = self._gone = 0

    def __repr__(self) -> str:
        return f"<Waiting after={self.received} last={self.last} bytes={self.bytes}>"
