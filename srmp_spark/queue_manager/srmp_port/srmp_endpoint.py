"""Serve the SRMP port: one :class:`asyncio.Protocol` for each connection.

The specification is [MC-MQSRM] 2.1 and RFC 9112.

**Theory of operation.** A connection is in one of five states::

    IDLE ──first byte──▶ HEAD ──blank line──▶ BODY ──last byte──▶ WAITING ──answer──▶ IDLE
      any of them ──refusal, deadline, "Connection: close"──▶ CLOSING

A request that arrives in one piece, as a Windows queue manager sends it, goes from IDLE to WAITING
in one call, and the ``bytes`` object that arrived is stored itself. One request of a connection is
in flight at a time. Bytes that arrive while it waits are kept, and the connection is not read
further, so pipelined requests are answered in order. Deadlines cost nothing per message: the
*sweep*, once a second, checks all connections. Limits are in :mod:`.http_limits`. Faults of a peer
are answered and counted, never logged with a traceback. An internal fault is answered 503 and
logged once. After a ProcessMustEndError nothing is answered. A connection is *proved* by a client
certificate or by a message that was answered 200. An address's *share* is its part of the port
(:mod:`.port_limits`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, cast

from srmp_spark.errors import ProcessMustEndError, RemoteProtocolError
from srmp_spark.queue_manager.admission.faults import FaultLog
from srmp_spark.queue_manager.admission.gate import RETRY_AFTER_SECONDS
from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.srmp_port import http_limits as limits
from srmp_spark.queue_manager.srmp_port.chunked import ChunkedBody
from srmp_spark.queue_manager.srmp_port.port_limits import SRMP_SHARE, ConnectionRoom, payer_of
from srmp_spark.queue_manager.srmp_port.replies import CONTINUE, Replies
from srmp_spark.queue_manager.srmp_port.request_head import (
    HeadError,
    RequestHead,
    check_unfinished,
    without_empty_lines,
)

if TYPE_CHECKING:
    from srmp_spark.message import Transport
    from srmp_spark.queue_manager.srmp_port.inbox import Inbox
    from srmp_spark.srmp.receiving.effects import Ok

log = logging.getLogger(__name__)

RefusalCounter = Callable[[int, str], object]


class ConnectionState(Enum):
    """States of a connection. The module's docstring has the transitions."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    WAITING = "waiting"
    CLOSING = "closing"


_IDLE, _HEAD, _BODY, _WAITING, _CLOSING = ConnectionState
_PROBE_FIELD = b"\r\nsrmp-probe:"


