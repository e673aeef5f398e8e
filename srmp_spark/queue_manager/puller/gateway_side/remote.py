"""An open queue of another machine, over a connection of this process ([MS-MQRR] 3.2.4)."""

from __future__ import annotations

from typing import Any, Protocol

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.client.failures import refused
from srmp_spark.mqrr.client.queue_calls import Ended, QueueCalls, ended, open_queue
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_PEEK,
    ACCESS_RECEIVE,
    SHARE_DENY_NONE,
    SHARE_DENY_SHARE,
    Parameters,
)
from srmp_spark.mqrr.ndr.receive import StartReceiveResponse
from srmp_spark.mqrr.ndr.stub import ContextHandle
from srmp_spark.mqrr.packets.sections import whole_packet
from srmp_spark.mqrr.pulled_states import PulledState
from srmp_spark.mqrr.queue_format import QueueFormat
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side.answers import UnreadableMessage
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, pulled_of


class Calls(Protocol):
    """A connection to a server: :class:`.connection.RpcClient`, or that of a test."""

    @property
    def calls_at_once(self) -> int:
        """Return the number of calls that may be in flight at the same time."""
        ...

    async def call(self, opnum: int, asked: Parameters, wait_s: float = 0.0) -> Any:  # noqa: ANN401
        """Make a call, wait for its answer, and return the answer.

        Raises the errors of :mod:`srmp_spark.mqrr.client.failures`.
        """
        ...


class GatewayQueue:
    """One open handle of a remote queue, in the gateway.

    All methods raise the errors of :mod:`srmp_spark.mqrr.client.failures`.
    """

    def __init__(self, calls: Calls, handle: ContextHandle) -> None:
        self._machine = calls
        self._calls = QueueCalls(handle)

    @classmethod
    async def open(
        cls, calls: Calls, queue: QueueFormat, *, receive: bool, exclusive: bool = False
    ) -> GatewayQueue:
        """Open the remote queue ``queue`` and return it.

        With ``receive`` messages can be received from it, otherwise only peeked. With
        ``exclusive`` the server refuses the call if another reader has the queue open to receive.
        """
        access = ACCESS_RECEIVE if receive else ACCESS_PEEK
        share = SHARE_DENY_SHARE if exclusive else SHARE_DENY_NONE
        answer = await calls.call(*open_queue(queue, access, share))
        return cls(calls, answer.handle)

    async def read(
        self, action: Action, *, wait_s: float = 0.0, lookup_id: int = 0, cursor: int = 0
    ) -> Pulled | UnreadableMessage | Status:
        """Read one message, as :meth:`.ReadableQueue.read` describes."""
        opnum, asked = self._calls.start(action, wait_s=wait_s, lookup_id=lookup_id, cursor=cursor)
        answer: StartReceiveResponse = await self._machine.call(opnum, asked, wait_s)
        if answer.status != Status.MQ_OK:
            try:
                return Status(answer.status)
            except ValueError:
                raise refused(answer.status, "R_StartReceive") from None
        try:
            pulled = _pulled(answer)
        except RemoteProtocolError as error:
            return UnreadableMessage(asked.request_id, str(error))
        pulled.request = asked.request_id
        return pulled

    async def end(self, request: int, *, keep: bool = False) -> Ended:
        """Remove or unlock a message, as :meth:`.ReadableQueue.end` describes."""
        answer = await self._machine.call(*self._calls.end(request, keep=keep))
        return ended(answer.status)

    @property
    def calls_at_once(self) -> int:
        """Return the number of calls that may be in flight at the same time."""
        return self._machine.calls_at_once

    async def cursor(self) -> int:
        """Create a cursor in the remote queue, and return its number for :meth:`read`."""
        answer = await self._machine.call(*self._calls.create_cursor())
        if answer.status != Status.MQ_OK:
            raise refused(answer.status, "R_CreateCursor")
        return int(answer.cursor)

    async def close_cursor(self, cursor: int) -> None:
        """Close a cursor of the remote queue."""
        await self._machine.call(*self._calls.close_cursor(cursor))


def _pulled(answer: StartReceiveResponse) -> Pulled:
    if not answer.sections:
        raise RemoteProtocolError("a message without sections", section="[MS-MQRR] 2.2.6")
    raw, packet = whole_packet(answer.sections)
    return pulled_of(raw, packet, answer.sequence_id, PulledState.HANDED)
