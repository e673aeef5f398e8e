"""Run jobs in the threads of the reader process, so that each API token has a share of them.

**Theory of operation.** A job waits while no thread is free for it. A job that has waited for
WAIT_SECONDS is refused, and the refusal names the limit that the job waited for, so its caller
knows what to do and calls again. If WAITING_OF_TOKEN_MAX jobs of one token wait, the next job of
that token is refused at once, because it could not run in time. ``caller`` is the name of a token,
or ``None`` for the queue manager itself, to which no share applies.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.shares import Shares

Job = Callable[[], None]
Refuse = Callable[[ApiError], None]

WAIT_SECONDS = 20.0
"""Longest wait of a job for a thread, in seconds.

After that the job is refused. This is a third of the time that the main process waits for the first
packet of an answer.
"""
WAITING_OF_TOKEN_MAX = 256
"""Most jobs of one API token that wait at once: eight for each thread.

Further jobs are refused at once.
"""


class _Waiting(NamedTuple):
    """A job that waits, and the function that is called if the job never runs."""

    caller: str | None
    job: Job
    refuse: Refuse


class SharedPool:
    """A pool of threads in which each API token has a limited share."""

    def __init__(self, threads: int, share: int, name: str) -> None:
        """Prepare ``threads`` threads.

        ``share`` is the number of threads that the jobs of one token may hold at once. ``name`` is
        the prefix of the threads' names.
        """
        self._pool = ThreadPoolExecutor(threads, name)
        self._threads, self._share, self._name = threads, share, name
        self._lock = threading.Condition()
        self._shares: Shares[_Waiting] = Shares(threads, share)
        self._deadlines: deque[tuple[float, _Waiting]] = deque()
        """Jobs that had to wait, with their deadlines, in order. Most of them have run since."""
        self._watcher: threading.Thread | None = None

    def submit(self, caller: str | None, job: Job, refuse: Refuse) -> None:
        """Run ``job`` in a thread as soon as ``caller`` may have one, without waiting for it.

        If the job cannot run within WAIT_SECONDS, ``refuse`` is called with an :class:`ApiError` in
        another thread instead. If too many jobs of the caller wait, ``refuse`` is called before
        this method returns.
        """
        waiting = _Waiting(caller, job, refuse)
        refused: ApiError | None = None
        with self._lock:
            admitted = self._shares.enter(caller, waiting)
            if waiting not in admitted:
                if caller is not None and self._shares.waiting_of(caller) > WAITING_OF_TOKEN_MAX:
                    self._shares.withdraw(caller, waiting)
                    refused = self._refusal(caller)
                else:
                    self._watch(waiting)
        self._start(admitted)
        if refused is not None:
            refuse(refused)

    def others_wait(self, caller: str | None) -> bool:
        """Return whether jobs of callers other than ``caller`` wait for a thread.

        A job whose caller holds its whole share does not count.
        """
        with self._lock:
            return self._shares.others_wait(caller)

    def _start(self, admitted: list[_Waiting]) -> None:
        for each in admitted:
            self._pool.submit(self._run, each)

    def _run(self, waiting: _Waiting) -> None:
        try:
            waiting.job()
        finally:
            with self._lock:
                admitted = self._shares.leave(waiting.caller)
            self._start(admitted)

    # --- jobs that wait ---------------------------------------------------------------------------

    def _watch(self, waiting: _Waiting) -> None:
        self._deadlines.append((time.monotonic() + WAIT_SECONDS, waiting))
        if self._watcher is None:
            self._watcher = threading.Thread(
                target=self._refuse_late, name=f"{self._name}-waiting", daemon=True
            )
            self._watcher.start()
        self._lock.notify()

    def _refuse_late(self) -> None:
        while True:
            with self._lock:
                while not self._deadlines:
                    self._lock.wait()
                until, waiting = self._deadlines[0]
                left = until - time.monotonic()
                if left > 0:
                    self._lock.wait(left)
                    continue
                self._deadlines.popleft()
                if not self._shares.withdraw(waiting.caller, waiting):
                    continue  # The job runs, or has run.
                refusal = self._refusal(waiting.caller)
            waiting.refuse(refusal)

    def _refusal(self, caller: str | None) -> ApiError:
        kind = "reads of rows" if self._name == "read" else "short reads"
        if caller is not None and self._shares.held_by(caller) >= self._share:
            message = (
                f"the token {caller} has {self._share} {kind} in progress, which is the "
                "limit of one token out of "
                f"{self._threads}"
            )
            hint = (
                "read to the end or close what is open, read with fewer tasks at once, "
                "or give programs tokens of their own"
            )
        else:
            message = f"{self._threads} {kind} are in progress, which is the limit"
            hint = (
                "call again in a moment; readers that accept no data are disconnected "
                "while others wait"
            )
        return ApiError(503, "too-many-reads", message, hint)
