"""The one thread that uses the outbox, so that a sync delays only tasks that wait for it.

Jobs wait in two lines. Reads and writes of the engine are first, and the steps of a large batch
fill the time between. If the first line is never empty, every :data:`TURNS`-th job is one of the
second line, because destinations that are tried without a pause must not stop commits. A job that
raises :class:`StoreSyncError` or another :class:`StoreError` ends the process, because memory may
then be ahead of the disk for good. Only :class:`StoreDamagedError` is passed to the caller alone: a
read found damaged rows, and a new process would find the same rows.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from srmp_spark.errors import StoreDamagedError, StoreError

TURNS = 5
"""One of this many jobs is of the second line while a job waits in that line.

A step takes milliseconds, and so does a read.
"""

_T = TypeVar("_T")


class StoreThread:
    """Runs jobs of the outbox one after another, in a thread of its own."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_fatal: Callable[[StoreError], object]
    ) -> None:
        """Start the thread.

        ``on_fatal`` is called in the thread with a :class:`StoreError`, and must end the process.
        """
        self._loop = loop
        self._on_fatal = on_fatal
        self._first: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._later: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._turn = 0
        """Number of jobs of the first line that ran while a job of the second line waited."""
        self._ready = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], _T], *, later: bool = False) -> asyncio.Future[_T]:
        """Let the thread run ``job`` after the jobs before it, and return a future of its result.

        ``later`` puts the job into the second line. The future raises the error of the job; a
        :class:`StoreError` other than :class:`StoreDamagedError` ends the process.
        """
        future: asyncio.Future[_T] = self._loop.create_future()
        (self._later if later else self._first).append((job, future))
        self._ready.release()
        return future

    def die(self, doing: str, error: BaseException) -> NoReturn:
        """End the process (``on_fatal``), because memory may differ from the disk.

        ``doing`` and ``error`` describe the failure. A new process begins with the stored state.
        Raises the failure as a :class:`StoreError` if ``on_fatal`` returns.
        """
        failure = error if isinstance(error, StoreError) else StoreError(f"{doing}: {error!r}")
        self._on_fatal(failure)
        raise failure

    def _next(self) -> tuple[Callable[[], Any], asyncio.Future[Any]]:
        self._turn = self._turn + 1 if self._first and self._later else 0
        if self._turn >= TURNS:
            self._turn = 0
            return self._later.popleft()
        return (self._first or self._later).popleft()

    def _run(self) -> None:
        while True:
            self._ready.acquire()
            job, future = self._next()
            result: Any = None
            failure: BaseException | None = None
            try:
                result = job()
            except StoreDamagedError as error:
                # Only a read raises this error: any failure of a write is a StoreSyncError.
                failure = error
            except StoreError as error:
                self._on_fatal(error)
                failure = error
            except BaseException as error:
                # Pass any error to the task that waits.
                failure = error
            try:
                self._loop.call_soon_threadsafe(_settle, future, result, failure)
            except RuntimeError:
                # The loop is closed, because the process ends.
                return


def _settle(future: asyncio.Future[Any], result: object, failure: BaseException | None) -> None:
    if future.cancelled():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)
