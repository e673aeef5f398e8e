"""Do long work in the loop that accepts messages, one slice in each turn of the loop.

A thread would not help: it holds the interpreter's lock, and the loop would wait for that lock just
as it waits for the work itself.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

SLICE_SECONDS = 0.004
"""Seconds of a turn of the loop after which :meth:`Work.turn` ends the slice.

The step in progress is finished first; for a message of the largest size it takes some milliseconds
more.
"""


class Slices:
    """Lets all pieces of long work run in slices, one after the other."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    def work(self) -> Work:
        """Return a new piece of work, for use as ``async with slices.work() as work``."""
        return Work(self._lock)


class Work:
    """One piece of long work, which runs in slices.

    It must wait for nothing but :meth:`turn`. Other work waits until this work, or its slice, ends.
    """

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
        """If this slice is over, let the loop and other work run, and wait for the next slice.

        Call this between two steps of the work.
        """
        if time.perf_counter() < self._until:
            return
        self._end()
        await asyncio.sleep(0)
        await self._begin()

    async def _begin(self) -> None:
        await self._lock.acquire()  # The lock is fair: first come, first served.
        self._holds = True
        self._until = time.perf_counter() + SLICE_SECONDS

    def _end(self) -> None:
        if self._holds:  # A task that was cancelled between two slices has no lock.
            self._holds = False
            self._lock.release()
