"""Hashes that lie beside a stage: the same as those that a commit makes, and none is used that does not fit."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from outbox_kit import A, B, Desk, bodies, table_of, write_stage

from srmp_spark.store.outbox import stage_file
from srmp_spark.store.outbox.identity import row_hashes as module
from srmp_spark.store.outbox.identity.row_hashes import (
    HashesWriter,
    StoredHashes,
    hashes_of,
    row_hashes,
)
from srmp_spark.store.outbox.preparing import scan as scan_module
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from srmp_spark.store.outbox.stage_file import StageFile
from srmp_spark.store.outbox.staging.stages import CheckedStage

RNG = random.Random(3)
POSITION = {"queue_manager": "q", "epoch": "e", "queue": "private$/in"}
TYPES = {
    "key": pa.string(),
    "sequence": pa.int64(),
    "queue_manager": pa.string(),
    "epoch": pa.string(),
    "queue": pa.string(),
}


def mixed(count: int) -> list[dict[str, Any]]:
    """Rows that are known by a key, a source position, and their content."""
    kinds = [lambda n: {"key": f"k{n}"}, lambda n: POSITION | {"sequence": n}, lambda n: {}]
    return [
        {"body": b"%d" % n, "destination": RNG.choice([A, B]), **RNG.choice(kinds)(n)}
        for n in range(count)
    ]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage of ten rows has several slices and a file of hashes."""
    monkeypatch.setattr(stage_file, "CHUNK_ROWS", 3)
    monkeypatch.setattr(module, "HASHED_ROWS_MIN", 4)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "data")
    yield desk
    desk.close()


def judge(path: Path) -> CheckedStage:
    """Do what the process that judges stages does."""
    stage = StageFile(path)
    with closing(HashesWriter(path, stage.bytes)) as hashes:
        rows = stage.check(judged=hashes.add)
    return CheckedStage(path.name, 0, rows, stage.bytes, stage.schema)


def staged(
    desk: Desk, rows: list[dict[str, Any]], batch: str = "1", name: str = "s.arrow"
) -> tuple[str, Path]:
    path = desk.outbox.stages.folder / name
    write_stage(path, table_of(rows, TYPES))
    return desk.outbox.stages.add("app", batch, 0, "0", judge(path), desk.at).stage_id, path


def refuse_to_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(columns: Any, rows: int) -> None:
        raise AssertionError("rows were hashed at their commit")

    monkeypatch.setattr(scan_module, "row_hashes", refuse)


@pytest.mark.parametrize(
    "rows", [mixed(10), [{"body": b"%d" % n} for n in range(10)], [{"body": b"", "key": None}] * 10]
)
def test_what_is_stored_is_what_a_commit_would_hash(desk: Desk, rows: list[dict[str, Any]]) -> None:
    _, path = staged(desk, rows)
    stage = StageFile(path)
    with closing(StoredHashes(path, stage.bytes)) as stored:
        for piece in stage.slices():
            found, wanted = stored.of(piece), row_hashes(piece.columns, piece.rows)
            assert found is not None
            for one, other in zip(found, wanted, strict=True):
                assert (one is None and other is None) or np.array_equal(one, other)


