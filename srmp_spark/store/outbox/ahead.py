"""Work done ahead: while the thread of the outbox writes one chunk, another thread reads and packs the next ones.

SQLite, Arrow and the disk work without Python's lock, so the two use two cores. What is done ahead touches no database.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

AHEAD_MAX = 2
"""Chunks that lie ready: each is up to CHUNK_BYTES of memory, and one is enough to keep the writer busy."""

_T = TypeVar("_T")


def ahead(items: Iterator[_T], name: str) -> Generator[_T]:
    """What ``items`` yields, made in a thread of its own that is at most :data:`AHEAD_MAX` items ahead.

    Raises what ``items`` raises, in its place. Closing this closes ``items``, in that thread, and waits for it.
    """
    ready: queue.Queue[tuple[_T | None, BaseException | None, bool]] = queue.Queue(AHEAD_MAX)
    unwanted = threading.Event()

    def make() -> None:
        try:
            for item in items:
                ready.put((item, None, False))
                if unwanted.is_set():
                    break
        except BaseException as error:  # whatever it is, who waits for the item is told
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
            yield item  # type: ignore[misc]  # None only at the end
    finally:
        unwanted.set()
        while not ended:
            _, _, ended = ready.get()
        thread.join()
