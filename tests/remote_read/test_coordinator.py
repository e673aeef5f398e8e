"""Transactions of remote readers over the queues of a real queue manager, ended by a coordinator that the test plays."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from srmp_spark.errors import ApiError, StoreSyncError
from srmp_spark.interface import SHARING_VIOLATION
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import rebuilt
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_MOVE,
    ACCESS_RECEIVE,
    METHODS,
    EndReceiveRequest,
    EnlistRequest,
    MoveMessageRequest,
    OpenRequest,
    SetClassRequest,
)
from srmp_spark.mqrr.ndr.receive import NO_TRANSACTION, StartReceiveRequest
from srmp_spark.mqrr.ndr.transfer_syntax import NDR
from srmp_spark.mqrr.packets.sections import join_sections
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.rpc.associations import Associations
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.api.messages import MessagesApi
from srmp_spark.queue_manager.maintenance import Maintenance
from srmp_spark.queue_manager.remote_read.service import RemoteReadService
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.store.tables import marks
from tests.kit.living_manager import living_manager

QUEUE, RETRY = "private$/payments", "private$/payments;retry"
TX, OTHER = b"transaction one!", b"transaction two!"


class Played:
    """The coordinator, and one client of the server that it is of."""

    def __init__(self, manager: QueueManager) -> None:
        ids, uuids = itertools.count(1), itertools.count(1)
        groups: Associations[Any] = Associations(
            new_id=lambda: next(ids), new_uuid=lambda: next(uuids).to_bytes(16, "big")
        )
        self.manager = manager
        self.service = RemoteReadService(manager, 2103, self)
        self.service.connected(self, self)
        self._association = groups.join(0, "192.0.2.1")
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._ended: dict[bytes, asyncio.Future[bool]] = {}

    # --- as a connection

    def has_room(self) -> bool:
        return True

    def respond(self, call_id: int, stub: bytes) -> None:
        self._answers[call_id].set_result(stub)

    def fail(self, call_id: int, status: int) -> None:
        self._answers[call_id].set_exception(AssertionError(Status(status).name))

    async def ask(self, opnum: int, asked: Any) -> Any:
        number = len(self._answers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self.service.call(
            self,
            CallReceived(
                number, REMOTE_READ, NDR, opnum, asked.encode(NDR), self._association, None, 1
            ),
        )
        return METHODS[opnum].decode_response(await asyncio.wait_for(answer, 60), NDR)

    async def opened(self, name: str = QUEUE) -> Any:
        return (
            await self.ask(2, OpenRequest(queue_format_for("host1", name), ACCESS_RECEIVE))
        ).handle

    async def take(self, handle: Any, transaction: bytes) -> str:
        """Receive in the transaction, and acknowledge."""
        number = len(self._answers)
        answer = await self.ask(
            13, StartReceiveRequest(handle, request_id=number, transaction=transaction)
        )
        assert answer.status == Status.MQ_OK, Status(answer.status).name
        assert (await self.ask(15, EndReceiveRequest(handle, 2, number))).status == Status.MQ_OK
        return join_sections(answer.sections).body.decode()

    async def enlist(self, transaction: bytes) -> Status:
        asked = EnlistRequest(transaction, b"a token", queue_format_for("host1", QUEUE))
        return Status((await self.ask(12, asked)).status)

    # --- as a coordinator

    def ended(self, transaction: bytes, *, committed: bool) -> None:
        self._ended[transaction].set_result(committed)

    async def commit(self, transaction: bytes) -> bool:
        self._ended[transaction] = asyncio.get_running_loop().create_future()
        self.service.outcome(transaction, committed=True)
        return await asyncio.wait_for(self._ended[transaction], 60)

    def waiting(self, name: str = QUEUE) -> int:
        return self.manager.catalogue.find(name).state.count


def rig(directory: Path, test: Callable[[Played], Awaitable[None]]) -> None:
    """One life of a queue manager without ports, with its reader process; five messages wait in a transactional queue."""

    async def main() -> None:
        queues = [f"{QUEUE}:transactional", f"{RETRY}:transactional"]
        async with living_manager(directory, queue=queues, host_name=["host1", "h"]) as manager:
            Maintenance(manager).start_reader()
            played = Played(manager)
            try:
                await test(played)
            finally:
                await played.service.stop()
                await manager.reader.stop()

    asyncio.run(main())


async def send(manager: QueueManager, count: int) -> None:
    async def pieces(_limit: int) -> list[bytes]:
        items = [
            {"body_base64": base64.b64encode(b"body %d" % n).decode()} for n in range(1, count + 1)
        ]
        return [json.dumps(items).encode()]

    request: Any = SimpleNamespace(parameters={"queue": QUEUE}, pieces=pieces)
    await MessagesApi(manager).post(request)


def rows(directory: Path) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    """What a start after a kill would find: of each queue the default consumer's mark and the runs beyond it."""
    with sqlite3.connect(f"file:{directory / 'store.db'}?mode=ro", uri=True) as store:
        found = store.execute(
            "SELECT queues.name, queue_id, received FROM consumers JOIN queues ON "
            "queues.id = queue_id "
            "WHERE consumers.name = 'default'"
        ).fetchall()
        return {
            name: (received, list(marks.load(store, each, "default", received).runs()))
            for name, each, received in found
        }


