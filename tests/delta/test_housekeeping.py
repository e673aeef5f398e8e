"""Compaction, checkpoints, clean-up and vacuum: by named limits, and without a reader noticing."""

from __future__ import annotations

import dataclasses
import threading
from datetime import timedelta
from typing import Any

import pytest
from delta_state_kit import MemoryLog, State

from srmp_spark.store.delta.log_source import HistoryRow
from srmp_spark.store.delta.tables import state_table, table_specs


def test_small_files_are_joined_and_no_row_changes(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_table, "COMPACT_FILES_MIN", 5)
    publisher = state.publisher(log)
    for _ in range(12):
        log.put("private$/orders", 3)
        log.put("audit", 1)
        publisher.publish_once()
    assert len(state.table().file_uris()) < 8
    assert state.landed() == log.expected()
    sequences = [row["sequence"] for row in state.read() if row["queue"] == "audit"]
    assert sorted(sequences) == list(range(1, 13))


def test_a_compaction_is_no_change_for_streaming_readers(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_table, "COMPACT_FILES_MIN", 2)
    publisher = state.publisher(log)
    for _ in range(2):
        log.put("private$/orders", 3)
        publisher.publish_once()
    text = state.commits()[-1].read_text()
    assert '"remove"' in text
    assert '"dataChange":true' not in text


def test_only_one_queue_managers_files_are_joined(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_table, "COMPACT_FILES_MIN", 3)
    other = MemoryLog("aaaaaaaa-0000-4000-8000-000000000002")
    other.put("private$/orders", 2)
    elsewhere = state.publisher(other)
    elsewhere._data_dir = state.data_dir.parent / "other"
    elsewhere._data_dir.mkdir()
    elsewhere.publish_once()
    theirs = state.table().file_uris()
    log = MemoryLog()
    publisher = state.publisher(log)
    for _ in range(4):
        log.put("private$/orders", 3)
        publisher.publish_once()
    assert set(theirs) <= set(state.table().file_uris())
    assert state.landed() == log.expected() + other.expected()


def test_a_checkpoint_comes_by_number_of_commits(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_table, "CHECKPOINT_COMMITS", 4)
    publisher = state.publisher(log)
    for _ in range(9):
        log.put("private$/orders", 1)
        publisher.publish_once()
    assert [int(path.name[:20]) for path in sorted(state.log().glob("*.checkpoint.parquet"))] == [
        4,
        8,
    ]
    log.put("private$/orders", 1)
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()


@pytest.mark.parametrize("hours", [0, table_specs.TIME_TRAVEL_HOURS])
def test_replaced_files_are_vacuumed_after_their_time(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    spec = dataclasses.replace(table_specs.message_id_history(), kept_hours=hours)
    monkeypatch.setattr(table_specs, "message_id_history", lambda: spec)
    monkeypatch.setattr(state_table, "VACUUM_INTERVAL_S", 0)
    publisher = state.publisher(log)
    for n in range(1, 6):
        log.history[:] = [HistoryRow(log.guid, 1, n, n)]
        log.put("private$/orders", 1)
        publisher.publish_once()
    publisher.publish_once()
    assert len(list((state.folder / "message_id_history").glob("*/*.parquet"))) == (
        1 if hours == 0 else 5
    )
    assert [row["uniquifier_last"] for row in state.read("message_id_history")] == [5]
    assert state.landed() == log.expected()


def test_readers_see_a_growing_prefix_while_the_publisher_writes(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deltalake beside us, through appends, compactions and checkpoints: never a row twice, never a row back."""
    monkeypatch.setattr(state_table, "COMPACT_FILES_MIN", 4)
    monkeypatch.setattr(state_table, "CHECKPOINT_COMMITS", 5)
    publisher = state.publisher(log)
    log.put("private$/orders", 1)
    publisher.publish_once()
    stop, failures, seen = threading.Event(), [], [0]

    def read() -> None:
        while not stop.is_set():
            sequences = sorted(row["sequence"] for row in state.read())
            if sequences != list(range(1, len(sequences) + 1)) or len(sequences) < seen[-1]:
                failures.append(sequences)
            seen.append(len(sequences))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(25):
        log.put("private$/orders", 2)
        publisher.publish_once()
    stop.set()
    reader.join(30)
    assert failures == []
    assert len(set(seen)) > 2, "the reader never saw the table grow"


def test_old_versions_can_be_read_back(state: State, log: MemoryLog) -> None:
    publisher = state.publisher(log)
    for _ in range(3):
        log.put("private$/orders", 2)
        publisher.publish_once()
    table: Any = state.table()
    table.load_as_version(2)
    assert table.to_pyarrow_table().num_rows == 4
    assert timedelta(hours=table_specs.inbox().kept_hours) > timedelta(hours=24)
