"""Queue managers to read from."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fake_queue_manager import FakeQueueManager
from reading import stop_all


@pytest.fixture
def fake() -> Iterator[Callable[..., FakeQueueManager]]:
    """Makes queue managers in memory: ``fake(orders=1000)`` has ``private$/orders`` with 1,000 rows."""
    made: list[FakeQueueManager] = []

    def make(**queues: int) -> FakeQueueManager:
        made.append(FakeQueueManager(**queues))
        return made[-1]

    yield make
    stop_all()
    for each in made:
        each.close()
