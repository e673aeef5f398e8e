"""Hold one connection to another queue manager, in the event loop of the gateway.

:mod:`srmp_spark.mqrr.client` decides everything; this module has the transport and the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from srmp_spark.errors import RemoteLostError
from srmp_spark.mqrr.client.failures import UnreadableAnswerError
from srmp_spark.mqrr.client.reader_states import Connect, Prepare
from srmp_spark.mqrr.client.remote_reader import Failure, Outcome, RemoteReader
from srmp_spark.mqrr.ndr.methods import Parameters
from srmp_spark.mqrr.rpc.client_connection import ClientSettings
from srmp_spark.queue_manager.alarm import Alarm

TURN_SECONDS = 0.002
"""Longest time that one connection may use in one turn of the event loop to process received bytes,
in seconds. The loop serves all subscriptions. The time is enough for some hundred PDUs. The rest
waits for the next turn, and the socket is not read until the rest is processed.
"""
PDUS_AT_ONCE = 16
"""PDUs that are processed between two checks of the time: 0.1 ms for small ones, 1 ms for sealed
ones of 64 KB.
"""


class RpcClient(asyncio.Protocol):
    """One connection to a server, as an :class:`asyncio.Protocol`.

    Calls may be concurrent if the server agrees. "The reader" is :class:`.RemoteReader`.
    """

    def __init__(self, reader: RemoteReader) -> None:
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._progress: asyncio.Future[None] = self._loop.create_future()
        """Is done when the reader may have changed its state."""
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._alarm = Alarm(self._loop, self._on_timer)
        self._flushes = False
        """Whether a flush is scheduled. Calls that are made together are sent together by it."""
        self.is_behind = False
        """Whether reading is paused until the bytes that were read are processed."""
        self._is_held = False
        """Whether reading is paused because the receiver of the answers has no room."""
        self.on_read: Callable[[], object] = lambda: None
        """Callback after each read, because :attr:`unfinished_bytes` may have changed."""

    @classmethod
    async def connect(
        cls, host: str, port: int | None, prepare: Callable[[], Awaitable[ClientSettings]]
    ) -> RpcClient:
        """Connect to ``host``, make the RPC bind, sign in, and return the connection.

        Without ``port`` the endpoint mapper is asked for it. ``prepare`` makes the settings when
        the port is known. Raises :class:`RemoteLostError` if the server is unreachable, refuses the
        connection or does not answer in time, :class:`RemoteReadError` if the endpoint mapper
        refuses, and the errors of ``prepare``.
        """
        client = cls(RemoteReader(host, port))
        try:
            while not client._reader.is_ready:
                await client._go_on(prepare)
        except BaseException:
            client.close()
            raise
        return client

    async def _go_on(self, prepare: Callable[[], Awaitable[ClientSettings]]) -> None:
        """Carry out the next step until calls can be made (:mod:`.reader_states`)."""
        effect = self._reader.effect
        if isinstance(effect, Connect):
            await self._connect(effect)
        elif isinstance(effect, Prepare):
            self._reader.prepared(await prepare())
        else:
            self._progress = self._loop.create_future()
            if effect is not None and self._transport is not None:
                self._transport.abort()
            await self._progress

    async def _connect(self, effect: Connect) -> None:
        host = self._reader.host
        work = self._loop.create_task(self._loop.create_connection(lambda: self, host, effect.port))
        try:
            await _within(effect.seconds, work)
        except (OSError, asyncio.TimeoutError) as error:
            self._reader.not_connected(str(error))

    # --- the transport ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the reader send the RPC bind. asyncio calls this method."""
        self._transport = cast("asyncio.Transport", transport)
        if self._reader.failure is not None:
            # The attempt to connect was cancelled meanwhile.
            self._transport.abort()
            return
        self._reader.connected(self._loop.time())
        self._take([])

    def data_received(self, data: bytes) -> None:
        """Process bytes from the server. asyncio calls this method."""
        self._read(data)

    def _read(self, data: bytes = b"") -> None:
        """Process received bytes for at most :data:`TURN_SECONDS`, and call :attr:`on_read`.

        The rest is processed in later turns of the event loop, and the socket is not read until
        then.
        """
        reader, loop = self._reader, self._loop
        now = loop.time()
        ends_at = now + TURN_SECONDS
        outcomes = reader.receive(data, now, PDUS_AT_ONCE)
        while reader.is_behind and loop.time() < ends_at:
            outcomes += reader.receive(b"", now, PDUS_AT_ONCE)
        self._take(outcomes)
        self.on_read()
        was_behind, self.is_behind = self.is_behind, reader.is_behind
        if self.is_behind:
            if not was_behind and self._transport is not None:
                self._transport.pause_reading()
            loop.call_soon(self._read)
        elif was_behind:
            self._resume()

    def hold_reading(self) -> None:
        """Pause reading from the server until :meth:`release_reading`.

        Call this when the receiver of the answers has no room.
        """
        transport = self._transport
        if not self._is_held and transport is not None and not transport.is_closing():
            self._is_held = True
            transport.pause_reading()

    def release_reading(self) -> None:
        """End the pause of :meth:`hold_reading`."""
        if self._is_held:
            self._is_held = False
            self._resume()

    def _resume(self) -> None:
        transport = self._transport
        if transport is not None and not (
            self.is_behind or self._is_held or transport.is_closing()
        ):
            transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the reader that the TCP connection ended. asyncio calls this method."""
        self._take(
            self._reader.connection_lost()
            if exc is None
            else self._reader.connection_lost(str(exc))
        )

    def _take(self, outcomes: list[Outcome]) -> None:
        for each in outcomes:
            future = self._calls.pop(each.number, None)
            if future is None or future.done():
                # The caller was cancelled.
                continue
            if isinstance(each, Failure):
                future.set_exception(each.error)
            else:
                future.set_result(each.response)
        if self._reader.failure is not None and self._transport is not None:
            self._transport.close()
        if not self._progress.done():
            self._progress.set_result(None)
        self._flush()

    def _flush_soon(self) -> None:
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        data = self._reader.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
        self._alarm.at(self._reader.timer())

    def _on_timer(self) -> None:
        self._take(self._reader.handle_timer(self._loop.time()))

    @property
    def calls_at_once(self) -> int:
        """Return the number of calls that the server accepts at the same time."""
        return self._reader.calls_at_once

    @property
    def address(self) -> tuple[str, int]:
        """Return the IP address and the port that the connection reached."""
        assert self._transport is not None, "the connection was made"
        host, port = self._transport.get_extra_info("peername")[:2]
        return str(host), int(port)

    # --- calls ------------------------------------------------------------------------------------

    async def call(self, opnum: int, asked: Parameters, wait_s: float = 0.0) -> Any:  # noqa: ANN401
        """Make a call, wait for its answer, and return the decoded answer with any HRESULT.

        ``wait_s`` are the seconds that the server may wait itself. Raises :class:`RemoteReadError`
        for a fault. Raises :class:`RemoteLostError` if the connection ends, the answer takes too
        long or cannot be read, and :class:`NotSentError` if the call was not sent.
        """
        number = self._reader.call(opnum, asked, self._loop.time(), wait_s)
        future = self._calls[number] = self._loop.create_future()
        self._flush_soon()
        try:
            return await future
        except UnreadableAnswerError as error:
            # A server that answers so is read over a new connection, as after a loss.
            raise RemoteLostError(str(error)) from None
        finally:
            self._calls.pop(number, None)

    @property
    def unfinished_bytes(self) -> int:
        """Return the number of bytes of answers whose last fragment has not been received."""
        return self._reader.unfinished_bytes

    def close(self, why: str = "closed") -> None:
        """End the connection at once, and fail its calls with :class:`RemoteLostError`.

        The server unlocks everything that the connection has locked. ``why`` is the reason in the
        errors.
        """
        self._take(self._reader.connection_lost(why))
        if self._transport is not None:
            self._transport.abort()


async def _within(seconds: float, work: asyncio.Future[Any]) -> None:
    """Wait for ``work``, at most ``seconds``, and raise its exception. Then cancel ``work``.

    Raises :class:`asyncio.TimeoutError` if ``work`` is not done in time. A cancellation is always
    raised. :func:`asyncio.wait_for` of Python 3.11 drops a cancellation that arrives together with
    the result. A connection that is no longer needed would then wait for the bind of its server.
    """
    try:
        done, _ = await asyncio.wait((work,), timeout=seconds)
    finally:
        # The cancellation has no effect if the work is done.
        work.cancel()
    if not done:
        raise asyncio.TimeoutError
    work.result()
