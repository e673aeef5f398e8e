"""Use the gateway of subscriptions from the main process: connections and open queues.

    remotes = Remotes()
    connection = await remotes.connect(host, credentials)
    queue = await connection.open(queue_format, receive=True)

The gateway process handles the bytes. It is started with the first connection that is requested,
and runs until :meth:`Remotes.stop`. When it dies, every connection is lost, as if the network had
failed. A call that was in flight may have been carried out. The next :meth:`Remotes.connect` waits
for the next gateway.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from srmp_spark.errors import RemoteLostError
from srmp_spark.mqrr.client.failures import NotSentError
from srmp_spark.mqrr.client.queue_calls import Ended
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.gateway.control import GatewaySettings
from srmp_spark.queue_manager.gateway.link import START_SECONDS, GatewayLink
from srmp_spark.queue_manager.puller.gateway_side.answers import UnreadableMessage
from srmp_spark.queue_manager.puller.gateway_side.crossing import (
    OPENING,
    Answer,
    Call,
    CloseConnection,
    CloseCursor,
    ConnectionOpened,
    CursorMade,
    EndAnswered,
    EndReceive,
    MakeCursor,
    MessageFound,
    MessageUnreadable,
    NotThere,
    OpenConnection,
    OpenRemoteQueue,
    RemoteCallFailed,
    StartReceive,
    ToGateway,
    ToMain,
    error_of,
    pulled_of_found,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from srmp_spark.mqrr.actions import Action
    from srmp_spark.mqrr.queue_format import QueueFormat
    from srmp_spark.mqrr.remote_host import RemoteHost
    from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled
    from srmp_spark.signing_in.credentials import Credentials

GONE = "the process that reads remote queues ended, and is started again"
"""Reason why every connection is lost when the gateway dies."""


class RemotesLink(GatewayLink[ToGateway, ToMain]):
    """Keeps the gateway process of subscriptions running."""

    module = "srmp_spark.queue_manager.puller.gateway_side.gateway"
    noun = "subscriptions"


class Remotes:
    """Makes connections to remote queue managers, through one gateway process."""

    def __init__(self) -> None:
        self._link: RemotesLink | None = None
        """Link to the gateway; ``None`` until a connection is requested."""
        self._is_up = asyncio.Event()
        self._numbers = itertools.count(1)
        self._calls = itertools.count(OPENING + 1)
        self._connections: dict[int, RemoteConnection] = {}

    async def connect(self, host: RemoteHost, credentials: Credentials) -> RemoteConnection:
        """Connect to ``host``, sign in, and return the connection.

        The first call starts the gateway. Raises :class:`RemoteLostError` if the host or the
        gateway cannot be reached. Raises :class:`RemoteReadError`, :class:`NotSentError` or another
        :class:`SrmpSparkError` if the connection or the sign-in fails otherwise.
        """
        if self._link is None:
            self._link = RemotesLink(
                GatewaySettings(),
                {},
                ToMain,
                self._on_message,
                on_up=self._is_up.set,
                on_lost=self._on_lost,
            )
            self._link.start()
        try:
            await asyncio.wait_for(self._is_up.wait(), START_SECONDS)
        except asyncio.TimeoutError:
            raise RemoteLostError(
                "the process that reads remote queues does not start; the log says why"
            ) from None
        number = next(self._numbers)
        connection = RemoteConnection(
            number, host.text, self._link, self._calls, self._connections.pop
        )
        self._connections[number] = connection
        try:
            await connection.connect(OpenConnection(number, host, credentials))
        except BaseException:
            connection.close()
            raise
        return connection

    async def stop(self) -> None:
        """End the gateway and fail all calls. No connection may be requested afterwards."""
        if self._link is not None:
            await self._link.stop()
        self._on_lost()

    def _on_message(self, message: ToMain) -> None:
        connection = self._connections.get(message.connection)
        # A connection that was closed meanwhile is no longer there.
        if connection is not None:
            connection.receive(message)

    def _on_lost(self) -> None:
        self._is_up.clear()
        for each in tuple(self._connections.values()):
            each.on_gateway_lost()


class RemoteConnection:
    """One connection to a remote queue manager, as the main process sees it."""

    def __init__(
        self,
        number: int,
        where: str,
        link: RemotesLink,
        calls: Iterator[int],
        on_closed: Callable[[int], object],
    ) -> None:
        """Prepare the connection ``number``.

        ``where`` is the name of the server in error messages. ``calls`` numbers the calls of all
        connections. ``on_closed`` is called with ``number`` when the connection is closed.
        """
        self._number = number
        self._where = where
        self._link = link
        self._calls = calls
        self._on_closed = on_closed
        self._waiting: dict[int, asyncio.Future[ConnectionOpened | Answer]] = {}
        """Callers that wait for an answer, by the number of their call."""
        self._is_open = True
        self.address = ("", 0)
        """The IP address and the port that the connection reached."""
        self.calls_at_once = 1
        """Most calls that may be in flight at the same time."""

    async def connect(self, asked: OpenConnection) -> None:
        """Let the gateway connect and sign in, and wait for that.

        Raises as :meth:`Remotes.connect`.
        """
        opened = await self._ask(OPENING, asked)
        if not isinstance(opened, ConnectionOpened):
            raise _unexpected(opened)
        self.address, self.calls_at_once = opened.address, opened.calls_at_once

    async def open(
        self, queue: QueueFormat, *, receive: bool, exclusive: bool = False
    ) -> CrossedQueue:
        """Open the one remote queue of this connection, and return it.

        With ``receive`` messages can be received from it, otherwise only peeked. With
        ``exclusive`` no other reader may have it open to receive. Raises :class:`RemoteReadError`
        and :class:`RemoteLostError`.
        """
        await self.call(
            lambda number, call: OpenRemoteQueue(number, call, queue, receive, exclusive)
        )
        return CrossedQueue(self)

    async def call(self, make: Callable[[int, int], Call]) -> ConnectionOpened | Answer:
        """Send a request to the gateway, wait for its answer, and return the answer.

        ``make`` makes the request from the number of this connection and the number of the new
        call. There is no time-out: the gateway has one. Raises :class:`RemoteReadError`,
        :class:`RemoteLostError`, and :class:`NotSentError` if the call was not sent.
        """
        call = next(self._calls)
        return await self._ask(call, make(self._number, call))

    async def _ask(self, call: int, message: OpenConnection | Call) -> ConnectionOpened | Answer:
        if not self._is_open or not self._link.send(message):
            raise NotSentError(f"{self._where}: {GONE}")
        future: asyncio.Future[ConnectionOpened | Answer] = (
            asyncio.get_running_loop().create_future()
        )
        self._waiting[call] = future
        try:
            return await future
        finally:
            self._waiting.pop(call, None)

    def receive(self, message: ToMain) -> None:
        """Pass an answer of the gateway to the caller that waits for it, if there still is one."""
        future = self._waiting.get(
            OPENING if isinstance(message, ConnectionOpened) else message.call
        )
        if future is None or future.done():
            # The caller was cancelled.
            return
        if isinstance(message, RemoteCallFailed):
            future.set_exception(error_of(message))
        else:
            future.set_result(message)

    def on_gateway_lost(self) -> None:
        """Fail every call with :class:`RemoteLostError`, because the gateway has ended."""
        self._is_open = False
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RemoteLostError(f"{self._where}: {GONE}"))

    def close(self) -> None:
        """Order the gateway to end the connection, and fail its calls.

        The server unlocks everything that the connection has locked.
        """
        if self._is_open:
            self._link.send(CloseConnection(self._number))
        self.on_gateway_lost()
        self._on_closed(self._number)


class CrossedQueue:
    """An open remote queue that is used through the gateway (:class:`.answers.ReadableQueue`)."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection

    @property
    def calls_at_once(self) -> int:
        """Return the number of calls that may be in flight at the same time."""
        return self._connection.calls_at_once

    async def read(
        self, action: Action, *, wait_s: float = 0.0, lookup_id: int = 0, cursor: int = 0
    ) -> Pulled | UnreadableMessage | Status:
        """Read one message, as :meth:`.ReadableQueue.read` describes."""
        answer = await self._connection.call(
            lambda number, call: StartReceive(number, call, int(action), wait_s, lookup_id, cursor)
        )
        if isinstance(answer, MessageFound):
            return pulled_of_found(answer)
        if isinstance(answer, MessageUnreadable):
            return UnreadableMessage(answer.request, answer.reason)
        if isinstance(answer, NotThere):
            return Status(answer.status)
        raise _unexpected(answer)

    async def end(self, request: int, *, keep: bool = False) -> Ended:
        """Remove or unlock a message, as :meth:`.ReadableQueue.end` describes."""
        answer = await self._connection.call(
            lambda number, call: EndReceive(number, call, request, keep)
        )
        if not isinstance(answer, EndAnswered):
            raise _unexpected(answer)
        return answer.ended

    async def cursor(self) -> int:
        """Create a cursor in the remote queue, and return its number for :meth:`read`."""
        answer = await self._connection.call(MakeCursor)
        if not isinstance(answer, CursorMade):
            raise _unexpected(answer)
        return answer.cursor

    async def close_cursor(self, cursor: int) -> None:
        """Close a cursor of the remote queue."""
        await self._connection.call(lambda number, call: CloseCursor(number, call, cursor))


def _unexpected(answer: ConnectionOpened | Answer) -> TypeError:
    return TypeError(f"the gateway of subscriptions answered {type(answer).__name__}")
