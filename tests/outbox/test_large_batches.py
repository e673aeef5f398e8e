"""Batches of more rows than are worked on at once: the same messages, in the same order, counted all at once."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from outbox_kit import NOW, A, B, Desk, bodies, make_large

from srmp_spark.store.outbox import limits
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.preparing import sorted_runs
from srmp_spark.store.outbox.preparing.conflicts import Conflicts
from srmp_spark.store.outbox.preparing.identities import Identities
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from srmp_spark.store.outbox.preparing.scan import Scan
from srmp_spark.store.outbox.preparing.sorted_runs import SortedRuns
from srmp_spark.store.outbox.tables import schema

RNG = random.Random(7)


def shuffled(count: int) -> list[dict[str, Any]]:
    """Rows to two destinations with everything that decides about order and identity."""
    return [
        {
            "body": b"%d" % number, "destination": RNG.choice([A, B]), "t": RNG.choice([None, 1, 2, 3, 4, 5]),
            "text": RNG.choice([None, "", "a", "ä", "b" * 50]), "f": RNG.choice([None, 0.0, -0.0, 1.5, float("nan"), -2.0]),
            "key": RNG.choice([None, f"key {number}"]), "transaction": RNG.choice([None, "x", "y"]),
        }
        for number in range(count)
    ]  # fmt: skip


TYPES = {
    "t": pa.int64(),
    "text": pa.string(),
    "f": pa.float64(),
    "key": pa.string(),
    "transaction": pa.string(),
}


def sent(
    desk: Desk, rows: Sequence[dict[str, Any]], order_by: Sequence[str]
) -> list[list[tuple[Any, ...]]]:
    """Commit rows in three stages; what is in the queues then."""
    third = len(rows) // 3
    stages = [
        desk.stage(part, partition=partition, order_by=order_by, types=TYPES)
        for partition, part in enumerate([rows[:third], rows[third : 2 * third], rows[2 * third :]])
    ]
    assert desk.commit(stages) == CommitResult(len(rows), 0)
    return [
        [
            (each.message.body, each.message.stream, each.message.uniquifier)
            for each in desk.read(destination)
        ]
        for destination in (A, B)
    ]


@pytest.mark.parametrize("order_by", [[], ["t"], ["text", "t"], ["f"]])
def test_a_large_batch_is_sent_as_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order_by: list[str]
) -> None:
    rows = shuffled(200)
    small = sent(Desk(tmp_path / "small"), rows, order_by)
    make_large(monkeypatch, rows=13, part_rows=17)
    large = Desk(tmp_path / "large")
    assert sent(large, rows, order_by) == small, (
        "transactions that lie across two pieces stay whole"
    )
    (parts,) = large.outbox.database.connection.execute("SELECT max(rows) FROM parts").fetchone()
    assert parts == 17
    assert not (large.outbox.stages.folder / "sorting").exists()


def test_a_row_is_known_whichever_piece_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_large(monkeypatch)
    desk = Desk(tmp_path)
    rows = [{"body": b"same"}] * 20 + [{"body": b"%d" % n} for n in range(20)]
    assert desk.send(rows) == CommitResult(40, 0)
    assert desk.send(rows[::-1], partition=1) == CommitResult(0, 40)
    assert desk.send([*rows, {"body": b"same"}], partition=2) == CommitResult(1, 40)
    keyed = [{"body": b"k", "key": f"{n % 15}"} for n in range(30)]
    assert desk.send(keyed, batch="2") == CommitResult(15, 15)


def test_a_conflict_in_the_last_piece_leaves_nothing_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_large(monkeypatch)
    monkeypatch.setattr("srmp_spark.store.outbox.tables.writes.CHUNK_BYTES", 1)
    desk = Desk(tmp_path)
    desk.send([{"body": b"before", "key": "key 5"}])
    counts = {table: desk.outbox.database.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
              for table in ("groups", "data", "parts", "identities", "identity_log", "batches", "scopes")}  # fmt: skip
    stage = desk.stage([{"body": b"%d" % n, "key": f"key {n}"} for n in range(40)], batch="2")
    prepared = desk.outbox.prepare("app", "2", [stage], NOW)
    assert not isinstance(prepared, CommitResult)
    with pytest.raises(BatchError, match="key 5"):
        prepared.run()
    steps = 0
    while not prepared.abort_step():
        steps += 1
    assert steps > 2, "others write between the steps"
    assert prepared.abort_step()
    for table, count in counts.items():
        assert (
            desk.outbox.database.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            == count
        ), table
    assert bodies(desk.read()) == [b"before"]


def test_a_full_disk_refuses_a_large_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    desk = Desk(tmp_path)
    stage = desk.stage([{"body": b"%d" % n} for n in range(10)])

    def full(file: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(
            BatchError, match="has no room for 20 bytes about the 10 rows"
        ) as caught:
            desk.commit([stage])
    assert (caught.value.status, caught.value.code) == (503, "no-room")
    assert desk.commit([stage]) == CommitResult(10, 0)


def test_a_part_ends_where_its_offsets_end() -> None:
    assert limits.PART_ROWS_MAX == schema.OFFSET_MAX + 1


def test_runs_are_merged_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srmp_spark.store.outbox.preparing.sorted_runs.ROWS_AT_ONCE", 50)
    monkeypatch.setattr("srmp_spark.store.outbox.preparing.sorted_runs.MERGE_BYTES", 100)
    values = np.random.default_rng(1).integers(0, 30, 1003)
    runs = SortedRuns(tmp_path / "sorting")
    for start in range(0, len(values), 7):
        runs.add(start, [pa.array(values[start : start + 7])])
    pieces = list(runs.merged())
    assert len(list((tmp_path / "sorting").iterdir())) > 10
    assert max(map(len, pieces)) < 200, "no piece is much of the whole"
    assert np.concatenate(pieces).tolist() == np.argsort(values, kind="stable").tolist()
    runs.close()
    assert not list((tmp_path / "sorting").iterdir())


@pytest.mark.parametrize("rows_at_once", [3, 7])
@pytest.mark.parametrize("body", [b"a", b"b", b"c", b"d"])
def test_all_rows_of_a_large_batch_may_be_of_one_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int, body: bytes
) -> None:
    make_large(monkeypatch, rows=rows_at_once)
    desk = Desk(tmp_path)
    rows = [{"body": body}] * 20
    assert desk.send(rows) == CommitResult(20, 0)
    assert desk.send(rows, partition=1) == CommitResult(0, 20)
    assert bodies(desk.read()) == [body] * 20


@pytest.mark.parametrize("queues", [1, 10])
def test_positions_of_short_queues_are_dealt_out_to_all_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queues: int
) -> None:
    """They are all in the first block of their queue."""
    make_large(monkeypatch, rows=7)
    shares: list[int] = []
    decide = Identities._decide

    def counted(self: Identities, scan: Scan, rows: np.ndarray, rank: Any) -> Any:
        shares.append(len(rows))
        return decide(self, scan, rows, rank)

    monkeypatch.setattr(Identities, "_decide", counted)
    desk = Desk(tmp_path)
    at = {"queue_manager": "q", "epoch": "e"}
    rows = [
        {"body": b"%d" % n, "queue": f"q{n % queues}", "sequence": n // queues, **at}
        for n in range(40)
    ]
    assert desk.send(rows) == CommitResult(40, 0)
    assert max(shares) <= (40 if queues == 1 else 8)
    assert desk.send(rows, partition=1, on_conflict="ignore") == CommitResult(0, 40)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_each_row_is_sorted_a_few_times_however_many_files_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_sorted: bool
) -> None:
    make_large(monkeypatch, rows=200)
    monkeypatch.setattr("srmp_spark.store.outbox.preparing.sorted_runs.MERGE_BYTES", 1_000)
    values = list(range(10_000)) if is_sorted else [RNG.randrange(1_000) for _ in range(10_000)]
    runs = SortedRuns(tmp_path / "runs")
    for first in range(0, len(values), 200):
        runs.add(first, [pa.array(values[first : first + 200])])
    counts: list[int] = []
    indices = sorted_runs._indices

    def counted(table: pa.Table) -> Any:
        counts.append(table.num_rows)
        return indices(table)

    monkeypatch.setattr(sorted_runs, "_indices", counted)
    merged = np.concatenate(list(runs.merged())).tolist()
    assert merged == sorted(range(len(values)), key=lambda row: (values[row], row))
    assert max(counts) <= 200, "and no step sorts more than a section"
    of_rows = sum(count for count in counts if count > 51)
    assert of_rows <= len(values), "50 files, and the bound, are compared again and again"
    runs.close()


@pytest.mark.parametrize("on_conflict", ["fail", "ignore", "dead-letter"])
def test_conflicts_are_not_collected_for_the_whole_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_conflict: str
) -> None:
    """Of two sinks with one application each row of the second is one, and of a backlog there are as many as it has rows."""
    make_large(monkeypatch, rows=10)
    desk = Desk(tmp_path)
    at = {"queue_manager": "q", "epoch": "e"}
    rows = [{"body": b"%d" % n, "queue": f"q{n}", "sequence": n, **at} for n in range(100)]
    assert desk.send(rows) == CommitResult(100, 0)
    held: list[int] = []
    add = Conflicts.add

    def counted(self: Conflicts, *args: Any) -> None:
        add(self, *args)
        held.append(sum(len(part.rows) for part in self._parts))

    monkeypatch.setattr(Conflicts, "add", counted)
    stage = desk.stage([row | {"body": b"other"} for row in rows], partition=1)
    prepared = desk.outbox.prepare("app", "1", [stage], NOW, on_conflict=on_conflict)
    assert not isinstance(prepared, CommitResult)
    if on_conflict == "fail":
        with pytest.raises(BatchError, match="100 rows of the batch conflict"):
            prepared.run()
    else:
        assert prepared.run().result == CommitResult(0, 0, 100)
    assert max(held) <= (20 if on_conflict == "dead-letter" else 0)
    assert prepared.letters == (100 if on_conflict == "dead-letter" else 0)
    prepared.abort()
