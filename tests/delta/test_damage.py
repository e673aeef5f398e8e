"""T12 of the reliability report: a lost commit is silent, so it is looked for at every start, and mended.

Each case publishes a few commits, damages one of the newest commit files or data files in one way, and starts again:
the rows of the table must be exactly the rows of the log.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from delta_state_kit import MemoryLog, State
from deltalake import DeltaTable

from srmp_spark.store.delta.log_source import HistoryRow
from srmp_spark.store.delta.tables import state_table
from srmp_spark.store.delta.tables.checkpoints import DeltaCheckpoints
from srmp_spark.store.delta.tables.shadow import SHADOW_COMMITS_MAX, Shadow, is_whole

DAMAGED = int(os.environ.get("SRMP_SPARK_DAMAGES", "25"))
"""Damages at random, one upon the other; ``make proof`` does 300."""
DAMAGES = {
    "emptied": lambda data, _: b"",
    "zeroed": lambda data, _: bytes(len(data)),
    "cut": lambda data, random: data[: random.randrange(1, len(data))],
    "cut at a line": lambda data, _: (
        data[: data.find(b"\n") + 1] if b"\n" in data else data[: len(data) // 2]
    ),
    "removed": lambda data, _: None,
}


def damage(path: Path, how: str, seed: int = 0) -> None:
    data = DAMAGES[how](path.read_bytes(), random.Random(seed))
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)


def publish_some(state: State, log: MemoryLog, cycles: int = 5) -> None:
    publisher = state.publisher(log)
    for n in range(cycles):
        log.put("private$/orders", n + 1)
        log.put("audit", 1)
        publisher.publish_once()


def test_the_reason_a_table_with_an_emptied_commit_opens_and_says_nothing(
    state: State, log: MemoryLog
) -> None:
    publish_some(state, log)
    damage(state.commits()[-1], "emptied")
    assert state.landed() != log.expected(), (
        "deltalake notices by itself: the shadow is not needed any more"
    )


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("which", [-1, -2, -3])
def test_a_damaged_commit_is_mended_at_the_next_start(
    state: State, log: MemoryLog, which: int, how: str
) -> None:
    publish_some(state, log)
    original = state.commits()[which].read_bytes()
    damaged = state.commits()[which]
    damage(damaged, how)
    log.put("private$/orders", 2)
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()
    assert damaged.read_bytes() == original, "the history is what readers saw"


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("which", [-1, -2, -3])
def test_a_damaged_data_file_is_published_again(
    state: State, log: MemoryLog, which: int, how: str
) -> None:
    publish_some(state, log)
    damage(state.data_files()[which], how)
    log.put("private$/orders", 2)
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_commit_that_nobody_was_told_of_is_voided_and_published_again(
    state: State, log: MemoryLog, how: str
) -> None:
    """Killed between the commit and its copy, then power loss: the number stays taken, the rows come with the next."""
    publish_some(state, log)
    last = state.commits()[-1]
    (state.data_dir / "delta" / "inbox" / last.name).unlink()
    damage(last, how)
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()
    assert is_whole(last.read_bytes())


@pytest.mark.timeout(300 + DAMAGED)
def test_many_damages_at_random(state: State, log: MemoryLog) -> None:
    publish_some(state, log, 3)
    for seed in range(DAMAGED):
        chooser = random.Random(seed)
        files = chooser.choice([state.commits()[-3:], state.data_files()[-3:]])
        damage(chooser.choice(files), chooser.choice(sorted(DAMAGES)), seed)
        log.put(chooser.choice(["private$/orders", "audit"]), chooser.randrange(1, 4))
        state.publisher(log).publish_once()
        assert state.landed() == log.expected(), f"seed {seed}"


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_table_of_current_state_is_written_again(
    state: State, log: MemoryLog, how: str
) -> None:
    log.history[:] = [HistoryRow(log.guid, 1, 5, 1)]
    state.publisher(log).publish_once()
    damage(state.data_files("message_id_history")[-1], how)
    state.publisher(log).publish_once()
    assert [row["uniquifier_last"] for row in state.read("message_id_history")] == [5]


def test_rows_that_the_log_no_longer_has_are_told_as_lost_and_the_table_stays_readable(
    state: State, log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    publish_some(state, log)
    damage(state.data_files()[0], "emptied")
    log.trim("private$/orders", 2)
    state.publisher(log).publish_once()
    assert sum((log.expected() - state.landed()).values()) == 1
    assert "of 2: the other rows are no longer in the log" in caplog.text


@pytest.mark.parametrize("how", ["emptied", "cut", "removed", "holed"])
def test_a_damaged_checkpoint_is_dropped(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(state_table, "CHECKPOINT_COMMITS", 3)
    publish_some(state, log, 8)
    newest = max(state.log().glob("*.checkpoint.parquet"))
    if how == "holed":  # pages were not written, the marks and the length are there
        data = newest.read_bytes()
        newest.write_bytes(data[:4] + bytes(len(data) - 12) + data[-8:])
    else:
        damage(newest, how)
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()


def test_a_checkpoint_that_was_not_synced_is_not_believed_whatever_it_holds(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power goes between its writing and its sync: a value in it may be another one, and no reader would say so."""
    monkeypatch.setattr(state_table, "CHECKPOINT_COMMITS", 3)
    with monkeypatch.context() as power:
        power.setattr(DeltaCheckpoints, "ended", power_failure)
        with pytest.raises(PowerFailure):
            publish_some(state, log, 8)
    (checkpoint,) = state.log().glob("*.checkpoint.parquet")
    state.publisher(log).publish_once()
    assert not checkpoint.exists()
    assert state.landed() == log.expected()
    publish_some(state, log, 8)
    assert list(state.log().glob("*.checkpoint.parquet")), "the next one is written and stays"
    state.publisher(log).publish_once()
    assert list(state.log().glob("*.checkpoint.parquet"))
    assert state.landed() == log.expected()


