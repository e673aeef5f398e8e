"""The Delta table ``pgm_loss``: each loss once, over restarts of the publisher and copies of the directory."""

from __future__ import annotations

from pathlib import Path

from delta_state_kit import EPOCH, MemoryLog, State

from srmp_spark.store.delta.log_source import Snapshot
from srmp_spark.store.tables.losses import Loss, StoredLoss

OTHER_EPOCH = "22222222-0000-4000-8000-000000000002"


def stored(number: int, epoch: str = EPOCH) -> StoredLoss:
    loss = Loss(
        "private$/m",
        "234.1.1.1:8001",
        "10.0.0.1",
        "0a0b0c0d0e0f.1",
        2**32 - 1,
        3,
        5,
        "retries",
        "nobody",
        1_800_000_000_000_000,
    )
    return StoredLoss(epoch, number, loss)


class LosingLog(MemoryLog):
    def __init__(self) -> None:
        super().__init__()
        self.losses: list[StoredLoss] = []

    def snapshot(self) -> Snapshot:
        return super().snapshot()._replace(losses=tuple(self.losses))


def numbers(state: State) -> list[tuple[str, int]]:
    return [(row["epoch"], row["number"]) for row in state.read("pgm_loss")]


def test_a_queue_manager_that_lost_nothing_has_no_such_table(tmp_path: Path) -> None:
    state, log = State(tmp_path), LosingLog()
    log.put("q", 1)
    state.publisher(log).publish_once()
    assert not (state.folder / "pgm_loss").exists()


def test_each_loss_is_a_row_once(tmp_path: Path) -> None:
    state, log = State(tmp_path), LosingLog()
    log.put("q", 1)
    log.losses = [stored(1), stored(2)]
    publisher = state.publisher(log)
    publisher.publish_once()
    publisher.publish_once()
    state.publisher(log).publish_once()  # after a restart, with the rows still there
    log.losses = [stored(2), stored(3)]
    state.publisher(log).publish_once()
    assert sorted(numbers(state)) == [(EPOCH, 1), (EPOCH, 2), (EPOCH, 3)]
    row = state.read("pgm_loss")[0]
    told = (
        row["queue"],
        row["source"],
        row["tsi"],
        row["first"],
        row["last"],
        row["packets"],
        row["reason"],
        row["detail"],
    )
    assert told == (
        "private$/m",
        "10.0.0.1",
        "0a0b0c0d0e0f.1",
        2**32 - 1,
        3,
        5,
        "retries",
        "nobody",
    )


def test_a_copy_of_the_directory_tells_only_its_own(tmp_path: Path) -> None:
    """The copy goes on with the numbers, in an epoch of its own, and has the rows of before the copy as well."""
    state, log = State(tmp_path), LosingLog()
    log.put("q", 1)
    log.losses = [stored(1), stored(2)]
    state.publisher(log).publish_once()
    log.losses = [stored(1), stored(2), stored(3, OTHER_EPOCH)]
    state.publisher(log).publish_once()
    assert sorted(numbers(state)) == [(EPOCH, 1), (EPOCH, 2), (OTHER_EPOCH, 3)]
