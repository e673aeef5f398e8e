"""What readers received and moved is stored: together, or each alone, or the process ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from service_kit import QUEUE, RETRY, OneClient, rig, send

from srmp_spark.errors import ApiError, StoreSyncError
from srmp_spark.interface import SHARING_VIOLATION
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import rebuilt
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_MOVE,
    EndReceiveRequest,
    MoveMessageRequest,
    OpenRequest,
)
from srmp_spark.mqrr.ndr.receive import NO_TRANSACTION, StartReceiveRequest
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.status import Status


def test_a_removal_of_which_nobody_knows_whether_it_is_stored_is_said_nothing_of(
    tmp_path: Path,
) -> None:
    """A sync failed, and the process ends. "Not removed", or "gone" to who looks, would each be believed by a reader that keeps
    the message or forgets it; it has no answer, and who looks is told that somebody has the message."""

    async def test(client: OneClient) -> None:
        await send(client.manager, 1)
        handle = await client.opened()
        asked = StartReceiveRequest(handle, action=Action.RECEIVE, request_id=77)
        assert (await client.ask(7, asked)).status == Status.MQ_OK

        async def fail(changed: object) -> None:
            raise StoreSyncError("the disk is full")

        client.manager.saves.save_together = fail  # type: ignore[method-assign]
        end = asyncio.ensure_future(client.ask(9, EndReceiveRequest(handle, 2, 77)))
        while not client.service._tasks:  # what comes with it is stored with it
            await asyncio.sleep(0)
        await asyncio.wait(tuple(client.service._tasks), timeout=60)
        peek = StartReceiveRequest(
            handle,
            action=Action.LOOKUP_PEEK_CURRENT,
            request_id=78,
            lookup_id=rebuilt(1, priority=0),
        )
        assert (await client.ask(7, peek)).status == Status.MQ_ERROR_TRANSACTION_USAGE
        assert not end.done()
        end.cancel()

    rig(tmp_path / "data", test)


async def locked(client: OneClient, handle: Any, count: int) -> list[int]:
    requests = list(range(1000, 1000 + count))
    for request in requests:
        asked = StartReceiveRequest(handle, action=Action.RECEIVE, request_id=request)
        assert (await client.ask(7, asked)).status == Status.MQ_OK
    return requests


def test_receives_that_are_ended_together_are_stored_together(tmp_path: Path) -> None:
    async def test(client: OneClient) -> None:
        await send(client.manager, 5)
        handle = await client.opened()
        requests = await locked(client, handle, 5)
        commits: list[int] = []
        save = client.manager.saves.save_together

        async def counting(changed: Any) -> None:
            commits.append(len(changed))
            await save(changed)

        client.manager.saves.save_together = counting  # type: ignore[method-assign]
        ends = await asyncio.gather(
            *(client.ask(9, EndReceiveRequest(handle, 2, each)) for each in requests)
        )
        assert [each.status for each in ends] == [Status.MQ_OK] * 5
        assert commits == [1], "one consumer, once"
        assert client.waiting() == 0

    rig(tmp_path / "data", test)


def test_one_that_cannot_be_stored_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    """Two queues; of one somebody else has the lease by now."""

    async def test(client: OneClient) -> None:
        await send(client.manager, 2)
        there = await client.ask(11, OpenRequest(queue_format_for("host1", RETRY), ACCESS_MOVE))
        one, other = await client.opened(QUEUE), await client.opened(RETRY)
        move = MoveMessageRequest(one, there.move_context, rebuilt(2, priority=0), NO_TRANSACTION)
        assert (await client.ask(10, move)).status == Status.MQ_OK
        (request,), (another,) = await locked(client, one, 1), await locked(client, other, 1)
        lost = client.manager.catalogue.find(RETRY).default
        check = client.manager.check_holder

        def refuse(consumer: Any, holder: str) -> None:
            if consumer is lost:
                raise ApiError(409, SHARING_VIOLATION, "somebody else has it", "wait")
            check(consumer, holder)

        client.manager.check_holder = refuse  # type: ignore[method-assign]
        ends = await asyncio.gather(
            client.ask(9, EndReceiveRequest(one, 2, request)),
            client.ask(9, EndReceiveRequest(other, 2, another)),
        )
        assert [each.status for each in ends] == [Status.MQ_OK, Status.MQ_ERROR_QUEUE_NOT_AVAILABLE]
        assert (client.waiting(), client.waiting(RETRY)) == (0, 1)

    rig(tmp_path / "data", test)
