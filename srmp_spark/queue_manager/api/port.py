"""The API port: who may connect, for how long a caller may be silent, and uvicorn's protocol for the
rest.

Connections are accepted here and not by uvicorn, for the reasons of
:mod:`srmp_spark.queue_manager.srmp_tls`: a connection counts before its handshake, each handshake
takes the certificate of that moment, and a system without descriptors is no busy loop.

**Deadlines.** One sweep a second looks at all connections. A head must be whole HEAD_SECONDS after
its connection or its first byte, a body must keep a minimum rate, and an answer that the caller
does not read ends its connection after ANSWER_SECONDS. A long poll waits as long as the handler
says: while a handler works the caller owes nothing.

**Turns.** The port begins STARTS_AT_ONCE calls in one turn of the loop, in the order in which they came, so that
callers of the API delay no sender of SRMP. A connection has at most PIPELINED_MAX requests that wait for the answers
before them.
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

from srmp_spark.queue_manager.api.connection import OWNER, LendingProtocol
from srmp_spark.queue_manager.api.places import ORDER_SECONDS, Places, Standing
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.handshake_turns import HandshakeTurns
from srmp_spark.queue_manager.http_limits import (
    BODY_RATE_MIN,
    BODY_SECONDS,
    HEAD_SECONDS,
    SWEEP_SECONDS,
)
from srmp_spark.queue_manager.peer_process import owner_of_peer
from srmp_spark.queue_manager.port_limits import API_CONNECTIONS_MAX, API_SHARE, ConnectionRoom

if TYPE_CHECKING:
    import uvicorn

    from srmp_spark.queue_manager.tls import ServerTls

ANSWER_SECONDS = 120.0
"""A caller that takes no byte of its answer for that long is given up, as the reader process gives it up."""
PIPELINED_MAX = 16
"""Requests of one connection that wait for the answers before them. Hardly a client sends a request before it has its answer;
each one that waits costs some 4 KB, and one read brings thousands of them."""
AT_THE_DOOR_MAX = 16
"""Newcomers for whom a full port looks again. One more takes the turn of the one that has waited longest, which is refused:
a caller behind a flood that is over is looked for, and none waits for those before it."""
AT_THE_DOOR_SECONDS = 0.2
"""How long it does so, every ORDER_SECONDS: less than a caller waits for an answer, more than most calls take."""
STARTS_AT_ONCE = 8
"""Calls that begin in one turn of the loop: 2 ms for those that are refused."""
ACCEPTS_AT_ONCE = 64
"""Connections taken in one turn of the loop: others must have theirs."""
NO_DESCRIPTOR_SECONDS = 1.0
"""Pause when the system has no descriptor or memory for another connection; who waits is not refused."""
_OUT_OF_THEM = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

log = logging.getLogger(__name__)


class ApiProtocol(LendingProtocol):
    """One connection of a caller, with its deadlines."""

    def __init__(self, port: ApiPort, host: str, owner: int | None, **settings: Any) -> None:  # noqa: ANN401  # uvicorn's
        super().__init__(**settings)
        self._port = port
        self.host = host
        self.owner = owner
        self._since = port.now
        self._head_begun = True
        """A head is due: since the connection began, or since its first byte."""
        self._body_bytes = 0
        self._in_body = False
        self._unread = 0
        self._unread_since = port.now
        self._has_called = False
        """A whole head came."""
        self._waiting = 0
        """Calls that have not begun."""
        self._is_over = False
        """It had too many requests at once: nothing more is read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it."""
        self._port.connections.add(self)
        super().connection_made(transport)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no longer."""
        self._port.left(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read requests, unless there were too many at once."""
        if not self._is_over:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request; end a connection with too many of them, whose answers are owed in their order."""
        if self._is_over:
            self.transport.abort()
        else:
            super().send_400_response(msg)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:  # noqa: ANN401  # uvicorn's
        self._waiting += 1
        self._port.begins(partial(self._start, partial(super()._start_asgi_task, cycle, app)))

    def _start(self, start: Callable[[], object]) -> None:
        self._waiting -= 1
        if not self.transport.is_closing():
            start()

    def on_message_begin(self) -> None:
        """Begin a request. Raises :class:`OverflowError`, which ends the connection, beyond PIPELINED_MAX."""
        if len(self.pipeline) >= PIPELINED_MAX:
            self._is_over = True
            raise OverflowError(f"PIPELINED_MAX is {PIPELINED_MAX}")
        super().on_message_begin()
        self._head_begun, self._since = True, self._port.now
        extensions: dict[str, Any] = dict(self.scope.get("extensions") or {})
        extensions[OWNER] = self.owner
        self.scope["extensions"] = extensions

    def on_headers_complete(self) -> None:
        """Begin a body."""
        self._has_called = True
        self._head_begun, self._in_body = False, True
        self._since, self._body_bytes = self._port.now, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count the bytes of a body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._in_body = False
        super().on_message_complete()

    def sweep(self, now: float) -> None:
        """Close the connection if a deadline has passed."""
        transport = self.transport
        spent = now - self._since
        if self._head_begun:
            if spent > HEAD_SECONDS:
                transport.close()
        elif self._in_body:
            if self.flow.read_paused:
                self._since, self._body_bytes = (
                    now,
                    0,
                )  # our own back-pressure is no fault of the caller
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
        """When its last request began, or the connection, on the loop's clock."""
        return self._since

    @property
    def standing(self) -> Standing:
        """Return what the connection does, which says whether it makes way in a full port."""
        if not self._has_called:
            return Standing.SILENT
        if self._waiting:
            return Standing.WAITING
        return (
            Standing.IDLE if self.cycle is None or self.cycle.response_complete else Standing.BUSY
        )

    def cut(self) -> None:
        """End it at once: another connection needs its place."""
        self.transport.abort()


class _Newcomer(NamedTuple):
    """A connection that has no place yet."""

    accepted: socket.socket
    host: str
    until: float
    """When it is refused, on the loop's clock."""


class ApiPort:
    """Accepts from one listening socket, within the limits of the port."""

    def __init__(
        self,
        listening: socket.socket,
        server: uvicorn.Server,
        tls: ServerTls | None,
        *,
        asks_for_owner: bool,
        connections_max: int = API_CONNECTIONS_MAX,
    ) -> None:
        """``asks_for_owner``: only processes of our own user may call, so the kernel is asked whose a connection is."""
        self._socket = listening
        self._server = server
        self._tls = tls
        self._asks_for_owner = asks_for_owner
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time()
        self.room = ConnectionRoom(connections_max, API_SHARE)
        self.connections: set[ApiProtocol] = set()
        self._places: Places[ApiProtocol] = Places()
        self._entries: dict[ApiProtocol, object] = {}
        self._accepting: dict[object, asyncio.Task[None]] = {}
        self._turns = HandshakeTurns()
        self._again: asyncio.TimerHandle | None = None
        self._at_the_door: deque[_Newcomer] = deque()
        """Connections that wait for a place, the oldest first."""
        self._next_look: asyncio.TimerHandle | None = None
        self._starts: deque[Callable[[], object]] = deque()
        """Calls that wait for a turn of the loop."""
        self._started = 0
        """Calls that began in this turn."""
        self._turn: asyncio.Handle | None = None
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def __repr__(self) -> str:
        return f"<ApiPort connections={len(self.room)}>"

    def start(self) -> None:
        """Accept from the socket, which listens already."""
        self._loop.add_reader(self._socket, self._accept)

    async def close(self) -> None:
        """Take no more connections. Those that are open are uvicorn's to end."""
        self._sweeper.cancel()
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._socket)
        if self._next_look is not None:
            self._next_look.cancel()
        for newcomer in self._at_the_door:
            newcomer.accepted.close()
        await end(tuple(self._accepting.values()))

    def begins(self, start: Callable[[], object]) -> None:
        """Begin a call, now or in a later turn of the loop."""
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
        """Give the place of a connection to others."""
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
                continue  # the one that came is gone again
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
        """Keep a newcomer at the door of a full port: most calls are short."""
        if len(self._at_the_door) >= AT_THE_DOOR_MAX:
            self._at_the_door.popleft().accepted.close()
        self._at_the_door.append(_Newcomer(accepted, host, self._loop.time() + AT_THE_DOOR_SECONDS))
        if self._next_look is None:
            self._next_look = self._loop.call_later(ORDER_SECONDS, self._look_again)

    def _look_again(self) -> None:
        """Admit those at the door for whom there is a place by now, and refuse those who have waited long enough."""
        now, left = self._loop.time(), deque[_Newcomer]()
        for newcomer in self._at_the_door:
            if not self.room.admits(newcomer.host) or now >= newcomer.until:
                newcomer.accepted.close()
            elif not self.room.is_full or self._makes_way(newcomer.host):
                self._admit(newcomer.accepted, newcomer.host)
            else:
                left.append(newcomer)
        self._at_the_door = left
        self._next_look = self._loop.call_later(ORDER_SECONDS, self._look_again) if left else None

    def _makes_way(self, host: str) -> bool:
        """Close the connection whose place one of ``host`` gets, if there is one."""
        found = self._places.makes_way(self.connections, host, self._loop.time())
        if found is None:
            return False
        self.left(
            found
        )  # now and not with its last event: the next one to be accepted in this turn needs another's place
        found.cut()
        return True

    def _pause(self) -> None:
        """Wait: a reader that is always ready would keep the loop busy."""
        self._loop.remove_reader(self._socket)
        self._again = self._loop.call_later(NO_DESCRIPTOR_SECONDS, self._resume)

    def _resume(self) -> None:
        self._again = None
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
        ) as error:  # a handshake that failed, or a caller that is gone
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
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
