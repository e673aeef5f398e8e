"""What waits in a queue: rows, bytes and age beyond the default consumer's mark, without asking the database.

Counted in entries of neighbouring rows, not row by row: a backlog of millions must not cost memory per row. The bytes of an
entry that the mark has partly passed are taken in proportion, so the sum is off by less than one entry, which is far inside
what a quota is for. Rows received beyond the mark ("ahead") and rows that retention has deleted wait for nobody either; an
entry of which all are received is forgotten.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from srmp_spark.srmp.ranges import Range, overlaps, subtract
from srmp_spark.store.schema import SEQUENCE_MAX, row_key

ENTRY_ROWS = 256
"""Rows that share an entry: a million waiting rows are 4,000 entries."""


class Waiting:
    """The rows after ``received`` of one queue."""

    __slots__ = ("_ahead_bytes", "_bytes", "_entries", "holes", "received")

    def __init__(self, received: int = 0) -> None:
        self.received = received
        """Rows up to here no longer wait: the mark, or what retention has deleted."""
        self.holes: list[Range] = []
        """Purged or given up: sorted, disjoint. All that retention has not passed: named consumers may be behind the mark."""
        self._entries: deque[list[int]] = deque()
        """[first, last, bytes, arrived_at of the first], in order, without those that the mark has passed."""
        self._bytes = 0
        self._ahead_bytes = 0
        """What rows received ahead have of ``_bytes``: in entries of which some rows still wait."""

    @classmethod
    def load(cls, connection: sqlite3.Connection, queue_id: int, received: int) -> Waiting:
        """What the store holds beyond the mark."""
        (trimmed_to,) = connection.execute("SELECT trimmed_to FROM queues WHERE id = ?", (queue_id,)).fetchone()
        waiting = cls(max(received, trimmed_to))
        span = (row_key(queue_id, waiting.received + 1), row_key(queue_id, SEQUENCE_MAX))
        sealed = trimmed_to
        what, where = "SELECT first, last, bytes, arrived_first FROM", "WHERE id BETWEEN ? AND ? ORDER BY id"
        for first, last, size, arrived in connection.execute(f"{what} segments {where}", span):
            waiting._add(first, last, size, arrived)
            sealed = last
        for first, last, size, arrived in connection.execute(f"{what} groups {where}", span):
            if first > sealed:  # a sealed group may not be deleted yet
                waiting._add(first, last, size, arrived)
        holes = "SELECT first, last FROM holes WHERE queue_id = ? AND last > ? ORDER BY first"
        waiting.cut(connection.execute(holes, (queue_id, trimmed_to)))
        return waiting

    @property
    def bytes(self) -> int:
        """Bytes of the posts that wait."""
        if not self._entries:
            return 0
        first, last, size, _ = self._entries[0]
        passed = self.received + 1 - first
        return self._bytes - self._ahead_bytes - (size * passed // (last - first + 1) if passed > 0 else 0)

    @property
    def last(self) -> int:
        """The last row that waits, or one of its neighbours just after it; the mark if none waits."""
        return self._entries[-1][1] if self._entries else self.received

    @property
    def oldest_arrived_at(self) -> int | None:
        """When the oldest waiting row, or one of its neighbours just before it, arrived; microseconds since 1970, UTC."""
        return self._entries[0][3] if self._entries else None

    def add(self, sequence: int, size: int, arrived_at: int, *, last: int | None = None) -> None:
        """A row was committed, or all from ``sequence`` to ``last`` were; ``arrived_at`` is when the first of them came."""
        self._add(sequence, sequence if last is None else last, size, arrived_at)

    def receive(self, received: int, ahead: Sequence[tuple[int, int]] = ()) -> None:
        """The mark moved (never back), and these are all runs beyond it that are received too: sorted, disjoint."""
        self.received = max(self.received, received)
        entries = self._entries
        while entries and entries[0][1] <= self.received:
            self._bytes -= entries.popleft()[2]
        self._ahead_bytes = 0
        left: list[list[int]] = []
        at = len(ahead) - 1
        while entries and ahead and entries[-1][1] >= ahead[0][0]:
            entry = entries.pop()
            first, last, size, _ = entry
            low = max(first, self.received + 1)
            while at > 0 and ahead[at][0] > last:
                at -= 1
            rows = sum(max(0, min(b, last) - max(a, low) + 1) for a, b in _down(ahead, at, low))
            if rows == last - low + 1:
                self._bytes -= size
            else:
                self._ahead_bytes += size * rows // (last - first + 1)
                left.append(entry)
        entries.extend(reversed(left))

    def _add(self, first: int, last: int, size: int, arrived_at: int) -> None:
        entries = self._entries
        self._bytes += size
        if entries and entries[-1][1] + 1 == first and last - entries[-1][0] < ENTRY_ROWS:
            entries[-1][1] = last
            entries[-1][2] += size
        else:
            entries.append([first, last, size, arrived_at])

    def cut(self, holes: Iterable[Range]) -> None:
        """Holes, ascending and disjoint: their rows wait for nobody. What of them was one already does not count again.

        All of a purge at once, in one pass: there is one for each run that was received out of turn, and this is the loop that
        accepts messages.
        """
        new = list(subtract(holes, self.holes))
        spans = [(first, last) for first, last, _, _ in self._entries]
        left: deque[list[int]] = deque()
        for entry, before, inside in zip(self._entries, overlaps(spans, self.holes), overlaps(spans, new), strict=True):
            rows = entry[1] - entry[0] + 1 - before
            taken = entry[2] * inside // rows if inside < rows else entry[2]
            entry[2] -= taken
            self._bytes -= taken
            if inside < rows:
                left.append(entry)
        self._entries = left
        self.holes = sorted([*self.holes, *new])

    def trim(self, to: int) -> None:
        """Retention has deleted the rows up to ``to``, holes too."""
        self.holes = [hole for hole in self.holes if hole[1] > to]

    def holes_beyond(self, sequence: int) -> list[Range]:
        """The holes that reach beyond ``sequence``, ascending."""
        return self.holes[bisect_right(self.holes, sequence, key=itemgetter(1)) :]

    def __repr__(self) -> str:
        return f"<Waiting after={self.received} last={self.last} bytes={self.bytes}>"


def _down(runs: Sequence[tuple[int, int]], at: int, low: int) -> Iterator[tuple[int, int]]:
    """The runs from number ``at`` downwards that reach ``low``."""
    while at >= 0 and runs[at][1] >= low:
        yield runs[at]
        at -= 1
