"""docs/GUARANTEES.md, "Delta holds every accepted message once": what one publisher writes, and when it says so."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from delta_state_kit import EPOCH, GUID, MemoryLog, State
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from srmp_spark.errors import StoreDamagedError
from srmp_spark.queue_manager.reader.crossing import READER_EVENTS
from srmp_spark.rows.columns import NAMES
from srmp_spark.store.delta import publisher as publisher_module
from srmp_spark.store.delta.log_source import HistoryRow, Snapshot, StreamRow
from srmp_spark.store.delta.publisher import ChunkSizes, OlderCopyError
from srmp_spark.store.delta.snapshot_rows import stamped
from srmp_spark.store.delta.tables import state_table
from srmp_spark.store.delta.tables.cycles import AWAY_REMEDY
from srmp_spark.store.delta.tables.events import PublisherFailed

STREAM = StreamRow("private$/orders", GUID, f"uid:{GUID}\\7", 3, 2, "http://peer/msmq/private$/order_queue$", "10.0.0.5:80", 0,
                   1_795_000_000_000_000, 1_795_000_000_000_001)  # fmt: skip


def test_every_row_lands_once_and_the_report_names_the_last_sequences(
    state: State, log: MemoryLog
) -> None:
    log.put("private$/orders", 10)
    log.put("audit", 5)
    report = state.publisher(log).publish_once()
    assert READER_EVENTS.name_of(report) == "published"
    assert report.position == 2
    assert report.sequences == {EPOCH: {"private$/orders": 10, "audit": 5}}
    assert READER_EVENTS.decode(READER_EVENTS.encode(report)) == report
    assert state.landed() == log.expected()


def test_a_second_cycle_adds_only_what_is_new(state: State, log: MemoryLog) -> None:
    publisher = state.publisher(log)
    for _ in range(4):
        log.put("private$/orders", 3)
        publisher.publish_once()
    assert state.landed() == log.expected()
    assert state.table().version() == 4, "one commit a cycle after the creation"


def test_nothing_younger_is_reported_than_what_another_publisher_has(
    state: State, log: MemoryLog
) -> None:
    """The tables of sending: ``srmp_state_lag_seconds`` is of all of them."""
    log.put("private$/orders", 1)
    assert state.publisher(log, others_as_of=lambda: 17.0).publish_once().as_of == 17.0


def test_an_idle_queue_manager_commits_nothing(state: State, log: MemoryLog) -> None:
    log.put("private$/orders", 3)
    log.history.append(HistoryRow(GUID, 1, 3, 1))
    publisher = state.publisher(log)
    publisher.publish_once()
    before = {
        name: state.table(name).version()
        for name in ("inbox", "message_id_history", "incoming_streams")
    }
    publisher.publish_once()
    assert before == {name: state.table(name).version() for name in before}


def test_inbox_has_the_columns_of_the_source_and_two_of_its_own(
    state: State, log: MemoryLog
) -> None:
    log.put("private$/orders", 1)
    state.publisher(log).publish_once()
    table = state.table()
    assert [field.name for field in table.schema().fields] == [*NAMES, "position", "written_at"]
    assert table.metadata().partition_columns == ["queue_manager"]
    assert table.metadata().configuration["srmp.format"] == "1"
    row = state.read()[0]
    assert (row["queue_manager"], row["position"], row["label"]) == (GUID, 1, "a label")
    assert row["written_at"].tzinfo is not None


def test_a_large_backlog_goes_in_bounded_chunks(state: State, log: MemoryLog) -> None:
    log.put("private$/orders", 2500)
    log.put("audit", 700, size=100)
    state.publisher(log, chunks=ChunkSizes(rows=1000)).publish_once()
    assert state.landed() == log.expected()
    assert max(state.table().get_add_actions(flatten=True)["num_records"].to_pylist()) <= 1000


def test_a_batch_above_the_byte_limit_is_cut(state: State, log: MemoryLog) -> None:
    log.put("private$/orders", 100, size=10_000)
    state.publisher(log, chunks=ChunkSizes(bytes=200_000)).publish_once()
    assert state.landed() == log.expected()
    assert max(state.table().get_add_actions(flatten=True)["num_records"].to_pylist()) <= 20


def test_a_new_publisher_goes_on_where_the_table_is_and_not_where_it_was_told(
    state: State, log: MemoryLog
) -> None:
    for _ in range(3):
        log.put("private$/orders", 4)
        state.publisher(log).publish_once()
    assert state.landed() == log.expected()


def test_a_fresh_data_directory_reads_the_positions_from_the_table(
    state: State, log: MemoryLog
) -> None:
    log.put("private$/orders", 4)
    state.publisher(log).publish_once()
    for path in sorted((state.data_dir / "delta").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    log.put("private$/orders", 4)
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()


def test_two_publishers_of_one_queue_manager_never_double_a_row(
    state: State, log: MemoryLog
) -> None:
    """A reader process that lingers while the next one has started: one wins each position."""
    old, new = state.publisher(log), state.publisher(log)
    log.put("private$/orders", 5)
    old.publish_once()
    new.publish_once()
    log.put("private$/orders", 5)
    opened = [publisher._tables["inbox"] for publisher in (old, new)]
    rows = stamped(next(log.batches(EPOCH, "private$/orders", 5, 10)), log.snapshot().position)
    opened[0].append(iter([rows]), {(EPOCH, "private$/orders"): 10})
    with pytest.raises(state_table.PublishConflictError):
        opened[1].append(iter([rows]), {(EPOCH, "private$/orders"): 10})
    new.publish_once()
    assert state.landed() == log.expected()


def test_queue_managers_share_a_state_folder(state: State) -> None:
    logs = [MemoryLog(), MemoryLog("aaaaaaaa-0000-4000-8000-000000000002")]
    publishers = [state.publisher(log) for log in logs]
    publishers[1]._data_dir = state.data_dir.parent / "data2"
    (state.data_dir.parent / "data2").mkdir()
    for _ in range(3):
        for log, publisher in zip(logs, publishers, strict=True):
            log.put("private$/orders", 2)
            log.streams[:] = [STREAM._replace(sequence_number=log.position)]
            publisher.publish_once()
    assert state.landed() == logs[0].expected() + logs[1].expected()
    streams = {
        row["queue_manager"]: row["sequence_number"] for row in state.read("incoming_streams")
    }
    assert streams == {log.guid: 3 for log in logs}


def test_an_older_epoch_is_published_beside_the_current_one(state: State, log: MemoryLog) -> None:
    log.put("private$/orders", 3)
    newer = "22222222-0000-4000-8000-000000000002"
    log.put("private$/orders", 2, epoch=newer)
    report = state.publisher(log).publish_once()
    assert report.sequences == {EPOCH: {"private$/orders": 3}, newer: {"private$/orders": 2}}
    assert state.landed() == log.expected()


def test_history_and_streams_are_replaced_only_when_they_change(
    state: State, log: MemoryLog
) -> None:
    publisher = state.publisher(log)
    log.put("private$/orders", 1)
    log.history[:] = [HistoryRow(GUID, 1, 5, 1_795_000_000_000_000)]
    log.streams[:] = [STREAM]
    publisher.publish_once()
    log.history[:] = [
        HistoryRow(GUID, 1, 9, 1_795_000_000_000_009),
        HistoryRow(GUID, 12, 12, 1_795_000_000_000_009),
    ]
    log.position += 1
    publisher.publish_once()
    rows = state.read("message_id_history")
    assert sorted((r["uniquifier_first"], r["uniquifier_last"]) for r in rows) == [(1, 9), (12, 12)]
    assert {r["position"] for r in rows} == {2}
    stream = state.read("incoming_streams")
    assert state.table("incoming_streams").version() == 1
    assert (
        stream[0]["stream_id"],
        stream[0]["sequence_number"],
        stream[0]["last_acknowledged"],
    ) == (f"uid:{GUID}\\7", 3, 2)


def test_a_history_that_is_dear_to_write_rests_between_two_times(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Millions of runs take half a minute; `inbox` goes on meanwhile, and with its rows nothing is missing (restore)."""
    monkeypatch.setattr(publisher_module, "IDENTIFIERS_CHEAP_S", 0.0)
    monkeypatch.setattr(publisher_module, "IDENTIFIERS_REST", 10_000)
    publisher = state.publisher(log)
    for last in (1, 2):
        log.put("private$/orders", 1)
        log.history[:] = [HistoryRow(GUID, 1, last, 1_795_000_000_000_000)]
        publisher.publish_once()
    assert [row["uniquifier_last"] for row in state.read("message_id_history")] == [1]
    assert {row["position"] for row in state.read("message_id_history")} == {1}, (
        "restore reads the rows of inbox from there on"
    )
    assert len(state.read()) == 2
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 1e6)
    log.put("private$/orders", 1)
    publisher.publish_once()
    assert [row["uniquifier_last"] for row in state.read("message_id_history")] == [2]


