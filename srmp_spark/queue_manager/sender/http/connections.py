"""Connections to peers: at most one for each outgoing queue, kept alive and limited.

Nothing is read from the outbox for a peer before there is a connection to it. So messages for ten
thousand peers that are down fill no memory, and attempts to connect cost no reading. Attempts for
queues that had trouble are made at a limited rate.

A stream must arrive in order, so its messages are sent over one connection. A second connection is
opened only when the first is closed and the state of its messages was reported. A peer may close an
idle connection just when a request is sent over it. Then the request is sent once more over a new
connection, with the same bytes. Only if this attempt fails too, it counts as trouble. The peer may
have accepted the message at the first attempt. So the engine is informed of this doubt before the
second attempt.

On the network one request follows the answer to the previous one. The next request is encoded
meanwhile and is sent as soon as a 200 is received. So engine, encoder and outbox work while the
peer does. After any other answer the next request is withdrawn.

No destination waits because of another destination's trouble. Each address and each host name has a
share of the connections, and slow connections are closed for others (:mod:`.places`). Queues whose
last attempt failed, or was answered late, have at most :data:`TROUBLED_MAX` connections together;
all other queues share the rest. When there are more queues than connections, an idle connection is
closed, or one that had its turn.

URLs come from this queue manager's configuration, from sink options, and from messages that
``store_and_forward`` sends on, whose hosts ``--allow-url`` names. No other allow-list applies to
them. TLS is always verified (:mod:`srmp_spark.queue_manager.trust.tls`), by the authorities of the
system or of ``--ca-file``.
"""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from srmp_spark.names import split_url
from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.posting.address_race import interleaved
from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.queue_manager.posting.http_exchange import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    RATE_MIN,
    Exchange,
    connect,
)
from srmp_spark.queue_manager.sender.http.addresses import HostAddresses
from srmp_spark.queue_manager.sender.http.places import (
    SLOW_SECONDS,
    ConnectionPlaces,
    ConnectionStanding,
)
from srmp_spark.queue_manager.sender.sending_transport import SendingTransport
from srmp_spark.queue_manager.trust.tls import ClientTls
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.srmp.receiving.stream_room import holder_of
from srmp_spark.srmp.sending.outgoing_effects import Load, QueueKey, Send

CONNECTIONS_MAX = 1_000
"""Most connections that are open or being opened; further queues wait.

The number is below the usual limit of descriptors, and means 100 MB with the buffers of the kernel.
"""
DESCRIPTORS_RESERVED = 64
"""Descriptors that are kept for the outbox, stages, receipts, look-ups and the link."""
TROUBLED_MAX = 250
"""Most connections to queues whose last attempt failed or was answered late.

Further queues of this kind wait. Each of these connections may hang until CONNECT_SECONDS or
ANSWER_SECONDS are over. The rest of the connections stays for all other queues.
"""
TROUBLED_ATTEMPTS_PER_SECOND = 200
"""Attempts per second to connect for queues whose last attempt failed or was late.

The attempts take a third of a core. Ten thousand failing queues get their turn every 50 s. Further
queues wait.
"""
ATTEMPTS_AT_ONCE = 50
"""Attempts for queues with trouble that may be made at once after a pause."""
TICK_SECONDS = 0.001
"""Resolution of uvloop's clock and timers, in seconds.

A shorter timer would fire at once, before the clock advances, and would be set again and again.
"""
LOOK_SECONDS = 0.1
"""Interval at which connections are closed for waiting queues, in seconds.

Each time all connections are examined, which takes half a millisecond.
"""
IDLE_SECONDS = 60.0
"""Time after which an idle connection is closed, in seconds.

The time is below the 120 s of IIS, so that the peer rarely closes the connection ([MC-MQSRM]
3.1.2.4).
"""
TURN_SECONDS = 1.0
"""Time for which a queue keeps a connection that others wait for, in seconds."""
SWEEP_SECONDS = 1.0
"""Interval of the check of all connections for time-outs and idleness, in seconds.

A timer per message would cost more than the message.
"""

