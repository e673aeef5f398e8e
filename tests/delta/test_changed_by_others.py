"""State tables that others change: rows that RESTORE or DELETE took out come back, and what cannot is told by range."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from delta_state_kit import EPOCH, GUID, MemoryLog, State
from deltalake import DeltaTable
from outgoing_kit import Sending
from real_log_kit import RealLog
from store_kit import QUEUE

from srmp_spark.queue_manager.reader.crossing import READER_EVENTS
from srmp_spark.store.delta import publisher as publisher_module
from srmp_spark.store.delta import rows_gone
from srmp_spark.store.delta.log_source import StreamRow
from srmp_spark.store.delta.tables import row_count
from srmp_spark.store.delta.tables.cycles import TableGoneError
from srmp_spark.store.tables import queues

ORDERS = "private$/orders"
STREAM = StreamRow(ORDERS, GUID, f"uid:{GUID}\\7", 3, 2, "http://peer/msmq/private$/order_queue$", "10.0.0.5:80", 0,
                   1_795_000_000_000_000, 1_795_000_000_000_001)  # fmt: skip


def published(state: State, log: MemoryLog, cycles: int = 4) -> Any:
    publisher = state.publisher(log)
    for n in range(cycles):
        log.put(ORDERS, n + 1)
        log.put("audit", 1)
        publisher.publish_once()
    return publisher


def run_once(publisher: Any) -> list[Any]:
    stop = threading.Event()
    stop.set()
    reports: list[Any] = []
    publisher.run(stop, reports.append)
    return reports


def test_rows_that_restore_took_out_are_published_again(
    state: State, log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = published(state, log)
    state.table().restore(2)
    assert state.landed() != log.expected()
    log.put(ORDERS, 1)
    publisher.publish_once()
    assert state.landed() == log.expected()
    assert "rows=9: other programs removed them; 9 are published again" in caplog.text
    version = state.table().version()
    publisher.publish_once()
    assert state.table().version() == version, "once"


def test_they_are_found_at_a_start_too(state: State, log: MemoryLog) -> None:
    published(state, log)
    state.table().restore(1)
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()


def test_a_restore_beneath_a_commit_of_ours_is_found_by_the_next(
    state: State, log: MemoryLog
) -> None:
    """The look at the table and the commit are two steps: a RESTORE between them goes below the new rows."""
    publisher = published(state, log)
    inbox = publisher._tables["inbox"]
    good = inbox._commit

    def restore_first(*args: Any, **more: Any) -> None:
        inbox._commit = good
        state.table().restore(1)
        good(*args, **more)

    inbox._commit = restore_first
    log.put(ORDERS, 1)
    publisher.publish_once()
    publisher.publish_once()
    assert state.landed() == log.expected()


def test_what_the_log_does_not_have_is_told_by_range_and_once(
    state: State, log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = published(state, log)
    state.table().restore(1)  # 1 of orders and of audit
    log.trim(ORDERS, 6)
    log.put("audit", 1)
    reports = run_once(publisher)
    (gone,) = (each for each in reports if READER_EVENTS.name_of(each) == "rows_gone")
    assert (gone.ranges, gone.further) == ([(EPOCH, ORDERS, 2, 5)], 0)
    assert f"delta.rows_gone epoch={EPOCH} queue={ORDERS} first=2 last=5" in caplog.text
    left = {sequence for _, queue, sequence, _ in state.landed() if queue == ORDERS}
    assert left == {1, *range(6, 11)}
    assert sum(1 for row in state.read() if row["queue"] == "audit") == 5
    for again in (publisher, state.publisher(log)):
        assert not [
            each for each in run_once(again) if READER_EVENTS.name_of(each) == "rows_gone"
        ], "it is told once"


def test_a_kill_between_rows_that_come_back_loses_none(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = published(state, log)
    state.table().restore(1)
    inbox, good, done = publisher._tables["inbox"], publisher._tables["inbox"].append_again, []

    def once(tables: Any) -> int:
        if done:
            raise KeyboardInterrupt
        done.append(True)
        return int(good(tables))

    monkeypatch.setattr(inbox, "append_again", once)
    with pytest.raises(KeyboardInterrupt):
        publisher.publish_once()
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()


def test_compaction_by_others_and_a_table_without_the_count_are_no_change(
    state: State, log: MemoryLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:  # version 0.1 does not note it
        patch.setattr(row_count, "ROWS_KEY", "srmp.unknown")
        publisher = published(state, log)
        state.table().optimize.compact()
        publisher.publish_once()
    publisher = published(state, log)
    state.table().optimize.compact()
    publisher.publish_once()
    assert state.landed() == log.expected()
    assert "changed_by_others" not in caplog.text


def test_a_table_that_is_deleted_while_we_run_is_made_anew(state: State, log: MemoryLog) -> None:
    publisher = published(state, log)
    log.streams.append(STREAM)
    publisher.publish_once()
    shutil.rmtree(state.folder / "inbox")
    with pytest.raises(
        TableGoneError, match="was deleted while the queue manager ran; it is made anew"
    ):
        publisher.publish_once()
    publisher._close()
    publisher.publish_once()
    assert state.landed() == log.expected()


def test_run_opens_it_at_once(state: State, log: MemoryLog) -> None:
    publisher = published(state, log)
    shutil.rmtree(state.folder / "inbox")
    stop = threading.Event()
    reports: list[Any] = []

    def notify(report: Any) -> None:
        reports.append(report)
        if READER_EVENTS.name_of(report) == "published":
            stop.set()

    publisher.run(stop, notify)
    assert [READER_EVENTS.name_of(each) for each in reports[:4]] == [
        "compared",
        "failed",
        "published",
        "recovered",
    ]
    assert state.landed() == log.expected()


@pytest.mark.parametrize("how", ["restored", "deleted"])
def test_a_table_of_current_state_is_written_again(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(publisher_module, "TABLES_LOOK_S", 0.0)
    publisher = published(state, log)
    for number in (3, 4):
        log.streams[:] = [STREAM._replace(sequence_number=number)]
        log.put(ORDERS, 1)
        publisher.publish_once()
    if how == "restored":
        state.table("incoming_streams").restore(1)
        assert [row["sequence_number"] for row in state.read("incoming_streams")] == [3]
        publisher.publish_once()
    else:
        shutil.rmtree(state.folder / "incoming_streams")
        with pytest.raises(TableGoneError):
            publisher.publish_once()
        publisher._close()
        publisher.publish_once()
    assert [row["sequence_number"] for row in state.read("incoming_streams")] == [4]


@pytest.fixture
def sending(tmp_path: Path) -> Sending:
    found = Sending(tmp_path)
    found.put(6)
    return found


def test_the_tables_of_sending_come_back_too(
    sending: Sending, caplog: pytest.LogCaptureFixture
) -> None:
    """Although nothing was sent or ended meanwhile: the tables are looked at once a minute."""
    publisher = sending.publisher()
    publisher.publish_once()
    sending.bury(1, 2)
    publisher.publish_once()
    sending.bury(3, 4)
    publisher.publish_once()
    streams = sending.read("outgoing_streams")
    for name, version in (("outgoing_queue", 1), ("outgoing_streams", 0), ("dead_letter_queue", 1)):
        sending.table(name).restore(version)
    assert sending.read("outgoing_streams") == []
    assert sending.bodies("dead_letter_queue") == [b"1.0", b"1.1"]
    publisher._look_at = 0.0  # the minute is over
    publisher.publish_once()
    assert sending.bodies("dead_letter_queue") == [b"1.0", b"1.1", b"1.2", b"1.3"]
    assert sending.bodies() == [b"1.4", b"1.5"]
    assert [row["sequence_number"] for row in sending.read("outgoing_streams")] == [
        streams[0]["sequence_number"]
    ]
    assert (
        "table=dead_letter_queue rows=2: other programs removed them; 2 are published again"
        in caplog.text
    )


@pytest.mark.parametrize("name", ["outgoing_queue", "dead_letter_queue"])
def test_a_table_of_sending_that_is_deleted_is_made_anew(sending: Sending, name: str) -> None:
    publisher = sending.publisher()
    sending.bury(1, 2)
    publisher.publish_once()
    shutil.rmtree(sending.folder / name)
    sending.bury(3, 3)
    with pytest.raises(TableGoneError):
        publisher.publish_once()
    publisher._forget()
    publisher.publish_once()
    assert sending.bodies("dead_letter_queue") == [b"1.0", b"1.1", b"1.2"]
    assert sending.bodies() == [b"1.3", b"1.4", b"1.5"]


@pytest.mark.parametrize("how", ["restored", "updated"])
def test_a_table_of_current_state_that_was_changed_before_a_start_is_written_again(
    state: State, log: MemoryLog, how: str
) -> None:
    """With as many rows as before, and the newest commit of ours says what it wrote."""
    publisher = published(state, log)
    for number in (3, 4):
        log.streams[:] = [STREAM._replace(sequence_number=number)]
        log.put(ORDERS, 1)
        publisher.publish_once()
    table = state.table("incoming_streams")
    if how == "restored":
        table.restore(1)
    else:
        table.update({"sequence_number": "3"})
    assert [row["sequence_number"] for row in state.read("incoming_streams")] == [3]
    state.publisher(log).publish_once()
    assert [row["sequence_number"] for row in state.read("incoming_streams")] == [4]
    version = state.table("incoming_streams").version()
    state.publisher(log).publish_once()
    assert state.table("incoming_streams").version() == version, "once"


def test_a_table_that_another_queue_manager_makes_anew_is_no_old_one(
    state: State, log: MemoryLog, tmp_path: Path
) -> None:
    """Its log has the commit that ours had seen last, and more; what we had published is not there."""
    publisher = published(state, log)
    shutil.rmtree(state.folder / "inbox")
    other = MemoryLog(guid="caf195ea-615c-4264-ae08-11a4e60194c0")
    (tmp_path / "other").mkdir()
    neighbour = publisher_module.Publisher(
        tmp_path / "other", str(state.folder), other.guid, 0.05, source=other
    )
    for _ in range(8):
        other.put("theirs", 1)
        neighbour.publish_once()
    log.put(ORDERS, 1)
    with pytest.raises(TableGoneError):
        publisher.publish_once()
    publisher._close()
    publisher.publish_once()
    assert state.landed() == log.expected() + other.expected()


@pytest.mark.parametrize("end", ["repaired", "given up"])
def test_a_damaged_row_keeps_rows_out_for_as_long_as_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    real = RealLog(tmp_path)
    real.put(2)
    publisher = real.publisher()
    publisher.publish_once()
    version = DeltaTable(str(real.state / "inbox")).version()
    for _ in range(3):
        real.put(2)
        publisher.publish_once()
    writer = real.store.directory.writer
    number, data = writer.execute("SELECT id, data FROM groups WHERE last = 5").fetchone()
    writer.execute("UPDATE groups SET data = ? WHERE id = ?", (data[:-1], number))
    DeltaTable(str(real.state / "inbox")).restore(version)
    looks: list[object] = []
    whole = rows_gone.sequences_of
    monkeypatch.setattr(rows_gone, "sequences_of", lambda inbox: looks.append("") or whole(inbox))
    for _ in range(2):
        assert list(publisher.publish_once().damaged) == [QUEUE]
    assert len(looks) == 1, "the whole table is read once a minute"
    if end == "repaired":
        writer.execute("UPDATE groups SET data = ? WHERE id = ?", (data, number))
    else:
        real.store.call(lambda t: queues.give_up(t, QUEUE, 5, 5, real.store.directory.segments))
    publisher._again_at = 0.0  # the minute is over
    report = publisher.publish_once()
    assert (report.damaged, report.position) == ({}, real.store.journal.position)
    assert [row["sequence"] for row in real.landed()] == [
        n for n in range(1, 9) if n != 5 or end == "repaired"
    ]
    publisher.publish_once()
    assert len(looks) == 2, "the count is as it is expected"
    real.store.close()