class PowerFailure(BaseException):
    pass


def power_failure(checkpoints: DeltaCheckpoints, version: int) -> bool:
    raise PowerFailure


def test_a_checkpoint_that_somebody_dropped_meanwhile_lets_nothing_be_forgotten(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two queue managers share a table; one starts, and mends, while the other writes a checkpoint."""
    monkeypatch.setattr(state_table, "CHECKPOINT_COMMITS", 3)
    create = DeltaTable.create_checkpoint

    def create_and_drop(table: DeltaTable) -> None:
        create(table)
        for checkpoint in state.log().glob("*.checkpoint.parquet"):
            checkpoint.unlink()
        (state.log() / "_last_checkpoint").unlink()

    monkeypatch.setattr(DeltaTable, "create_checkpoint", create_and_drop)
    publish_some(state, log, 8)
    assert not list(state.log().glob("*.checkpoint.parquet"))
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()


def test_a_removed_table_is_written_anew(state: State, log: MemoryLog) -> None:
    publish_some(state, log)
    for path in sorted(state.folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()


def test_a_table_put_back_from_an_older_copy_catches_up(state: State, log: MemoryLog) -> None:
    publish_some(state, log, 3)
    shutil.copytree(state.folder, state.folder.parent / "copy")
    publish_some(state, log, 3)
    shutil.rmtree(state.folder)
    shutil.copytree(state.folder.parent / "copy", state.folder)
    state.publisher(log).publish_once()
    assert state.landed() == log.expected()


def test_the_shadow_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    (tmp_path / "data").mkdir()
    shadow = Shadow(tmp_path / "data" / "delta" / "inbox", log)
    for version in range(SHADOW_COMMITS_MAX + 20):
        (log / f"{version:020d}.json").write_text('{"commitInfo":{}}\n')
        shadow.record(version)
    assert len(list((tmp_path / "data" / "delta" / "inbox").glob("0*.json"))) == SHADOW_COMMITS_MAX


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_commit_cut_anywhere_is_not_whole(state: State, log: MemoryLog, cut: int) -> None:
    publish_some(state, log, 2)
    data = state.commits()[-1].read_bytes()
    assert is_whole(data)
    assert not is_whole(data[: len(data) * cut // 60])


def test_every_commit_is_synced_files_and_folders(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each data file, each commit file and both folders, in each of five cycles, before the report."""
    synced: list[str] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    publisher = state.publisher(log)
    publisher.publish_once()
    inbox = state.folder / "inbox"
    for version in range(1, 6):
        log.put("private$/orders", 10)
        known = set(state.data_files())
        synced.clear()
        publisher.publish_once()
        new = [str(path) for path in state.data_files() if path not in known]
        assert len(new) == 1
        wanted = [
            new[0],
            str(Path(new[0]).parent),
            f"{inbox}/_delta_log/{version:020d}.json",
            f"{inbox}/_delta_log",
        ]
        assert [path for path in wanted if path not in synced] == []
        assert synced.index(new[0]) < synced.index(wanted[2]), (
            "a commit must never be durable before the file that it names"
        )
