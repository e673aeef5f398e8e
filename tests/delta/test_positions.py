"""The positions kept in memory are those of the table's log, whoever writes it; and what a publication of many queues costs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from delta_state_kit import EPOCH, GUID, MemoryLog, State
from deltalake import DeltaTable

from srmp_spark.store.delta.tables import state_table
from srmp_spark.store.delta.tables.actions import application_id
from srmp_spark.store.delta.tables.data_files import storage_of
from srmp_spark.store.delta.tables.positions import TablePositions

QUEUES = [f"private$/queue-{number}" for number in range(7)]


def positions(state: State) -> tuple[DeltaTable, TablePositions]:
    table = state.table()
    return table, TablePositions(table, storage_of(str(state.folder), "inbox", {}), f"{GUID}:")


def asked_one_by_one(table: DeltaTable) -> dict[str, int | None]:
    return {
        queue: table.transaction_version(application_id(GUID, EPOCH, queue))
        for queue in [*QUEUES, "never"]
    }


def kept(found: TablePositions) -> dict[str, int | None]:
    return {queue: found.get(application_id(GUID, EPOCH, queue)) for queue in [*QUEUES, "never"]}


def test_they_are_what_deltalake_says_commit_by_commit(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_table, "CHECKPOINT_COMMITS", 4)
    publisher = state.publisher(log)
    log.put(QUEUES[0], 1)
    publisher.publish_once()
    table, follower = positions(state)
    for number in range(10):  # with two checkpoints, after which the log is read anew below
        log.put(QUEUES[number % 7], number + 1)
        log.put(QUEUES[number * 3 % 7], 1)
        publisher.publish_once()
        table.update_incremental()
        assert kept(follower) == asked_one_by_one(table) == kept(positions(state)[1])
    assert list(state.log().glob("*.checkpoint.parquet"))
    assert kept(follower)[QUEUES[1]] == 12, "2 at once, 9 at once, and one by the way"


def test_the_log_is_read_once_for_all_queues(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in QUEUES:
        log.put(queue, 2)
    state.publisher(log).publish_once()
    asked: list[str] = []
    monkeypatch.setattr(DeltaTable, "transaction_version", lambda self, name: asked.append(name))
    log.put(QUEUES[3], 1)
    publisher = state.publisher(log)
    publisher.publish_once()
    publisher.publish_once()
    assert not asked, "each costs a look through the log"
    assert state.landed() == log.expected()


@pytest.mark.parametrize(
    "damage",
    ["a checkpoint in parts", "no hint, and commits are cleaned up", "a hint that is no JSON"],
)
def test_a_log_of_another_form_is_left_to_deltalake(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(state_table, "CHECKPOINT_COMMITS", 4)
    publisher = state.publisher(log)
    for queue in QUEUES:
        log.put(queue, 3)
        publisher.publish_once()
    hint: Path = state.log() / "_last_checkpoint"
    table, found = positions(state)
    if damage == "a checkpoint in parts":
        hint.write_text(json.dumps({"version": 4, "size": 9, "parts": 2}))
    elif damage == "a hint that is no JSON":
        hint.write_text("{")
    else:
        hint.unlink()
        state.commits()[0].unlink()
    assert kept(found) == asked_one_by_one(table) == dict.fromkeys(QUEUES, 3) | {"never": None}
    assert found._known is None, "what cannot be read whole is not believed in part"


def test_rows_of_many_queues_share_a_row_group(state: State, log: MemoryLog) -> None:
    for queue in QUEUES:
        log.put(queue, 2)
    state.publisher(log).publish_once()
    (file,) = state.data_files()
    assert pq.ParquetFile(file).num_row_groups == 1, (
        "a row group of one or two rows takes kilobytes for each"
    )
    assert state.landed() == log.expected()
