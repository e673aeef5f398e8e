"""A damaged row stops its own queue, and ``status`` says which queue that is and what to do."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError, ApiUnreachableError
from srmp_spark.testing.queue_manager import RunningQueueManager

Start = Callable[..., RunningQueueManager]


def damaged(client: QueueManagerClient, queue: str) -> str | None:
    """The same in ``status`` and in ``queues/{q}``; a publisher that finds it between the two questions is asked again."""
    for _ in range(2):
        (found,) = [each for each in client.status()["queues"] if each["name"] == queue]
        alone = client.queue(queue)["damaged"]
        if found["damaged"] == alone:
            return None if alone is None else str(alone)
    raise AssertionError(f"status says {found['damaged']!r}, the queue alone {alone!r}")


def read(client: QueueManagerClient, queue: str) -> list[Any]:
    found = client.range(queue, after=0)
    with client.rows(queue, epoch=found.epoch, after=0, to=found.end) as stream:
        return list(pa.ipc.open_stream(stream.as_file()).read_all().column("sequence").to_pylist())


def spoil(directory: Path, queue: str) -> None:
    """Change one byte of the queue's only group."""
    with sqlite3.connect(directory / "store.db") as store:
        found = store.execute(
            "SELECT groups.id, data FROM groups JOIN queues ON queues.id = queue_id WHERE name = ?",
            (queue,),
        ).fetchall()
        ((number, data),) = found
        store.execute(
            "UPDATE groups SET data = ? WHERE id = ?",
            (data[:-3] + bytes([data[-3] ^ 1]) + data[-2:], number),
        )
    store.close()


@pytest.mark.parametrize("with_state", [False, True])
def test_status_names_a_damaged_queue_until_its_rows_are_given_up(
    start: Start, tmp_path: Path, with_state: bool
) -> None:
    running = start("d", queues=["bad", "good"])
    client = QueueManagerClient(running.api, retry_seconds=5)
    for queue in ("bad", "good"):
        client.send(queue, [{"label": "a"}, {"label": "b"}])
    assert [damaged(client, queue) for queue in ("bad", "good")] == [None, None]
    running.stop()
    spoil(running.data_dir, "bad")
    options = {"state": tmp_path / "state", "state_interval": 0.2} if with_state else {}
    running = start("d", queues=["bad", "good"], **options)
    client = QueueManagerClient(running.api, retry_seconds=5)
    if with_state:  # the publisher finds it, nobody has to read
        deadline = time.monotonic() + 20
        while damaged(client, "bad") is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    else:
        with pytest.raises((ApiError, ApiUnreachableError, pa.ArrowInvalid, OSError)):
            read(client, "bad")
    told = damaged(client, "bad")
    assert told is not None
    assert "rows 1 to 2 of bad cannot be read" in told
    assert "srmp-spark give-up --queue 'bad' --first 1 --last 2" in told
    assert (damaged(client, "good"), read(client, "good")) == (None, [1, 2])
    client.give_up("bad", 1, 2)
    deadline = time.monotonic() + 5
    while damaged(client, "bad") is not None:  # a cycle of the publisher may have been under way
        assert with_state
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert client.queue("bad")["waiting"] == 0
    client.send("bad", [{"label": "c"}])
    assert read(client, "bad") == [3]
    assert damaged(client, "bad") is None
