"""Many deadlines, one heap: which key is due next, on a clock that the caller reads.

Setting a deadline costs a dictionary store; the heap learns of it only when the new deadline is earlier than what it holds
for that key. One that moved away is found out when it comes up. Most timers here are moved a thousand times and never fire.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """At most one deadline per key, in monotonic seconds."""

    def __init__(self) -> None:
        self._deadlines: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._in_heap: dict[Key, float] = {}
        """The earliest heap entry of a key: at most one of its entries counts, later ones are leftovers."""
        self._serial = 0

    def set(self, key: Key, when: float | None) -> None:
        """Make ``when`` the deadline of ``key``; ``None``: it has none."""
        if when is None:
            self._deadlines.pop(key, None)
            return
        self._deadlines[key] = when
        entry = self._in_heap.get(key)
        if entry is None or when < entry:
            self._push(key, when)

    def _push(self, key: Key, when: float) -> None:
        self._serial += 1
        self._in_heap[key] = when
        heapq.heappush(self._heap, (when, self._serial, key))

    def next(self) -> float | None:
        """The earliest deadline."""
        heap = self._heap
        while heap:
            when, _, key = heap[0]
            deadline = self._deadlines.get(key)
            if when != self._in_heap.get(key):
                heapq.heappop(heap)  # an earlier entry was pushed since
            elif deadline is None:
                heapq.heappop(heap)
                del self._in_heap[key]
            elif deadline > when:
                heapq.heappop(heap)
                self._push(key, deadline)
            else:
                return deadline
        return None

    def due(self, now: float, at_most: int | None = None) -> list[Key]:
        """Return the keys whose deadline has come, ``at_most`` of them, earliest first; they have none afterwards."""
        keys: list[Key] = []
        while len(keys) != at_most and (deadline := self.next()) is not None and deadline <= now:
            key = heapq.heappop(self._heap)[2]
            del self._in_heap[key], self._deadlines[key]
            keys.append(key)
        return keys

    def __len__(self) -> int:
        return len(self._deadlines)

    def __repr__(self) -> str:
        return f"<Timers {len(self._deadlines)} next={self.next()}>"
