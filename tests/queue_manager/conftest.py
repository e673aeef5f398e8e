"""One real ``serve`` per test module, and posts to send to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peer_kit import QUEUES, Peer

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(
        tmp_path_factory.mktemp("qm") / "data", queues=QUEUES, retransmission_timeout=1
    ) as queue_manager:
        yield queue_manager


@pytest.fixture
def peer(running: RunningQueueManager) -> Iterator[Peer]:
    sender = Peer(running)
    yield sender
    sender.close()


@pytest.fixture
def client(running: RunningQueueManager) -> QueueManagerClient:
    return QueueManagerClient(running.api, retry_seconds=5)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningQueueManager]]:
    """Start further queue managers; they are stopped at the end."""
    started: list[RunningQueueManager] = []

    def begin(name: str = "data", **options: object) -> RunningQueueManager:
        queue_manager = RunningQueueManager(tmp_path / name, **options)
        started.append(queue_manager)
        return queue_manager.start()

    yield begin
    for queue_manager in started:
        queue_manager.stop()
