"""Call several queue managers at once, in a process that may be ended at any moment.

Spark ends the process of a reader with SIGTERM, which arrives in the main thread. So the main
thread only waits on a queue, and the other threads are daemons. A thread pool of
``concurrent.futures`` would keep the process alive until its last call returned.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

THREADS_MAX = 16
"""Largest number of calls in flight.

The calls wait on the network, and each queue manager gets only a few of them.
"""


def gather(calls: Sequence[Callable[[], T]], enough: Callable[[T], bool] | None = None) -> list[T]:
    """Make all ``calls`` in parallel, and return their results in the order of the calls.

    The first exception is raised, without waiting for the other calls. ``enough`` says whether one
    result is enough. As soon as it is, the function returns the results so far, in the order in
    which they arrived.
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
            except BaseException as error:
                # Every error is handed to the caller.
                done.put((index, None, error))

    for _ in range(min(THREADS_MAX, len(calls))):
        threading.Thread(target=work, name="srmp-call", daemon=True).start()
    results: dict[int, T] = {}
    for _ in calls:
        index, result, error = done.get()
        if error is not None:
            raise error
        results[index] = result  # type: ignore[assignment]  # without an error there is a result
        if enough is not None and enough(results[index]):
            return list(results.values())
    return [results[index] for index in range(len(calls))]
