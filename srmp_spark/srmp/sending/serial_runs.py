"""The serial numbers of an outbox that wait for something, as sorted disjoint closed runs.

:class:`~srmp_spark.srmp.receiving.runs.Runs` only grows and keeps times. The set in this module
gets ranges at its end, and loses numbers anywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class SerialRuns:
    """Holds a set of serial numbers.

    Every range ``first`` to ``last`` includes both ends.

    ``len(runs)`` is the count of numbers, and ``list(runs)`` is the list of runs.
    """

    __slots__ = ("_count", "_firsts", "_lasts")

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._count = 0
        for first, last in runs:
            self.append(first, last)

    def append(self, first: int, last: int) -> None:
        """Add the numbers ``first`` to ``last``.

        Raises :class:`ValueError` if they are not all above the present numbers.
        """
        if first > last or (self._lasts and first <= self._lasts[-1]):
            raise ValueError(f"{first} to {last} does not lie above {self!r}")
        if self._lasts and first == self._lasts[-1] + 1:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)
        self._count += last - first + 1

    def discard(self, number: int) -> bool:
        """Remove ``number`` and return whether it was in the set."""
        if number not in self:
            return False
        self.remove(number, number)
        return True

    def inside(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the runs of the set between ``first`` and ``last``, cut at these two numbers.

        Each run is a pair (first, last), ascending.
        """
        found = []
        index = max(bisect_right(self._firsts, first) - 1, 0)
        while index < len(self._firsts) and self._firsts[index] <= last:
            if self._lasts[index] >= first:
                found.append((max(self._firsts[index], first), min(self._lasts[index], last)))
            index += 1
        return found

    def outside(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the runs of numbers between ``first`` and ``last`` that are not in the set.

        Each run is a pair (first, last), ascending.
        """
        found, at = [], first
        for begin, end in self.inside(first, last):
            if at < begin:
                found.append((at, begin - 1))
            at = end + 1
        return [*found, (at, last)] if at <= last else found

    def remove(self, first: int, last: int) -> None:
        """Remove all numbers from ``first`` to ``last`` that are in the set."""
        inside = self.inside(first, last)
        if not inside:
            return
        left, right = (
            bisect_right(self._firsts, inside[0][0]) - 1,
            bisect_right(self._firsts, inside[-1][1]),
        )
        rest = [
            run
            for run in ((self._firsts[left], first - 1), (last + 1, self._lasts[right - 1]))
            if run[0] <= run[1]
        ]
        self._firsts[left:right] = [run[0] for run in rest]
        self._lasts[left:right] = [run[1] for run in rest]
        self._count -= sum(end - begin + 1 for begin, end in inside)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._firsts, number) - 1
        return index >= 0 and number <= self._lasts[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"SerialRuns({list(self)})"
