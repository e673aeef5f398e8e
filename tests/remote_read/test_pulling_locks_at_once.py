"""Several reads under way on one connection: a batch is in the order of the queue, and nothing that was locked is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from srmp_spark.errors import RemoteReadError
from srmp_spark.message import Message
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.pulled_states import PulledState
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side.answers import UnreadableMessage
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, PulledKey
from srmp_spark.queue_manager.puller.moving_and_copying import locks as locks_module
from srmp_spark.queue_manager.puller.moving_and_copying.locks import Locks


class Backwards:
    """A queue whose server gives what it has to the youngest of the reads that wait, as threads may."""

    def __init__(
        self, answers: Sequence[int | UnreadableMessage | Status], calls_at_once: int = 32
    ) -> None:
        self.answers = list(answers)
        self.calls_at_once = calls_at_once
        self.most = self.waiting = self.calls = 0

    async def read(
        self, action: Action, *, wait_s: float = 0.0
    ) -> Pulled | UnreadableMessage | Status:
        assert action is Action.RECEIVE
        self.calls += 1
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        turn = self.waiting
        for _ in range(80 - 4 * turn):  # who came last is served first
            await asyncio.sleep(0)
        self.waiting -= 1
        found = self.answers.pop(0) if self.answers else Status.MQ_ERROR_IO_TIMEOUT
        if isinstance(found, int) and not isinstance(found, Status):
            return Pulled(
                PulledKey(found, f"id {found}"),
                b"x" * 1000,
                Message("", durable=True),
                PulledState.HANDED,
                self.calls,
            )
        return found  # type: ignore[return-value]


async def batch(queue: Backwards) -> Locks:
    locks = Locks(queue)  # type: ignore[arg-type]
    try:
        found = await locks.first(1.0)
        while found is not None:
            found = await locks.next()
    finally:
        await locks.abandon()
    return locks


def ids(locks: Locks) -> list[int]:
    return [each.key.lookup_id for each in locks.in_order()]


def test_a_batch_is_in_the_order_of_the_queue_though_answers_swap() -> None:
    queue = Backwards(range(1, 31))
    locks = asyncio.run(batch(queue))
    assert ids(locks) == list(range(1, 31))
    assert queue.most == locks_module.READS_AT_ONCE


def test_a_server_that_takes_one_call_at_a_time_gets_one() -> None:
    queue = Backwards(range(1, 31), calls_at_once=1)
    assert ids(asyncio.run(batch(queue))) == list(range(1, 31))
    assert queue.most == 1


def test_the_first_read_waits_alone_and_an_empty_queue_costs_one_call() -> None:
    queue = Backwards([])
    assert ids(asyncio.run(batch(queue))) == []
    assert queue.calls == 1


def test_what_a_read_has_locked_behind_an_empty_answer_is_in_the_batch() -> None:
    """A message may come between two reads: the younger one found nothing, the older one has it."""
    queue = Backwards([1, Status.MQ_ERROR_MESSAGE_NOT_FOUND, 2, 3])
    assert ids(asyncio.run(batch(queue))) == [1, 2, 3]


@pytest.mark.parametrize(("name", "limit"), [("BATCH_MESSAGES", 10), ("BATCH_BYTES", 10_000)])
def test_a_batch_has_no_more_than_its_limit(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    monkeypatch.setattr(locks_module, name, limit)
    queue = Backwards(range(1, 31))
    assert len(ids(asyncio.run(batch(queue)))) == 10


def test_what_cannot_be_read_is_held_and_the_rest_goes_on() -> None:
    queue = Backwards([1, UnreadableMessage(7, "no packet"), 2, 3])
    locks = asyncio.run(batch(queue))
    assert ids(locks) == [1, 2, 3]
    assert [each.request for each in locks.unreadable] == [7]


def test_a_refusal_ends_the_batch_and_leaves_no_read_behind() -> None:
    queue = Backwards([1, Status.MQ_ERROR_STALE_HANDLE, *range(2, 9)])
    with pytest.raises(RemoteReadError):
        asyncio.run(batch(queue))  # a task left behind would be a warning, and warnings are errors
