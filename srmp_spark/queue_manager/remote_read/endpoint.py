"""Serve the RPC port (``--rpc``): the connections of remote readers, with limits for each.

**Theory of operation.** All of this runs in a gateway process (:mod:`.gateway`). A connection
counts before it has sent anything. The port has room for RPC_CONNECTIONS_MAX connections, and one
address for a part of them. A full port closes the oldest connection that has not signed in, or else
the oldest one that is idle. Received bytes are processed for TURN_SECONDS of each turn of the event
loop, for all readers together, in the order of their arrival. The rest waits, and its connection is
not read. Nothing is processed while the receiver of the calls has no room for them.

An answer counts until its reader has taken it, which means: its bytes have left this process
(:meth:`RpcConnection.bytes_taken`). The main process reads no further message for a reader that
does not take its answers (:mod:`.readers`). A reader that takes nothing for ANSWER_SECONDS is
closed, which unlocks its messages. All readers together may leave HELD_MAX bytes untaken.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Protocol, cast

from srmp_spark.mqrr.rpc.associations import Association, Associations
from srmp_spark.mqrr.rpc.server_connection import ServerConnection, ServerSettings
from srmp_spark.mqrr.rpc.server_events import (
    CallCancelled,
    CallOrphaned,
    CallReceived,
    ConnectionClosed,
    ConnectionEvent,
    Rundown,
)
from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.srmp_port.port_limits import (
    RPC_CONNECTIONS_MAX,
    RPC_SHARE,
    ConnectionRoom,
)

TURN_SECONDS = 0.004
"""Longest time that all connections of a port together may use in one turn of the event loop, in
seconds, because the loop accepts connections too. The rest waits for the next turn, and its
sockets are not read until it is processed.
"""
PDUS_AT_ONCE = 16
"""PDUs that are processed between two checks of the time: 2 ms for requests of messages, 1 ms for
sealed ones of 64 KB.
"""
TELL_BYTES = 32 * 1_024
"""Bytes of taken answers after which the service is notified.

A report for each small answer would cost more than the answer. Fewer bytes are reported with the
next call, or by the next sweep.
"""
HELD_MAX = 384 * 1_048_576
"""Most bytes of answers that all connections of a port have not taken.

If there are more, the reader that has taken nothing for longest is closed. The limit is one and a
half times that of the main process for readers that have answers to take, because one message is
read for each reader that has none. Together with the unfinished requests it is less than the memory
limit of this process.
"""
ANSWER_SECONDS = 60.0
"""Longest time in which a reader may take no byte of its answers, in seconds.

After that the reader is closed, and its locked messages are available to others.
"""
SWEEP_SECONDS = 5.0
"""Seconds between two checks of all connections (sweeps).

A sweep closes readers that take no answers, and reports taken answers.
"""
CLOSE_SECONDS = 1.0
"""Longest time for readers to take their last answers when the port closes, in seconds.

A queue manager that stops must not wait longer.
"""
CLOSE_LOOK_SECONDS = 0.01
"""Seconds between two checks, while the port closes, whether all answers are taken."""
TELL_SECONDS = 10.0
"""Shortest time between two log lines about refused connections, in seconds."""
KEEPALIVE_IDLE_SECONDS = 60
"""Seconds of silence after which TCP probes a connection.

A reader whose machine is gone holds its messages until TCP notices it. With the two other values
that takes two minutes, less than the five of the cleanup timer.
"""
KEEPALIVE_INTERVAL_SECONDS = 15
"""Seconds between two TCP probes."""
KEEPALIVE_PROBES = 4
"""Unanswered TCP probes after which the connection is lost."""

log = logging.getLogger(__name__)


class CallReplies(Protocol):
    """Sends the answers of one connection's calls to its client. ``call_id`` names a call."""

    def respond(self, call_id: int, stub: bytes) -> None:
        """Send ``stub`` as the answer of the call ``call_id``."""
        ...

    def fail(self, call_id: int, status: int) -> None:
        """Send the fault ``status`` as the answer of the call ``call_id``."""
        ...

    def bytes_taken(self) -> int:
        """Return the number of bytes of all stubs so far that the reader has taken.

        These bytes count as reported.
        """
        ...


