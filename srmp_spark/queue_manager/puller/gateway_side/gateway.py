"""Run the gateway of subscriptions, a process with connections to remote queue managers.

A remote server can make work expensive, so all such work is done in this process: address lookup,
sign-in, assembly and decryption of fragments, and parsing of packets. The main process decides
which calls are made and gets whole, parsed messages (:mod:`.crossing`). It alone decides what
happens to them.

**Back-pressure.** Each call asks a server for one message, and the main process limits the calls.
While more than :data:`srmp_spark.queue_manager.gateway.channel.CONGESTED_BYTES` wait for the main
process, no connection is read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from srmp_spark.errors import LocalProtocolError, SrmpSparkError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.client.failures import NotSentError
from srmp_spark.queue_manager.gateway.control import GatewaySettings
from srmp_spark.queue_manager.gateway.process import Gateway, Served, run_gateway
from srmp_spark.queue_manager.log_once import LogOnce
from srmp_spark.queue_manager.puller.gateway_side.answers import UnreadableMessage
from srmp_spark.queue_manager.puller.gateway_side.connection import RpcClient
from srmp_spark.queue_manager.puller.gateway_side.crossing import (
    OPENING,
    Answer,
    Call,
    CallDone,
    CloseConnection,
    CloseCursor,
    ConnectionOpened,
    CursorMade,
    EndAnswered,
    EndReceive,
    MessageUnreadable,
    NotThere,
    OpenConnection,
    OpenRemoteQueue,
    StartReceive,
    ToGateway,
    crossable,
    failed_of,
    found_of,
)
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled
from srmp_spark.queue_manager.puller.gateway_side.remote import GatewayQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from srmp_spark.queue_manager.gateway.channel import Channel
    from srmp_spark.queue_manager.puller.gateway_side.crossing import ToMain

UNFINISHED_MAX = 256 * 1_048_576
"""Most bytes of unfinished answers of all connections: those of sixty connections that each receive
a message of the largest size. If there are more, the connection with the most of them is closed.
So a server that begins many large answers and ends none does not harm the other subscriptions.
"""

log = logging.getLogger(__name__)


class GatewayConnection:
    """One connection that the main process requested, and the remote queue that is open over it."""

    def __init__(
        self,
        asked: OpenConnection,
        send: Callable[[ToMain], object],
        on_read: Callable[[], object],
        logged: LogOnce,
    ) -> None:
        """Begin to connect in a task. The result is sent to the main process.

        ``send`` sends answers to the main process. ``on_read`` is called when
        :attr:`unfinished_bytes` may have changed.
        """
        self._number = asked.connection
        self._host = asked.host
        self._credentials = asked.credentials
        self._send = send
        self._on_read = on_read
        self._logged = logged
        self._queue: GatewayQueue | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.client: RpcClient | None = None
        """The RPC client, or ``None`` until the connection exists."""
        self._start(self._open())

    @property
    def unfinished_bytes(self) -> int:
        """Return the number of bytes of answers whose last fragment has not been received."""
        return 0 if self.client is None else self.client.unfinished_bytes

    def close(self) -> None:
        """End the connection at once, and cancel its calls. No answer is sent for them."""
        if self.client is not None:
            self.client.close()
        for task in self._tasks:
            task.cancel()

    def call(self, asked: Call) -> None:
        """Begin a call to the server. Its answer is sent to the main process when it arrives."""
        self._start(self._answer(asked))

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self) -> None:
        host = self._host
        try:
            client = self.client = await RpcClient.connect(
                host.name,
                host.port,
                # A thread is needed, because Kerberos requests a ticket from another server.
                lambda: asyncio.to_thread(self._credentials.settings, host),
            )
            client.on_read = self._on_read
            self._send(ConnectionOpened(self._number, client.address, client.calls_at_once))
        except Exception as error:
            # The main process decides what each error means.
            self._fail(OPENING, error)

    async def _answer(self, asked: Call) -> None:
        try:
            self._send(await self._carry_out(asked))
        except Exception as error:
            # The main process decides what each error means.
            self._fail(asked.call, error)

    async def _carry_out(self, asked: Call) -> Answer:
        number, call, client = self._number, asked.call, self.client
        if client is None:
            raise NotSentError(f"{self._host.text}: there is no connection")
        if isinstance(asked, OpenRemoteQueue):
            self._queue = await GatewayQueue.open(
                client, asked.format, receive=asked.receive, exclusive=asked.exclusive
            )
            return CallDone(number, call)
        queue = self._queue
        if queue is None:
            raise LocalProtocolError("a call to a queue that is not open")
        if isinstance(asked, StartReceive):
            found = await queue.read(
                Action(asked.action),
                wait_s=asked.wait_s,
                lookup_id=asked.lookup_id,
                cursor=asked.cursor,
            )
            if isinstance(found, Pulled):
                return found_of(number, call, found)
            if isinstance(found, UnreadableMessage):
                return MessageUnreadable(number, call, found.request, crossable(found.reason))
            return NotThere(number, call, int(found))
        if isinstance(asked, EndReceive):
            return EndAnswered(number, call, await queue.end(asked.request, keep=asked.keep))
        if isinstance(asked, CloseCursor):
            await queue.close_cursor(asked.cursor)
            return CallDone(number, call)
        return CursorMade(number, call, await queue.cursor())

    def _fail(self, call: int, error: Exception) -> None:
        if not isinstance(error, SrmpSparkError | OSError):
            # An internal error is logged here. The main process refers to the log.
            name = type(error).__name__
            if self._logged.line(f"{name}: {error}", time.monotonic()) is not None:
                log.error("subscription.failed host=%s", ascii(self._host.text), exc_info=error)
            error = SrmpSparkError(f"{name}: see the log")
        self._send(failed_of(self._number, call, error))


class RemoteConnections:
    """Holds the connections of all subscriptions in the gateway."""

    def __init__(self, channel: Channel[ToMain, ToGateway]) -> None:
        self._channel = channel
        self._connections: dict[int, GatewayConnection] = {}
        self._logged = LogOnce()
        self._unfinished: dict[int, int] = {}
        """Bytes of unfinished answers of each connection that has any."""

    def on_message(self, message: ToGateway) -> None:
        """Begin to carry out a request of the main process (:mod:`.crossing`)."""
        if isinstance(message, OpenConnection):
            number = message.connection
            self._connections[number] = GatewayConnection(
                message, self._send, lambda: self._count_unfinished(number), self._logged
            )
        elif isinstance(message, CloseConnection):
            connection = self._connections.pop(message.connection, None)
            self._unfinished.pop(message.connection, None)
            if connection is not None:
                connection.close()
        else:
            # The connection is there: only Close removes it, and no request follows a Close.
            self._connections[message.connection].call(message)

    def on_room(self) -> None:
        """Read from the servers again, because the channel to the main process has room."""
        for each in self._connections.values():
            if each.client is not None:
                each.client.release_reading()

    def _count_unfinished(self, number: int) -> None:
        """Record the present unfinished bytes of connection ``number``.

        If all connections together exceed UNFINISHED_MAX, close the connection with the most.
        """
        connection = self._connections.get(number)
        size = 0 if connection is None else connection.unfinished_bytes
        if size:
            self._unfinished[number] = size
        else:
            self._unfinished.pop(number, None)
        if (total := sum(self._unfinished.values())) > UNFINISHED_MAX:
            largest = max(self._unfinished, key=self._unfinished.__getitem__)
            client = self._connections[largest].client
            assert client is not None, "it was read"
            held = self._unfinished.pop(largest)
            client.close(
                f"{held} bytes of unfinished answers, {total} of all connections: "
                f"UNFINISHED_MAX is {UNFINISHED_MAX}"
            )

    def _send(self, message: ToMain) -> None:
        self._channel.send(message)
        if self._channel.is_congested:
            for each in self._connections.values():
                if each.client is not None:
                    each.client.hold_reading()


async def serve(gateway: Gateway[GatewaySettings]) -> Served:
    """Return the callbacks for messages of the main process. No connection is made yet."""
    connections = RemoteConnections(gateway.channel)
    return Served(connections.on_message, connections.on_room)


if __name__ == "__main__":
    run_gateway(ToGateway, GatewaySettings, serve)
