"""A sealed file whose bytes differ: the task says which rows, and with which command they are given up."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

import pytest

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import DataLossError
from srmp_spark.spark.reading.offsets import LogKey
from srmp_spark.spark.reading.partitions import SrmpPartition, read_partition
from srmp_spark.spark.settings.options import parse
from srmp_spark.testing.queue_manager import RunningQueueManager

ROWS = 2_500
"""More than a segment needs."""
WAIT_S = 60.0


def sealed_file(running: RunningQueueManager) -> Path:
    """The first segment's columns, as soon as these are read: a moment before, its rows come from elsewhere."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        with contextlib.closing(
            sqlite3.connect(f"file:{running.data_dir / 'store.db'}?mode=ro", uri=True)
        ) as database:
            found = database.execute("SELECT file FROM segments ORDER BY id").fetchone()
        if found is not None:
            return running.data_dir / "segments" / f"{found[0]}.columns.arrow"
        time.sleep(0.2)
    raise AssertionError(f"nothing was sealed in {WAIT_S} s")


def read(running: RunningQueueManager, client: QueueManagerClient) -> list[int]:
    found = client.range("orders")
    part = SrmpPartition(
        running.api, LogKey(client.status()["queue_manager"], "orders"), found.epoch, 0, found.end
    )
    options = parse({"queueManager": running.api, "queue": "orders"})
    return [
        n for batch in read_partition(part, options) for n in batch.column("sequence").to_pylist()
    ]


@pytest.mark.parametrize("damage", ["a bit", "the end"])
def test_no_row_of_a_damaged_file_comes_and_the_way_out_is_told(
    tmp_path: Path, damage: str
) -> None:
    with RunningQueueManager(tmp_path / "d", queues=["orders"]) as running:
        client = QueueManagerClient(running.api, retry_seconds=5)
        for start in range(0, ROWS, 500):
            client.send("orders", [{"label": str(n)} for n in range(start, start + 500)])
        file = sealed_file(running)
        assert read(running, client) == list(range(1, ROWS + 1))
        whole = file.read_bytes()
        middle = len(whole) // 2
        file.write_bytes(
            whole[:middle]
            if damage == "the end"
            else whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        )
        with pytest.raises(
            DataLossError,
            match=r"cannot be read.*srmp-spark give-up --queue 'orders' --first 1 --last",
        ):
            read(running, client)
        assert "give-up" in client.queue("orders")["damaged"]
        file.write_bytes(whole)
        assert read(running, client) == list(range(1, ROWS + 1))
