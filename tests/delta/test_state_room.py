"""The publisher on a volume that has little room: it asks before it writes, and what it could not finish takes no room."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from delta_state_kit import EPOCH, MemoryLog, State
from outgoing_kit import Sending

from srmp_spark.queue_manager.reader.crossing import READER_EVENTS
from srmp_spark.store.database.disk_room import DISK_FREE_FLOOR
from srmp_spark.store.delta.log_source import HistoryRow
from srmp_spark.store.delta.tables import state_table
from srmp_spark.store.delta.tables.state_room import CYCLE_BYTES_MIN, NoRoomError, StateRoom

MIB = 1 << 20


class Disk:
    """A volume of 64 MiB; what the test writes does not count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spare = 40 * MIB
        self.looks = 0
        monkeypatch.setattr(os, "statvfs", self.statvfs)

    def statvfs(self, _: object) -> Any:
        self.looks += 1
        return SimpleNamespace(f_bavail=DISK_FREE_FLOOR + self.spare, f_frsize=1, f_blocks=64 * MIB)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_nothing_is_begun_without_room_and_all_is_published_when_there_is(
    state: State, log: MemoryLog, disk: Disk
) -> None:
    publisher = state.publisher(log)
    log.put("private$/orders", 3)
    publisher.publish_once()
    log.put("private$/orders", 3)
    files = state.data_files()
    disk.spare = CYCLE_BYTES_MIN - 1
    with pytest.raises(NoRoomError, match="make room, or put --state on a volume of its own"):
        publisher.publish_once()
    assert state.data_files() == files
    disk.spare = 40 * MIB
    publisher.publish_once()
    assert state.landed() == log.expected()


def test_a_backlog_goes_in_pieces_for_which_there_is_room(
    state: State, log: MemoryLog, disk: Disk
) -> None:
    log.put("private$/orders", 500, size=20_000)
    disk.spare = 2 * MIB
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()
    counts = state.table().get_add_actions(flatten=True)["num_records"].to_pylist()
    assert max(counts) * 20_000 <= 2 * MIB
    assert len(counts) >= 5


def test_what_was_published_before_the_room_ended_is_reported(
    state: State, log: MemoryLog, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be deleted from the log then, which makes the room for the rest."""
    log.put("private$/orders", 500, size=20_000)
    disk.spare = 2 * MIB
    publisher = state.publisher(log)
    good = StateRoom.check

    def check(room: StateRoom, needed: int) -> int:
        if len(state.commits()) > 1:
            disk.spare = 0
        return good(room, needed)

    with monkeypatch.context() as patch:
        patch.setattr(StateRoom, "check", check)
        reports: list[Any] = []
        stop = threading.Event()
        stop.set()
        publisher.run(stop, reports.append)
    assert [READER_EVENTS.name_of(each) for each in reports] == ["compared", "published", "failed"]
    (published,) = reports[1].sequences[EPOCH].values()
    assert published == len(state.read()) > 0
    assert reports[1].position == 0, "not everything is there"
    disk.spare = 2 * MIB
    assert publisher.publish_once().position == log.position
    assert state.landed() == log.expected()


def test_a_file_for_which_the_room_goes_is_removed_and_so_is_the_history_before_it(
    state: State, log: MemoryLog, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = state.publisher(log)
    publisher.publish_once()
    log.put("private$/orders", 100)
    bodies = log.rows[next(iter(log.rows))]
    bodies.update({number: os.urandom(60_000) for number in bodies})  # no compression helps
    log.history.append(HistoryRow(log.guid, 1, 100, 1))
    good, begun = StateRoom.check, []

    def check(room: StateRoom, needed: int) -> int:
        if state.data_files():  # that of inbox is open
            begun.append(len(state.data_files("message_id_history")))
            disk.spare = 0
        return good(room, needed)

    with monkeypatch.context() as patch:
        patch.setattr(StateRoom, "check", check)
        report = publisher.publish_once()
    assert report.sequences == {EPOCH: {"private$/orders": 0}}
    assert publisher._no_room is not None
    assert begun == [1], "both files were there"
    assert state.data_files() == state.data_files("message_id_history") == []
    disk.spare = 40 * MIB
    publisher.publish_once()
    assert state.landed() == log.expected()
    assert [row["uniquifier_last"] for row in state.read("message_id_history")] == [100]


def test_a_file_whose_commit_fails_is_removed(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = state.publisher(log)
    publisher.publish_once()
    log.put("private$/orders", 3)
    table = publisher._tables["inbox"]

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(table._table, "create_write_transaction", full)
        with pytest.raises(OSError, match="No space left"):
            publisher.publish_once()
    assert state.data_files() == []
    publisher.publish_once()
    assert state.landed() == log.expected()


def test_a_file_whose_commit_is_there_after_all_stays(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of a store may be lost: the table is asked."""
    publisher = state.publisher(log)
    publisher.publish_once()
    log.put("private$/orders", 3)
    table = publisher._tables["inbox"]._table
    good = table.create_write_transaction

    def committed_and_lost(*args: Any, **more: Any) -> None:
        good(*args, **more)
        raise ConnectionError("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(table, "create_write_transaction", committed_and_lost)
        with pytest.raises(ConnectionError):
            publisher.publish_once()
    assert state.landed() == log.expected()
    publisher._close()
    publisher.publish_once()
    assert state.landed() == log.expected()


def test_a_state_elsewhere_is_not_asked(tmp_path: Path, disk: Disk) -> None:
    disk.spare = 0
    assert StateRoom(tmp_path, None).check(1 << 40) > 1 << 40
    assert StateRoom(tmp_path, Path("/proc/self")).check(1 << 40) > 1 << 40
    with pytest.raises(NoRoomError):
        StateRoom(tmp_path, tmp_path / "state").check(1)


def test_what_no_version_names_any_more_goes_although_there_is_no_room(
    state: State, log: MemoryLog, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be all the room that there can be."""
    publisher = state.publisher(log)
    log.put("private$/orders", 3)
    publisher.publish_once()
    orphan = state.data_files()[0].with_name("00000000-0000-4000-8000-000000000000.parquet")
    orphan.write_bytes(bytes(1000))
    os.utime(orphan, (0, 0))
    disk.spare = 0
    monkeypatch.setattr(state_table, "VACUUM_INTERVAL_S", 0)
    stop = threading.Event()
    stop.set()
    reports: list[Any] = []
    publisher.run(stop, reports.append)
    assert [READER_EVENTS.name_of(each) for each in reports] == ["compared", "failed"]
    assert not orphan.exists()


def test_the_publisher_of_sending_deletes_it_too(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending = Sending(tmp_path)
    sending.put(3)
    publisher = sending.publisher()
    publisher.publish_once()
    orphan = next(sending.folder.glob("outgoing_queue/*/*.parquet")).with_name(
        "00000000-0000-4000-8000-000000000000.parquet"
    )
    orphan.write_bytes(bytes(1000))
    os.utime(orphan, (0, 0))
    disk.spare = 0
    monkeypatch.setattr(state_table, "VACUUM_INTERVAL_S", 0)
    with pytest.raises(NoRoomError):
        publisher.publish_once()
    assert not orphan.exists()
    assert len(sending.bodies()) == 3
