"""Timers of the server: ends of waits and cleanup of locks.

A timer is never cancelled: most locks end long before their timer, and a timer that is no longer
valid is skipped. One long-lived timer would keep all later ones that have become invalid, so
invalid timers are removed when there are too many.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from srmp_spark.mqrr.server.limits import TIMERS_KEPT

What = TypeVar("What")


class Timers(Generic[What]):
    """Timers in the order of their times.

    Times are in seconds on the clock of the owner. Timers of one time are in the order in which
    they were added.
    """

    __slots__ = ("_heap", "_means_something", "_most", "_set")

    def __init__(self, means_something: Callable[[float, What], bool]) -> None:
        """Create an empty set of timers.

        ``means_something(when, what)`` returns whether a timer is still valid.
        """
        self._heap: list[tuple[float, int, What]] = []
        self._means_something = means_something
        self._most = TIMERS_KEPT
        self._set = 0

    def at(self, when: float, what: What) -> None:
        """Add a timer for ``what`` that is due at ``when``.

        Earlier timers for ``what`` stay. Timers that are no longer valid are removed when there are
        too many.
        """
        if len(self._heap) >= self._most:
            self._heap = [each for each in self._heap if self._means_something(each[0], each[2])]
            heapify(self._heap)
            self._most = max(TIMERS_KEPT, 2 * len(self._heap))
        self._set += 1
        heappush(self._heap, (when, self._set, what))

    def due(self) -> float | None:
        """Return the time of the earliest valid timer, or ``None`` if there is none."""
        while self._heap and not self._means_something(self._heap[0][0], self._heap[0][2]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self) -> What:
        """Remove the timer that :meth:`due` returned, and return its ``what``."""
        return heappop(self._heap)[2]

    def __len__(self) -> int:
        """Return the number of timers, including those that are no longer valid."""
        return len(self._heap)

    def __bool__(self) -> bool:
        """Return True always, because an empty set of timers is a set too."""
        return True
