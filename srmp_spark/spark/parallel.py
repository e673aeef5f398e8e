"""Several queue managers asked at once, in a process that may be told to end at any moment.

Spark ends a reader's process with SIGTERM, which arrives in the main thread; so the main thread only ever waits on a queue,
and the threads are daemons: a pool of ``concurrent.futures`` would hold the process until its last call came back.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

THREADS_MAX = 16
"""Calls in flight: they wait on the network, and each queue manager sees only a few of them."""


def gather(calls: Sequence[Callable[[], T]], enough: Callable[[T], bool] | None = None) -> list[T]:
    """The results of all ``calls``, in their order; the first exception is raised.

    With ``enough``: returns as soon as a result is, with those that came so far, in the order they came.
    """
    if len(calls) < 2:
        return [call() for call in calls]
    waiting: queue.SimpleQueue[tuple[int, Callable[[], T]]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()
    for item in enumerate(calls):
        waiting.put(item)

    def work() -> None:
        while True:
            try:
                index, call = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((index, call(), None))
            except BaseException as error:  # handed to the caller, whatever it is
                done.put((index, None, error))

    for _ in range(min(THREADS_MAX, len(calls))):
        threading.Thread(target=work, name="srmp-call", daemon=True).start()
    results: dict[int, T] = {}
    for _ in calls:
        index, result, error = done.get()
        if error is not None:
            raise error
        results[index] = result  # type: ignore[assignment]  # no error: a result
        if enough is not None and enough(results[index]):
            return list(results.values())
    return [results[index] for index in range(len(calls))]
