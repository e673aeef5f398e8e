"""What is done beside the thread of the outbox: packing ahead of it, copying the WAL behind it, and packing too early."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outbox_kit import NOW, A, B, Desk, bodies
from test_crash import assert_nothing_invisible

from srmp_spark.errors import StoreSyncError
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.preparing import preparation
from srmp_spark.store.outbox.preparing.ahead import AHEAD_MAX, ahead
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from srmp_spark.store.outbox.tables import checkpoints, writes

# In another thread


def test_items_come_in_order_from_another_thread_that_is_not_far_ahead() -> None:
    made: list[int] = []
    threads: set[threading.Thread] = set()

    def items() -> Iterator[int]:
        for number in range(20):
            threads.add(threading.current_thread())
            made.append(number)
            yield number

    found = []
    for number in ahead(items(), "test"):
        found.append(number)
        time.sleep(0.002)
        assert len(made) <= len(found) + AHEAD_MAX + 2, (
            "two lie ready, one waits for room, one was taken"
        )
    assert found == list(range(20))
    assert threading.current_thread() not in threads
    assert not any(thread.is_alive() for thread in threads)


def test_an_error_is_raised_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise BatchError(400, "x", "no Arrow")

    made = ahead(items(), "test")
    assert next(made) == 1
    with pytest.raises(BatchError, match="no Arrow"):
        next(made)


@pytest.mark.parametrize("taken", [1, 3])
def test_who_wants_no_more_waits_until_the_other_thread_is_done(taken: int) -> None:
    closed: list[threading.Thread] = []

    def items() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append(threading.current_thread())

    made = ahead(items(), "test")
    for _ in range(taken):
        next(made)
    made.close()
    assert len(closed) == 1
    assert not closed[0].is_alive()


# Packed while it is scanned


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows are a large batch."""
    monkeypatch.setattr(writes, "CHUNK_BYTES", 1_000)


def rows(first: int, count: int, **values: Any) -> list[dict[str, Any]]:
    return [
        {"body": b"%d" % row, "key": f"k{row}", "destination": A} | values
        for row in range(first, first + count)
    ]


