"""Threads of the reader process, of which each token has a share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from srmp_spark.queue_manager.shares import Shares

Job = Callable[[], None]


class SharedPool:
    """A pool of threads that callers share."""

    def __init__(self, threads: int, share: int, name: str) -> None:
        """``share``: how many of the threads the calls of one token may hold at once."""
        self._pool = ThreadPoolExecutor(threads, name)
        self._lock = threading.Lock()
        self._shares: Shares[tuple[str | None, Job]] = Shares(threads, share)

    def submit(self, caller: str | None, job: Job) -> None:
        """Run ``job`` in a thread once there is one for ``caller``."""
        with self._lock:
            admitted = self._shares.enter(caller, (caller, job))
        self._start(admitted)

    def others_wait(self, caller: str | None) -> bool:
        """Return whether calls of others than ``caller`` wait for a thread."""
        with self._lock:
            return self._shares.others_wait(caller)

    def _start(self, admitted: list[tuple[str | None, Job]]) -> None:
        for caller, job in admitted:
            self._pool.submit(self._run, caller, job)

    def _run(self, caller: str | None, job: Job) -> None:
        try:
            job()
        finally:
            with self._lock:
                admitted = self._shares.leave(caller)
            self._start(admitted)
