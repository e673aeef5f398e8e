"""A stage that comes in: whose file it is while threads write it down."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from io import RawIOBase
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srmp_spark.queue_manager.api import outbox
from srmp_spark.queue_manager.api.outbox import OutboxApi

WAIT_S = 60.0


@pytest.mark.parametrize("step", ["_write", "_finish"])
def test_a_call_that_is_cut_off_closes_its_file_when_nobody_writes_to_it_any_more(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the process. A descriptor that is closed under a thread may be another file's when the thread writes."""
    started, go_on = threading.Event(), threading.Event()
    told: list[str] = []
    before = getattr(outbox, step)
    give_up = outbox._give_up

    def slow(file: RawIOBase, *args: Any) -> None:
        started.set()
        assert go_on.wait(WAIT_S)
        assert not file.closed
        before(file, *args)
        told.append("written")

    def told_give_up(file: RawIOBase, path: Path) -> None:
        told.append("given up")
        give_up(file, path)

    monkeypatch.setattr(outbox, step, slow)
    monkeypatch.setattr(outbox, "_give_up", told_give_up)

    async def run() -> None:
        events: Sequence[dict[str, Any]] = [{"type": "http.request", "body": b"x" * 100, "more_body": False}]
        left = iter(events)

        async def receive() -> dict[str, Any]:
            return next(left)

        manager = SimpleNamespace(outgoing=SimpleNamespace(folder=tmp_path))
        task = asyncio.create_task(OutboxApi(cast("Any", manager))._receive(cast("Any", SimpleNamespace(receive=receive))))
        while not started.is_set() and not task.done():
            await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0.01)
        early = list(told)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, WAIT_S)
        assert early == []

    asyncio.run(run())
    assert told == ["written", "given up"]
