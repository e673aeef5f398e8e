"""What counts as room: the volume, free pages of a database, and how these are given back to the volume."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from srmp_spark.store.database import disk_room, giving_back, sweeper
from srmp_spark.store.database.disk_room import (
    DISK_FREE_FLOOR,
    FREE_PAGES_KEPT,
    WAL_EDGE,
    DiskRoom,
    Volume,
    on_one_volume,
)
from srmp_spark.store.database.reserve import (
    RESERVE_BYTES,
    RESERVE_FILE,
    Reserve,
    release_if_short,
)
from srmp_spark.store.database.schema import INBOX, WAL_KEPT_BYTES, connect_writer, row_key
from srmp_spark.store.database.transaction import Transaction

MIB = 1 << 20


def test_pages_that_are_free_inside_count_beyond_what_is_kept() -> None:
    full = DiskRoom(free=7 * MIB, least=8 * MIB, inside=0, wal=DISK_FREE_FLOOR)
    assert full.left == -MIB
    assert DiskRoom(7 * MIB, 8 * MIB, FREE_PAGES_KEPT, DISK_FREE_FLOOR).left == -MIB
    assert DiskRoom(7 * MIB, 8 * MIB, FREE_PAGES_KEPT + 3 * MIB, DISK_FREE_FLOOR).left == 2 * MIB


def test_the_log_grows_on_the_volume_whatever_is_free_inside() -> None:
    """It has its length already, or the volume must have the rest of it."""
    inside = 50 * MIB
    assert (
        DiskRoom(free=3 * MIB, least=8 * MIB, inside=inside, wal=DISK_FREE_FLOOR).left
        == 3 * MIB - WAL_EDGE
    )
    assert (
        DiskRoom(free=3 * MIB, least=8 * MIB, inside=inside, wal=0).left
        == 3 * MIB - DISK_FREE_FLOOR
    )
    assert (
        DiskRoom(free=WAL_EDGE - 1, least=8 * MIB, inside=inside, wal=2 * DISK_FREE_FLOOR).left
        == -1
    )


@pytest.mark.parametrize(
    ("size", "least"), [(64 * MIB, 8 * MIB), (1 << 30, (1 << 30) // 20), (1 << 40, 256 * MIB)]
)
def test_the_least_is_a_share_of_a_small_volume(size: int, least: int) -> None:
    assert Volume(10 * MIB, size).least == least
    assert Volume(10 * MIB, size).spare == 10 * MIB - least


def test_a_folder_that_is_not_made_yet_lies_where_it_will_be(tmp_path: Path) -> None:
    assert on_one_volume(tmp_path, tmp_path / "state" / "new")
    assert not on_one_volume(tmp_path, Path("/proc/self"))


def filled(path: Path) -> int:
    """Make a database of 12 MiB, of which every second MiB is free. Return its length."""
    with contextlib.closing(connect_writer(path)) as connection:
        connection.execute("CREATE TABLE bodies(id INTEGER PRIMARY KEY, body BLOB)")
        for number in range(12):
            connection.execute("INSERT INTO bodies VALUES (?, ?)", (number, os.urandom(MIB)))
        connection.execute("DELETE FROM bodies WHERE id % 2 = 0")
    return path.stat().st_size


def test_free_pages_become_room_of_the_volume_in_slices(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    before = filled(path)
    with contextlib.closing(connect_writer(path)) as connection:
        assert giving_back.can_give_back(connection)
        left = [1]
        while left[-1]:
            connection.execute("BEGIN IMMEDIATE")
            left.append(giving_back.give_back(connection, FREE_PAGES_KEPT))
            connection.execute("COMMIT")
        assert len(left) - 1 == 3, "a MiB at a time, until as much is left as is kept"
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        assert before - path.stat().st_size >= 2 * MIB
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*), sum(length(body)) FROM bodies").fetchone() == (
            6,
            6 * MIB,
        )


def test_a_database_of_an_older_version_keeps_its_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with monkeypatch.context() as patch:
        patch.setitem(INBOX.pragmas, "auto_vacuum", 0)  # type: ignore[arg-type]  # a dict
        before = filled(path)
    with contextlib.closing(connect_writer(path)) as connection:
        assert not giving_back.can_give_back(connection), "it is as it was made"
        assert connection.execute("PRAGMA freelist_count").fetchone()[0] > 0
    assert path.stat().st_size == before


def test_a_log_that_a_reader_made_long_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with (
        contextlib.closing(connect_writer(path)) as connection,
        contextlib.closing(connect_writer(path)) as reader,
    ):
        connection.execute("CREATE TABLE bodies(id INTEGER PRIMARY KEY, body BLOB)")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM bodies").fetchall()
        for number in range(12):
            connection.execute("INSERT INTO bodies VALUES (?, ?)", (number, os.urandom(MIB)))
        assert disk_room.wal_bytes(path) > WAL_KEPT_BYTES
        reader.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        connection.execute("INSERT INTO bodies VALUES (100, '')")
        assert disk_room.wal_bytes(path) <= WAL_KEPT_BYTES
    assert disk_room.wal_bytes(path) == 0


@pytest.mark.parametrize("size", [300, 2_300, 60_000])
def test_a_sweep_says_what_it_puts_into_the_log(tmp_path: Path, size: int) -> None:
    """Or the log of a full volume would grow until nothing can be written: nobody copies what nobody counts."""
    path = tmp_path / "store.db"
    with contextlib.closing(connect_writer(path)) as connection:
        connection.execute("BEGIN")
        for number in range(1, 4 * MIB // size):
            connection.execute(
                "INSERT INTO groups VALUES (?, 1, 1, ?, ?, 1, ?, 0, 0, ?)",
                (row_key(1, number), number, number, size, os.urandom(size)),
            )
        connection.execute("INSERT INTO garbage(queue_id, first, last) VALUES (1, 1, ?)", (number,))
        connection.execute("COMMIT")
    with contextlib.closing(connect_writer(path)) as connection:
        said, more = 0, True
        while more:
            connection.execute("BEGIN IMMEDIATE")
            transaction = Transaction(connection, 1, 1)
            more = sweeper.sweep(transaction)
            said += transaction.written
            connection.execute("COMMIT")
        assert connection.execute("SELECT count(*) FROM groups").fetchone() == (0,)
        assert disk_room.wal_bytes(path) < said


def test_the_reserve_is_made_where_it_fits_and_deleted_once(tmp_path: Path) -> None:
    file, reserve = tmp_path / RESERVE_FILE, Reserve(tmp_path)
    assert not reserve.keep(RESERVE_BYTES - 1), "it must not make the volume tight itself"
    assert not file.exists()
    assert reserve.keep(RESERVE_BYTES)
    found = file.stat()
    assert (found.st_size, found.st_mode & 0o777) == (RESERVE_BYTES, 0o600)
    assert reserve.keep(0), "it is there"
    assert [reserve.release(), reserve.release()] == [True, False]


def test_a_reserve_that_cannot_be_allocated_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert not Reserve(tmp_path).keep(RESERVE_BYTES)
    assert list(tmp_path.iterdir()) == []


def test_a_start_takes_the_reserve_on_a_full_volume_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Reserve(tmp_path).keep(RESERVE_BYTES)
    for free, released in ((WAL_EDGE, False), (WAL_EDGE - 1, True), (0, False)):
        monkeypatch.setattr(Volume, "look", lambda _, free=free: Volume(free, 1 << 30))
        assert release_if_short(tmp_path) is released