class SrmpConnection(asyncio.Protocol):
    """One connection of a sender. asyncio calls the methods of :class:`asyncio.Protocol`."""

    scheme: Transport = "http"
    sender_name: str | None = None
    """The authenticated name of the sender. Plain HTTP has none (:mod:`.srmp_tls`)."""

    __slots__ = (
        "_body",
        "_buffer",
        "_chunks",
        "_endpoint",
        "_head",
        "_head_bytes",
        "_head_length",
        "_keep_alive",
        "_lingered",
        "_missing",
        "_partial",
        "_paused",
        "_probe",
        "_since",
        "_state",
        "_submitted",
        "_transport",
        "_write_paused",
        "is_proved",
        "payer",
        "peer",
        "read_at",
    )

    def __init__(self, endpoint: SrmpEndpoint) -> None:
        self._endpoint = endpoint
        # connection_made sets the transport before any other call.
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.peer = ""
        """Address of the sender as ``host:port``."""
        self.payer: str | None = None
        """The address in whose share the connection and its bytes count, or ``None`` for no share.
        """
        self.read_at = 0.0
        """Time when the last byte of the request in flight was read (``time.perf_counter``)."""
        self.is_proved = False
        """Whether a message of this connection was answered 200, or the sender has an authenticated
        name. In a full port connections that are not proved are evicted first.
        """
        self._state = _IDLE
        self._since = endpoint.now
        self._buffer = bytearray()
        self._head: RequestHead | None = None
        self._head_bytes = b""
        self._head_length = 0
        self._body: ChunkedBody | None = None
        self._chunks: list[bytes] = []
        self._missing = 0
        self._partial = 0
        self._submitted = 0
        self._lingered = 0
        self._keep_alive = True
        self._paused = False
        self._write_paused = False
        self._probe = False
        """Whether the request in flight is one of ``srmp-spark doctor``.

        Its refusal is not counted, because it is no refusal of a sender.
        """

    def __repr__(self) -> str:
        return (
            f"<SrmpConnection {self.peer} {self._state.value} "
            f"buffered={len(self._buffer)} partial={self._partial}>"
        )

    # --- asyncio's side ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the new connection, or refuse it with 503 if the port or its share is full."""
        self._transport = cast("asyncio.Transport", transport)
        # The name is None if the sender has disconnected already.
        name = transport.get_extra_info("peername") or (
            "",
            0,
        )
        self.peer = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        self.payer = payer_of(name[0])
        self.is_proved = self.sender_name is not None
        if not self._endpoint.opened(self, name[0]):
            if self._endpoint.answers_refused:
                self.refuse(
                    503,
                    "too-many-connections",
                    "CONNECTIONS_MAX",
                    RETRY_AFTER_SECONDS,
                    close=True,
                )
            else:
                self._endpoint.count_refusal(503, "too-many-connections")
                self._transport.abort()
        elif self._endpoint.draining:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # The signature is asyncio's.
        """Forget the connection, which the sender or this process has closed.

        A request that waits for its commit is stored nevertheless.
        """
        self._state = _CLOSING
        self._forget_partial()
        self._take()
        self._endpoint.closed(self)

    def eof_received(self) -> bool:
        """Record that the sender will send no more. Return whether to keep the connection open.

        A complete request is still answered. An incomplete request is answered 408.
        """
        if self._state is _WAITING:
            self._keep_alive = False
            return True
        if self._state in (_HEAD, _BODY):
            self.refuse(408, "half-closed", "RFC 9112 8", close=True)
        return False

    def pause_writing(self) -> None:
        """Record that the sender does not read its answers, and begin no further request."""
        self._write_paused = True
        self._since = self._endpoint.now

    def resume_writing(self) -> None:
        """Record that the sender reads its answers again, and continue with the kept bytes."""
        self._write_paused = False
        if self._state is _IDLE and self._buffer:
            self._pump()

    def data_received(self, data: bytes) -> None:
        """Process received bytes of a request, or keep them until they can be processed."""
        state = self._state
        if state is _IDLE and not self._buffer:
            self._begin(data)
            if self._buffer:
                self._pump()
        elif state is _BODY:
            self._more_body(data)
            if self._buffer:
                self._pump()
        elif state is _HEAD:
            seen = len(self._buffer)
            if not self._keep(data):
                return
            if self._buffer[0] == 13 or self._buffer.find(b"\r\n\r\n", max(0, seen - 3)) >= 0:
                self._state = _IDLE
                self._pump()
            else:
                self._unfinished_head(seen)
        elif state is _CLOSING:
            self._lingered += len(data)
            if self._lingered > limits.LINGER_BYTES_MAX:
                self._transport.abort()
        elif self._keep(data):  # These bytes follow the request in flight.
            self._pause()

    # --- a request, from its first byte to the inbox ----------------------------------------------

    def _pump(self) -> None:
        """Begin the next request in the kept bytes, one in each turn of the loop.

        A megabyte of bad requests must not delay other connections.
        """
        if self._buffer and self._state is _IDLE and not self._write_paused:
            self._begin(self._take())
        if self._buffer and (self._state is _WAITING or self._state is _IDLE):
            self._pause()
        else:
            self._resume()

    def _begin(self, data: bytes) -> None:
        """Process ``data``, which starts with an HTTP head: refuse, submit or keep it."""
        if data[0] == 13:  # Ignore empty lines before a request (RFC 9112 2.2).
            data = without_empty_lines(data)
            if not data:
                return
        found = RequestHead.of_windows(data)
        self._probe = False
        if found is None:
            end = data.find(b"\r\n\r\n") + 4
            if end < 4:
                self._state = _HEAD
                self._since = self._endpoint.now
                if self._keep(data):
                    self._unfinished_head(0)
                return
            # Look for the field here, because the head may be refused before its fields are read.
            self._probe = _PROBE_FIELD in data[:end].lower()
        try:
            if found is not None:
                head, end = found
            else:
                head = RequestHead.parse(data[:end])
            self._endpoint.inbox.check_target(head.target)
        except HeadError as error:
            self.refuse(error.status, error.reason, error.section, close=True)
            return
        except RemoteProtocolError as error:
            self.refuse(error.status_hint, "target", error.section, close=True)
            return
        self._keep_alive = head.keep_alive
        length = head.length
        if length is None:
            self._begin_chunked(head, data, end)
            return
        missing = end + length - len(data)
        if missing == 0:
            self._submit(head, data, end)
        elif missing < 0:
            if self._keep(memoryview(data)[missing:]):
                self._submit(head, data[:missing], end)
        else:
            self._begin_body(head, end)
            if self._hold(len(data)):
                self._chunks.append(data)
                self._missing = missing

    def _unfinished_head(self, seen: int) -> None:
        try:
            check_unfinished(self._buffer, seen)
        except HeadError as error:
            self.refuse(error.status, error.reason, error.section, close=True)

    def _begin_body(self, head: RequestHead, head_length: int) -> None:
        self._state = _BODY
        self._since = self._endpoint.now
        self._head = head
        self._head_length = head_length
        if head.expects_continue:
            self._transport.write(CONTINUE)

    def _begin_chunked(self, head: RequestHead, data: bytes, head_length: int) -> None:
        self._begin_body(head, head_length)
        self._head_bytes = data[:head_length]
        self._body = ChunkedBody()
        if len(data) > head_length:
            self._more_body(data[head_length:])

    def _more_body(self, data: bytes) -> None:
        head, head_length = self._head, self._head_length
        assert head is not None
        if not self._hold(len(data)):
            return
        if self._body is not None:
            try:
                rest = self._body.feed(data)
            except RemoteProtocolError as error:
                self.refuse(error.status_hint, "chunked", error.section, close=True)
                return
            if rest is None:
                return
            post = self._head_bytes + self._body.content
        else:
            self._chunks.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            post = b"".join(self._chunks)
            rest = post[self._missing :] if self._missing else b""
            post = post[: len(post) - len(rest)] if rest else post
        self._forget_partial()
        if self._keep(rest):
            self._submit(head, post, head_length)

    def _hold(self, count: int) -> bool:
        """Count ``count`` received bytes as bytes of an unfinished request.

        If the endpoint has no room for them, refuse the request and return ``False``.
        """
        self._partial += count
        if self._endpoint.hold_partial(self.payer, count):
            return True
        self.refuse(503, "too-many-bytes", "PARTIAL_BYTES_MAX", RETRY_AFTER_SECONDS, close=True)
        return False

    def _keep(self, data: bytes | memoryview) -> bool:
        """Keep bytes that cannot be processed yet: half a head, or bytes after a request.

        They count as bytes of an unfinished request. If there is no room for them, end the
        connection and return ``False``. A request in flight is stored nevertheless, and its sender
        repeats it.
        """
        self._buffer += data
        if not data or self._endpoint.hold_partial(self.payer, len(data)):
            return True
        if self._state is _WAITING:
            self._transport.abort()
        else:
            self.refuse(503, "too-many-bytes", "PARTIAL_BYTES_MAX", RETRY_AFTER_SECONDS, close=True)
        return False

    def _take(self) -> bytes:
        """Remove the kept bytes and return them. They no longer count."""
        data = bytes(self._buffer)
        if data:
            self._buffer.clear()
            self._endpoint.forget_partial(self.payer, len(data))
        return data

    def _forget_partial(self) -> None:
        if self._partial:
            self._endpoint.forget_partial(self.payer, self._partial)
            self._partial = 0
        self._chunks = []
        self._body = None
        self._head = None
        self._head_bytes = b""

    def _submit(self, head: RequestHead, post: bytes, head_length: int) -> None:
        endpoint = self._endpoint
        self._state = _WAITING
        self.read_at = time.perf_counter()
        self._submitted = size = len(post)
        endpoint.submitted_bytes += size
        if endpoint.submitted_bytes > endpoint.budget.submitted_high:
            endpoint.hold_reading()
        try:
            endpoint.inbox.accept(self, head, post, head_length)
        except ProcessMustEndError:
            self._transport.abort()
        except Exception as error:
            # This is the last line of defence. An internal error must cost neither the message nor
            # the service.
            endpoint.faults.note(error, f"POST with {len(post)} bytes")
            if self._state is _WAITING:
                self.refuse(503, "internal", "srmp-spark", RETRY_AFTER_SECONDS)

    # --- the answer -------------------------------------------------------------------------------

    def acknowledge(self, ok: Ok) -> None:  # ``ok`` is the proof: an Ok exists only after a commit.
        """Answer 200, because the message is stored. No other method writes a 200."""
        self.is_proved = True
        endpoint = self._endpoint
        close = not self._keep_alive or endpoint.draining
        self._finish(endpoint.replies.ok_close if close else endpoint.replies.ok, close)

    def _finish(self, answer: bytes, close: bool) -> None:
        self._answered()
        if self._state is not _WAITING or self._transport.is_closing():
            return  # The sender has disconnected. It will send again.
        self._transport.write(answer)
        if close:
            self._linger()
            return
        self._state = _IDLE
        self._since = self._endpoint.now
        if self._buffer:
            # Call this later, as after a refusal, because an answer may be given at once, within
            # accept.
            self._endpoint.loop.call_soon(self._pump)

    def refuse(
        self,
        status: int,
        reason: str,
        section: str,
        retry_after: int | None = None,
        *,
        close: bool = False,
    ) -> None:
        """Answer with a status other than 200, and count it in the metrics from 400 on.

        A probe of ``srmp-spark doctor`` is not counted. ``close`` ends the connection after the
        answer. If the sender has disconnected, nothing is written.
        """
        endpoint = self._endpoint
        if status >= 400 and not self._probe:
            endpoint.count_refusal(status, reason)
        self._answered()
        self._forget_partial()
        if self._state is _CLOSING or self._transport.is_closing():
            return
        close = close or not self._keep_alive or endpoint.draining
        self._transport.write(
            endpoint.replies.refusal(status, reason, section, retry_after=retry_after, close=close)
        )
        if close:
            self._linger()
        else:
            self._state = _IDLE
            self._since = endpoint.now
            if self._buffer:
                # Avoid recursion, because a thousand bad requests may be in the buffer.
                endpoint.loop.call_soon(self._pump)

    def _answered(self) -> None:
        if self._submitted:
            self._endpoint.submitted_bytes -= self._submitted
            self._submitted = 0
            if (
                self._endpoint.reading_held
                and self._endpoint.submitted_bytes < self._endpoint.budget.submitted_low
            ):
                self._endpoint.release_reading()

    def _linger(self) -> None:
        """Close for writing after the answer, and drop received bytes for a while.

        A reset would destroy the answer in flight. The sweep aborts the connection after
        LINGER_SECONDS.
        """
        self._state = _CLOSING
        self._since = self._endpoint.now
        self._lingered = 0
        self._take()
        self._resume()
        self._end_writing()

    def _end_writing(self) -> None:
        try:
            self._transport.write_eof()
        except OSError:  # The sender is gone, and the transport has not noticed yet.
            self._transport.abort()

    def _pause(self) -> None:
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and not self._transport.is_closing() and not self._endpoint.reading_held:
            self._paused = False
            self._transport.resume_reading()

    # --- called by the endpoint -------------------------------------------------------------------

    def hold_reading(self) -> None:
        """Pause reading, because back-pressure begins."""
        self._pause()

    def release_reading(self) -> None:
        """Read again, because back-pressure has ended, unless kept bytes wait for an answer."""
        if not (self._buffer and self._state is _WAITING):
            self._resume()

    def sweep(self, now: float) -> None:
        """End the connection if the deadline of its state is over at ``now`` (loop time)."""
        spent = now - self._since
        state = self._state
        if self._write_paused and spent > limits.BODY_SECONDS:
            self._transport.abort()
        elif state is _IDLE:
            if spent > limits.IDLE_SECONDS:
                self._transport.close()
        elif state is _HEAD:
            if self._endpoint.reading_held:
                self._since = now
            elif spent > limits.HEAD_SECONDS:
                self.refuse(408, "slow-head", f"HEAD_SECONDS {limits.HEAD_SECONDS:g}", close=True)
        elif state is _BODY:
            if self._endpoint.reading_held:
                self._since = now  # Our back-pressure is no fault of the sender.
            elif spent > limits.BODY_SECONDS and self._partial < spent * limits.BODY_RATE_MIN:
                self.refuse(408, "slow-body", f"BODY_RATE_MIN {limits.BODY_RATE_MIN}", close=True)
        elif state is _CLOSING and spent > limits.LINGER_SECONDS:
            self._transport.abort()

    def rank(self, now: float) -> tuple[bool, bool, float] | None:
        """Return the rank for eviction from a full port; the lowest rank is evicted first.

        Return ``None`` if the connection stays: its request waits for an answer, or it is proved
        and was not idle for SPARED_SECONDS. A connection is proved by a client certificate or by a
        message that was answered 200. Connections that are not proved come first; among equals, one
        that is sending a body comes last, and then the one that has been longest in its state comes
        first. ``now`` is in seconds of the loop's clock.
        """
        if self._state is _WAITING:
            return None
        is_idle = self._state is _IDLE
        if self.is_proved and not (is_idle and now - self._since >= limits.SPARED_SECONDS):
            return None
        return self.is_proved, self._state is _BODY, self._since

    def rank_in_share(self, now: float) -> tuple[bool, bool, float] | None:
        """Return the rank for eviction from the full share of the connection's address.

        It is that of :meth:`rank`, and ``None`` for a connection that is not idle, which stays.
        """
        return self.rank(now) if self._state is _IDLE else None

    def drain(self) -> None:
        """Close the connection at SIGTERM if it is idle. A request in flight is answered."""
        if self._state is _IDLE:
            self._transport.close()

    def abort(self) -> None:
        """Close the transport at once. Bytes that were not sent are lost."""
        self._transport.abort()


