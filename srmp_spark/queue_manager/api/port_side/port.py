"""The API port: who may connect, how long a caller may be silent, and uvicorn's protocol.

Connections are accepted by this module and not by uvicorn, for the reasons of
:mod:`srmp_spark.queue_manager.srmp_port.srmp_tls`. A connection counts before its handshake, each
handshake uses the certificate of that moment, and a system without descriptors causes no busy loop.

**Deadlines.** One check a second (a *sweep*) examines all connections. A head must be complete
HEAD_SECONDS after its connection or its first byte, and a body must keep a minimum rate. A caller
that does not read its answer is disconnected after ANSWER_SECONDS. A long poll waits as long as its
handler allows: while a handler works, no deadline applies to the caller.

**Turns.** The port begins STARTS_AT_ONCE calls in one turn of the loop, in the order of arrival. So
callers of the API delay no sender of SRMP. A connection has at most PIPELINED_MAX requests that
wait for the answers to earlier ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.api.port_side.connection import OWNER, LendingProtocol
from srmp_spark.queue_manager.api.port_side.places import ORDER_SECONDS, ApiPlaces, ApiStanding
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.srmp_port.handshake_turns import HandshakeTurns
from srmp_spark.queue_manager.srmp_port.http_limits import (
    BODY_RATE_MIN,
    BODY_SECONDS,
    HEAD_SECONDS,
    SWEEP_SECONDS,
)
from srmp_spark.queue_manager.srmp_port.port_limits import (
    API_CONNECTIONS_MAX,
    API_SHARE,
    ConnectionRoom,
)
from srmp_spark.queue_manager.trust.peer_process import owner_of_peer

if TYPE_CHECKING:
    import uvicorn

    from srmp_spark.queue_manager.trust.tls import ServerTls

ANSWER_SECONDS = 120.0
"""Longest time without progress of an answer, in seconds.

A caller that accepts no byte for this long is disconnected, as in the reader process.
"""
PIPELINED_MAX = 16
"""Most requests of one connection that wait for the answers to earlier ones.

One more ends the connection. Hardly any client sends a request before it has its answer. Each
request that waits costs some 4 KB, and one read can bring thousands of requests.
"""
AT_THE_DOOR_MAX = 16
"""Most new connections that wait for a place in a full port.

One more evicts the one that has waited longest, which is closed. So a caller that arrives after a
flood finds a place, and does not wait for the connections of the flood.
"""
AT_THE_DOOR_SECONDS = 0.2
"""Longest wait of a new connection for a place, in seconds; then it is refused.

A place is searched for every ORDER_SECONDS. The wait is shorter than a caller waits for an answer,
and longer than most calls take.
"""
STARTS_AT_ONCE = 8
"""Most calls that begin in one turn of the loop; further calls wait.

They take 2 ms if all are refused.
"""
ACCEPTS_AT_ONCE = 64
"""Connections that are accepted in one turn of the loop; further ones wait.

Other tasks need the loop too.
"""
NO_DESCRIPTOR_SECONDS = 1.0
"""Pause when the system has no descriptor or memory for another connection, in seconds.

