"""Answers with a failure, to each of the two clients: it is an error, whatever it is, and nothing else of the answer counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from srmp_spark.client.remote_queue import RemoteMachine, RemoteQueue
from srmp_spark.errors import LocalProtocolError, RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import (
    CloseQueueResponse,
    CursorResponse,
    HandleRequest,
    Parameters,
    StatusResponse,
)
from srmp_spark.mqrr.ndr.receive import StartReceiveResponse, failure
from srmp_spark.mqrr.ndr.stub import NULL_HANDLE, ContextHandle
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side.remote import GatewayQueue

HANDLE = ContextHandle(0, bytes(range(16)))
FAILURES = pytest.mark.parametrize(
    "status", [int(Status.MQ_ERROR), int(Status.MQ_ERROR_ACCESS_DENIED), 0x80070005, 0xC0990001]
)
ANSWERS = {
    2: HandleRequest(HANDLE),
    3: CloseQueueResponse(NULL_HANDLE, 0),
    4: CursorResponse(7, 0),
    5: StatusResponse(0),
    6: StatusResponse(0),
    7: failure(int(Status.MQ_ERROR_IO_TIMEOUT)),
    9: StatusResponse(0),
}


class Machine(RemoteMachine):
    """A connection to nobody: each method has one answer, and the calls are noted."""

    def __init__(self, **answers: Parameters) -> None:
        self.host = "windows.example"
        self.answers: dict[int, Any] = ANSWERS | {
            int(name[1:]): answer for name, answer in answers.items()
        }
        self.calls: list[tuple[int, Any]] = []

    def call(self, opnum: int, asked: Parameters, wait_s: float = 0.0) -> Any:
        self.calls.append((opnum, asked))
        return self.answers[opnum]

    def begin(
        self, opnum: int, asked: Parameters, wait_s: float = 0.0, *, more: bool = False
    ) -> Any:
        answer = self.call(opnum, asked)
        return lambda: answer

    @property
    def calls_at_once(self) -> int:
        return 1

    def queue(self) -> RemoteQueue:
        return RemoteQueue(self, HANDLE, "orders")


class Calls:
    """The same for a subscription's gateway."""

    calls_at_once = 1

    def __init__(self, **answers: Parameters) -> None:
        self.machine = Machine(**answers)

    async def call(self, opnum: int, asked: Parameters, wait_s: float = 0.0) -> Any:
        return self.machine.call(opnum, asked)


@FAILURES
def test_a_cursor_that_was_not_made_is_not_used(status: int) -> None:
    """3.1.4.4: phCursor beside a failure is none."""
    machine = Machine(_4=CursorResponse(7, status))
    with pytest.raises(RemoteReadError, match="R_CreateCursor"):
        list(machine.queue().walk())
    assert [opnum for opnum, _ in machine.calls] == [4]
    calls = Calls(_4=CursorResponse(7, status))
    with pytest.raises(RemoteReadError, match="R_CreateCursor"):
        asyncio.run(GatewayQueue(calls, HANDLE).cursor())


def test_a_cursor_is_used_as_it_was_named_and_closed_at_the_end() -> None:
    """3.2.4.8, 3.2.4.9, 3.2.4.12."""
    machine = Machine()
    assert list(machine.queue().walk()) == []
    assert [opnum for opnum, _ in machine.calls] == [4, 7, 5]
    assert (machine.calls[1][1].cursor, machine.calls[2][1].number) == (7, 7)
    calls = Calls()

    async def pulls() -> None:
        queue = await GatewayQueue.open(calls, queue_format_for("host", "q"), receive=False)
        cursor = await queue.cursor()
        await queue.read(Action.PEEK_CURRENT, cursor=cursor)
        await queue.close_cursor(cursor)

    asyncio.run(pulls())
    assert [opnum for opnum, _ in calls.machine.calls] == [2, 4, 7, 5]
    _, (_, created), (_, read), (_, closed) = calls.machine.calls
    assert {created.handle, read.handle, closed.handle} == {HANDLE}
    assert (read.cursor, closed.number) == (7, 7)


@FAILURES
def test_what_was_not_purged_ended_or_closed_is_an_error(status: int) -> None:
    """3.1.4.3, 3.1.4.5, 3.1.4.6, 3.1.4.9."""
    with pytest.raises(RemoteReadError, match="R_PurgeQueue"):
        Machine(_6=StatusResponse(status)).queue().purge()
    with pytest.raises(RemoteReadError, match="R_EndReceive"):
        Machine(_9=StatusResponse(status)).queue().end(1)
    with pytest.raises(RemoteReadError, match="R_CloseCursor"):
        list(Machine(_5=StatusResponse(status)).queue().walk())
    with pytest.raises(RemoteReadError, match="R_CloseQueue"):
        Machine(_3=CloseQueueResponse(HANDLE, status)).queue().close()


@FAILURES
def test_of_a_failed_read_nothing_is_a_message(status: int) -> None:
    """3.1.4.7."""
    answer = StartReceiveResponse(1, 2, (), status)
    with pytest.raises(RemoteReadError, match="does not show messages"):
        Machine(_7=answer).queue().peek()


def test_a_closed_queue_sends_nothing() -> None:
    """3.2.4.13: the handle is no longer there."""
    machine = Machine()
    with machine.queue() as queue:
        pass
    for use in (queue.purge, queue.peek, queue.close, lambda: queue.handle):
        with pytest.raises(LocalProtocolError, match="was closed; open it again"):
            use()
    assert [opnum for opnum, _ in machine.calls] == [3]