def test_a_commit_hashes_no_row_again_and_decides_the_same(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = mixed(20)
    plain = Desk(tmp_path / "plain")
    assert plain.commit([plain.stage(rows, types=TYPES)]) == CommitResult(20, 0)
    stage, path = staged(desk, rows)
    assert hashes_of(path).exists()
    with monkeypatch.context() as patch:
        refuse_to_hash(patch)
        assert desk.commit([stage]) == CommitResult(20, 0)
    assert [bodies(desk.read(to)) for to in (A, B)] == [bodies(plain.read(to)) for to in (A, B)]
    tables = {
        table: f"SELECT * FROM {table} ORDER BY 1, 2, 3"
        for table in ("identities", "positions", "position_contents")
    }
    for table, query in tables.items():
        found, wanted = (
            each.outbox.database.connection.execute(query).fetchall() for each in (desk, plain)
        )
        assert [row[:4] for row in found] == [row[:4] for row in wanted], table
    plain.close()
    assert not path.exists()
    assert not hashes_of(path).exists(), "it goes with its stage"
    assert desk.send(rows, types=TYPES, batch="1") == CommitResult(0, 20), (
        "and they are known when they are hashed"
    )


def cut(data: bytes) -> bytes:
    return data[:-5]


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGES: list[Callable[[bytes], bytes]] = [
    cut, flip(0), flip(31), flip(32), flip(40), flip(44), flip(48), flip(60), flip(-1), lambda data: b"",
    lambda data: data[:32], lambda data: bytes(len(data)), lambda data: data[:32] + data[32 + 20 + 72 :],
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_a_crash_or_a_broken_disk_leaves_is_not_used(
    desk: Desk, damage: Callable[[bytes], bytes]
) -> None:
    rows = [{"body": b"%d" % n, "key": f"k{n}"} for n in range(10)]
    assert desk.send(rows) == CommitResult(10, 0)
    stage, path = staged(desk, rows, "2")
    data = hashes_of(path).read_bytes()
    assert len(data) == 32 + 4 * 20 + 10 * 24
    hashes_of(path).write_bytes(damage(data))
    assert desk.commit([stage], batch="2") == CommitResult(0, 10), "each row is known all the same"


class BadDisk(FileIO):
    """A file of which the first block can be read."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        if self.reads > 3:
            raise OSError(errno.EIO, "the disk fails")
        return super().read(size) or b""


def test_a_disk_that_cannot_read_them_costs_the_hashes_and_not_the_commit(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"body": b"%d" % n, "key": f"k{n}"} for n in range(10)]
    assert desk.send(rows) == CommitResult(10, 0)
    stage, path = staged(desk, rows, "2")
    with monkeypatch.context() as patch:
        patch.setattr(module, "FileIO", BadDisk)
        assert desk.commit([stage], batch="2") == CommitResult(0, 10)
    assert "the disk fails" in caplog.text
    stage, path = staged(desk, rows, "3", "u.arrow")
    hashes_of(path).unlink()
    hashes_of(path).mkdir()
    assert desk.commit([stage], batch="3") == CommitResult(0, 10), "and one that cannot be opened"


def test_hashes_of_another_stage_are_not_used(desk: Desk) -> None:
    rows = [{"body": b"%d" % n, "key": f"k{n}"} for n in range(10)]
    others = [{"body": b"%d" % n, "key": f"x{n}"} for n in range(10)]
    assert desk.send(rows) == CommitResult(10, 0)
    stage, path = staged(desk, rows, "2")
    _, other = staged(desk, others, "3", "t.arrow")
    hashes_of(other).replace(hashes_of(path))
    assert desk.commit([stage], batch="2") == CommitResult(0, 10)


def test_a_small_stage_has_no_file_and_a_large_one_has_its_first_rows(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = staged(desk, mixed(3))
    assert not hashes_of(path).exists()
    monkeypatch.setattr(module, "HASHED_ROWS_MAX", 7)
    rows = [{"body": b"%d" % n, "key": f"k{n}"} for n in range(10)]
    stage, path = staged(desk, rows, name="t.arrow")
    assert hashes_of(path).stat().st_size == 32 + 2 * (20 + 3 * 24)
    assert desk.commit([stage]) == CommitResult(10, 0)
    assert desk.send(rows, batch="2") == CommitResult(0, 10)


def test_a_stage_that_takes_long_to_hash_is_hashed_at_its_commit(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader has other work to do, and is killed if that takes too long."""
    monkeypatch.setattr(module, "HASHING_SECONDS_MAX", -1)
    stage, path = staged(desk, [{"body": b"%d" % n, "key": f"k{n}"} for n in range(10)])
    assert not hashes_of(path).exists()
    assert desk.commit([stage]) == CommitResult(10, 0)


def test_rows_for_several_queues_are_hashed_at_the_commit(desk: Desk) -> None:
    """Each of the messages that such a row becomes has a content of its own."""
    rows = [{"body": b"%d" % n, "key": f"k{n}", "destination": f"{A},{B}"} for n in range(10)]
    assert desk.send(rows) == CommitResult(20, 0)
    stage, path = staged(desk, rows, "2")
    assert hashes_of(path).exists()
    assert desk.commit([stage], batch="2") == CommitResult(0, 20)


def test_a_full_disk_costs_the_hashes_and_not_the_stage(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(FileIO):
        def write(self, data: Any) -> int:
            if self.tell() > 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    monkeypatch.setattr(module, "FileIO", Full)
    stage, path = staged(desk, mixed(10))
    assert not hashes_of(path).exists()
    assert desk.commit([stage]) == CommitResult(10, 0)


def test_files_of_hashes_go_with_their_stages(desk: Desk) -> None:
    stages = desk.outbox.stages
    _, kept = staged(desk, mixed(10))
    for name in ("stray.arrow.hashes", "stray.arrow"):
        (stages.folder / name).write_bytes(b"x")
    for path in stages.folder.iterdir():
        os.utime(path, (1, 1))
    assert stages.sweep_files() == 2
    assert hashes_of(kept).exists()
    assert stages.drop("app", "1") == 1
    assert list(stages.folder.iterdir()) == []
