"""When a subqueue that nobody declared is over, condition by condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from srmp_spark.queue_manager.queues.catalogue import Catalogue, Queue
from srmp_spark.queue_manager.queues.consumers import REMOTE_READERS
from srmp_spark.queue_manager.queues.subqueues import Subqueues
from srmp_spark.srmp.receiving.destinations import QueueState
from srmp_spark.store.tables.state import StoredQueue
from srmp_spark.store.tables.waiting import WaitingRows

NAME = "private$/orders;a"


class Clock:
    def monotonic(self) -> float:
        return 1_000.0

    def utc(self) -> int:
        return 1_790_000_000_000_000


class Rig:
    """One subqueue in which two messages were and were received, and which is not open."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.removed: list[str] = []
        self.subqueues = Subqueues(self.catalogue, Clock(), self.make, self.remove)
        self.before_the_last_look: Callable[[], object] = lambda: None

    async def make(self, name: str) -> Queue:
        stored = StoredQueue(
            1, name, False, False, {"undeclared": True}, 2, 2, WaitingRows(2), [("epoch", 1)], 0
        )
        queue = self.catalogue.add(stored, QueueState(name=name, end=2, declared=False))
        queue.default.skip_to(2)
        queue.marks_moved()
        return queue

    async def remove(self, queue: Queue, is_over: Callable[[Queue], bool]) -> None:
        self.before_the_last_look()
        if is_over(queue):
            self.catalogue.remove(queue.name)
            self.removed.append(queue.name)

    async def left(self) -> Queue:
        """Make it and leave it, so that it is not removed by that."""
        queue = await self.subqueues.enter(NAME)
        queue.state.paused = True
        await self.subqueues.leave(queue)
        queue.state.paused = False
        return queue


def lease(queue: Queue, name: str, holder: str) -> None:
    consumer = queue.consumer(name)
    consumer.skip_to(2)
    consumer.grant(holder, None, now=1_000.0, utc=0)


KEEPS: dict[str, Callable[[Queue], object]] = {
    "a row is on its way to the disk": lambda queue: setattr(queue.state, "end", 3),
    "a message waits": lambda queue: setattr(queue.state, "count", 1),
    "another consumer has not received all": lambda queue: queue.consumer("audit"),
    "somebody holds a lease": lambda queue: lease(queue, "audit", "a query"),
    "an operator paused it": lambda queue: setattr(queue.state, "paused", True),
    "it was declared": lambda queue: setattr(queue.state, "declared", True),
}


@pytest.mark.parametrize("why", KEEPS)
def test_it_stays_as_long_as(why: str) -> None:
    async def run() -> None:
        rig = Rig()
        KEEPS[why](await rig.left())
        await rig.subqueues.look()
        assert rig.removed == []

    asyncio.run(run())


@pytest.mark.parametrize("why", KEEPS)
def test_what_comes_before_the_last_look_keeps_it_as_well(why: str) -> None:
    async def run() -> None:
        rig = Rig()
        queue = await rig.left()
        rig.before_the_last_look = lambda: KEEPS[why](queue)
        await rig.subqueues.look()
        assert rig.removed == []

    asyncio.run(run())


def test_it_goes_when_nothing_keeps_it() -> None:
    async def run() -> None:
        rig = Rig()
        queue = await rig.left()
        lease(queue, "default", REMOTE_READERS)  # a kill left it behind: nobody has it open
        await rig.subqueues.look()
        assert rig.removed == [NAME]
        await rig.subqueues.look()
        assert rig.catalogue.undeclared == []

    asyncio.run(run())


def test_one_that_is_open_stays_whoever_looks() -> None:
    async def run() -> None:
        rig = Rig()
        queue = await rig.subqueues.enter(NAME)
        assert await rig.subqueues.enter(NAME) is queue
        await rig.subqueues.look()
        await rig.subqueues.leave(queue)
        await rig.subqueues.look()
        assert (rig.removed, rig.subqueues.is_used(queue)) == ([], True)
        await rig.subqueues.leave(queue)
        assert (rig.removed, rig.subqueues.is_used(queue)) == ([NAME], False)

    asyncio.run(run())


def test_nobody_opens_what_is_being_removed() -> None:
    async def run() -> None:
        rig = Rig()
        queue = await rig.subqueues.enter(NAME)
        going = asyncio.Event()

        async def slowly(each: Queue, is_over: Callable[[Queue], bool]) -> None:
            await going.wait()
            await rig.remove(each, is_over)

        rig.subqueues._delete = slowly
        removal = asyncio.ensure_future(rig.subqueues.leave(queue))
        opening = asyncio.ensure_future(rig.subqueues.enter(NAME))
        await asyncio.sleep(0)
        going.set()
        await removal
        made = await opening
        assert made is not queue
        assert rig.catalogue.get(NAME) is made

    asyncio.run(run())