class Service(Protocol):
    """Handles the calls of a port: :class:`.gateway.RpcFront`, or the endpoint mapper.

    ``key`` names a connection.
    """

    def connected(self, key: Hashable, replies: CallReplies) -> None:
        """Record a new connection. ``replies`` sends the answers of its calls."""
        ...

    def disconnected(self, key: Hashable) -> None:
        """Forget a connection, because it has ended. Its calls need no answers."""
        ...

    def answers_taken(self, key: Hashable) -> None:
        """Notify the service that a reader has taken answers (:meth:`CallReplies.bytes_taken`)."""
        ...

    def call(self, key: Hashable, received: CallReceived) -> None:
        """Begin to handle the call ``received`` of a connection. Its answer may follow later."""
        ...

    def cancelled(self, key: Hashable, call_id: int) -> None:
        """Answer a call soon, because its caller does not want to wait longer."""
        ...

    def orphaned(self, key: Hashable, call_id: int) -> None:
        """Forget a call, because its caller no longer waits. No answer may be sent."""
        ...

    def run_down(self, association: Association[Any]) -> None:
        """Close the handles of an association, because its last connection is gone."""
        ...


class RpcEndpoint:
    """Serves all connections of one port. Times are in seconds of the event loop's clock."""

    def __init__(
        self,
        service: Service,
        settings: ServerSettings,
        connections_max: int = RPC_CONNECTIONS_MAX,
        is_held: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin without connections.

        ``is_held`` returns whether the service accepts no calls at present. When it accepts calls
        again, :meth:`release` must be called.
        """
        self.service = service
        self._is_held = is_held
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        self.associations: Associations[Any] = Associations(
            new_id=lambda: secrets.randbits(32), new_uuid=lambda: secrets.token_bytes(16)
        )
        self.connections: dict[RpcConnection, None] = {}
        """The connections, in the order of their arrival."""
        self.room = ConnectionRoom(connections_max, RPC_SHARE)
        self.held = 0
        """Bytes of answers (as PDUs) that the service has given and readers have not taken."""
        self._behind: deque[RpcConnection] = deque()
        """Connections whose PDUs wait for the next turn, in the order of their arrival."""
        self._spent = 0.0
        """Seconds that connections have used in this turn of the loop."""
        self._turns = False
        """Whether the next turn of processing is scheduled."""
        self._tells_at = 0.0
        self._sweeper = Alarm(self.loop, self._sweep)
        self._sweeper.within(SWEEP_SECONDS)

    def connection(self) -> RpcConnection:
        """Create the protocol object of a new connection, for ``create_server``."""
        return RpcConnection(self)

    def admits(self, host: str) -> bool:
        """Return whether a new connection of ``host`` may stay. Log it, seldom, if not.

        If the port is full, this call ends another connection that has not signed in or is idle, to
        make room.
        """
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

    def make_room(self) -> None:
        """Close readers that take no answers until at most HELD_MAX bytes are untaken.

        The reader that has taken nothing for longest is closed first.
        """
        if self.held <= HELD_MAX:
            return
        for each in self.connections:
            # The bytes that were taken since the last count no longer count.
            each.count_taken()
        for each in sorted(self.connections, key=lambda each: each.taken_at):
            if self.held <= HELD_MAX:
                return
            if each.held:
                each.drop("it takes no answers, and others need their memory (HELD_MAX)")

    def works(self, connection: RpcConnection) -> None:
        """Process the received bytes of ``connection``, now or in a later turn of the loop.

        They are processed later if other connections wait, the time of this turn is used up, or the
        service accepts no calls.
        """
        if self._behind or self._spent >= TURN_SECONDS or self._is_held():
            self._behind.append(connection)
            connection.read_or_pause()
        else:
            self._work(connection)
        self._next_turn()

    def release(self) -> None:
        """Continue to process calls. Call this when the service accepts calls again."""
        self._next_turn()

    def _next_turn(self) -> None:
        if not self._turns and not (self._behind and self._is_held()):
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
        while self._behind and self._spent < TURN_SECONDS and not self._is_held():
            self._work(self._behind.popleft())
        self._turns = False
        if self._behind or self._spent > 0:
            self._next_turn()

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in tuple(self.connections):
            connection.sweep(now)
        self._sweeper.within(SWEEP_SECONDS)

    async def close(self) -> None:
        """End every connection, and wait at most CLOSE_SECONDS until their answers are sent.

        Calls that wait get no answer. Handles are run down.
        """
        self._sweeper.stop()
        ending = tuple(self.connections)
        for connection in ending:
            connection.end("the queue manager stops")
        ends = self.loop.time() + CLOSE_SECONDS
        while not all(each.is_over for each in ending) and self.loop.time() < ends:
            await asyncio.sleep(CLOSE_LOOK_SECONDS)

    def __repr__(self) -> str:
        return f"<RpcEndpoint connections={len(self.connections)}>"


class RpcConnection(asyncio.Protocol):
    """One connection of a remote reader, as an :class:`asyncio.Protocol`.

    "Taken" bytes of answers have left this process, "held" ones have not.
    """

    __slots__ = (
        "_alarm",
        "_answered",
        "_bytes_reported",
        "_bytes_taken",
        "_endpoint",
        "_engine",
        "_flushes",
        "_is_behind",
        "_largest",
        "_peer_erred",
        "_transport",
        "_unsent",
        "_write_paused",
        "held",
        "is_over",
        "peer",
        "taken_at",
    )

    def __init__(self, endpoint: RpcEndpoint) -> None:
        self._endpoint = endpoint
        self._alarm = Alarm(endpoint.loop, self._on_timer)
        self._peer_erred = True
        """Whether an end of the connection is unexpected, and is logged."""
        self._flushes = False
        """Whether a flush is scheduled. Answers that are given together are sent together by it."""
        self._is_behind = False
        """Whether received bytes wait to be processed, so that the socket is not read."""
        self._write_paused = False
        self._unsent = 0
        """Bytes of answers that the engine (:class:`.ServerConnection`) still has."""
        self._answered = 0
        """Bytes of the stubs of all answers that the service gave."""
        self.held = 0
        """Bytes of answers (as PDUs) that have not left this process, and of the answer that has
        left in part.
        """
        self._largest = 0
        """Bytes of the largest held answer, because the transport keeps an answer whole until its
        last byte is sent.
        """
        self._bytes_taken = 0
        """Bytes of stubs that have left this process."""
        self._bytes_reported = 0
        """Bytes of stubs that were reported to the service as taken."""
        self.is_over = False
        """Whether the transport is gone, with everything that was written to it."""
        self.taken_at = endpoint.loop.time()
        """Time at which the reader last took a byte of its answers, or had none to take.

        In seconds of the loop's clock.
        """
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection of a reader, or close it if there is no room.

        asyncio calls this method.
        """
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = str(address[0]) if address else ""
        endpoint = self._endpoint
        self._engine = ServerConnection(
            endpoint.settings, endpoint.associations, self.peer, endpoint.loop.time()
        )
        if not endpoint.admits(self.peer):
            self._transport.abort()
            return
        _keep_alive(transport.get_extra_info("socket"))
        endpoint.connections[self] = None
        endpoint.room.enter(self, self.peer)
        endpoint.service.connected(self, self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Process received bytes now or in turn. asyncio calls this method.

        They are PDUs in pieces of any size.
        """
        if self not in self._endpoint.connections:
            return
        self._engine.hold(data)
        if not self._is_behind:
            self._is_behind = True
            self._endpoint.works(self)

    def work(self) -> bool:
        """Process at most PDUS_AT_ONCE received PDUs, and return whether more wait.

        Nothing is processed while the reader does not take its answers, and the result is then
        ``False``. Processing continues when the reader takes answers again.
        """
        if self not in self._endpoint.connections or self._write_paused:
            self._is_behind = False
            return False
        self._handle(self._engine.receive(b"", self._endpoint.loop.time(), PDUS_AT_ONCE))
        self._is_behind = self._engine.is_behind and not self._write_paused
        self.read_or_pause()
        return self._is_behind

    def read_or_pause(self) -> None:
        """Read the socket, or pause.

        Pause while received bytes wait to be processed or the reader does not take its answers.
        """
        if self._transport.is_closing():
            return
        if self._is_behind or self._write_paused:
            if self._transport.is_reading():
                self._transport.pause_reading()
        elif not self._transport.is_reading():
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """Return ``False``, so that asyncio closes the connection: its reader sends nothing more.

        asyncio calls this method.
        """
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection, because its transport is gone. asyncio calls this method."""
        del exc
        self.end("the transport connection is gone")
        self.is_over = True

    def pause_writing(self) -> None:
        """Stop reading the socket, because the reader does not take its answers.

        asyncio calls this method.
        """
        self._write_paused = True
        self.read_or_pause()

    def resume_writing(self) -> None:
        """Read the socket again, because the reader takes its answers.

        asyncio calls this method.
        """
        self._write_paused = False
        self._tell_taken(TELL_BYTES)
        self.read_or_pause()
        if self._engine.is_behind and not self._is_behind:
            self._is_behind = True
            self._endpoint.works(self)

    def end(self, reason: str) -> None:
        """End the connection for ``reason``. Answers that were given are still sent.

        Waiting calls get no answer, and the service is notified (:meth:`Service.disconnected`).
        """
        if self in self._endpoint.connections:
            # Answers that were given are still sent.
            self._flush()
            self._peer_erred = False
            self._handle(self._engine.connection_lost(reason))
            self._gone()

    def sweep(self, now: float) -> None:
        """Close the connection if its reader has taken no byte of its answers for ANSWER_SECONDS.

        This applies while the transport's buffer is full. Also reports the bytes that the reader
        has taken. ``now`` is in seconds of the loop's clock.
        """
        self._tell_taken(1)
        if not self._write_paused:
            self.taken_at = now
        elif now - self.taken_at > ANSWER_SECONDS:
            self.drop(f"it took no answer for {ANSWER_SECONDS:.0f} s (ANSWER_SECONDS)")

    def drop(self, why: str) -> None:
        """Close the connection, and discard all answers that its reader has not taken.

        Log the reason ``why``.
        """
        log.info('mqrr.closed peer=%s reason="%s"', self.peer, why)
        self.end("the reader takes no answers")
        self._transport.abort()

    @property
    def is_signed_in(self) -> bool:
        """Return whether the RPC negotiation is complete, with an identity if one is required."""
        return self._engine.is_signed_in

    @property
    def is_idle(self) -> bool:
        """Return whether the association has no open handle, and no call is unanswered."""
        return self._engine.is_idle

    # --- answers ----------------------------------------------------------------------------------

    def respond(self, call_id: int, stub: bytes) -> None:
        """Queue ``stub`` as the answer of the call ``call_id``. It is sent in the next turn.

        Readers that take no answers may be closed to make room (:meth:`RpcEndpoint.make_room`).
        """
        if not self.held:
            self.taken_at = self._endpoint.loop.time()
        self._engine.respond(call_id, stub)
        self._answered += len(stub)
        self._unsent += len(stub)
        self._hold(self.held + len(stub))
        self._flush_soon()
        self._endpoint.make_room()

    def fail(self, call_id: int, status: int) -> None:
        """Queue the RPC fault ``status`` as the answer of the call ``call_id``."""
        self._engine.fail(call_id, status)
        self._flush_soon()

    def bytes_taken(self) -> int:
        """Return the number of bytes of all stubs so far that have left this process.

        They count as reported to the service from now on.
        """
        self.count_taken()
        self._bytes_reported = self._bytes_taken
        return self._bytes_taken

    def count_taken(self) -> None:
        """Update the number of taken and held bytes.

        Taken bytes are neither in the engine nor in the transport. The transport holds PDUs, which
        are longer than their stubs.
        """
        written = 0 if self._transport.is_closing() else self._transport.get_write_buffer_size()
        self._largest = self._largest if written else 0
        held = self._unsent + written + self._largest
        if held < self.held:
            self.taken_at = self._endpoint.loop.time()
        self._hold(held)
        self._bytes_taken = max(self._bytes_taken, self._answered - self._unsent - written)

    def _hold(self, held: int) -> None:
        """Set the bytes that this reader has not taken, in this object and in the port's total."""
        if self in self._endpoint.connections:
            self._endpoint.held += held - self.held
        self.held = held

    def _tell_taken(self, least: int) -> None:
        """Notify the service if the reader has taken ``least`` or more unreported bytes."""
        self.count_taken()
        if self._bytes_taken - self._bytes_reported >= least and self in self._endpoint.connections:
            self._endpoint.service.answers_taken(self)

    # --- events -----------------------------------------------------------------------------------

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
                service.run_down(event.association)
            else:
                assert isinstance(event, ConnectionClosed)
                if self._peer_erred:
                    log.info(
                        'mqrr.closed peer=%s reason="%s"', self.peer, ascii(event.reason)[1:-1]
                    )
                self._flush()
                self._gone()
        self._flush()

    def _gone(self) -> None:
        endpoint = self._endpoint
        if self in endpoint.connections:
            endpoint.held -= self.held
            del endpoint.connections[self]
            endpoint.room.leave(self)
            endpoint.service.disconnected(self)
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
            self._largest = max(self._largest, len(data))
        if self._unsent:
            self._unsent = 0
            self._tell_taken(TELL_BYTES)
        self._alarm.at(self._engine.timer())

    def _on_timer(self) -> None:
        self._handle(self._engine.handle_timer(self._endpoint.loop.time()))

    def __repr__(self) -> str:
        return f"<RpcConnection {self._engine!r}>"


def _keep_alive(connected: Any) -> None:  # noqa: ANN401
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
