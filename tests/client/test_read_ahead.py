"""Reading ahead in a thread: the same items, the same end, no more memory than said, and no thread left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from srmp_spark.client.read_ahead import ReadAhead

WAIT_S = 10.0


def nothing() -> None:
    """For sources that never wait."""


def ahead(source: Iterator[int], limit: int = 3) -> ReadAhead[int]:
    return ReadAhead(source, size=lambda _: 1, limit=limit, interrupt=nothing)


def until(condition: threading.Event) -> None:
    assert condition.wait(WAIT_S)


def test_all_items_come_in_order() -> None:
    with ahead(iter(range(1_000))) as items:
        assert list(items) == list(range(1_000))


def test_an_error_comes_behind_the_items_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    with ahead(source()) as items:
        taken = iter(items)
        assert [next(taken), next(taken)] == [1, 2]
        with pytest.raises(ValueError, match="the third"):
            next(taken)


def test_it_reads_before_it_is_asked_and_no_further_than_its_limit() -> None:
    read: list[int] = []
    enough = threading.Event()

    def source() -> Iterator[int]:
        for n in range(100):
            read.append(n)
            if n == 3:
                enough.set()
            yield n

    with ahead(source(), limit=3) as items:
        until(enough)
        time.sleep(0.1)
        assert read == [0, 1, 2, 3]
        taken = iter(items)
        assert [next(taken) for _ in range(4)] == [0, 1, 2, 3]
        assert len(read) <= 8
    assert len(read) <= 8


def test_close_ends_a_source_that_waits() -> None:
    woken, waiting = threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        yield 1
        waiting.set()
        assert woken.wait(WAIT_S)
        raise OSError("the connection was shut down")

    items = ReadAhead(source(), size=lambda _: 1, limit=3, interrupt=woken.set)
    assert next(iter(items)) == 1
    until(waiting)
    items.close()
    assert not items._thread.is_alive()


def test_close_in_the_middle_ends_a_thread_that_waits_for_room() -> None:
    items = ahead(iter(range(1_000)), limit=1)
    assert next(iter(items)) == 0
    items.close()
    assert not items._thread.is_alive()
