"""Whoever is answered 200 is answered by the disk: also who repeats a call, and who reads what a call has moved.

The commits are held back. A kill now would leave what another connection to the database sees.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_marks_and_queues import mark, put, register, rig

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.api.queues import QueuesApi
from srmp_spark.queue_manager.service import QueueManager

TURNS = 20
"""Turns of the loop in which everything happens that waits for no commit; the last of them is 20 ms long."""


class Held:
    """Commits of a journal that do not reach the disk before :meth:`release`."""

    def __init__(self, manager: QueueManager) -> None:
        journal: Any = manager.journal
        self._jobs: Any = journal._jobs
        self._kept: list[object] | None = []
        journal._jobs = self

    def put(self, job: object) -> None:
        """What the journal gives to its thread."""
        if self._kept is None:
            self._jobs.put(job)
        else:
            self._kept.append(job)

    def get(self) -> object:
        """What the thread asks for."""
        job: object = self._jobs.get()
        return job

    def release(self) -> None:
        """The disk works again."""
        kept, self._kept = self._kept or [], None
        for job in kept:
            self._jobs.put(job)


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
    await asyncio.sleep(0.02)


def stored(manager: QueueManager, what: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{manager.directory.database}?mode=ro", uri=True)
    try:
        return connection.execute(what).fetchall()
    finally:
        connection.close()


MARK = "SELECT received FROM consumers WHERE name = 'default'"
HOLDER = "SELECT holder FROM consumers WHERE name = 'default'"


async def received(manager: QueueManager) -> None:
    await mark(manager, "A", 3)


async def registered(manager: QueueManager) -> None:
    await register(manager, "A")


async def released(manager: QueueManager) -> None:
    await manager.leases.release(manager.catalogue.find("q"), "default", "A")


async def purged(manager: QueueManager) -> None:
    await manager.queues.purge("q")


async def made(manager: QueueManager) -> None:
    await manager.queues.create("new", transactional=False)


async def paused(manager: QueueManager) -> None:
    await manager.queues.pause("q", paused=True)


async def journal_on(manager: QueueManager) -> None:
    await manager.queues.create("q", transactional=None, journal=True)


async def deleted(manager: QueueManager) -> None:
    request: Any = SimpleNamespace(
        parameters={"queue": "q"}, text=lambda name, default=None: default
    )
    with suppress(ApiError):  # who repeats it is told that it is gone
        await QueuesApi(manager, None).delete(request)


Call = Callable[[QueueManager], Awaitable[None]]

CALLS: dict[str, tuple[Call, Call, str]] = {
    "received": (received, received, MARK),
    "registered, after a mark": (received, registered, MARK),
    "registered": (registered, registered, HOLDER),
    "released": (released, released, HOLDER),
    "purged": (purged, purged, MARK),
    "received, after a purge": (purged, received, MARK),
    "made": (made, made, "SELECT name FROM queues ORDER BY name"),
    "paused": (paused, paused, "SELECT paused FROM queues WHERE name = 'q'"),
    "a journal switched on": (
        journal_on,
        journal_on,
        "SELECT options FROM queues WHERE name = 'q'",
    ),
    "deleted": (deleted, deleted, "SELECT name FROM queues WHERE deleted_at IS NULL ORDER BY name"),
}
"""A call, one that changes nothing after it, and where the store has what both speak of."""


@pytest.mark.parametrize("name", CALLS)
def test_a_repeat_is_answered_when_the_first_is_stored(tmp_path: Path, name: str) -> None:
    first, repeat, what = CALLS[name]

    async def test(manager: QueueManager) -> None:
        await put(manager, 3)
        if name != "registered":
            await register(manager, "A")
        before = stored(manager, what)
        held = Held(manager)
        try:
            calls = [asyncio.ensure_future(first(manager))]
            await turns()
            calls.append(asyncio.ensure_future(repeat(manager)))
            await turns()
            answered = [call.done() for call in calls]
            after_a_kill = stored(manager, what)
        finally:
            held.release()
        await asyncio.gather(*calls)
        assert answered == [False, False]
        assert after_a_kill == before != stored(manager, what)

    rig(tmp_path / "d", test)


@pytest.mark.parametrize("move", [received, purged])
def test_the_journal_is_told_when_the_mark_is_stored(tmp_path: Path, move: Call) -> None:
    """Else its reader knows more than the queue manager after a kill, and is refused: 409 ``past-the-end``."""

    async def test(manager: QueueManager) -> None:
        await put(manager, 3)
        await register(manager, "A")
        journal = manager.catalogue.find("q;journal")
        held = Held(manager)
        try:
            poll = asyncio.ensure_future(journal.changed(5))
            call = asyncio.ensure_future(move(manager))
            await turns()
            shown = journal.span(None).end, poll.done()
        finally:
            held.release()
        await call
        assert shown == (0, False)
        assert journal.span(None).end == 3, "who was answered finds it there"
        await asyncio.wait_for(poll, 1)

    rig(tmp_path / "d", test, queue=["q:journal"])
