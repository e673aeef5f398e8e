"""Long work in the loop that accepts messages, in slices: one slice of one piece of work in each turn of the loop.

A thread would not do instead: it holds the interpreter's lock, and the loop waits for that as it waits for itself.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

SLICE_SECONDS = 0.004
"""What one slice takes of a turn of the loop. The step that is in progress then is finished: a message of the largest
size takes some milliseconds more."""


class Slices:
    """Hands out the slices, to every piece of work in turn."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    def work(self) -> Work:
        """Begin a piece of work: ``async with slices.work() as work``."""
        return Work(self._lock)


class Work:
    """One piece of work. It waits for nothing but :meth:`turn`: other work stands still until it ends or its slice does."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._holds = False
        self._until = 0.0

    async def __aenter__(self) -> Work:
        await self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    async def turn(self) -> None:
        """Let the loop and other work have their turns if this slice is over. Call it between two steps."""
        if time.perf_counter() < self._until:
            return
        self._end()
        await asyncio.sleep(0)
        await self._begin()

    async def _begin(self) -> None:
        await self._lock.acquire()  # first come, first served
        self._holds = True
        self._until = time.perf_counter() + SLICE_SECONDS

    def _end(self) -> None:
        if self._holds:  # a task that was cancelled between two slices has none
            self._holds = False
            self._lock.release()
