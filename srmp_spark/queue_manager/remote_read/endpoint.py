"""The RPC port (``--rpc``): connections of remote readers, and what each may cost the others.

**Theory of operation.** A connection counts before it has said anything: the port has room for
RPC_CONNECTIONS_MAX, one address for a part of them, and a full port closes the connection that has not
signed in, or else the one that has held nothing for longest. What a reader sends is worked on for
TURN_SECONDS of each turn of the loop, all readers together, in the order in which it came; the rest
waits, and its connection is not read. What a reader is answered counts until it has taken it: above
ANSWERS_OF_ONE_MAX no further message is read for it (:meth:`RpcConnection.has_room`), and a reader that takes
nothing for ANSWER_SECONDS is closed, which unlocks what it held.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections import deque
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
from srmp_spark.queue_manager.port_limits import RPC_CONNECTIONS_MAX, RPC_SHARE, ConnectionRoom
from srmp_spark.queue_manager.remote_read.service import Answers

TURN_SECONDS = 0.004
"""What all connections of a port together may take of a turn of the loop, which accepts messages too. The rest waits
for the next turn, and nothing more is read from their sockets until it is worked off."""
PDUS_AT_ONCE = 16
"""PDUs between two looks at the clock: 2 ms for requests of messages, 1 ms for sealed ones of 64 KB."""
ANSWERS_OF_ONE_MAX = 4 * 1_048_576
"""Bytes of answers that one connection has not taken: above it no message is read for it. One of 4 MiB fits always."""
ANSWERS_MAX = 256 * 1_048_576
"""The same for all connections of the port: above it none is read for anybody who has answers to take."""
ANSWER_SECONDS = 60.0
"""A reader that takes no byte of its answers for so long is closed, and what it had locked is there for others."""
SWEEP_SECONDS = 5.0
"""How often that is looked at."""
TELL_SECONDS = 10.0
"""How often the log tells that connections are turned away."""
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

    def has_room(self) -> None:
        """A reader has taken answers."""
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

    def __init__(self, service: Service, settings: ServerSettings, connections_max: int = RPC_CONNECTIONS_MAX) -> None:
        self.service = service
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        self.associations: Associations[OpenQueue] = Associations(
            new_id=lambda: secrets.randbits(32), new_uuid=lambda: secrets.token_bytes(16)
        )
        self.connections: dict[RpcConnection, None] = {}
        """In the order in which they came."""
        self.room = ConnectionRoom(connections_max, RPC_SHARE)
        self.answer_bytes = 0
        """Of answers that were given and not taken."""
        self._behind: deque[RpcConnection] = deque()
        """Whose PDUs wait for the next turn, in the order in which they came."""
        self._spent = 0.0
        """Of this turn."""
        self._turns = False
        """Whether the next turn is asked for."""
        self._tells_at = 0.0
        self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def connection(self) -> RpcConnection:
        """For ``create_server``."""
        return RpcConnection(self)

    def admits(self, host: str) -> bool:
        """Whether a connection of ``host`` finds room; in a full port another one makes way."""
        if not self.room.admits(host):
            self._tell_full(host, self.room.connections_max // RPC_SHARE)
            return False
        if not self.room.is_full:
            return True
        found = next((each for each in self.connections if not each.is_signed_in), None)
        found = found or next((each for each in self.connections if each.is_idle), None)
        if found is None:
            self._tell_full(host, self.room.connections_max)
            return False
        found.end("another connection needs its place")
        return True

    def _tell_full(self, host: str, limit: int) -> None:
        if self.loop.time() >= self._tells_at:
            self._tells_at = self.loop.time() + TELL_SECONDS
            log.warning("mqrr.too_many_connections peer=%s limit=%d", host, limit)

    def works(self, connection: RpcConnection) -> None:
        """Let ``connection`` work off what it has received: now, or when those before it have."""
        if self._behind or self._spent >= TURN_SECONDS:
            self._behind.append(connection)
        else:
            self._work(connection)
        if not self._turns:
            self._turns = True
            self.loop.call_soon(self._turn)

    def _work(self, connection: RpcConnection) -> None:
        began = time.perf_counter()
        is_behind = connection.work()
        self._spent += time.perf_counter() - began
        if is_behind:
            self._behind.append(connection)

    def _turn(self) -> None:
        self._spent = 0.0
        while self._behind and self._spent < TURN_SECONDS:
            self._work(self._behind.popleft())
        self._turns = bool(self._behind) or self._spent > 0
        if self._turns:
            self.loop.call_soon(self._turn)

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in tuple(self.connections):
            connection.sweep(now)
        self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def close(self) -> None:
        """End every connection: calls that wait get no answer, handles are run down."""
        self._sweeper.cancel()
        for connection in tuple(self.connections):
            connection.end("the queue manager stops")

    def __repr__(self) -> str:
        return f"<RpcEndpoint connections={len(self.connections)}>"


class RpcConnection(asyncio.Protocol):
    """One connection of a reader."""

    __slots__ = (
        "_answer_bytes", "_endpoint", "_engine", "_flushes", "_is_behind", "_peer_erred", "_taken_at", "_timer", "_timer_at",
        "_transport", "_unsent", "_write_paused", "peer",
    )  # fmt: skip

    def __init__(self, endpoint: RpcEndpoint) -> None:
        self._endpoint = endpoint
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._peer_erred = True
        """When it closes: not because it was time."""
        self._flushes = False
        """Soon: answers that are given together leave together."""
        self._is_behind = False
        """Its socket is not read until what came is worked off."""
        self._write_paused = False
        self._unsent = 0
        """Bytes of answers that the engine still has."""
        self._answer_bytes = 0
        """Bytes of answers that are counted for the port."""
        self._taken_at = endpoint.loop.time()
        """When it last took a byte of its answers, or had none to take."""
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A reader is there."""
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = str(address[0]) if address else ""
        endpoint = self._endpoint
        self._engine = ServerConnection(endpoint.settings, endpoint.associations, self.peer, endpoint.loop.time())
        if not endpoint.admits(self.peer):
            self._transport.abort()
            return
        _keep_alive(transport.get_extra_info("socket"))
        endpoint.connections[self] = None
        endpoint.room.enter(self, self.peer)
        endpoint.service.connected(self, self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """PDUs, in any pieces."""
        if self not in self._endpoint.connections:
            return
        self._engine.hold(data)
        if not self._is_behind:
            self._is_behind = True
            self._endpoint.works(self)

    def work(self) -> bool:
        """Work off some of what came; whether more waits. Nothing while the reader does not take its answers."""
        if self not in self._endpoint.connections or self._write_paused:
            self._is_behind = False
            return False
        self._handle(self._engine.receive(b"", self._endpoint.loop.time(), PDUS_AT_ONCE))
        self._is_behind = self._engine.is_behind and not self._write_paused
        self._read_or_pause()
        return self._is_behind

    def _read_or_pause(self) -> None:
        if self._transport.is_closing():
            return
        if self._is_behind or self._write_paused:
            if self._transport.is_reading():
                self._transport.pause_reading()
        elif not self._transport.is_reading():
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """A reader that says nothing more hears nothing more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        del exc
        self.end("the transport connection is gone")

    def pause_writing(self) -> None:
        """A reader that does not take its answers asks nothing more until it does."""
        self._write_paused = True
        self._read_or_pause()

    def resume_writing(self) -> None:
        """It takes them."""
        self._write_paused = False
        self._count_answers()
        self._endpoint.service.has_room()
        self._read_or_pause()
        if self._engine.is_behind and not self._is_behind:
            self._is_behind = True
            self._endpoint.works(self)

    def end(self, reason: str) -> None:
        """Nothing more is sent or received."""
        if self in self._endpoint.connections:
            self._flush()  # what was answered is not taken back
            self._peer_erred = False
            self._handle(self._engine.lost(reason))
            self._gone(())

    def sweep(self, now: float) -> None:
        """Close the connection if its reader takes no byte of its answers."""
        before = self._answer_bytes
        self._count_answers()
        if not self._write_paused or self._answer_bytes < before:
            self._taken_at = now
        elif now - self._taken_at > ANSWER_SECONDS:
            log.info('mqrr.closed peer=%s reason="it took no answer for %d s (ANSWER_SECONDS)"', self.peer, ANSWER_SECONDS)
            self.end("the reader takes no answers")
            self._transport.abort()

    @property
    def is_signed_in(self) -> bool:
        """Whether it has ended its negotiation well."""
        return self._engine.is_signed_in

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing open and waits for nothing."""
        return self._engine.is_idle

    # --- answers ------------------------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether another message may be read for this reader."""
        if self._write_paused or self._answer_bytes >= ANSWERS_OF_ONE_MAX:
            return False
        return not self._answer_bytes or self._endpoint.answer_bytes < ANSWERS_MAX

    def respond(self, call_id: int, stub: bytes) -> None:
        """The answer of a call."""
        self._engine.respond(call_id, stub)
        self._unsent += len(stub)
        self._count_answers()
        self._flush_soon()

    def fail(self, call_id: int, status: int) -> None:
        """The fault of a call."""
        self._engine.fail(call_id, status)
        self._flush_soon()

    def _count_answers(self) -> None:
        """Count for the port what this reader has not taken."""
        held = self._unsent + (0 if self._transport.is_closing() else self._transport.get_write_buffer_size())
        self._endpoint.answer_bytes += held - self._answer_bytes
        self._answer_bytes = held

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
        endpoint = self._endpoint
        if self in endpoint.connections:
            del endpoint.connections[self]
            endpoint.room.leave(self)
            endpoint.answer_bytes -= self._answer_bytes
            self._answer_bytes = self._unsent = 0
            endpoint.service.disconnected(self, calls)
            endpoint.service.has_room()
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
        if self._unsent and self in self._endpoint.connections:
            self._unsent = 0
            self._count_answers()
            if not self._write_paused:
                self._endpoint.service.has_room()
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