BOUNDARY = "MSMQ - SOAP boundary, 1"
"""Boundary of the MIME parts of a message. Windows writes a random number instead.

The boundary may occur in the body, because parts are read by their lengths.
"""


def connections_allowed() -> int:
    """Return how many connections this process may open: 16 to CONNECTIONS_MAX, both included.

    The limit of open files decides, which the main process has raised as far as it could.
    DESCRIPTORS_RESERVED of it are left for other uses.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(CONNECTIONS_MAX, max(16, soft - DESCRIPTORS_RESERVED))


class Wire:
    """Sends the messages of one outgoing queue over one HTTP connection at a time.

    Times (``…_at``) are in seconds of the loop's clock.
    """

    def __init__(self, connections: Connections, key: QueueKey) -> None:
        self.key = key
        self.connections = connections
        url = split_url(connections.endpoint_of(key.destination))
        self.host, self.port = url.host, url.port
        self.tls = url.scheme == "https"
        self.host_header = url.authority
        self.target = split_url(key.destination).request_target
        self.waiting: deque[tuple[Send, bytes]] = deque()
        """Messages that were not sent yet, each with its encoded request."""
        self.load: Load | None = None
        """The engine's request to read messages, which waits for a connection, or ``None``."""
        self.is_sought = False
        """Whether a connection is being made, or the wire waits for a place."""
        self.exchange: Exchange[Send] | None = None
        self.looking: asyncio.Task[Sequence[str]] | None = None
        """Task that looks the host up, before the wire waits for a place."""
        self.addresses: Sequence[str] = ()
        self.connecting: asyncio.Task[None] | None = None
        self.cancelled_because = "we closed the connection"
        self.died_young = ""
        """Reason why the connection ended before it was ready, or an empty text.

        Some peers send bytes, or disconnect, right after they accept.
        """
        self.troubled = False
        """Whether the last attempt failed, or its answer was late."""
        self.retried = False
        """Whether messages of a connection that the peer closed are being sent once more."""
        self.opened_at = 0.0
        self.began_at = 0.0
        """Time when the request in flight was written, or the attempt to connect began."""
        self.used_at = 0.0
        self._moved_at = 0.0
        """Time of the last progress of the request or its answer."""
        self._unsent_bytes = self._read_bytes = 0
        """Number of unsent bytes at the last call of :meth:`overdue`.

        ``_read_bytes`` is the number of received bytes at that time.
        """
        self._read_before = 0
        """Number of bytes that had been received when the request in flight was sent."""

    def request(self, send: Send) -> bytes:
        """Encode a message as an HTTP request, and return its bytes.

        Raises :class:`LocalProtocolError` if the message cannot be encoded.
        """
        content_type, content = encode(send.message, boundary=BOUNDARY)
        return (
            http_head(self.target, self.host_header, content_type, len(content), send.stored.via)
            + content
        )

    def flush(self) -> None:
        """Send the next waiting message if the connection is usable and no message is in flight."""
        exchange = self.exchange
        if exchange is None or self.connecting is not None:
            return
        if self.waiting and not exchange.unanswered and exchange.usable:
            self.used_at = self.began_at = self.connections.time()
            exchange.post(*self.waiting.popleft())
            self._moved_at, self._unsent_bytes = self.began_at, exchange.request_bytes
            self._read_bytes = self._read_before = exchange.read_bytes

    def _step_aside(self) -> None:
        """Give up the connection after its turn, and wait for a new one.

        Call this when messages wait, none is in flight, and another queue waits for the connection.
        """
        assert self.exchange is not None, "it has just answered"
        assert not self.exchange.unanswered, "one request follows the answer to the one before it"
        self.exchange.leave()
        self.exchange = None
        self.connections.release(self)
        self.connections.want(self)

    @property
    def busy(self) -> bool:
        """Return whether messages of this queue wait to be sent or are in flight."""
        return bool(self.waiting) or (self.exchange is not None and bool(self.exchange.unanswered))

    # --- Owner of the exchange --------------------------------------------------------------------

    def answered(self, send: Send, answer: PeerAnswer) -> None:
        """Handle a complete answer to ``send``.

        After a 200 the next message is sent; after any other answer all waiting messages are
        withdrawn. If another queue waits for the connection, the connection is closed when nothing
        waits, or given up after its turn.
        """
        self.retried = False
        connections = self.connections
        self.used_at = now = connections.time()
        self.troubled = now - self.began_at > SLOW_SECONDS
        is_wanted = connections.is_wanted(self)
        if answer.status == 200:
            if is_wanted and self.waiting and now - self.opened_at > TURN_SECONDS:
                self._step_aside()
            else:
                self.flush()
            connections.on_answer(send, answer)
        else:
            withdrawn = [each for each, _ in self.waiting]
            self.waiting.clear()
            for each in reversed(withdrawn):
                connections.on_unsent(each)
            connections.on_answer(send, answer)
            for each in reversed(withdrawn):
                connections.on_withdrawn(each)
        if is_wanted and not self.busy:
            connections.close(self.key)

    def on_connection_lost(self, unanswered: Sequence[Send], why: str, *, silent: bool) -> None:
        """Handle the end of a connection (:meth:`.http_exchange.Owner.on_connection_lost`)."""
        if self.connecting is not None:
            # The end may be reported before the task that opens the connection continues, which
            # then checks this attribute.
            self.died_young = why
        elif self.exchange is not None and not self.exchange.usable:
            # Otherwise the connection belonged to an attempt that was given up.
            self.ended(unanswered, why, silent=silent)

    # --- its end ----------------------------------------------------------------------------------

    def standing(self) -> ConnectionStanding:
        """Return whether the connection is idle, and for how long it has been in its state.

        The result is a :class:`.places.ConnectionStanding`.
        """
        now = self.connections.time()
        is_idle = self.exchange is not None and self.connecting is None and not self.busy
        return ConnectionStanding(is_idle, now - (self.used_at if is_idle else self.began_at))

    def overdue(self) -> str | None:
        """Return why the answer is no longer awaited, or ``None`` if it still is.

        Each call compares the bytes sent and received with those of the previous call.
        """
        exchange = self.exchange
        if exchange is None or not exchange.unanswered:
            return None
        now, unsent, read = self.connections.time(), exchange.unsent_bytes, exchange.read_bytes
        if unsent < self._unsent_bytes or read > self._read_bytes:
            self._moved_at = now
        elif unsent > 0 and now - self._moved_at > ANSWER_SECONDS:
            return (
                f"{self.host}:{self.port} took nothing for {ANSWER_SECONDS:g} s, and "
                f"{unsent} bytes are left"
            )
        came = read - self._read_before
        self._unsent_bytes, self._read_bytes = unsent, read
        most = ANSWER_SECONDS + (exchange.request_bytes + came) / RATE_MIN
        if now - self.began_at > most:
            return f"no answer from {self.host}:{self.port} in {most:.0f} s"
        return None

    def make_way(self) -> None:
        """End the connection, or the attempt to connect, to free its place for other queues."""
        why = "we closed the connection"
        if not self.standing().is_idle:
            why = (
                f"no answer from {self.host}:{self.port} in {SLOW_SECONDS:g} s, and "
                "other messages wait for its connection"
            )
        if self.connecting is not None:
            self.cancelled_because = why
            self.connecting.cancel()
        elif self.exchange is not None:
            self.exchange.end(why)

    def ended(self, unanswered: Sequence[Send], why: str, *, silent: bool) -> None:
        """Handle that the connection has ended, or that none could be made.

        Messages are sent once more if the peer closed an idle connection. Otherwise the failure of
        each message is reported to the engine, with the reason ``why``.
        """
        self.exchange = None
        self.is_sought = False
        again = silent and not self.retried
        if again:
            for send in unanswered:
                self.connections.on_doubt(send)
            self.retried = bool(unanswered)
            self.waiting.extendleft((send, self.request(send)) for send in reversed(unanswered))
        elif unanswered or self.waiting or self.load is not None:
            # Otherwise this process has closed an idle connection.
            self.troubled = True
        connections = self.connections
        connections.release(self)
        if again and self.waiting:
            connections.want(self)
            return
        left = [] if again else [*unanswered]
        unsent = [send for send, _ in self.waiting]
        self.waiting.clear()
        load, self.load = self.load, None
        for send in reversed(unsent):
            connections.on_unsent(send)
        for send in left:
            connections.on_failure(send, why, True)
        for send in reversed(unsent):
            connections.on_failure(send, why, False)
        if load is not None:
            connections.on_not_reached(load, why)
        elif not left and not unsent:
            connections.on_closed(self.key)

    def __repr__(self) -> str:
        open_ = self.exchange is not None
        return (
            f"<Wire {self.key.destination} open={open_} waiting={len(self.waiting)} "
            f"troubled={self.troubled}>"
        )


