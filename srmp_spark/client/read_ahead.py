"""Read an iterator ahead in a thread, by a bounded number of bytes: who uses an item does not wait for the next one.

An executor reads pieces of the log from the queue manager and writes rows to the JVM. Both are waiting, mostly, and release
the GIL: done in turn, one partition is as slow as both together.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")

STOP_SECONDS = 5.0
"""How long :meth:`ReadAhead.close` waits for its thread, which ``interrupt`` has just woken; a daemon, it holds up nobody."""


class ReadAhead(Generic[T]):
    """The items of ``source``, in order, then what it ended with: its end, or its exception.

    At most ``limit`` of ``size`` is read beyond what was asked for, and one item more. Close it: its thread ends then.
    """

    def __init__(
        self,
        source: Iterator[T],
        *,
        size: Callable[[T], int],
        limit: int,
        interrupt: Callable[[], object],
    ) -> None:
        """``interrupt`` must make a ``source`` that waits in another thread end at once, in whatever way."""
        self._source = source
        self._size = size
        self._limit = limit
        self._interrupt = interrupt
        self._changed = threading.Condition()
        self._items: deque[T] = deque()
        self._held = 0
        self._over = False
        self._error: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._over)
                if not self._items:
                    if self._error is not None:
                        raise self._error
                    return
                items, self._items = self._items, deque()
                self._held = 0
                self._changed.notify_all()
            while items:
                yield items.popleft()  # nobody but the caller holds it then

    def close(self) -> None:
        """End the thread; what was read ahead is dropped."""
        with self._changed:
            self._closed = True
            over = self._over
            self._changed.notify_all()
        if not over:
            self._interrupt()
        self._thread.join(STOP_SECONDS)

    def __enter__(self) -> ReadAhead[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._source:
                with self._changed:
                    self._items.append(item)
                    self._held += self._size(item)
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._held <= self._limit or self._closed)
                    if self._closed:
                        break
        except BaseException as found:  # it is raised where the items are used
            error = found
        with self._changed:
            self._over, self._error = True, error
            self._changed.notify_all()
