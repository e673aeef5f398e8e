"""Many deadlines in one heap: which key is due next, on a clock that the caller reads.

Setting a deadline costs one dictionary store. A deadline is pushed on the heap only if it is
earlier than the heap entry of its key. A deadline that was moved to a later time is corrected when
its old heap entry becomes the first. Most timers of this package are moved a thousand times and
never fire. The heap entry of a removed deadline stays until its time, or until there are too many.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

LEFTOVERS_MAX = 4_096
"""Heap entries without a deadline, beside as many as there are deadlines, before all are removed.

A remote reader that receives 8,000 messages a second sets and removes as many locks of five
minutes: two million entries would be kept.
"""

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """Keeps at most one deadline for each key, in monotonic seconds."""

    def __init__(self) -> None:
        self._deadlines: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._in_heap: dict[Key, float] = {}
        """Time of the earliest heap entry of each key.

        Only this entry of the key counts; later ones are leftovers.
        """
        self._serial = 0

    def set(self, key: Key, when: float | None) -> None:
        """Set the deadline of ``key`` to ``when``; ``None`` removes the deadline."""
        if when is None:
            if self._deadlines.pop(key, None) is not None:
                self._remove_leftovers()
            return
        self._deadlines[key] = when
        entry = self._in_heap.get(key)
        if entry is None or when < entry:
            self._push(key, when)

    def _push(self, key: Key, when: float) -> None:
        self._serial += 1
        self._in_heap[key] = when
        heapq.heappush(self._heap, (when, self._serial, key))

    def _remove_leftovers(self) -> None:
        if len(self._heap) <= 2 * len(self._deadlines) + LEFTOVERS_MAX:
            return
        self._heap = [
            entry
            for entry in self._heap
            if entry[2] in self._deadlines and entry[0] == self._in_heap[entry[2]]
        ]
        heapq.heapify(self._heap)
        self._in_heap = {key: when for when, _, key in self._heap}

    def next(self) -> float | None:
        """Return the earliest deadline, in monotonic seconds, or ``None`` if no key has one."""
        heap = self._heap
        while heap:
            when, _, key = heap[0]
            deadline = self._deadlines.get(key)
            if when != self._in_heap.get(key):
                # This entry is a leftover: an earlier entry of the key was pushed after it.
                heapq.heappop(heap)
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
        """Return the keys whose deadline has passed at ``now``, and remove their deadlines.

        The earliest deadline comes first. At most ``at_most`` keys are returned; ``None`` means no
        limit.
        """
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
