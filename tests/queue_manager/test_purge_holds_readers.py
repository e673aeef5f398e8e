"""No remote reader is served between two commits of a purge: it would lock rows that the next one takes away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_marks_and_queues import put, rig

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.queues import administration
from srmp_spark.queue_manager.queues.administration import _Purged
from srmp_spark.queue_manager.remote_read.service import RemoteReadService
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.sequences.sequence_set import SequenceSet

SPARED = [2, 4, 6, 8, 10, 12]


@pytest.fixture(autouse=True)
def few_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration, "HOLES_OF_A_COMMIT", 2)


async def begun(manager: QueueManager, readers: RemoteReadService) -> asyncio.Task[int]:
    """A purge of several commits, whose first one is under way."""
    purging = asyncio.ensure_future(manager.queues.purge("q", SequenceSet((n, n) for n in SPARED)))
    while manager.catalogue.find("q").default.received == 0:
        await asyncio.sleep(0)
    assert readers._unstored
    return purging


def test_a_call_that_comes_meanwhile_is_served_when_all_is_stored(tmp_path: Path) -> None:
    async def test(manager: QueueManager) -> None:
        queue = await put(manager, 14)
        readers = RemoteReadService(manager, 0)
        seen: list[int] = []

        def served() -> list[Any]:
            seen.append(queue.state.count)
            return []

        purging = await begun(manager, readers)
        readers._in_turn(served)
        assert seen == []
        assert await purging == 14 - len(SPARED)
        assert seen == [len(SPARED)], (
            "between two commits more rows are there, and one of them would be locked"
        )
        readers._in_turn(served)
        assert len(seen) == 2
        await readers.stop()

    rig(tmp_path / "d", test)


@pytest.mark.parametrize("slices", [0, 1])
def test_they_are_served_when_a_purge_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slices: int
) -> None:
    async def test(manager: QueueManager) -> None:
        await put(manager, 14)
        readers = RemoteReadService(manager, 0)
        done: list[_Purged] = []
        purge = manager.queues._purge_slice

        def fails(*given: Any) -> _Purged:
            if len(done) == slices:
                raise ApiError(409, "a-bug", "it fails")
            done.append(purge(*given))
            return done[-1]

        monkeypatch.setattr(manager.queues, "_purge_slice", fails)
        with pytest.raises(ApiError, match="it fails"):
            await manager.queues.purge("q", SequenceSet((n, n) for n in SPARED))
        assert (len(done), readers._unstored) == (slices, 0)
        await readers.stop()

    rig(tmp_path / "d", test)


@pytest.mark.parametrize("begins", [True, False])
def test_they_are_served_when_who_asked_for_a_purge_is_gone(
    tmp_path: Path, *, begins: bool
) -> None:
    async def test(manager: QueueManager) -> None:
        await put(manager, 14)
        readers = RemoteReadService(manager, 0)
        if begins:
            purging = await begun(manager, readers)
        else:
            purging = asyncio.ensure_future(manager.queues.purge("q"))
            await asyncio.sleep(0)
        purging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await purging
        await manager.journal.drain()
        assert readers._unstored == 0
        await readers.stop()

    rig(tmp_path / "d", test)
