"""Hold one RPC connection to another queue manager, in the event loop of the gateway.

The specification is [MS-RPCE] 3.3.2.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, cast

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError, with_hint
from srmp_spark.mqrr.errors import BadStubError
from srmp_spark.mqrr.ndr.methods import METHODS, Parameters
from srmp_spark.mqrr.ndr.transfer_syntax import NDR
from srmp_spark.mqrr.next_steps import UNREACHABLE
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.client_connection import (
    Answered,
    Bound,
    ClientConnection,
    ClientSettings,
    Closed,
    Faulted,
)
from srmp_spark.mqrr.rpc.endpoint_mapper import (
    ENDPOINT_MAPPER,
    ENDPOINT_MAPPER_PORT,
    EPT_MAP,
    decode_map_response,
    encode_map_request,
)
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side.answers import (
    LostError,
    NotSentError,
    RefusedError,
)

CONNECT_SECONDS = 10.0
"""Longest wait for a TCP connection, in seconds.

A machine that has not accepted by then counts as unreachable.
"""
ANSWER_SECONDS = 60.0
"""Longest wait for an answer, in seconds, in addition to the wait that the call requests.

After that the connection is ended.
"""
TURN_SECONDS = 0.002
"""Longest time that one connection may use in one turn of the event loop to process received bytes,
in seconds. The loop serves all subscriptions. The time is enough for some hundred PDUs. The rest
waits for the next turn, and the socket is not read until the rest is processed.
"""
PDUS_AT_ONCE = 16
"""PDUs that are processed between two checks of the time: 0.1 ms for small ones, 1 ms for sealed
ones of 64 KB.
"""

log = logging.getLogger(__name__)


class RpcClient(asyncio.Protocol):
    """One RPC connection to a server, as an :class:`asyncio.Protocol`.

    Calls may be concurrent if the server agrees. "The engine" is :class:`.ClientConnection`.
    """

    def __init__(self, where: str, settings: ClientSettings) -> None:
        self._where = where
        self._engine = ClientConnection(settings)
        self._loop = asyncio.get_running_loop()
        self._bound: asyncio.Future[Bound] = self._loop.create_future()
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._flushes = False
        """Whether a flush is scheduled. Calls that are made together are sent together by it."""
        self._why = ""
        self.is_behind = False
        """Whether reading is paused until the bytes that were read are processed."""
        self._is_held = False
        """Whether reading is paused because the receiver of the answers has no room."""
        self.on_read: Callable[[], object] = lambda: None
        """Callback after each read, because :attr:`unfinished_bytes` may have changed."""

    @classmethod
    async def connect(cls, host: str, port: int, settings: ClientSettings) -> RpcClient:
        """Connect to ``host`` and ``port``, make the RPC bind, sign in, and return the connection.

        Raises :class:`LostError` if the server is unreachable, refuses, or does not accept within
        CONNECT_SECONDS or answer within ANSWER_SECONDS. Raises :class:`RefusedError` for a fault.
        """
        where = f"{host}:{port}"
        client = cls(where, settings)
        loop = asyncio.get_running_loop()
        try:
            await _within(
                CONNECT_SECONDS,
                loop.create_task(loop.create_connection(lambda: client, host, port)),
            )
            await _within(ANSWER_SECONDS, client._bound)
        except (OSError, asyncio.TimeoutError) as error:
            client.close()
            why = f"{where} cannot be reached: {str(error) or 'no answer in time'}"
            raise LostError(with_hint(why, UNREACHABLE)) from None
        except BaseException:
            client.close()
            raise
        return client

    # --- the transport ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the RPC bind. asyncio calls this method."""
        self._transport = cast("asyncio.Transport", transport)
        self._engine.bind(self._loop.time())
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Process bytes from the server. asyncio calls this method."""
        self._read(data)

    def _read(self, data: bytes = b"") -> None:
        """Process received bytes for at most :data:`TURN_SECONDS`, and call :attr:`on_read`.

        The rest is processed in later turns of the event loop, and the socket is not read until
        then.
        """
        ends_at = time.perf_counter() + TURN_SECONDS
        results = self._engine.receive(data, PDUS_AT_ONCE)
        while self._engine.is_behind and time.perf_counter() < ends_at:
            results += self._engine.receive(b"", PDUS_AT_ONCE)
        self._take(results)
        self.on_read()
        was_behind, self.is_behind = self.is_behind, self._engine.is_behind
        if self.is_behind:
            if not was_behind:
                self._transport.pause_reading()
            self._loop.call_soon(self._read)
        elif was_behind:
            self._resume()

    def hold_reading(self) -> None:
        """Pause reading from the server until :meth:`release_reading`.

        Call this when the receiver of the answers has no room.
        """
        if not self._is_held and hasattr(self, "_transport") and not self._transport.is_closing():
            self._is_held = True
            self._transport.pause_reading()

    def release_reading(self) -> None:
        """End the pause of :meth:`hold_reading`."""
        if self._is_held:
            self._is_held = False
            self._resume()

    def _resume(self) -> None:
        if not (self.is_behind or self._is_held or self._transport.is_closing()):
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all calls, because the TCP connection ended. asyncio calls this method."""
        self._take(self._engine.lost(str(exc) if exc is not None else "the connection is gone"))

    def _take(self, results: list[Any]) -> None:
        for each in results:
            if isinstance(each, Bound):
                if not self._bound.done():
                    self._bound.set_result(each)
            elif isinstance(each, Answered):
                self._done(each.call_id).set_result(each.stub)
            elif isinstance(each, Faulted):
                error = RefusedError(each.status, self._where, perhaps_done=not each.not_executed)
                self._done(each.call_id).set_exception(error)
            elif isinstance(each, Closed):
                self._why = each.reason
                for number in tuple(self._calls):
                    self._done(number).set_exception(LostError(f"{self._where}: {each.reason}"))
                if not self._bound.done():
                    self._bound.set_exception(LostError(f"{self._where}: {each.reason}"))
                if hasattr(self, "_transport"):
                    self._transport.close()
        self._flush()

    def _done(self, number: int) -> asyncio.Future[bytes]:
        future = self._calls.pop(number, None)
        return future if future is not None and not future.done() else self._loop.create_future()

    def _flush_soon(self) -> None:
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        data = self._engine.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)
        due = self._engine.timer()
        if due != self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = None if due is None else self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._timer_at = None
        self._take(self._engine.handle_timer(self._loop.time()))

    @property
    def calls_at_once(self) -> int:
        """Return the number of calls that the server accepts at the same time."""
        return self._engine.calls_at_once

    @property
    def address(self) -> tuple[str, int]:
        """Return the IP address and the port that the connection reached."""
        host, port = self._transport.get_extra_info("peername")[:2]
        return str(host), int(port)

    # --- calls ------------------------------------------------------------------------------------

    async def call(self, opnum: int, asked: Parameters, wait_s: float = 0.0) -> Any:  # noqa: ANN401
        """Make a call, wait for its answer, and return the decoded answer with any HRESULT.

        ``wait_s`` are the seconds that the server may wait itself. Raises :class:`RefusedError` for
        a fault. Raises :class:`LostError` if the connection ends, the answer takes ANSWER_SECONDS
        longer or cannot be read, and :class:`NotSentError` if the call was not sent.
        """
        name = METHODS[opnum].name
        syntax = self._bound.result().syntax
        stub = await self.raw(opnum, asked.encode(syntax), wait_s)
        try:
            return METHODS[opnum].decode_response(stub, syntax)
        except BadStubError as error:
            raise LostError(
                f"{self._where}: the answer to {name} cannot be read: {error}"
            ) from None

    async def raw(self, opnum: int, stub: bytes, wait_s: float = 0.0) -> bytes:
        """Make a call, wait for its answer, and return the stub of the answer as bytes.

        Raises :class:`RefusedError` for a fault, :class:`LostError` if the connection ends or the
        answer takes ``wait_s`` and ANSWER_SECONDS, and :class:`NotSentError` if the call was not
        sent.
        """
        if self._why:
            raise NotSentError(f"{self._where}: {self._why}")
        try:
            number = self._engine.call(
                opnum, stub, self._loop.time(), timeout_s=wait_s + ANSWER_SECONDS
            )
        except LocalProtocolError as error:
            # The numbers of calls on this connection are used up.
            raise NotSentError(f"{self._where}: {error}") from None
        future = self._calls[number] = self._loop.create_future()
        self._flush_soon()
        try:
            answer: bytes = await future
            return answer
        finally:
            self._calls.pop(number, None)

    @property
    def unfinished_bytes(self) -> int:
        """Return the number of bytes of answers whose last fragment has not been received."""
        return self._engine.unfinished_bytes

    def close(self, why: str = "closed") -> None:
        """End the connection at once, and fail its calls with :class:`LostError`.

        The server unlocks everything that the connection has locked. ``why`` is the reason in the
        errors.
        """
        if hasattr(self, "_transport"):
            self._take(self._engine.lost(why))
            self._transport.abort()
        with contextlib.suppress(BaseException):
            self._bound.exception()


async def find_port(host: str) -> int:
    """Ask the endpoint mapper of ``host`` for the port of remote read, and return the port.

    Raises :class:`RefusedError` if the mapper refuses the call, names no port, or sends an answer
    that cannot be read. Raises :class:`LostError` if the mapper is unreachable.
    """
    mapper = await RpcClient.connect(
        host, ENDPOINT_MAPPER_PORT, ClientSettings(interface=ENDPOINT_MAPPER, syntaxes=(NDR,))
    )
    try:
        answer = decode_map_response(await mapper.raw(EPT_MAP, encode_map_request(REMOTE_READ)))
    except RemoteProtocolError as error:
        raise RefusedError(
            Status.RPC_X_BAD_STUB_DATA, f"{host}, endpoint mapper: {error}"
        ) from None
    finally:
        mapper.close()
    port = answer.port(REMOTE_READ)
    if port is None:
        raise RefusedError(answer.status, f"{host}: {answer.explain()}")
    return port


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