def test_a_transaction_ends_as_its_coordinator_says(tmp_path: Path) -> None:
    """Received, rejected and moved in one; an abort and a client that is told of neither."""

    async def test(played: Played) -> None:
        await send(played.manager, 5)
        handle = await played.opened()
        assert await played.enlist(TX) == await played.enlist(OTHER) == Status.MQ_OK
        assert [await played.take(handle, TX) for _ in range(2)] == ["body 1", "body 2"]
        reject = SetClassRequest(handle, rebuilt(2, priority=0), 0xC004)
        assert (await played.ask(14, reject)).status == Status.MQ_OK
        there = await played.ask(11, OpenRequest(queue_format_for("host1", RETRY), ACCESS_MOVE))
        move = MoveMessageRequest(handle, there.move_context, rebuilt(3, priority=0), TX)
        assert (await played.ask(10, move)).status == Status.MQ_OK
        assert await played.take(handle, OTHER) == "body 4"
        assert (played.waiting(), played.waiting(RETRY)) == (5, 0), "no outcome yet"
        played.service.outcome(OTHER, committed=False)
        assert await played.commit(TX) is True
        assert (played.waiting(), played.waiting(RETRY)) == (2, 1)
        assert rows(tmp_path / "data")[QUEUE][0] == 3
        assert await played.enlist(OTHER) == Status.MQ_OK
        assert [await played.take(handle, OTHER) for _ in range(2)] == ["body 4", "body 5"]
        assert await played.take(await played.opened(RETRY), OTHER) == "body 3"
        assert await played.commit(OTHER) is True
        assert (played.waiting(), played.waiting(RETRY)) == (0, 0)

    rig(tmp_path / "data", test)


def test_a_commit_that_cannot_be_stored_leaves_everything_as_it_was(tmp_path: Path) -> None:
    async def test(played: Played) -> None:
        await send(played.manager, 3)
        handle = await played.opened()
        assert await played.enlist(TX) == Status.MQ_OK
        assert await played.take(handle, TX) == "body 1"
        there = await played.ask(11, OpenRequest(queue_format_for("host1", RETRY), ACCESS_MOVE))
        move = MoveMessageRequest(handle, there.move_context, rebuilt(2, priority=0), TX)
        assert (await played.ask(10, move)).status == Status.MQ_OK
        await played.manager.queues.pause(RETRY, paused=True)
        assert await played.commit(TX) is False, "the subqueue takes nothing"
        assert (played.waiting(), played.waiting(RETRY)) == (3, 0)
        assert await played.enlist(OTHER) == Status.MQ_OK
        assert [await played.take(handle, OTHER) for _ in range(3)] == [
            "body 1",
            "body 2",
            "body 3",
        ]

    rig(tmp_path / "data", test)


