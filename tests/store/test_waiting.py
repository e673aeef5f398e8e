"""What waits in a queue: the quota's sum, counted and computed anew at a start."""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import NOW, QUEUE, Store, srmp_record

from srmp_spark.sequences.ranges import overlaps, subtract
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.stored_rows import sealing
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.tables import queues, state
from srmp_spark.store.tables import waiting as waiting_module
from srmp_spark.store.tables.waiting import WaitingRows


@settings(max_examples=100)
@given(st.lists(st.integers(1, 1000), max_size=40), st.lists(st.integers(0, 40), max_size=5))
def test_the_sum_is_exact_at_entries_of_one_row(sizes: list[int], marks: list[int]) -> None:
    rows, waiting_module.ENTRY_ROWS = waiting_module.ENTRY_ROWS, 1
    try:
        waiting = WaitingRows()
        for n, size in enumerate(sizes, 1):
            waiting.add(n, size, NOW + n)
        for received in marks:
            waiting.receive(min(received, len(sizes)), SequenceSet())
        assert waiting.bytes == sum(sizes[waiting.received :])
        oldest = NOW + waiting.received + 1 if waiting.received < len(sizes) else None
        assert waiting.oldest_arrived_at == oldest
    finally:
        waiting_module.ENTRY_ROWS = rows


@settings(max_examples=100)
@given(st.integers(1, 2000), st.integers(0, 2000))
def test_the_sum_is_near_with_shared_entries_and_memory_is_bounded(
    rows: int, received: int
) -> None:
    waiting = WaitingRows()
    for n in range(1, rows + 1):
        waiting.add(n, 100, NOW)
    waiting.receive(min(received, rows), SequenceSet())
    assert waiting.bytes == 100 * (rows - min(received, rows))
    assert len(waiting._entries) - waiting._head <= rows // waiting_module.ENTRY_ROWS + 1


@settings(max_examples=100)
@given(
    st.integers(1, 40),
    st.integers(0, 40),
    st.lists(st.sets(st.integers(1, 40), max_size=40), max_size=4),
    st.integers(1, 20),
)
def test_rows_received_ahead_do_not_wait(
    rows: int, received: int, takes: list[set[int]], together: int
) -> None:
    before, waiting_module.ENTRY_ROWS = waiting_module.ENTRY_ROWS, together
    try:
        waiting = WaitingRows()
        for n in range(1, rows + 1):
            waiting.add(
                n, 840, NOW + n
            )  # divisible by each size of an entry that occurs, or off by less than a row
        received, taken, ahead = min(received, rows), set[int](), SequenceSet()
        for take in takes:
            taken |= {n for n in take if received < n <= rows}
            while received + 1 in taken:
                received += 1
            left = {n for n in taken if n > received}
            ahead.add_each(left)
            ahead.discard_through(received)
            waiting.receive(received, ahead, _runs({n for n in take if n > received}))
            assert abs(waiting.bytes - 840 * (rows - received - len(left))) <= rows, (
                "rounding, a byte an entry"
            )
            if rows == received + len(left):
                assert (waiting.bytes, waiting.oldest_arrived_at) == (0, None)
    finally:
        waiting_module.ENTRY_ROWS = before


def test_entries_received_ahead_are_forgotten() -> None:
    """A query that began at ``latest`` over old rows runs for ever."""
    waiting, ahead = WaitingRows(), SequenceSet()
    for n in range(1, 10_001):
        waiting.add(n, 100, NOW)
        if n > 10:
            ahead.add(n, n)
        waiting.receive(0, ahead, [(n, n)] if n > 10 else [])
    assert len(waiting._entries) <= 2
    assert waiting.bytes == 1000


@settings(max_examples=100)
@given(
    st.integers(1, 40),
    st.lists(st.sets(st.integers(1, 40), max_size=40), max_size=4),
    st.integers(1, 20),
)
def test_holes_do_not_wait(rows: int, cuts: list[set[int]], together: int) -> None:
    before, waiting_module.ENTRY_ROWS = waiting_module.ENTRY_ROWS, together
    try:
        waiting, gone = WaitingRows(), set[int]()
        for n in range(1, rows + 1):
            waiting.add(n, 840, NOW + n)
        for cut in cuts:
            cut = {n for n in cut if n <= rows}
            waiting.cut(_runs(cut))
            gone |= cut
            assert list(waiting.holes.runs()) == _runs(gone)
            assert waiting.bytes == 840 * (rows - len(gone)), (
                "rows of one size: in proportion is exact"
            )
    finally:
        waiting_module.ENTRY_ROWS = before


