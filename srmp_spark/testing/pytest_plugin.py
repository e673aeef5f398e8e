"""Provide the fixtures ``queue_manager``, ``sender`` and ``destination`` for pytest.

pytest loads this module in every run (entry point ``pytest11``), so it imports nothing that a
fixture alone needs. Fixtures of the same name in a ``conftest.py`` take precedence. ``-p
no:srmp_spark`` leaves the plugin out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from srmp_spark.testing.destination import ForeignDestination
    from srmp_spark.testing.queue_manager import RunningQueueManager
    from srmp_spark.testing.sender import ForeignSender

RECEIPTS = ("http://127.0.0.1:*",)
"""Value of ``--allow-url`` for the queue manager of the fixture.

It permits receipts for senders on the loopback, which ``serve`` blocks by default.
"""


@pytest.fixture
def queue_manager(tmp_path: Path) -> Iterator[RunningQueueManager]:
    """Run ``srmp-spark serve`` with an empty data directory and no queue for one test.

    The value is a started :class:`RunningQueueManager`; its method ``queue`` makes queues. The
    process is stopped after the test.
    """
    from srmp_spark.testing.queue_manager import RunningQueueManager

    with RunningQueueManager(tmp_path / "queue-manager", allow_url=RECEIPTS) as running:
        yield running


@pytest.fixture
def sender(queue_manager: RunningQueueManager) -> Iterator[ForeignSender]:
    """Post SRMP messages to the queues of ``queue_manager``, as a Windows machine would.

    The value is a started :class:`ForeignSender`, which is stopped after the test.
    """
    from srmp_spark.testing.sender import ForeignSender

    with ForeignSender(queue_manager.listening) as made:
        yield made


@pytest.fixture
def destination() -> Iterator[ForeignDestination]:
    """Receive SRMP messages on a free port, as a Windows machine would, for one test.

    The value is a started :class:`ForeignDestination` that accepts messages for every queue.
    """
    from srmp_spark.testing.destination import ForeignDestination

    with ForeignDestination() as made:
        yield made