def test_no_identifier_is_there_before_its_row(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages come while the identifiers are read. After a restore one without its row would turn a repeat into a loss."""

    class Busy(MemoryLog):
        def identifiers(self) -> Iterator[list[HistoryRow]]:
            self.put("private$/orders", 1)
            self.history[:] = [HistoryRow(GUID, 1, self.position, 1_795_000_000_000_000)]
            return super().identifiers()

    def away(*_: object) -> dict[str, str]:
        raise ConnectionError("the object store is away")

    busy = Busy()
    busy.put("private$/orders", 1)
    publisher = state.publisher(busy)
    with monkeypatch.context() as patch:
        patch.setattr(publisher, "_append", away)
        with pytest.raises(ConnectionError):
            publisher.publish_once()
    assert state.read("message_id_history") == []
    for _ in range(3):
        report = publisher.publish_once()
        (run,) = state.read("message_id_history")
        assert run["uniquifier_last"] == len(state.read()) == busy.position == report.position


def test_what_is_gone_from_the_state_is_gone_from_its_table(state: State, log: MemoryLog) -> None:
    publisher = state.publisher(log)
    log.streams[:] = [STREAM]
    publisher.publish_once()
    log.streams[:] = []
    publisher.publish_once()
    assert state.read("incoming_streams") == []


def test_a_restart_does_not_write_unchanged_state_again(state: State, log: MemoryLog) -> None:
    log.history[:] = [HistoryRow(GUID, 1, 5, 1)]
    state.publisher(log).publish_once()
    version = state.table("message_id_history").version()
    state.publisher(log).publish_once()
    assert state.table("message_id_history").version() == version


def test_a_data_directory_older_than_the_table_is_refused(state: State, log: MemoryLog) -> None:
    log.put("private$/orders", 9)
    state.publisher(log).publish_once()
    older = MemoryLog()
    older.put("private$/orders", 4)
    with pytest.raises(StoreDamagedError, match=r"holds sequence 9 .* ends at 4.*older copy"):
        state.publisher(older).publish_once()


def test_a_table_that_comes_to_be_ahead_is_found_in_a_later_cycle(
    state: State, log: MemoryLog
) -> None:
    publisher = state.publisher(log)
    log.put("private$/orders", 4)
    publisher.publish_once()
    newer = MemoryLog()
    newer.put("private$/orders", 9)
    state.publisher(newer).publish_once()
    with pytest.raises(OlderCopyError, match=r"holds sequence 9 .* ends at 4"):
        publisher.publish_once()


def test_run_says_that_the_log_is_an_older_copy_and_compares_before_it_publishes(
    state: State, log: MemoryLog
) -> None:
    log.put("private$/orders", 9)
    reports: list[Any] = []
    stop = threading.Event()
    stop.set()
    state.publisher(log).run(stop, reports.append)
    assert [READER_EVENTS.name_of(each) for each in reports] == [
        "compared",
        "published",
        "recovered",
    ]
    older = MemoryLog()
    older.put("private$/orders", 4)
    reports.clear()
    state.publisher(older).run(threading.Event(), reports.append)
    assert [(READER_EVENTS.name_of(each), each.fatal, each.older_copy) for each in reports] == [
        ("failed", True, True)
    ]


def test_a_damaged_queue_is_named_and_the_others_are_reported(state: State, log: MemoryLog) -> None:
    log.put("audit", 2)
    log.put("broken", 3)
    log.put("private$/orders", 4)
    good = log.batches

    def batches(epoch: str, queue: str, after: int, to: int) -> Any:
        if queue == "broken":
            raise StoreDamagedError("rows 1 to 3 of broken cannot be read")
        return good(epoch, queue, after, to)

    log.batches = batches  # type: ignore[method-assign]
    reports: list[Any] = []
    stop = threading.Event()
    stop.set()
    publisher = state.publisher(log)
    publisher.run(stop, reports.append)
    assert [READER_EVENTS.name_of(each) for each in reports] == [
        "compared",
        "published",
        "failed",
        "recovered",
    ]
    assert reports[1].sequences == {EPOCH: {"audit": 2, "broken": 0, "private$/orders": 4}}
    assert reports[1].position == 0, "the lag goes on growing: not everything is there"
    assert not reports[2].fatal
    assert "queue broken is not published: rows 1 to 3" in reports[2].error
    log.batches = good  # type: ignore[method-assign]
    report = publisher.publish_once()
    assert (report.position, report.damaged) == (3, {})
    assert state.landed() == log.expected()


def test_a_table_of_a_newer_format_is_refused(state: State, log: MemoryLog) -> None:
    schema = pa.schema([("queue_manager", pa.string())])
    DeltaTable.create(
        str(state.folder / "inbox"),
        schema,
        configuration={"srmp.format": "2"},
        raise_if_key_not_exists=False,
    )
    with pytest.raises(StoreDamagedError, match=r"srmp\.format=2, this version writes 1"):
        state.publisher(log).publish_once()


def test_columns_that_users_add_are_left_alone(state: State, log: MemoryLog) -> None:
    log.put("private$/orders", 3)
    publisher = state.publisher(log)
    publisher.publish_once()
    fields = [Field("checked_by", PrimitiveType("string"), nullable=True)]
    for name in ("inbox", "incoming_streams"):
        state.table(name).alter.add_columns(fields)
    log.put("private$/orders", 2)
    log.streams.append(STREAM)
    publisher.publish_once()
    log.put("private$/orders", 2)
    log.streams[:] = [STREAM._replace(sequence_number=9)]
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()
    assert {row["checked_by"] for row in state.read()} == {None}
    assert [row["sequence_number"] for row in state.read("incoming_streams")] == [9]


def test_a_table_that_lacks_a_column_of_the_format_is_refused_by_its_name(
    state: State, log: MemoryLog
) -> None:
    schema = pa.schema([("queue_manager", pa.string()), ("epoch", pa.string())])
    DeltaTable.create(
        str(state.folder / "inbox"),
        schema,
        configuration={"srmp.format": "1"},
        raise_if_key_not_exists=False,
    )
    with pytest.raises(
        StoreDamagedError, match=r"lacks columns of format 1: sequence, queue, .*put them back"
    ):
        state.publisher(log).publish_once()


def test_a_foreign_delta_table_is_never_written_to(state: State, log: MemoryLog) -> None:
    DeltaTable.create(str(state.folder / "inbox"), pa.schema([("a", pa.string())]))
    with pytest.raises(StoreDamagedError, match="not one of srmp-spark"):
        state.publisher(log).publish_once()


def test_run_publishes_until_stopped_and_once_more(state: State, log: MemoryLog) -> None:
    stop, first = threading.Event(), threading.Event()
    reports: list[Any] = []

    def notify(report: Any) -> None:
        if READER_EVENTS.name_of(report) == "published":
            reports.append(report)
            first.set()

    log.put("private$/orders", 3)
    thread = threading.Thread(target=state.publisher(log).run, args=(stop, notify))
    thread.start()
    assert first.wait(30)
    log.put("private$/orders", 3)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    assert reports[-1].sequences == {EPOCH: {"private$/orders": 6}}
    assert state.landed() == log.expected()


def test_run_tells_a_failure_and_tries_again(state: State, log: MemoryLog) -> None:
    stop = threading.Event()
    reports: list[Any] = []
    log.put("private$/orders", 3)
    good, failures = log.batches, [OSError("the store is away")]

    def batches(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return good(*args)

    log.batches = batches  # type: ignore[method-assign]

    def notify(report: Any) -> None:
        if READER_EVENTS.name_of(report) != "compared":
            reports.append(report)
        if READER_EVENTS.name_of(report) == "published":
            stop.set()

    state.publisher(log).run(stop, notify)
    assert reports[0] == PublisherFailed("inbox", "OSError: the store is away", AWAY_REMEDY)
    assert [READER_EVENTS.name_of(each) for each in reports[1:3]] == ["published", "recovered"]
    assert state.landed() == log.expected()


def test_run_ends_with_a_fatal_report_when_the_table_cannot_be_used(
    state: State, log: MemoryLog
) -> None:
    DeltaTable.create(str(state.folder / "inbox"), pa.schema([("a", pa.string())]))
    reports: list[Any] = []
    state.publisher(log).run(threading.Event(), reports.append)
    assert [(READER_EVENTS.name_of(r), r.fatal) for r in reports] == [("failed", True)]


def test_the_object_store_road_writes_the_same_table(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same code with deltalake's own client below it, here over a file URL: no folder, no shadow."""
    from srmp_spark.store.delta import publisher as publisher_module
    from srmp_spark.store.delta.tables.data_files import ObjectStorage

    state.folder.mkdir()
    monkeypatch.setattr(
        publisher_module,
        "storage_of",
        lambda uri, table, options, room=None: ObjectStorage(f"file://{uri}/{table}", options),
    )
    for name in ("inbox", "message_id_history", "incoming_streams"):
        (state.folder / name).mkdir()
    log.put("private$/orders", 10)
    publisher = state.publisher(log)
    publisher.publish_once()
    log.put("private$/orders", 10)
    publisher.publish_once()
    assert state.landed() == log.expected()
    assert not (state.data_dir / "delta").exists()


def test_a_directory_put_back_from_a_backup_goes_on_beside_what_was_published(
    state: State, log: MemoryLog
) -> None:
    """Delta may hold more of the old epoch than the backup does: those rows stay, and nothing is refused."""
    log.put("private$/orders", 9)
    state.publisher(log).publish_once()
    backup, newer = MemoryLog(), "22222222-0000-4000-8000-000000000002"
    backup.put("private$/orders", 4)
    backup.rows[newer, "private$/orders"] = {5: b"another message"}
    ranges = backup.snapshot().ranges
    ends = [span._replace(current=span.epoch == newer, first=span.start) for span in ranges]
    backup.snapshot = lambda: Snapshot(backup.position, ends, ())  # type: ignore[method-assign]
    state.publisher(backup).publish_once()
    assert state.landed() == log.expected() + Counter(
        {(newer, "private$/orders", 5, b"another message"): 1}
    )


def test_rows_that_retention_took_before_they_were_published_are_told(
    state: State, log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.put("private$/orders", 9)
    log.trim("private$/orders", 4)
    state.publisher(log).publish_once()
    assert sorted(row["sequence"] for row in state.read()) == [4, 5, 6, 7, 8, 9]
    assert (
        "private$/orders: rows 1 to 3 were deleted from the log before they were published"
        in caplog.text
    )


def test_queue_managers_that_commit_at_the_same_time_are_no_conflict(state: State) -> None:
    logs = [MemoryLog(), *(MemoryLog(f"{n}aaaaaaa-0000-4000-8000-000000000002") for n in range(2))]
    failures: list[BaseException] = []

    def publish(log: MemoryLog) -> None:
        publisher = state.publisher(log)
        publisher._data_dir = state.data_dir / log.guid
        publisher._data_dir.mkdir()
        try:
            for n in range(12):
                log.put("private$/orders", 2)
                log.history[:] = [HistoryRow(log.guid, 1, n + 1, n)]
                publisher.publish_once()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=publish, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert state.landed() == logs[0].expected() + logs[1].expected() + logs[2].expected()
    history = {
        (row["queue_manager"], row["uniquifier_last"]) for row in state.read("message_id_history")
    }
    assert history == {(log.guid, 12) for log in logs}
