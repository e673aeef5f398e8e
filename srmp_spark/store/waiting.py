"""What waits in a queue: rows, bytes and age beyond the default consumer's mark, without asking the database.

Counted in entries of neighbouring rows, not row by row: a backlog of millions must not cost memory per row. The bytes of an
entry of which some rows no longer wait are taken in proportion, so the sum is off by less than one entry, which is far inside
what a quota is for. Rows received beyond the mark ("ahead"), holes, and rows that retention has deleted wait for nobody; an
entry of which no row waits is forgotten.

What an entry has left follows from three things alone: the mark, the set beyond it, the holes. So whoever changes one of them
says where (:meth:`Waiting.receive`, :meth:`Waiting.cut`), and only the entries there are counted again: a mark in the middle
of a million rows costs one entry.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from srmp_spark.sequences.ranges import SEQUENCE_MAX, Range
from srmp_spark.sequences.sequence_set import SequenceSet, count_in_either
from srmp_spark.store.schema import row_key

ENTRY_ROWS = 256
"""Rows that share an entry: a million waiting rows are 4,000 entries."""
_FORGET = 1_024
"""Entries without a waiting row before their places are given back, and half of all: that moves the others."""

_LAST = attrgetter("last")


@dataclass(slots=True)
class _Entry:
    """Neighbouring rows."""

    first: int
    last: int
    size: int
    """Bytes of their posts."""
    arrived_at: int
    """Of the first."""
    left: int
    """Bytes of those that wait, in proportion."""
    waits: int
    """How many those are."""


class Waiting:
    """The rows after ``received`` of one queue."""

    __slots__ = ("_ahead", "_bytes", "_entries", "_gone", "_head", "holes", "received")

    def __init__(self, received: int = 0) -> None:
        self.received = received
        """Rows up to here no longer wait: the mark, or what retention has deleted."""
        self.holes = SequenceSet()
        """Purged or given up. All that retention has not passed: named consumers may be behind the mark."""
        self._ahead = SequenceSet()
        """What is received beyond the mark: the consumer's own set."""
        self._entries: list[_Entry] = []
        """In order; those before ``_head`` are forgotten."""
        self._head = 0
        self._gone = 0
        """Entries from ``_head`` on of which no row waits."""
        self._bytes = 0

    @classmethod
    def load(cls, connection: sqlite3.Connection, queue_id: int, received: int) -> Waiting:
        """What the store holds beyond the mark."""
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
            if first > sealed:  # a sealed group may not be deleted yet
                waiting.add(first, size, arrived, last=last)
        return waiting

    @property
    def bytes(self) -> int:
        """Bytes of the posts that wait."""
        return self._bytes

    @property
    def last(self) -> int:
        """The last row that waits, or one of its neighbours just after it; the mark if none waits."""
        return self._entries[-1].last if self._head < len(self._entries) else self.received

    @property
    def oldest_arrived_at(self) -> int | None:
        """When the oldest waiting row, or one of its neighbours just before it, arrived; microseconds since 1970, UTC."""
        return self._entries[self._head].arrived_at if self._head < len(self._entries) else None

    def add(self, sequence: int, size: int, arrived_at: int, *, last: int | None = None) -> None:
        """A row was committed, or all from ``sequence`` to ``last`` were; ``arrived_at`` is when the first of them came."""
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
        """The mark moved (never back); ``ahead`` is the consumer's set beyond it, ``touched`` runs that were added to it."""
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
        """Holes, ascending and disjoint: their rows wait for nobody."""
        holes = list(holes)
        for first, last in holes:
            self.holes.add(first, last)
        self._count_each(holes)

    def trim(self, to: int) -> None:
        """Retention has deleted the rows up to ``to``, holes too."""
        self.holes.discard_through(to)

    def copy(self) -> Waiting:
        """Return one of its own for another consumer of the same rows, who has received nothing beyond the mark."""
        made = Waiting(self.received)
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
        """Whether something from ``sequence`` on may not wait."""
        return any(each and each.last >= sequence for each in (self._ahead, self.holes))

    def _count_each(self, runs: Sequence[Range]) -> None:
        """Count the entries anew that the runs, ascending, touch."""
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
        """Set what an entry has left."""
        low, rows = max(entry.first, self.received + 1), entry.last - entry.first + 1
        wait = max(0, entry.last + 1 - low) - count_in_either(
            low, entry.last, self._ahead, self.holes
        )
        left = entry.size * wait // rows
        self._bytes += left - entry.left
        self._gone += (wait == 0) - (entry.waits == 0)
        entry.left, entry.waits = left, wait

    def _forget(self) -> None:
        """Forget entries of which no row waits: at both ends at once, and in between when many are gone."""
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
