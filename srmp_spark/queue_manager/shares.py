"""Places that callers hold for a time, with a share for each caller: threads of the reader process, stages that come in.

A caller is known by the name of its token; ``None`` is the own user of this host, or the process itself, and has no share.
Callers that wait get free places in turns, one place each, so a caller with many calls delays a caller with one by one place.
The class holds no lock and no timer: whoever owns it calls it from one thread at a time.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Shares(Generic[_T]):
    """Says which of the things that wait get a place."""

    def __init__(self, places: int, share: int) -> None:
        """``share``: how many of ``places`` one named caller may hold at once."""
        self._places = places
        self._share = share
        self._held: Counter[str | None] = Counter()
        self._held_in_all = 0
        self._waiting: dict[str | None, deque[_T]] = {}
        """By caller, the caller whose turn is next first. No queue in it is empty."""

    def __repr__(self) -> str:
        return f"<Shares held={self._held_in_all}/{self._places} waiting={self.waiting}>"

    @property
    def waiting(self) -> int:
        """How many things wait."""
        return sum(map(len, self._waiting.values()))

    def waiting_of(self, caller: str | None) -> int:
        """Return how many things of ``caller`` wait."""
        return len(self._waiting.get(caller, ()))

    def held_by(self, caller: str | None) -> int:
        """Return how many places ``caller`` has."""
        return self._held[caller]

    def enter(self, caller: str | None, thing: _T) -> list[_T]:
        """Let ``thing`` wait for a place; return all that have one now."""
        self._waiting.setdefault(caller, deque()).append(thing)
        return self._admit()

    def leave(self, caller: str | None) -> list[_T]:
        """Give a place of ``caller`` back; return all that have one now."""
        self._held[caller] -= 1
        self._held_in_all -= 1
        if not self._held[caller]:
            del self._held[caller]
        return self._admit()

    def withdraw(self, caller: str | None, thing: _T) -> bool:
        """Let ``thing`` wait no longer; return whether it waited."""
        queue = self._waiting.get(caller)
        if queue is None or thing not in queue:
            return False
        queue.remove(thing)
        if not queue:
            del self._waiting[caller]
        return True

    def others_wait(self, caller: str | None) -> bool:
        """Return whether another caller waits for a place, and not for the end of a call of its own."""
        return any(each != caller and self._may_have_more(each) for each in self._waiting)

    def is_wanted(self, caller: str | None) -> bool:
        """Return whether a place of ``caller`` would go to something that waits now."""
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
                self._waiting[caller] = queue  # behind the others
            self._held[caller] += 1
            self._held_in_all += 1
        return admitted


class _Nobody:
    """None is a caller."""


_NOBODY = _Nobody()
