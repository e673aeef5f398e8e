"""``GET queues/{q}/first`` of a running queue manager."""

from __future__ import annotations

import time
from pathlib import Path

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager

QUEUE = "private$/orders"


def test_the_first_row_since_a_time_is_found_through_the_api(tmp_path: Path) -> None:
    with RunningQueueManager(tmp_path / "data", queues=["private$/orders"]) as running:
        client = QueueManagerClient(running.api)
        before = time.time_ns() // 1000
        client.send(QUEUE, [{"body_base64": "YQ=="}, {"body_base64": "Yg=="}])
        between = time.time_ns() // 1000 + 1
        while time.time_ns() // 1000 <= between:
            pass
        client.send(QUEUE, [{"body_base64": "Yw=="}])
        epoch = client.range(QUEUE).epoch
        assert client.first_since(QUEUE, epoch=epoch, since=before) == 1
        assert client.first_since(QUEUE, epoch=epoch, since=between) == 3
        assert client.first_since(QUEUE, epoch=epoch, since=between + 3_600_000_000) is None
