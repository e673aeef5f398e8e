"""What is to happen at a time: ends of waits, cleanup of locks, transactions without an outcome.

Nobody takes a timer back: most locks end long before theirs does, and one that means nothing any more is passed over. One that
is held long would keep those of all that ended behind it, so they are swept out whenever there are too many.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from srmp_spark.mqrr.server.limits import TIMERS_KEPT

What = TypeVar("What")


class Timers(Generic[What]):
    """In the order of their times, and of one time in the order in which they were set."""

    __slots__ = ("_heap", "_means_something", "_most", "_set")

    def __init__(self, means_something: Callable[[float, What], bool]) -> None:
        """``means_something``: whether a timer, by its time and what it is for, is still waited for."""
        self._heap: list[tuple[float, int, What]] = []
        self._means_something = means_something
        self._most = TIMERS_KEPT
        self._set = 0

    def at(self, when: float, what: What) -> None:
        """Set one."""
        if len(self._heap) >= self._most:
            self._heap = [each for each in self._heap if self._means_something(each[0], each[2])]
            heapify(self._heap)
            self._most = max(TIMERS_KEPT, 2 * len(self._heap))
        self._set += 1
        heappush(self._heap, (when, self._set, what))

    def due(self) -> float | None:
        """When the next one is; ``None``: there is none."""
        while self._heap and not self._means_something(self._heap[0][0], self._heap[0][2]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self) -> What:
        """What the next one is for, which :meth:`due` has just told."""
        return heappop(self._heap)[2]

    def __len__(self) -> int:
        """Also those that mean nothing any more."""
        return len(self._heap)

    def __bool__(self) -> bool:
        """Always."""
        return True
