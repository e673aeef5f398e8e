"""Which numbers have been seen: sorted, disjoint, closed integer ranges, each with the time of its last number.

A queue manager numbers its messages upwards, so what has arrived from it is mostly one run that grows at its end: that
case costs a comparison and two stores. Three parallel arrays hold a run in 24 bytes, which matters because a sender with
several destinations shows each of them only every second or third number, and then nearly every message is its own run.
A bitmap was the other candidate; runs are what the state table shows to people.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Run(NamedTuple):
    """The numbers ``first`` to ``last``, both included."""

    first: int
    last: int
    at: int
    """When a number of this run arrived last; microseconds."""


class Runs:
    """A set of unsigned 64-bit integers, kept as runs. ``bool(runs)`` raises: ask ``len(runs)`` for the number of runs."""

    __slots__ = ("_ats", "_firsts", "_lasts")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._firsts = array("Q")
        self._lasts = array("Q")
        self._ats = array("q")
        for first, last, at in sorted(runs):
            if first > last:
                raise ValueError(f"a run begins after its end: {first} > {last}")
            if self._lasts and first <= self._lasts[-1] + 1:
                self._lasts[-1] = max(last, self._lasts[-1])
                self._ats[-1] = max(at, self._ats[-1])
            else:
                self._append(first, last, at)

    def _append(self, first: int, last: int, at: int) -> None:
        self._firsts.append(first)
        self._lasts.append(last)
        self._ats.append(at)

    def add(self, number: int, at: int) -> tuple[int, int | None]:
        """Add ``number``: (first of the run that now holds it, first of a run that was swallowed or moved, or ``None``).

        The second value is the key that a table of runs must delete.
        """
        firsts, lasts = self._firsts, self._lasts
        if not lasts or number > lasts[-1] + 1:
            self._append(number, number, at)
            return number, None
        if number == lasts[-1] + 1:
            lasts[-1] = number
            self._ats[-1] = at
            return firsts[-1], None
        return self._add_inside(number, at)

    def _add_inside(self, number: int, at: int) -> tuple[int, int | None]:
        firsts, lasts, ats = self._firsts, self._lasts, self._ats
        right = bisect_right(firsts, number)  # runs[right - 1] begins at or below number, runs[right] above
        left = right - 1
        if left >= 0 and number <= lasts[left]:
            ats[left] = max(at, ats[left])
            return firsts[left], None
        touches_left = left >= 0 and lasts[left] + 1 == number
        touches_right = right < len(firsts) and firsts[right] == number + 1
        if touches_left and touches_right:
            swallowed = firsts[right]
            lasts[left] = lasts[right]
            ats[left] = max(at, ats[right])
            del firsts[right], lasts[right], ats[right]
            return firsts[left], swallowed
        if touches_left:
            lasts[left] = number
            ats[left] = at
            return firsts[left], None
        if touches_right:
            moved = firsts[right]
            firsts[right] = number
            ats[right] = max(at, ats[right])
            return number, moved
        firsts.insert(right, number)
        lasts.insert(right, number)
        ats.insert(right, at)
        return number, None

    def trim(self, before: int) -> list[int]:
        """Forget every run whose last number arrived before ``before`` (microseconds); the firsts of those runs."""
        ats = self._ats
        if not ats or min(ats) >= before:
            return []
        dropped = [first for first, at in zip(self._firsts, ats, strict=True) if at < before]
        kept = [run for run in self if run.at >= before]
        self._firsts = array("Q", [run.first for run in kept])
        self._lasts = array("Q", [run.last for run in kept])
        self._ats = array("q", [run.at for run in kept])
        return dropped

    def at_first(self, first: int) -> Run | None:
        """The run that begins exactly at ``first``."""
        index = bisect_right(self._firsts, first) - 1
        if index < 0 or self._firsts[index] != first:
            return None
        return Run(first, self._lasts[index], self._ats[index])

    @property
    def ats(self) -> Iterator[int]:
        """The times of all runs, in the order of the runs."""
        return iter(self._ats)

    @property
    def newest(self) -> int:
        """When a number arrived last; microseconds. Raises :class:`ValueError` if there is none."""
        return max(self._ats)

    def __contains__(self, number: int) -> bool:
        lasts = self._lasts
        if not lasts or number > lasts[-1]:
            return False
        index = bisect_right(self._firsts, number) - 1
        return index >= 0 and number <= lasts[index]

    def __iter__(self) -> Iterator[Run]:
        return map(Run, self._firsts, self._lasts, self._ats)

    def __len__(self) -> int:
        return len(self._firsts)

    def __bool__(self) -> bool:
        raise TypeError("is it 'no runs' or 'no numbers' that you mean? compare len(runs)")

    def __repr__(self) -> str:
        return f"Runs([{', '.join(f'{r.first}-{r.last}' for r in self)}])"