class SrmpEndpoint:
    """Holds all connections of the SRMP port, their common counters, and the sweep."""

    def __init__(
        self,
        inbox: Inbox,
        *,
        count_refusal: RefusalCounter,
        utc_seconds: Callable[[], float],
        connections_max: int = limits.CONNECTIONS_MAX,
        connection_class: type[SrmpConnection] = SrmpConnection,
        budget: limits.PortBudget = limits.BUDGET,
    ) -> None:
        self.inbox = inbox
        self.faults = FaultLog()
        """Logs internal faults that affect one request only."""
        self._connection_class = connection_class
        self.budget = budget
        self.count_refusal = count_refusal
        self.connections_max = connections_max
        self.connections: dict[SrmpConnection, None] = {}
        """The connections in the order in which they were accepted."""
        self.handshakes: dict[asyncio.Task[None], float] = {}
        """TLS handshakes in progress with their start times. They count as connections."""
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time()
        """Time of the last sweep, in seconds of the loop's clock: exact enough for deadlines."""
        self.room = ConnectionRoom(connections_max, SRMP_SHARE)
        self._given = 0
        """Places in the full port that new connections got since the last ranking."""
        self._makes_way: list[SrmpConnection | asyncio.Task[None]] = []
        """Connections and handshakes that can be evicted from a full port, as ranked at
        :attr:`_ranked_at`. The next one to evict is the last.
        """
        self._ranked_at = float("-inf")
        self._makes_way_in: dict[str, tuple[float, list[SrmpConnection]]] = {}
        """For each address whose share is full: the time of its ranking, and its idle connections
        that can be evicted. It has SRMP_SHARE entries at most.
        """
        self.partial_bytes = 0
        self._partial_of: Counter[str] = Counter()
        self.submitted_bytes = 0
        self.reading_held = False
        self.draining = False
        self._utc_seconds = utc_seconds
        self.replies = Replies(utc_seconds())
        self._sweeper = Alarm(self.loop, self._sweep)
        self._sweeper.within(limits.SWEEP_SECONDS)
        self._empty = asyncio.Event()

    def connection(self) -> SrmpConnection:
        """Create the protocol object of a new connection, for ``create_server``."""
        return self._connection_class(self)

    def opened(self, connection: SrmpConnection, host: str) -> bool:
        """Add a connection of the address ``host``, and return whether it has a place.

        It has none if the share of its address is full, or the port is full and no other connection
        can be evicted. The caller must then refuse it.
        """
        admitted = self.has_place(host)
        self.connections[connection] = None
        if admitted:
            self.room.enter(connection, host)
        if self.reading_held:
            connection.hold_reading()
        return admitted

    def has_place(self, host: str) -> bool:
        """Return whether a connection of ``host`` can have a place. Evict another one if needed.

        In a full port another connection is closed for it, and in the full share of its address an
        idle connection of that address.
        """
        if not self.room.admits(host) and not self._evict_in_share(host):
            return False
        return not self.room.is_full or self._evict()

    def _evict_in_share(self, host: str) -> bool:
        """Close the idle connection with the lowest rank in the share of ``host``.

        The share is that of the address of ``host``, or of its /64. Return whether a connection was
        closed. Connections are ranked at most once in RANK_SECONDS, so a connection that became
        idle since is not found before that.
        """
        payer = payer_of(host)
        assert payer is not None, "loopback has no share"
        ranked_at, makes_way = self._makes_way_in.get(payer, (float("-inf"), []))
        if not makes_way and self.loop.time() >= ranked_at + limits.RANK_SECONDS:
            found = (
                (each.rank_in_share(self.now), each)
                for each in self.connections
                if each.payer == payer
            )
            ranked = [
                (rank, each) for rank, each in found if rank is not None and each in self.room
            ]
            # The sort is stable: among equals the one that was accepted first is first.
            ranked.sort(key=lambda pair: pair[0])
            makes_way = [each for _, each in reversed(ranked)]
            full = sorted(self._makes_way_in.items(), key=lambda item: item[1][0], reverse=True)[
                : SRMP_SHARE - 1
            ]
            self._makes_way_in = {**dict(full), payer: (self.loop.time(), makes_way)}
        while makes_way:
            oldest = makes_way.pop()
            if oldest in self.room and oldest.rank_in_share(self.now) is not None:
                oldest.abort()
                self.room.leave(oldest)  # Give the place back now, as in _evict.
                return True
        return False

    def _evict(self) -> bool:
        is_due = (
            self._given >= limits.RANKED_MIN
            or self.loop.time() >= self._ranked_at + limits.RANK_SECONDS
        )
        if not self._makes_way and is_due:
            self._rank()
        while self._makes_way:
            found = self._makes_way.pop()
            if isinstance(found, asyncio.Task):
                if found not in self.handshakes:
                    continue
                found.cancel()
                del self.handshakes[found]
            else:
                if found not in self.room or found.rank(self.now) is None:
                    continue
                found.abort()
            # Give the place back now and not with the last event, because the next connection of
            # this turn needs a place too.
            self.room.leave(found)
            self._given += 1
            return True
        return False

    def _rank(self) -> None:
        """Sort the connections and handshakes that can be evicted into :attr:`_makes_way`."""
        self._ranked_at, self._given = self.loop.time(), 0
        ranked: list[tuple[tuple[bool, bool, float], SrmpConnection | asyncio.Task[None]]] = [
            ((False, False, since), task) for task, since in self.handshakes.items()
        ]
        for connection in self.connections:
            rank = connection.rank(self.now) if connection in self.room else None
            if rank is not None:
                ranked.append((rank, connection))
        # The sort is stable: among equals the one that was accepted first is first.
        ranked.sort(key=lambda each: each[0])
        self._makes_way = [each for _, each in reversed(ranked)]

    @property
    def answers_refused(self) -> bool:
        """Return whether a connection without a place gets an answer (503).

        At most REFUSED_MAX do, because such connections need descriptors too while they are
        answered.
        """
        return len(self.connections) - len(self.room) <= limits.REFUSED_MAX

    def closed(self, connection: SrmpConnection) -> None:
        """Forget a connection that is closed, and give its place back."""
        self.connections.pop(connection, None)
        self.room.leave(connection)
        if not self.connections:
            self._empty.set()

    def hold_partial(self, payer: str | None, count: int) -> bool:
        """Count ``count`` more bytes of unfinished requests. Return whether there is room for them.

        They are counted even if the result is ``False``: beyond the budget of the port, or beyond
        the share of the address ``payer``.
        """
        self.partial_bytes += count
        if payer is not None:
            self._partial_of[payer] += count
            if self._partial_of[payer] > self.budget.partial // SRMP_SHARE:
                return False
        return self.partial_bytes <= self.budget.partial

    def forget_partial(self, payer: str | None, count: int) -> None:
        """Count ``count`` fewer bytes of unfinished requests, in all and for ``payer``."""
        self.partial_bytes -= count
        if payer is not None:
            self._partial_of[payer] -= count
            if not self._partial_of[payer]:
                del self._partial_of[payer]

    def hold_reading(self) -> None:
        """Stop reading from all connections, because the journal is behind (back-pressure)."""
        if not self.reading_held:
            self.reading_held = True
            for connection in tuple(self.connections):
                connection.hold_reading()

    def release_reading(self) -> None:
        """Read from all connections again, because the journal has caught up."""
        self.reading_held = False
        for connection in tuple(self.connections):
            connection.release_reading()

    def _sweep(self) -> None:
        self.now = self.loop.time()
        self.replies.refresh(self._utc_seconds())
        for connection in tuple(self.connections):
            connection.sweep(self.now)
        self._sweeper.within(limits.SWEEP_SECONDS)

    async def drain(self, seconds: float = limits.DRAIN_SECONDS) -> None:
        """Answer the received requests, close all connections, and wait at most ``seconds`` for it.

        Connections that are open then are aborted. The sweep ends too.
        """
        self.draining = True
        self._empty.clear()
        for connection in tuple(self.connections):
            connection.drain()
        if self.connections:
            try:
                await asyncio.wait_for(self._empty.wait(), seconds)
            except asyncio.TimeoutError:
                for connection in tuple(self.connections):
                    connection.abort()
        self._sweeper.stop()