class Connections(SendingTransport):
    """All HTTP connections of one sender process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        on_answer: Callable[[Send, PeerAnswer], object],
        on_failure: Callable[[Send, str, bool], object],
        on_unsent: Callable[[Send], object],
        on_withdrawn: Callable[[Send], object],
        on_closed: Callable[[QueueKey], object],
        on_doubt: Callable[[Send], object],
        on_reached: Callable[[Load], object],
        on_not_reached: Callable[[Load, str], object],
        on_addresses: Callable[[QueueKey, Sequence[str]], object] = lambda key, addresses: None,
        addresses: HostAddresses | None = None,
        endpoint_of: Callable[[str], str] = lambda destination: destination,
        tls: ClientTls | None = None,
    ) -> None:
        """Prepare the connections, with callbacks for their events.

        ``on_answer`` is called with a message and the complete answer to it. ``on_failure`` is
        called with a message that failed, the reason, and whether bytes of the message were sent.
        ``on_unsent``: a message was not sent; the end of the message is reported after the end of
        all earlier messages. ``on_withdrawn``: a message was not sent, because the answer to the
        previous message was an error. ``on_closed``: a connection without messages ended.
        ``on_doubt``: a message was sent, has no answer, and is sent once more before its end is
        reported. ``on_reached``: a connection was made for this load. ``on_not_reached``: no
        connection can be made, and why. ``on_addresses``: the addresses of a queue's host, before a
        connection to one of them is made. ``endpoint_of`` returns the URL to connect to for a
        destination ([MC-MQSRM] 3.1.7.9).
        """
        self.endpoint_of = endpoint_of
        self._loop = loop
        self.time = loop.time
        self.on_answer = on_answer
        self.on_failure = on_failure
        self.on_unsent = on_unsent
        self.on_withdrawn = on_withdrawn
        self.on_closed = on_closed
        self.on_doubt = on_doubt
        self.on_reached = on_reached
        self.on_not_reached = on_not_reached
        self._on_addresses = on_addresses
        self._addresses = addresses or HostAddresses(loop)
        self._wires: dict[QueueKey, Wire] = {}
        self._holding: OrderedDict[QueueKey, Wire] = OrderedDict()
        """Wires that have an open connection or are opening one, the earliest first."""
        self._most = connections_allowed()
        self._places: ConnectionPlaces[Wire] = ConnectionPlaces(self._most, TROUBLED_MAX)
        self._attempts = float(ATTEMPTS_AT_ONCE)
        self._earned_at = self.time()
        self._looked_at = float("-inf")
        self._look = Alarm(self._loop, self._grant)
        self._tls = tls or ClientTls()
        self._sweeper = Alarm(self._loop, self._sweep)
        self._closed = False

    def __repr__(self) -> str:
        return f"<Connections open={len(self._holding)} {self._places!r}>"

    def __len__(self) -> int:
        return len(self._holding)

    def _wire(self, key: QueueKey) -> Wire:
        wire = self._wires.get(key)
        if wire is None:
            wire = self._wires[key] = Wire(self, key)
        return wire

    def is_reached(self, key: QueueKey) -> bool:
        """Return whether there is an open connection for the outgoing queue ``key``."""
        wire = self._wires.get(key)
        return wire is not None and wire.exchange is not None and wire.connecting is None

    def may_load(self, load: Load) -> bool:
        """Return whether there is an open connection; otherwise :meth:`reach` the destination."""
        is_reached = self.is_reached(load.key)
        if not is_reached:
            self.reach(load)
        return is_reached

    def reach(self, load: Load) -> None:
        """Connect to the destination, so that the messages of ``load`` may be read.

        The result is reported once, later, by ``on_reached`` or ``on_not_reached``, unless another
        load of its queue replaces it.
        """
        wire = self._wire(load.key)
        wire.load = load
        if not wire.is_sought:
            self.want(wire)

    def post(self, send: Send) -> None:
        """Send a message; a connection is opened if there is none.

        The end of the message is reported once, later, by ``on_answer`` or ``on_failure``. Raises
        :class:`LocalProtocolError` if the message cannot be encoded.
        """
        wire = self._wire(send.key)
        wire.waiting.append((send, wire.request(send)))
        if wire.exchange is not None:
            wire.flush()
        elif not wire.is_sought:
            self.want(wire)

    def close(self, key: QueueKey) -> None:
        """Close the connection of an outgoing queue, or end the attempt to connect.

        Messages in flight are reported as failed.
        """
        wire = self._wires.get(key)
        if wire is None:
            return
        if wire.exchange is not None:
            wire.exchange.end("we closed the connection")
        elif wire.connecting is not None:
            wire.connecting.cancel()
        elif wire.is_sought:
            self._unwant(wire)
            wire.ended([], "we gave up the attempt", silent=False)

    def forget(self, key: QueueKey) -> None:
        """Forget a queue that no longer exists, and close its connection."""
        self.close(key)
        self._wires.pop(key, None)

    async def stop(self) -> None:
        """Close all connections and report nothing. Wait until all tasks have ended."""
        self._closed = True
        self._sweeper.stop()
        self._look.stop()
        tasks: list[asyncio.Task[Any]] = [
            task
            for wire in self._wires.values()
            for task in (wire.looking, wire.connecting)
            if task is not None
        ]
        for wire in self._wires.values():
            wire.waiting.clear()
            wire.load = None
            if wire.exchange is not None:
                wire.exchange.leave()
        await end(tasks)
        self._addresses.close()

    # --- who may connect --------------------------------------------------------------------------

    def is_wanted(self, wire: Wire) -> bool:
        """Return whether another queue waits for the connection of ``wire``."""
        return self._places.is_wanted(wire)

    def want(self, wire: Wire) -> None:
        """Let ``wire`` wait for a place, and connect when there is one.

        The host is looked up first, which needs no connection. If it has no address, the messages
        of ``wire`` are reported as failed.
        """
        wire.is_sought = True
        known = self._addresses.known(wire.host)
        if known is not None:
            self._line_up(wire, known)
        else:
            wire.looking = self._loop.create_task(self._addresses.of(wire.host, wire.port))
            wire.looking.add_done_callback(partial(self._looked_up, wire))

    def _looked_up(self, wire: Wire, task: asyncio.Task[Sequence[str]]) -> None:
        if wire.looking is not task or self._closed:
            # The look-up was given up.
            return
        wire.looking = None
        error = asyncio.CancelledError("cancelled") if task.cancelled() else task.exception()
        if error is not None:
            wire.ended([], f"{wire.host}: the look-up failed: {error}", silent=False)
        elif addresses := task.result():
            self._line_up(wire, addresses)
        else:
            why = f"{wire.host} has no address here: DNS, or a line in /etc/hosts, must name it"
            wire.ended([], f"{wire.host}:{wire.port}: {why}", silent=False)

    def _line_up(self, wire: Wire, addresses: Sequence[str]) -> None:
        wire.addresses = addresses
        self._on_addresses(wire.key, addresses)
        holders = dict.fromkeys(
            holder_of(f"{address}:0", None) for address in interleaved(addresses)
        )
        # The wire may connect to any of these addresses.
        payers = (f"host {wire.host}", *holders)
        self._places.want(wire, f"{wire.host}:{wire.port}", payers, is_slow=wire.troubled)
        self._grant()

    def _unwant(self, wire: Wire) -> None:
        looking, wire.looking = wire.looking, None
        if looking is not None:
            looking.cancel()
        self._places.withdraw(wire)

    def _grant(self) -> None:
        for wire in self._places.admit(self._attempts_left()):
            self._connect(wire)
        if not self._places.somebody_waits or self._closed or self._look.is_set:
            return
        wait = self._looked_at + LOOK_SECONDS - self.time()
        if wait >= TICK_SECONDS:
            self._look.within(wait)
            return
        self._looked_at = self.time()
        # Set the timer first: a callback about an ended connection may call this method again.
        self._look.within(LOOK_SECONDS)
        for wire in self._places.make_way(Wire.standing):
            wire.make_way()

    def _attempts_left(self) -> int:
        """Return how many queues that had trouble may try to connect now.

        The number grows with time, up to ATTEMPTS_AT_ONCE.
        """
        now = self.time()
        earned = max(0.0, now - self._earned_at) * TROUBLED_ATTEMPTS_PER_SECOND
        self._attempts, self._earned_at = min(self._attempts + earned, ATTEMPTS_AT_ONCE), now
        return max(0, int(self._attempts))

    def _connect(self, wire: Wire) -> None:
        if wire.troubled:
            self._attempts -= 1
        self._holding[wire.key] = wire
        wire.began_at = self.time()
        wire.connecting = self._loop.create_task(self._open(wire))
        wire.connecting.add_done_callback(partial(self._opened, wire))
        self._sweeper.within(SWEEP_SECONDS)

    def release(self, wire: Wire) -> None:
        """Free the place of a connection that has ended, for a wire that waits."""
        self._holding.pop(wire.key, None)
        if self._places.release(wire) and self._places.somebody_waits and not self._closed:
            self._loop.call_soon(self._grant)

    # --- opening ----------------------------------------------------------------------------------

    async def _open(self, wire: Wire) -> None:
        try:
            await asyncio.wait_for(self._try_addresses(wire), CONNECT_SECONDS)
        except asyncio.TimeoutError:
            raise OSError(f"no connection within {CONNECT_SECONDS:g} s") from None

    async def _try_addresses(self, wire: Wire) -> None:
        wire.died_young = ""
        address, wire.exchange = await connect(
            wire.addresses,
            wire.port,
            partial(Exchange, wire),
            tls=self._tls.context() if wire.tls else None,
            host=wire.host,
            overlap=self._addresses.overlap,
        )
        self._addresses.prefer(wire.host, address)

    def _opened(self, wire: Wire, task: asyncio.Task[None]) -> None:
        wire.connecting = None
        exchange = wire.exchange
        if self._closed:
            if exchange is not None:
                exchange.leave()
            return
        if task.cancelled():
            why, wire.cancelled_because = wire.cancelled_because, "we closed the connection"
        elif (error := task.exception()) is not None:
            why = f"{wire.host}:{wire.port}: {error}"
        elif exchange is not None and exchange.usable:
            wire.opened_at = wire.used_at = self.time()
            wire.is_sought = False
            wire.flush()
            load, wire.load = wire.load, None
            if load is not None:
                self.on_reached(load)
            return
        else:
            why = f"{wire.host}:{wire.port}: {wire.died_young or 'the connection ended at once'}"
        if exchange is not None:
            exchange.leave()
        wire.ended([], why, silent=False)

    # --- time-outs --------------------------------------------------------------------------------

    def _sweep(self) -> None:
        now = self.time()
        for wire in tuple(self._holding.values()):
            exchange = wire.exchange
            if exchange is None:
                continue
            overdue = wire.overdue()
            if overdue is not None:
                exchange.end(overdue)
            elif not wire.busy and now - wire.used_at > IDLE_SECONDS:
                self.close(wire.key)
        if self._holding and not self._closed:
            self._sweeper.within(SWEEP_SECONDS)
