"""The first row that arrived at or after a time, in a log whose times do not ascend."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from store_kit import NOW, QUEUE, Store, srmp_record

from srmp_spark.errors import StoreDamagedError
from srmp_spark.store.database import sweeper
from srmp_spark.store.stored_rows import arrivals, sealing
from srmp_spark.store.stored_rows.arrivals import FirstSince, first_since
from srmp_spark.store.stored_rows.log import Log, SegmentChunk
from srmp_spark.store.tables import queues

HOUR = 3_600_000_000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(sealing, "SEAL_ROWS_MIN", 10)
    monkeypatch.setattr(sealing, "SEAL_ROWS_MAX", 16)
    return Store(tmp_path / "data")


def put(store: Store, times: list[int]) -> None:
    """Rows that arrive at these times, three in each commit."""
    for start in range(0, len(times), 3):
        rows = times[start : start + 3]
        base = store.sequence
        store.put(
            len(rows), together=3,
            make=lambda n, size, at, rows=rows, base=base: srmp_record(n, at=rows[n - base - 1] - n),
        )  # fmt: skip


def seal_all(store: Store) -> int:
    count = 0
    while True:
        with Log(store.directory.database, store.directory.segments) as log:
            plan = sealing.plan(log, QUEUE, NOW)
            if plan is None:
                return count
            sealed = sealing.write_segment(log, plan, store.directory.segments)
        assert store.call(
            lambda t, s=sealed: sealing.commit_segment(t, s, store.directory.segments)
        )
        while store.call(sweeper.sweep):
            pass
        count += 1


def search(store: Store, since: int, after: int = 0, seconds: float = 60.0) -> FirstSince:
    with Log(store.directory.database, store.directory.segments) as log:
        return first_since(log, QUEUE, log.epochs(QUEUE)[0], after, since, seconds)


def test_every_time_is_found_where_it_is_first_whatever_the_clock_did(store: Store) -> None:
    rng = random.Random(3)
    times = [NOW + n * 1_000 for n in range(60)]
    times += [NOW - HOUR + n * 1_000 for n in range(30)]  # set back by an hour
    times += [NOW + rng.randrange(HOUR) for _ in range(31)]
    put(store, times[:110])
    assert seal_all(store) > 4
    put(store, times[110:])
    with Log(store.directory.database, store.directory.segments) as log:
        kinds = {type(chunk) for chunk in log.chunks(QUEUE, None, 0, len(times))}
    assert len(kinds) == 2, "there are sealed rows, and rows that are not"
    for since in {*times, 0, NOW - 1, max(times) + 1}:
        wanted = next((n for n, at in enumerate(times, 1) if at >= since), None)
        assert search(store, since).sequence == wanted


def test_the_latest_row_may_be_in_the_middle_of_a_commit_or_a_segment(store: Store) -> None:
    times = [NOW] * 100
    times[4], times[97] = NOW + 5, NOW + 9
    put(store, times)
    seal_all(store)
    assert search(store, NOW + 1).sequence == 5
    assert search(store, NOW + 6).sequence == 98
    assert search(store, NOW + 10) == FirstSince(None, 100, 100)


def test_holes_are_passed_and_a_search_goes_on_where_it_stopped(store: Store) -> None:
    put(store, [NOW + n for n in range(1, 101)])
    seal_all(store)
    store.call(lambda t: queues.give_up(t, QUEUE, 20, 50, store.directory.segments))
    assert search(store, NOW + 25).sequence == 51
    found, calls = search(store, NOW + 95, seconds=0.0), 1
    while found.sequence is None:
        assert found.looked_to < found.end
        found, calls = search(store, NOW + 95, found.looked_to, seconds=0.0), calls + 1
    assert found.sequence == 95
    assert calls > 3


def test_a_segment_that_is_damaged_is_told(store: Store) -> None:
    put(store, [NOW] * 40)
    seal_all(store)
    with Log(store.directory.database, store.directory.segments) as log:
        chunk = next(
            each for each in log.chunks(QUEUE, None, 0, 40) if isinstance(each, SegmentChunk)
        )
    chunk.columns.write_bytes(b"x" * 100)
    with pytest.raises(StoreDamagedError, match=f"rows {chunk.first} to {chunk.last} of"):
        search(store, NOW)


def test_rows_that_retention_deletes_meanwhile_are_passed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, [NOW + n for n in range(1, 101)])
    seal_all(store)
    whole = arrivals.arrivals_of

    def gone(path: str) -> object:
        monkeypatch.setattr(arrivals, "arrivals_of", whole)
        store.directory.writer.execute(
            "UPDATE queues SET trimmed_to = 30 WHERE id = ?", (store.queue_id,)
        )
        raise FileNotFoundError(path)

    monkeypatch.setattr(arrivals, "arrivals_of", gone)
    assert search(store, NOW + 1).sequence == 31
