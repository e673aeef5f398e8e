"""Tasks that are told to end, and one that does not hear it the first time."""

from __future__ import annotations

import asyncio

import pytest

from srmp_spark.queue_manager.child import ending
from srmp_spark.queue_manager.child.ending import end


def test_a_cancellation_that_is_lost_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As asyncio.wait_for loses it when the answer comes at the same moment."""
    monkeypatch.setattr(ending, "AGAIN_SECONDS", 0.01)
    lost = 0

    async def deaf() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if lost:
                    raise
                lost += 1

    async def fails() -> None:
        raise OSError("on its own")

    async def main() -> None:
        tasks = [asyncio.create_task(deaf()), asyncio.create_task(fails())]
        await asyncio.sleep(0)
        await asyncio.wait_for(end([*tasks, None]), 5)
        assert all(task.done() for task in tasks)
        await end([])

    asyncio.run(main())
    assert lost == 1