Connections that wait meanwhile are not refused.
"""
_OUT_OF_THEM = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

log = logging.getLogger(__name__)


class ApiProtocol(LendingProtocol):
    """One connection of a caller, with its deadlines. Its methods are called by uvicorn's parts."""

    def __init__(self, port: ApiPort, host: str, owner: int | None, **settings: Any) -> None:  # noqa: ANN401  # uvicorn passes them
        super().__init__(**settings)
        self._port = port
        self.host = host
        self.owner = owner
        self._since = port.now
        self._head_begun = True
        """Whether a request head is awaited, so that HEAD_SECONDS apply.

        That is so from the start of the connection, or from the first byte of a request, until the
        head is complete.
        """
        self._body_bytes = 0
        self._in_body = False
        self._unread = 0
        self._unread_since = port.now
        self._has_called = False
        """Whether a complete request head was ever received."""
        self._waiting = 0
        """Number of calls of this connection that wait for their turn to begin."""
        self._is_over = False
        """Whether there were more than PIPELINED_MAX requests at once.

        Then nothing more is read.
        """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the connection, and add it to the connections of the port."""
        self._port.connections.add(self)
        super().connection_made(transport)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection, and give its place back to the port."""
        self._port.left(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read requests from ``data``, unless there were too many at once before."""
        if not self._is_over:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no request, with a 400.

        A connection with too many requests is aborted instead, because their answers must be sent
        in order.
        """
        if self._is_over:
            self.transport.abort()
        else:
            super().send_400_response(msg)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:  # noqa: ANN401  # types of uvicorn
        self._waiting += 1
        self._port.begins(partial(self._start, partial(super()._start_asgi_task, cycle, app)))

    def _start(self, start: Callable[[], object]) -> None:
        self._waiting -= 1
        if not self.transport.is_closing():
            start()

    def on_message_begin(self) -> None:
        """Begin a request, and start the deadline of its head.

        The caller's user id is put into the scope of the request (:data:`.connection.OWNER`).
        Raises :class:`OverflowError` beyond PIPELINED_MAX, which ends the connection.
        """
        if len(self.pipeline) >= PIPELINED_MAX:
            self._is_over = True
            raise OverflowError(f"PIPELINED_MAX is {PIPELINED_MAX}")
        super().on_message_begin()
        self._head_begun, self._since = True, self._port.now
        extensions: dict[str, Any] = dict(self.scope.get("extensions") or {})
        extensions[OWNER] = self.owner
        self.scope["extensions"] = extensions

    def on_headers_complete(self) -> None:
        """Let the call begin in its turn, and start the deadline of its body."""
        self._has_called = True
        self._head_begun, self._in_body = False, True
        self._since, self._body_bytes = self._port.now, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count the bytes of a piece of the body, for the minimum rate."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that a request was received completely, which ends the deadline of its body."""
        self._in_body = False
        super().on_message_complete()

    def sweep(self, now: float) -> None:
        """Close the connection if a deadline has passed; ``now`` is in seconds of the loop's clock.

        Called about once a second.
        """
        transport = self.transport
        spent = now - self._since
        if self._head_begun:
            if spent > HEAD_SECONDS:
                transport.close()
        elif self._in_body:
            if self.flow.read_paused:
                # The back-pressure of this process is not the caller's fault.
                self._since, self._body_bytes = now, 0
            elif spent > BODY_SECONDS and self._body_bytes < spent * BODY_RATE_MIN:
                transport.close()
        unread = transport.get_write_buffer_size()
        if not unread or unread < self._unread:
            self._unread_since = now
        elif now - self._unread_since > ANSWER_SECONDS:
            transport.abort()
        self._unread = unread

    @property
    def silent_since(self) -> float:
        """Return the time at which the last request began, in seconds of the loop's clock.

        Before the first request this is the time when the connection began.
        """
        return self._since

    @property
    def standing(self) -> ApiStanding:
        """Return the state of the connection, which decides whether a full port may close it."""
        if not self._has_called:
            return ApiStanding.SILENT
        if self._waiting:
            return ApiStanding.WAITING
        return (
            ApiStanding.IDLE
            if self.cycle is None or self.cycle.response_complete
            else ApiStanding.BUSY
        )

    def cut(self) -> None:
        """Abort the connection, because another connection needs its place."""
        self.transport.abort()


class _Newcomer(NamedTuple):
    """A new connection that has no place yet."""

    accepted: socket.socket
    host: str
    until: float
    """Time when the connection is refused, in seconds of the loop's clock."""


class ApiPort:
    """Accepts connections from one listening socket, within the limits of the port."""

    def __init__(
        self,
        listening: socket.socket,
        server: uvicorn.Server,
        tls: ServerTls | None,
        *,
        asks_for_owner: bool,
        connections_max: int = API_CONNECTIONS_MAX,
    ) -> None:
        """Prepare to accept from ``listening``; :meth:`start` begins.

        ``tls`` is ``None`` for a port without TLS. ``asks_for_owner`` states that only processes of
        this process's user and of root may call. Then the kernel is asked for the user of each
        connection.
        """
        self._socket = listening
        self._server = server
        self._tls = tls
        self._asks_for_owner = asks_for_owner
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time()
        self.room = ConnectionRoom(connections_max, API_SHARE)
        self.connections: set[ApiProtocol] = set()
        self._places: ApiPlaces[ApiProtocol] = ApiPlaces()
        self._entries: dict[ApiProtocol, object] = {}
        self._accepting: dict[object, asyncio.Task[None]] = {}
        self._turns = HandshakeTurns()
        self._again = Alarm(self._loop, self._resume)
        self._at_the_door: deque[_Newcomer] = deque()
        """Connections that wait for a place, the oldest first."""
        self._next_look = Alarm(self._loop, self._look_again)
        self._starts: deque[Callable[[], object]] = deque()
        """Calls that wait for a later turn of the loop, in the order of arrival."""
        self._started = 0
        """Number of calls that began in this turn of the loop."""
        self._turn: asyncio.Handle | None = None
        self._sweeper = Alarm(self._loop, self._sweep)
        self._sweeper.within(SWEEP_SECONDS)

    def __repr__(self) -> str:
        return f"<ApiPort connections={len(self.room)}>"

    def start(self) -> None:
        """Accept connections from the socket, which already listens."""
        self._loop.add_reader(self._socket, self._accept)

    async def close(self) -> None:
        """Accept no more connections, and close those that wait for a place or a handshake.

        Other open connections are ended by uvicorn.
        """
        self._sweeper.stop()
        self._again.stop()
        self._loop.remove_reader(self._socket)
        self._next_look.stop()
        for newcomer in self._at_the_door:
            newcomer.accepted.close()
        await end(tuple(self._accepting.values()))

    def begins(self, start: Callable[[], object]) -> None:
        """Call ``start`` now, or in a later turn of the loop.

        At most STARTS_AT_ONCE calls begin in one turn, in the order of arrival.
        """
        if self._started < STARTS_AT_ONCE and not self._starts:
            self._started += 1
            start()
        else:
            self._starts.append(start)
        if self._turn is None:
            self._turn = self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._started = min(len(self._starts), STARTS_AT_ONCE)
        for _ in range(self._started):
            self._starts.popleft()()
        self._turn = self._loop.call_soon(self._next_turn) if self._started else None

    def left(self, protocol: ApiProtocol) -> None:
        """Free the place of a connection that has ended."""
        self.connections.discard(protocol)
        entry = self._entries.pop(protocol, None)
        if entry is not None:
            self._leave(entry, protocol.host)

    def _leave(self, entry: object, host: str) -> None:
        self.room.leave(entry)
        self._places.leave(host)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_THEM:
                    self._pause()
                    return
                # The connection was closed before it could be accepted.
                continue
            host = str(address[0])
            if not self.room.admits(host):
                accepted.close()
            elif not self.room.is_full or self._makes_way(host):
                self._admit(accepted, host)
            else:
                self._hold(accepted, host)

    def _admit(self, accepted: socket.socket, host: str) -> None:
        accepted.setblocking(False)
        entry = object()
        self.room.enter(entry, host)
        self._places.enter(host)
        self._accepting[entry] = self._loop.create_task(self._begin(accepted, entry, host))

    def _hold(self, accepted: socket.socket, host: str) -> None:
        """Let a new connection wait for a place in the full port, because most calls are short.

        If AT_THE_DOOR_MAX connections wait already, the one that has waited longest is closed.
        """
        if len(self._at_the_door) >= AT_THE_DOOR_MAX:
            self._at_the_door.popleft().accepted.close()
        self._at_the_door.append(_Newcomer(accepted, host, self._loop.time() + AT_THE_DOOR_SECONDS))
        self._next_look.within(ORDER_SECONDS)

    def _look_again(self) -> None:
        """Admit the waiting connections for which there is a place now.

        Connections that have waited AT_THE_DOOR_SECONDS, or whose address has no room, are closed.
        """
        now, left = self._loop.time(), deque[_Newcomer]()
        for newcomer in self._at_the_door:
            if not self.room.admits(newcomer.host) or now >= newcomer.until:
                newcomer.accepted.close()
            elif not self.room.is_full or self._makes_way(newcomer.host):
                self._admit(newcomer.accepted, newcomer.host)
            else:
                left.append(newcomer)
        self._at_the_door = left
        if left:
            self._next_look.within(ORDER_SECONDS)

    def _makes_way(self, host: str) -> bool:
        """Close one connection so that a new connection of ``host`` gets its place.

        Return ``False`` if no connection may be closed for ``host``.
        """
        found = self._places.makes_way(self.connections, host, self._loop.time())
        if found is None:
            return False
        # Free the place now, not at the connection's last event: the next connection that is
        # accepted in this turn needs another place.
        self.left(found)
        found.cut()
        return True

    def _pause(self) -> None:
        """Stop accepting for NO_DESCRIPTOR_SECONDS.

        A socket that is always ready, but cannot be accepted from, would keep the loop busy.
        """
        self._loop.remove_reader(self._socket)
        self._again.within(NO_DESCRIPTOR_SECONDS)

    def _resume(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    async def _begin(self, accepted: socket.socket, entry: object, host: str) -> None:
        protocol: ApiProtocol | None = None
        try:
            owner = owner_of_peer(accepted) if self._asks_for_owner else None
            protocol = ApiProtocol(
                self,
                host,
                owner,
                config=self._server.config,
                server_state=self._server.server_state,
                app_state={},
            )
            self._entries[protocol] = entry
            made = cast("asyncio.Protocol", protocol)
            if self._tls is None:
                await self._loop.connect_accepted_socket(lambda: made, accepted)
            else:
                async with self._turns.turn(accepted, host) as seconds:
                    await self._loop.connect_accepted_socket(
                        lambda: made,
                        accepted,
                        ssl=self._tls.context(),
                        ssl_handshake_timeout=seconds,
                    )
        except (
            OSError,
            ssl.SSLError,
            asyncio.TimeoutError,
        ) as error:
            # A handshake failed, or the caller has disconnected.
            log.debug("api.not_connected reason=%s", error)
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise
        finally:
            self._accepting.pop(entry, None)
            if protocol is None or protocol not in self.connections:
                if protocol is None:
                    self._leave(entry, host)
                else:
                    self.left(protocol)

    def _sweep(self) -> None:
        self.now = self._loop.time()
        for connection in tuple(self.connections):
            with contextlib.suppress(OSError):
                connection.sweep(self.now)
        self._sweeper.within(SWEEP_SECONDS)