def test_many_holes_at_once_cost_one_pass() -> None:
    """A purge makes one for each run that was received out of turn, in the loop that accepts messages."""
    waiting = WaitingRows()
    for n in range(4_000):
        waiting.add(n * 256 + 1, 256_000, NOW, last=n * 256 + 256)
    began = time.process_time()
    waiting.cut([(n * 100 + 1, n * 100 + 99) for n in range(10_000)])
    assert time.process_time() - began < 2, "half a minute when each hole looked at each entry"
    assert waiting.bytes == 1_000 * (4_000 * 256 - 990_000)


@given(st.sets(st.integers(1, 60)), st.sets(st.integers(1, 60)))
def test_ranges_in_one_pass(some: set[int], others: set[int]) -> None:
    assert list(subtract(_runs(some), _runs(others))) == _runs(some - others)
    inside = list(overlaps(_runs(some), _runs(others)))
    assert inside == [len(others & set(range(low, high + 1))) for low, high in _runs(some)]


def _runs(numbers: set[int]) -> list[tuple[int, int]]:
    starts = sorted(n for n in numbers if n - 1 not in numbers)
    stops = sorted(n for n in numbers if n + 1 not in numbers)
    return list(zip(starts, stops, strict=True))


def test_a_mark_never_goes_back() -> None:
    waiting = WaitingRows()
    waiting.add(1, 10, NOW)
    waiting.receive(1, SequenceSet())
    waiting.receive(0, SequenceSet())
    assert (waiting.bytes, waiting.received, waiting.last) == (0, 1, 1)


def test_a_start_finds_the_same_sum(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    store.put(10, together=3, make=srmp_record)
    with Log(store.directory.database, store.directory.segments) as log:
        plan = sealing.plan(log, QUEUE, NOW + 10**12)
        assert plan is not None
        sealed = sealing.write_segment(log, plan, store.directory.segments)
    store.call(
        lambda t: sealing.commit_segment(t, sealed, store.directory.segments)
    )  # its groups are not swept yet
    store.put(6, together=2, make=srmp_record)
    size = len(srmp_record(1).post)

    def found() -> tuple[int, int, int]:
        queue = state.load_queue(store.directory.writer, store.queue_id)
        return queue.waiting.bytes // size, queue.waiting.last, queue.end

    assert found() == (16, 16, 16)
    consumer = state.StoredConsumer(QUEUE, "default", 12, SequenceSet(), None, None, None)
    store.call(lambda t: state.save_consumer(t.connection, store.queue_id, consumer))
    assert found() == (4, 16, 16)
    store.call(lambda t: queues.give_up(t, QUEUE, 14, 15, store.directory.segments))
    assert found() == (2, 16, 16)
    store.close()


def test_state_survives_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    consumer = state.StoredConsumer(QUEUE, "audit", 3, SequenceSet([(5, 6)]), 4, '"a query"', NOW)
    store.call(lambda t: state.save_consumer(t.connection, store.queue_id, consumer))
    store.call(lambda t: state.raise_ceiling(t.connection, "ordinal", 200))
    store.call(lambda t: state.raise_ceiling(t.connection, "ordinal", 100))
    store.call(
        lambda t: queues.create(t, "orders", transactional=True, journal=True, made_for="h\\q")
    )
    store.call(lambda t: queues.set_paused(t, "orders", paused=True))
    store.call(lambda t: queues.set_paused_out(t, "orders", paused=True))
    store.close()
    again = Store(tmp_path / "data")
    loaded = state.load(again.directory.writer)
    assert loaded.consumers == [consumer]
    assert loaded.ceilings == {"ordinal": 200}
    found = {
        queue.name: (queue.transactional, queue.paused, queue.options) for queue in loaded.queues
    }
    assert found == {
        QUEUE: (False, False, {}),
        "orders": (
            True,
            True,
            {"journal_after": 0, "made_for": ["h\\q", 0], "paused_out": True},
        ),
    }
    options = found["orders"][2]
    assert queues.is_paused_out(options)
    assert queues.MadeFor.of(options) == ("h\\q", 0)
    again.call(lambda t: queues.set_paused_out(t, "orders", paused=False))
    again.call(lambda t: queues.keep(t, "orders"))
    left = state.load(again.directory.writer).queues[1].options
    assert left == {"journal_after": 0}
    again.close()