def packed_how_often(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets a row count for every batch that is packed after it was scanned."""
    later: list[int] = []
    real = preparation.Preparation._make_parts

    def noted(self: Any, scan: Any, new: Any) -> None:
        later.append(int(new.sum()))
        real(self, scan, new)

    monkeypatch.setattr(preparation.Preparation, "_make_parts", noted)
    return later


def test_new_rows_for_one_queue_are_read_once(
    tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = packed_how_often(monkeypatch)
    desk = Desk(tmp_path / "data")
    stages = [desk.stage(rows(part * 50, 50), partition=part, record_rows=10) for part in range(3)]
    assert desk.commit(stages) == CommitResult(150, 0)
    assert bodies(desk.read(A)) == [b"%d" % row for row in range(150)]
    assert later == []
    assert_nothing_invisible(desk)


@pytest.mark.parametrize(
    ("others", "new", "known"),
    [
        pytest.param(rows(190, 10, destination=B), 200, 0, id="a second destination"),
        pytest.param(
            rows(190, 10, delivery="express"), 200, 0, id="a second queue of one destination"
        ),
        pytest.param(rows(1_000, 10), 190, 10, id="rows that were sent before"),
        pytest.param(rows(20, 10), 190, 10, id="rows that stand in the batch twice"),
    ],
)
def test_what_was_packed_too_early_is_taken_back(
    tmp_path: Path,
    large: None,
    monkeypatch: pytest.MonkeyPatch,
    others: list[dict[str, Any]],
    new: int,
    known: int,
) -> None:
    later = packed_how_often(monkeypatch)
    desk = Desk(tmp_path / "data")
    assert desk.send(rows(1_000, 10), batch="0") == CommitResult(10, 0)
    later.clear()
    assert desk.send(rows(0, 190) + others, record_rows=10) == CommitResult(new, known)
    assert later == [new]
    first = rows(1_000, 10) + rows(0, 190)
    for destination, kind in ((A, "stream"), (B, "stream"), (A, "plain")):
        wanted = [
            row["body"]
            for row in first + (others if new == 200 else [])
            if (row["destination"], "plain" if "delivery" in row else "stream")
            == (destination, kind)
        ]
        assert bodies(desk.read(destination, kind)) == wanted
    assert_nothing_invisible(desk)
    desk.close()
    assert_nothing_invisible(Desk(tmp_path / "data"))


def test_a_batch_that_comes_again_is_not_written_first(
    tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = packed_how_often(monkeypatch)
    desk = Desk(tmp_path / "data")
    for keyed in (True, False):
        again = rows(0, 200) if keyed else [{"body": b"d%d" % row} for row in range(200)]
        assert desk.send(again, batch="1", record_rows=10) == CommitResult(200, 0)
        position = desk.outbox.database.position
        assert desk.send(again, batch="1", record_rows=10) == CommitResult(0, 200)
        assert desk.outbox.database.position <= position + 3, (
            "stage, commit, and no groups in between"
        )
    assert later == [0, 0]


def test_a_conflict_after_early_packing_leaves_nothing(tmp_path: Path, large: None) -> None:
    desk = Desk(tmp_path / "data")
    desk.send(rows(1_000, 1), batch="0")
    with pytest.raises(BatchError, match="k1000"):
        desk.send(rows(0, 100) + rows(1_000, 1, body=b"other"), record_rows=10)
    assert_nothing_invisible(desk)
    assert bodies(desk.read(A)) == [b"1000"]


def test_a_journal_is_kept_of_what_was_packed_early(tmp_path: Path, large: None) -> None:
    desk = Desk(tmp_path / "data")
    desk.send(rows(0, 100) + rows(100, 1, journal=True), record_rows=10)
    assert desk.outbox.database.connection.execute("SELECT journal FROM parts").fetchall() == [(1,)]


def test_giving_up_ends_the_thread(tmp_path: Path, large: None) -> None:
    desk = Desk(tmp_path / "data")
    prepared = desk.outbox.prepare("app", "1", [desk.stage(rows(0, 500), record_rows=10)], NOW)
    assert not isinstance(prepared, CommitResult)
    for _ in range(5):
        assert not prepared.step()
    assert any(thread.name == "packing" for thread in threading.enumerate())
    prepared.abort()
    assert not any(thread.name == "packing" for thread in threading.enumerate())
    assert_nothing_invisible(desk)


def test_identities_of_a_chunk_are_found_and_stored_as_one_by_one(
    tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal rows without a key are counted across chunks, and known again when there are more of them."""
    monkeypatch.setattr("srmp_spark.store.outbox.preparing.identities.CHUNK_ROWS", 3)
    desk = Desk(tmp_path / "data")
    assert desk.send([{"body": b"same"}] * 11, batch="1") == CommitResult(11, 0)
    assert desk.send([{"body": b"same"}] * 14 + [{"body": b"other"}], batch="1") == CommitResult(
        4, 11
    )
    assert bodies(desk.read(A)) == [b"same"] * 14 + [b"other"]


# The WAL


def written(desk: Desk) -> int:
    return (desk.directory / "outbox.db-wal").stat().st_size


def test_the_wal_is_copied_beside_and_begun_anew(
    tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_BYTES", 400_000)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_REST_BYTES", 200_000)
    monkeypatch.setattr(checkpoints, "WAL_BYTES_MAX", 1_000_000)
    desk = Desk(tmp_path / "data")
    for batch in range(20):
        desk.send(rows(batch * 100, 100, label="x" * 200), batch=str(batch), record_rows=10)
    assert written(desk) < 3_000_000, "it was begun anew"
    assert (desk.directory / "outbox.db").stat().st_size > 500_000
    desk.close()
    assert not any(thread.name == "outbox-checkpoint" for thread in threading.enumerate())
    assert bodies(Desk(tmp_path / "data").read(A)) == [b"%d" % row for row in range(2_000)]


@pytest.mark.parametrize("full", [True, False])
def test_a_copy_that_fails_is_as_final_as_a_write_but_for_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    class Broken(sqlite3.Connection):
        def execute(self, statement: str, *args: Any) -> sqlite3.Cursor:
            if statement.startswith("PRAGMA wal_checkpoint"):
                raise sqlite3.OperationalError(
                    "database or disk is full" if full else "disk I/O error"
                )
            return super().execute(statement, *args)

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: real(*a, factory=Broken, **k))
    desk = Desk(tmp_path / "data")
    monkeypatch.setattr(checkpoints, "CHECKPOINT_BYTES", 1)

    def work() -> None:
        for batch in range(50):
            desk.send(rows(batch, 1), batch=str(batch))
            time.sleep(0.01)

    if full:
        work()
        assert len(desk.read(A)) == 50
    else:
        with pytest.raises(StoreSyncError, match="a checkpoint"):
            work()
        with pytest.raises(StoreSyncError, match="a checkpoint"):
            desk.outbox.write(None, NOW)
