"""The RPC port (``--rpc``): connections of remote readers."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Hashable, Iterable
from typing import Any, Protocol, cast

from srmp_spark.mqrr.rpc.associations import Associations
from srmp_spark.mqrr.rpc.server_connection import ServerConnection, ServerSettings
from srmp_spark.mqrr.rpc.server_events import (
    CallCancelled,
    CallOrphaned,
    CallReceived,
    ConnectionClosed,
    ConnectionEvent,
    Rundown,
)
from srmp_spark.mqrr.server.shared_queue import OpenQueue
from srmp_spark.queue_manager.remote_read.service import Answers

CONNECTIONS_MAX = 2_000
"""Connections at once; a reader has one, and a second one while it cancels. Further ones are closed as they come."""
KEEPALIVE_IDLE_SECONDS = 60
"""A reader whose machine is gone holds its messages until the transport notices: after so long without a word it is asked,"""
KEEPALIVE_INTERVAL_SECONDS = 15
"""and again every so often,"""
KEEPALIVE_PROBES = 4
"""and so many times: two minutes in all, less than the five of the cleanup timer."""

log = logging.getLogger(__name__)


class Service(Protocol):
    """What is called: :class:`.service.RemoteReadService`, or the endpoint mapper."""

    def connected(self, key: Hashable, answers: Answers) -> None:
        """A connection whose calls will be named by ``key``."""
        ...

    def disconnected(self, key: Hashable, calls: Iterable[int]) -> None:
        """It is gone, and nobody waits for the answers of these calls."""
        ...

    def call(self, key: Hashable, received: CallReceived) -> None:
        """A call came."""
        ...

    def cancelled(self, key: Hashable, call_id: int) -> None:
        """Its caller does not want to wait."""
        ...

    def orphaned(self, key: Hashable, call_id: int) -> None:
        """Its caller does not wait."""
        ...

    def run_down(self, descriptors: Iterable[OpenQueue]) -> None:
        """Their client is gone."""
        ...


class RpcEndpoint:
    """All connections of one port."""

    def __init__(self, service: Service, settings: ServerSettings) -> None:
        self.service = service
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        self.associations: Associations[OpenQueue] = Associations(
            new_id=lambda: secrets.randbits(32), new_uuid=lambda: secrets.token_bytes(16)
        )
        self.connections: set[RpcConnection] = set()

    def connection(self) -> RpcConnection:
        """For ``create_server``."""
        return RpcConnection(self)

    def close(self) -> None:
        """End every connection: calls that wait get no answer, handles are run down."""
        for connection in tuple(self.connections):
            connection.end("the queue manager stops")

    def __repr__(self) -> str:
        return f"<RpcEndpoint connections={len(self.connections)}>"


class RpcConnection(asyncio.Protocol):
    """One connection of a reader."""

    __slots__ = ("_endpoint", "_engine", "_flushes", "_peer_erred", "_timer", "_timer_at", "_transport", "peer")

    def __init__(self, endpoint: RpcEndpoint) -> None:
        self._endpoint = endpoint
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._peer_erred = True
        """When it closes: not because it was time."""
        self._flushes = False
        """Soon: answers that are given together leave together."""
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A reader is there."""
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = str(address[0]) if address else ""
        endpoint = self._endpoint
        self._engine = ServerConnection(endpoint.settings, endpoint.associations, self.peer, endpoint.loop.time())
        if len(endpoint.connections) >= CONNECTIONS_MAX:
            log.warning("mqrr.too_many_connections peer=%s CONNECTIONS_MAX=%d", self.peer, CONNECTIONS_MAX)
            self._transport.abort()
            return
        _keep_alive(transport.get_extra_info("socket"))
        endpoint.connections.add(self)
        endpoint.service.connected(self, self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """PDUs, in any pieces."""
        self._handle(self._engine.receive(data, self._endpoint.loop.time()))

    def eof_received(self) -> bool:
        """A reader that says nothing more hears nothing more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        del exc
        self.end("the transport connection is gone")

    def pause_writing(self) -> None:
        """A reader that does not take its answers asks nothing more until it does."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It takes them."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def end(self, reason: str) -> None:
        """Nothing more is sent or received."""
        if self in self._endpoint.connections:
            self._flush()  # what was answered is not taken back
            self._peer_erred = False
            self._handle(self._engine.lost(reason))
            self._gone(())

    # --- answers ------------------------------------------------------------------------------------------------------------

    def respond(self, call_id: int, stub: bytes) -> None:
        """The answer of a call."""
        self._engine.respond(call_id, stub)
        self._flush_soon()

    def fail(self, call_id: int, status: int) -> None:
        """The fault of a call."""
        self._engine.fail(call_id, status)
        self._flush_soon()

    # --- events -------------------------------------------------------------------------------------------------------------

    def _handle(self, events: list[ConnectionEvent]) -> None:
        service = self._endpoint.service
        for event in events:
            if isinstance(event, CallReceived):
                service.call(self, event)
            elif isinstance(event, CallCancelled):
                service.cancelled(self, event.call_id)
            elif isinstance(event, CallOrphaned):
                service.orphaned(self, event.call_id)
            elif isinstance(event, Rundown):
                service.run_down(event.values)
            else:
                assert isinstance(event, ConnectionClosed)
                if self._peer_erred:
                    log.info('mqrr.closed peer=%s reason="%s"', self.peer, ascii(event.reason)[1:-1])
                self._flush()
                self._gone(event.calls)
        self._flush()

    def _gone(self, calls: tuple[int, ...]) -> None:
        if self in self._endpoint.connections:
            self._endpoint.connections.discard(self)
            self._endpoint.service.disconnected(self, calls)
        self._transport.close()

    def _flush_soon(self) -> None:
        if not self._flushes:
            self._flushes = True
            self._endpoint.loop.call_soon(self._flush)

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
            self._timer = None if due is None else self._endpoint.loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._timer_at = None
        self._handle(self._engine.handle_timer(self._endpoint.loop.time()))

    def __repr__(self) -> str:
        return f"<RpcConnection {self._engine!r}>"


def _keep_alive(connected: Any) -> None:  # noqa: ANN401  # asyncio's TransportSocket
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
