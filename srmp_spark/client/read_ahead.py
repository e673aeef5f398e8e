"""Reads an iterator ahead in a thread, up to a number of bytes.

The user of an item does not wait for the next item to be read. An executor reads pieces of the log
from the queue manager and writes rows to the JVM. Both steps mostly wait and release the GIL. Done
in turn, one partition would take as long as both steps together.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")

STOP_SECONDS = 5.0
"""Longest time in seconds that :meth:`ReadAhead.close` waits for its thread.

``interrupt`` has just woken the thread. A thread that does not end is a daemon and does not keep
the process alive.
"""


class ReadAhead(Generic[T]):
    """Yields the items of ``source`` in order, then ends or raises as ``source`` did.

    At most ``limit`` of ``size``, and one item more, is read ahead of the caller. Close it to end
    its thread.
    """

    def __init__(
        self,
        source: Iterator[T],
        *,
        size: Callable[[T], int],
        limit: int,
        interrupt: Callable[[], object],
    ) -> None:
        """Start the thread that reads ``source``.

        ``interrupt`` must make a ``source`` that waits in another thread end at once, normally or
        with an error.
        """
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
                # Only the caller holds a reference to the item then.
                yield items.popleft()

    def close(self) -> None:
        """End the thread and discard the items that were read ahead.

        The call waits at most STOP_SECONDS for the thread.
        """
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
        # The exception is raised in the thread that uses the items.
        except BaseException as found:
            error = found
        with self._changed:
            self._over, self._error = True, error
            self._changed.notify_all()
