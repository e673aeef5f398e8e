"""A queue manager that sends soon again, and a service that does what a test scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from out_kit import POLL
from scripted_service import ScriptedService

from srmp_spark.testing.queue_manager import RunningQueueManager


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    folder = tmp_path_factory.mktemp("wsrm-out")
    with RunningQueueManager(
        folder / "data", wsrm_poll_interval=POLL, retransmission_timeout=0.5
    ) as queue_manager:
        yield queue_manager


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningQueueManager]]:
    started: list[RunningQueueManager] = []

    def begin(**options: object) -> RunningQueueManager:
        chosen: dict[str, Any] = {
            "wsrm_poll_interval": POLL,
            "retransmission_timeout": 0.5,
        } | options
        started.append(RunningQueueManager(tmp_path / f"data{len(started)}", **chosen).start())
        return started[-1]

    yield begin
    for each in started:
        each.stop()


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with ScriptedService() as found:
        yield found
