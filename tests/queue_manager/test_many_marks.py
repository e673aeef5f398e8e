"""Marks of many consumers with many runs, all at once: what one commit of the loop writes has an end."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from test_long_posts import turns_of_the_loop
from test_marks_and_queues import put, rig

from srmp_spark.queue_manager.catalogue import Queue
from srmp_spark.queue_manager.consumer_saves import RUNS_WAITING_MAX
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.store import state

CONSUMERS, RUNS = 60, 9_900
TURN_SECONDS_MAX = 0.06


def scattered(queue: Queue) -> list[str]:
    """Consumers with many runs."""
    names = [f"c{n}" for n in range(CONSUMERS)]
    for name in names:
        queue.consumer(name).holder = "me"
        queue.consumer(name).ahead = [(n, n) for n in range(10, 10 + 2 * RUNS, 2)]
    return names


def test_a_commit_writes_no_more_than_its_share_and_all_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: Counter[int] = Counter()
    longest = [0.0]
    save = state.save_consumer

    async def test(manager: QueueManager) -> None:
        queue = await put(manager, 5)
        names = scattered(queue)

        def noted(connection: object, queue_id: int, stored: state.StoredConsumer) -> None:
            written[manager.journal.position] += len(stored.ahead)
            save(connection, queue_id, stored)  # type: ignore[arg-type]  # the journal's own

        monkeypatch.setattr(state, "save_consumer", noted)
        async with turns_of_the_loop(longest):
            marks = [manager.received(queue, queue.span(None), name, "me", None, [3]) for name in names]
            await asyncio.gather(*marks)
        rows = manager.directory.writer.execute("SELECT ahead FROM consumers WHERE name LIKE 'c%'").fetchall()
        assert len(rows) == CONSUMERS
        assert all(ahead.startswith("[[3,3],[10,10],") for (ahead,) in rows)
        assert all(queue.consumer(name).is_stored for name in names)

    rig(tmp_path / "d", test)
    assert sum(written.values()) == CONSUMERS * (RUNS + 1)
    assert max(written.values()) <= RUNS_WAITING_MAX
    assert longest[0] < TURN_SECONDS_MAX, f"{longest[0] * 1e3:.0f} ms"


def test_one_that_is_deleted_while_it_waits_does_not_come_back(tmp_path: Path) -> None:
    async def test(manager: QueueManager) -> None:
        queue = await put(manager, 5)
        names = scattered(queue)
        marks = asyncio.gather(*(manager.received(queue, queue.span(None), name, "me", None, [3]) for name in names))
        await asyncio.sleep(0)
        last = queue.consumer(names[-1])
        last.release()
        await manager.delete_consumer(queue, last.name)
        await marks
        found = manager.directory.writer.execute("SELECT name FROM consumers WHERE name LIKE 'c%'").fetchall()
        assert {name for (name,) in found} == set(names[:-1])

    rig(tmp_path / "d", test)
