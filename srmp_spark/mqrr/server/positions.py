"""The messages of a queue in the order of MSMQ (priority, then arrival), without their content.

A message is known by its LookupIdentifier (:mod:`srmp_spark.mqrr.lookup_identifier`). The
identifier states its place, so the order needs no list of its own. For each priority this module
keeps the runs of sequences (row numbers in the log) in the queue; a backlog of a million messages
of one priority is one run. Identifiers ascend from the head of the queue to its tail.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.lookup_identifier import PRIORITY_MAX, SEQUENCE_BITS, SEQUENCE_MAX

START = -1
"""Position before the head ([MS-MQDMPR] 3.1.1.2, MessagePositionList.Start)."""
_COMPACT = 4_096
"""Used-up runs at the head before their memory is released, which moves all other runs."""


class ArrivedRun(NamedTuple):
    """One run of messages of one priority whose sequences follow each other in the log."""

    priority: int
    first: int
    last: int


def in_order(runs: Iterable[ArrivedRun]) -> list[tuple[int, int]]:
    """Return these runs as closed runs of lookup identifiers, from head to tail of the queue."""
    ranked = sorted(((PRIORITY_MAX - each.priority) << SEQUENCE_BITS, each) for each in runs)
    return [(rank | each.first, rank | each.last) for rank, each in ranked]


class _Runs:
    """Ascending, disjoint runs of sequences, which are used up mostly from the head."""

    __slots__ = ("_end", "_firsts", "_head", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._head = 0
        self._end = 0
        """Last sequence that was appended, even if it has been removed since."""

    def append(self, first: int, last: int) -> None:
        if first <= self._end:
            raise LocalProtocolError(f"messages {first} to {last} do not follow {self._end}")
        self._end = last
        if self._head < len(self._lasts) and self._lasts[-1] == first - 1:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)

    def _at(self, sequence: int) -> int:
        """Return the index of the run that contains ``sequence``, or -1 if there is none."""
        at = bisect_right(self._firsts, sequence, self._head) - 1
        return at if at >= self._head and sequence <= self._lasts[at] else -1

    def __contains__(self, sequence: int) -> bool:
        return self._at(sequence) >= 0

    def after(self, sequence: int) -> int | None:
        """Return the lowest sequence above ``sequence``, or ``None``."""
        at = bisect_right(self._lasts, sequence, self._head)
        return max(self._firsts[at], sequence + 1) if at < len(self._lasts) else None

    def before(self, sequence: int) -> int | None:
        """Return the highest sequence below ``sequence``, or ``None``."""
        at = bisect_left(self._firsts, sequence, self._head) - 1
        return min(self._lasts[at], sequence - 1) if at >= self._head else None

    def remove(self, sequence: int) -> bool:
        at = self._at(sequence)
        if at < 0:
            return False
        first, last = self._firsts[at], self._lasts[at]
        if first == last:
            if at == self._head:
                self._skip(at + 1)
            else:
                del self._firsts[at], self._lasts[at]
        elif sequence == first:
            self._firsts[at] = sequence + 1
        elif sequence == last:
            self._lasts[at] = sequence - 1
        else:
            self._lasts[at] = sequence - 1
            self._firsts.insert(at + 1, sequence + 1)
            self._lasts.insert(at + 1, last)
        return True

    def insert(self, sequence: int) -> None:
        """Insert again a sequence that was removed."""
        at = bisect_right(self._firsts, sequence, self._head)
        behind_last = at > self._head and self._lasts[at - 1] == sequence - 1
        before_first = at < len(self._firsts) and self._firsts[at] == sequence + 1
        if behind_last and before_first:
            self._lasts[at - 1] = self._lasts[at]
            del self._firsts[at], self._lasts[at]
        elif behind_last:
            self._lasts[at - 1] = sequence
        elif before_first:
            self._firsts[at] = sequence
        # The place of a used-up run is free, so no run is moved.
        elif at == self._head > 0:
            self._head -= 1
            self._firsts[self._head] = self._lasts[self._head] = sequence
        else:
            self._firsts.insert(at, sequence)
            self._lasts.insert(at, sequence)

    def drop_through(self, sequence: int) -> None:
        self._skip(bisect_right(self._lasts, sequence, self._head))
        if self._head < len(self._firsts) and self._firsts[self._head] <= sequence:
            self._firsts[self._head] = sequence + 1

    def _skip(self, to: int) -> None:
        self._head = to
        if to >= _COMPACT or to == len(self._firsts):
            del self._firsts[:to], self._lasts[:to]
            self._head = 0

    def count(self) -> int:
        firsts, lasts = self._firsts[self._head :], self._lasts[self._head :]
        return sum(lasts) - sum(firsts) + len(firsts)


class Positions:
    """The messages of one queue that no reader holds, by priority and sequence."""

    __slots__ = ("_dropped", "_ranks")

    def __init__(self) -> None:
        self._ranks = tuple(_Runs() for _ in range(PRIORITY_MAX + 1))
        """Runs of each priority; the index is 7 − priority."""
        self._dropped = 0

    def add(self, runs: Iterable[ArrivedRun]) -> None:
        """Add messages that arrived, each run after all messages of its priority.

        Messages up to the last :meth:`drop_through` are left out.

        Raises :class:`LocalProtocolError` if a run is not after them, or has an invalid priority or
        sequence.
        """
        for priority, first, last in runs:
            if not 0 <= priority <= PRIORITY_MAX or not 0 < first <= last <= SEQUENCE_MAX:
                raise LocalProtocolError(
                    f"no messages have priority {priority} and sequences {first} to {last}"
                )
            if last > self._dropped:
                self._ranks[PRIORITY_MAX - priority].append(max(first, self._dropped + 1), last)

    def __contains__(self, lookup_id: int) -> bool:
        rank = lookup_id >> SEQUENCE_BITS
        return 0 <= rank <= PRIORITY_MAX and (lookup_id & SEQUENCE_MAX) in self._ranks[rank]

    def following(self, lookup_id: int) -> int | None:
        """Return the lookup identifier of the next message after ``lookup_id``, or ``None``.

        ``lookup_id`` need not belong to a message.
        """
        rank, sequence = (
            (lookup_id >> SEQUENCE_BITS, lookup_id & SEQUENCE_MAX) if lookup_id >= 0 else (0, -1)
        )
        while rank <= PRIORITY_MAX:
            found = self._ranks[rank].after(sequence)
            if found is not None:
                return rank << SEQUENCE_BITS | found
            rank, sequence = rank + 1, -1
        return None

    def preceding(self, lookup_id: int) -> int | None:
        """Return the lookup identifier of the last message before ``lookup_id``, or ``None``."""
        rank, sequence = lookup_id >> SEQUENCE_BITS, lookup_id & SEQUENCE_MAX
        if rank > PRIORITY_MAX:
            rank, sequence = PRIORITY_MAX, SEQUENCE_MAX + 1
        while rank >= 0:
            found = self._ranks[rank].before(sequence)
            if found is not None:
                return rank << SEQUENCE_BITS | found
            rank, sequence = rank - 1, SEQUENCE_MAX + 1
        return None

    def remove(self, lookup_id: int) -> None:
        """Remove a message; do nothing if it is not among the messages."""
        rank = lookup_id >> SEQUENCE_BITS
        if 0 <= rank <= PRIORITY_MAX:
            self._ranks[rank].remove(lookup_id & SEQUENCE_MAX)

    def put_back(self, lookup_id: int) -> None:
        """Insert a message again that was removed.

        Do nothing if :meth:`drop_through` dropped it, or if it was not removed.
        """
        if lookup_id & SEQUENCE_MAX > self._dropped and lookup_id not in self:
            self._ranks[lookup_id >> SEQUENCE_BITS].insert(lookup_id & SEQUENCE_MAX)

    def drop_through(self, sequence: int) -> None:
        """Remove all messages up to ``sequence``, included, of all priorities, for good."""
        if sequence > self._dropped:
            self._dropped = sequence
            for runs in self._ranks:
                runs.drop_through(sequence)

    def __len__(self) -> int:
        """Return the number of messages."""
        return sum(runs.count() for runs in self._ranks)
