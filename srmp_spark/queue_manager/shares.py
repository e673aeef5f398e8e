"""Share places between callers, such as threads of the reader or staged writes of the sink.

A caller is known by the name of its API token. ``None`` is the user of this process on this host,
or the process itself, and has no limit of its own. Waiting callers get free places in turns, one
place each. So a caller with many calls delays a caller with one call by one place. The class has no
lock and no timer: its owner calls it from one thread at a time.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Shares(Generic[_T]):
    """Gives a number of places to waiting things, such as jobs, by turns of their callers.

    A thing is any object of the owner that stands for one request of a place. A named caller holds
    at most its share of the places; the caller ``None`` has no such limit.
    """

    def __init__(self, places: int, share: int) -> None:
        """Create free ``places``, of which one named caller may hold at most ``share`` at once."""
        self._places = places
        self._share = share
        self._held: Counter[str | None] = Counter()
        self._held_in_all = 0
        self._waiting: dict[str | None, deque[_T]] = {}
        """The waiting things by caller.

        The caller whose turn is next comes first, and no queue is empty.
        """

    def __repr__(self) -> str:
        return f"<Shares held={self._held_in_all}/{self._places} waiting={self.waiting}>"

    @property
    def waiting(self) -> int:
        """Return the number of things that wait for a place."""
        return sum(map(len, self._waiting.values()))

    def waiting_of(self, caller: str | None) -> int:
        """Return the number of things of ``caller`` that wait for a place."""
        return len(self._waiting.get(caller, ()))

    def held_by(self, caller: str | None) -> int:
        """Return the number of places that ``caller`` holds."""
        return self._held[caller]

    def enter(self, caller: str | None, thing: _T) -> list[_T]:
        """Let ``thing`` of ``caller`` wait for a place.

        Return a list of all things that get one now.

        The list may contain ``thing`` or be empty.
        """
        self._waiting.setdefault(caller, deque()).append(thing)
        return self._admit()

    def leave(self, caller: str | None) -> list[_T]:
        """Give a place that ``caller`` holds back. Return a list of all things that get one now."""
        self._held[caller] -= 1
        self._held_in_all -= 1
        if not self._held[caller]:
            del self._held[caller]
        return self._admit()

    def withdraw(self, caller: str | None, thing: _T) -> bool:
        """Remove ``thing`` of ``caller`` from the waiting things.

        Return whether ``thing`` waited.
        """
        queue = self._waiting.get(caller)
        if queue is None or thing not in queue:
            return False
        queue.remove(thing)
        if not queue:
            del self._waiting[caller]
        return True

    def others_wait(self, caller: str | None) -> bool:
        """Return whether another caller waits for a place that it may have.

        A caller that holds its whole share waits for the end of its own calls, and does not count.
        """
        return any(each != caller and self._may_have_more(each) for each in self._waiting)

    def is_wanted(self, caller: str | None) -> bool:
        """Return whether a waiting thing would get the place that ``caller`` would give back."""
        return any(each == caller or self._may_have_more(each) for each in self._waiting)

    def _may_have_more(self, caller: str | None) -> bool:
        return caller is None or self._held[caller] < self._share

    def _admit(self) -> list[_T]:
        admitted: list[_T] = []
        while self._held_in_all < self._places:
            caller = next((each for each in self._waiting if self._may_have_more(each)), _NOBODY)
            if isinstance(caller, _Nobody):
                break
            queue = self._waiting.pop(caller)
            admitted.append(queue.popleft())
            if queue:
                self._waiting[caller] = queue  # The caller goes after the others.
            self._held[caller] += 1
            self._held_in_all += 1
        return admitted


class _Nobody:
    """Type of the value that stands for no caller, because ``None`` stands for a caller."""


_NOBODY = _Nobody()