def test_a_removal_of_which_nobody_knows_whether_it_is_stored_is_said_nothing_of(
    tmp_path: Path,
) -> None:
    """A sync failed, and the process ends. "Not removed", or "gone" to who looks, would each be believed by a reader that keeps
    the message or forgets it; it has no answer, and who looks is told that somebody has the message."""

    async def test(played: Played) -> None:
        await send(played.manager, 1)
        handle = await played.opened()
        asked = StartReceiveRequest(handle, action=Action.RECEIVE, request_id=77)
        assert (await played.ask(7, asked)).status == Status.MQ_OK

        async def fail(changed: object) -> None:
            raise StoreSyncError("the disk is full")

        played.manager.saves.save_together = fail  # type: ignore[method-assign]
        end = asyncio.ensure_future(played.ask(9, EndReceiveRequest(handle, 2, 77)))
        while not played.service._tasks:  # what comes with it is stored with it
            await asyncio.sleep(0)
        await asyncio.wait(tuple(played.service._tasks), timeout=60)
        peek = StartReceiveRequest(
            handle,
            action=Action.LOOKUP_PEEK_CURRENT,
            request_id=78,
            lookup_id=rebuilt(1, priority=0),
        )
        assert (await played.ask(7, peek)).status == Status.MQ_ERROR_TRANSACTION_USAGE
        assert not end.done()
        end.cancel()

    rig(tmp_path / "data", test)


async def locked(played: Played, handle: Any, count: int) -> list[int]:
    requests = list(range(1000, 1000 + count))
    for request in requests:
        asked = StartReceiveRequest(handle, action=Action.RECEIVE, request_id=request)
        assert (await played.ask(7, asked)).status == Status.MQ_OK
    return requests


def test_receives_that_are_ended_together_are_stored_together(tmp_path: Path) -> None:
    async def test(played: Played) -> None:
        await send(played.manager, 5)
        handle = await played.opened()
        requests = await locked(played, handle, 5)
        commits: list[int] = []
        save = played.manager.saves.save_together

        async def counting(changed: Any) -> None:
            commits.append(len(changed))
            await save(changed)

        played.manager.saves.save_together = counting  # type: ignore[method-assign]
        ends = await asyncio.gather(
            *(played.ask(9, EndReceiveRequest(handle, 2, each)) for each in requests)
        )
        assert [each.status for each in ends] == [Status.MQ_OK] * 5
        assert commits == [1], "one consumer, once"
        assert played.waiting() == 0

    rig(tmp_path / "data", test)


def test_one_that_cannot_be_stored_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    """Two queues; of one somebody else has the lease by now."""

    async def test(played: Played) -> None:
        await send(played.manager, 2)
        there = await played.ask(11, OpenRequest(queue_format_for("host1", RETRY), ACCESS_MOVE))
        one, other = await played.opened(QUEUE), await played.opened(RETRY)
        move = MoveMessageRequest(one, there.move_context, rebuilt(2, priority=0), NO_TRANSACTION)
        assert (await played.ask(10, move)).status == Status.MQ_OK
        (request,), (another,) = await locked(played, one, 1), await locked(played, other, 1)
        lost = played.manager.catalogue.find(RETRY).default
        check = played.manager.leases.check_holder

        def refuse(consumer: Any, holder: str) -> None:
            if consumer is lost:
                raise ApiError(409, SHARING_VIOLATION, "somebody else has it", "wait")
            check(consumer, holder)

        played.manager.leases.check_holder = refuse  # type: ignore[method-assign]
        ends = await asyncio.gather(
            played.ask(9, EndReceiveRequest(one, 2, request)),
            played.ask(9, EndReceiveRequest(other, 2, another)),
        )
        assert [each.status for each in ends] == [Status.MQ_OK, Status.MQ_ERROR_QUEUE_NOT_AVAILABLE]
        assert (played.waiting(), played.waiting(RETRY)) == (0, 1)

    rig(tmp_path / "data", test)
