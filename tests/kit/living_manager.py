"""One life of a queue manager in the process of a test: built as the process builds it, no port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from srmp_spark.clock import Clock, SystemClock
from srmp_spark.errors import ProcessMustEndError
from srmp_spark.queue_manager.configuration.config import load
from srmp_spark.queue_manager.configured_queues import ensure_queues
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.store.directory import DataDirectory


def _fail(error: ProcessMustEndError) -> None:
    pytest.fail(f"the process would have ended: {error}")


@asynccontextmanager
async def living_manager(
    directory: Path,
    clock: Clock | None = None,
    *,
    public_base: str = "http://h",
    fatal: list[ProcessMustEndError] | None = None,
    **flags: object,
) -> AsyncIterator[QueueManager]:
    """Open a data directory with the ``flags`` of serve, and close it at the end.

    ``fatal`` gets the errors that would end the process. Without it such an error fails the test.
    """
    config, now = load({"data_dir": str(directory), **flags}, {}), clock or SystemClock()
    with DataDirectory.open(directory, now=now.utc()) as data:
        manager = QueueManager(
            config,
            data,
            config.local_hosts(config.listen),
            public_base,
            now,
            on_fatal=_fail if fatal is None else fatal.append,
        )
        await ensure_queues(manager)
        try:
            yield manager
        finally:
            await manager.stop_sending()
            if not fatal:
                await asyncio.wait_for(manager.journal.drain(), 20)
            manager.journal.close()
