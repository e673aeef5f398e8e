"""Make chunks ahead: while the outbox writes one chunk, another thread makes the next chunks.

SQLite, Arrow and the disk work without Python's global lock, so the two threads use two cores. The
thread that works ahead reads and packs rows, and uses no database connection.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

AHEAD_MAX = 2
"""Largest number of finished chunks that wait to be written.

Each chunk takes up to ``CHUNK_BYTES`` of memory, and one chunk is enough to keep the writer busy.
At the limit the thread that makes chunks waits, with one more chunk in hand.
"""

_T = TypeVar("_T")


def ahead(items: Iterator[_T], name: str) -> Generator[_T]:
    """Yield the items of ``items``, which a thread of its own makes ahead of the caller.

    At most :data:`AHEAD_MAX` items wait for the caller. ``name`` is the name of the thread. If
    ``items`` raises an error, this generator raises the same error at the same place. Closing this
    generator closes ``items`` in that thread, and waits for the thread to end.
    """
    ready: queue.Queue[tuple[_T | None, BaseException | None, bool]] = queue.Queue(AHEAD_MAX)
    unwanted = threading.Event()

    def make() -> None:
        try:
            for item in items:
                ready.put((item, None, False))
                if unwanted.is_set():
                    break
        except BaseException as error:
            # Every error is raised where the item is awaited.
            ready.put((None, error, True))
        else:
            ready.put((None, None, True))
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=make, name=name, daemon=True)
    thread.start()
    ended = False
    try:
        while True:
            item, error, ended = ready.get()
            if error is not None:
                raise error
            if ended:
                return
            yield item  # type: ignore[misc]  # only the end has no item
    finally:
        unwanted.set()
        while not ended:
            _, _, ended = ready.get()
        thread.join()
