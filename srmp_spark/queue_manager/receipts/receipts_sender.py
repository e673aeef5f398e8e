"""Send the receipts that are due.

Stream receipts are sent when the engine (:class:`.Receiver`) makes them due, and delivery receipts
until they are delivered. The receipts of decisions (:mod:`.decision_receipts`) are sent through
:meth:`ReceiptsSender.deliver` too.

The sender of a message states where its receipts are sent, so this is where an unauthenticated
client can make this host connect to an address. The rule of :mod:`.url_policy` decides, on the
addresses that the host of the URL has at that moment (:mod:`.receipt_lookups`), and only addresses
that were judged are called. Only an allowed receipt uses the turn of a host. Receipts must not
flood a victim: one host gets at most :data:`HOST_RECEIPTS_PER_SECOND`, and receipts beyond
:data:`OWED_MAX` are dropped and counted.

A delivery receipt is stored with its message, so it survives a restart. It is tried again after the
waits of ``--resend-table`` until its time to reach the queue is over (four days, as Windows
writes). The monotonic clock counts the waits, so setting the wall clock neither ends a receipt
early nor keeps it forever. The wall clock counts only for receipts that a start has found, and only
after :data:`FOUND_TRIED_SECONDS`. A stream receipt is never stored: the engine makes it due again
until it was delivered, and after every start.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote

from srmp_spark.errors import ApiError
from srmp_spark.message import Message
from srmp_spark.names import UrlParts
from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.posting.http_client import PostFailedError, post
from srmp_spark.queue_manager.posting.lookups import resolve
from srmp_spark.queue_manager.posting.url_policy import (
    Blocked,
    UrlPolicy,
    address_of,
    split_receipt_url,
)
from srmp_spark.queue_manager.receipts.receipt_lookups import ReceiptLookups, Resolve
from srmp_spark.queue_manager.trust.tls import ClientTls, host_of_sender
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.srmp.receiving.receipts import (
    RECEIPT_TIME_TO_REACH_QUEUE_US,
    delivery_receipt,
    stream_receipt,
)
from srmp_spark.srmp.receiving.stream_effects import SendStreamReceipt
from srmp_spark.store.tables import state
from srmp_spark.store.tables.state import StoredReceipt

if TYPE_CHECKING:
    from srmp_spark.queue_manager.core import Core

TICK_SECONDS = 0.02
"""Seconds after its timer (500 ms, [MC-MQSRM] 3.1.2.3) at which a stream receipt is sent, about as
long as a tick of Windows' clock. A sender that was busy when the answer 200 arrived must not see
the receipt before half a second is over on its own clock.
"""
HOST_RECEIPTS_PER_SECOND = 200.0
"""Most receipts per second to one host; further ones wait for their turn.

This is no flood for a victim, and more than the messages of an honest peer need in a day.
"""
OWN_SENDER_RECEIPTS_PER_SECOND = 500.0
"""Most receipts per second to the host that sent the messages; further ones wait for their turn.

The sender posted a message for each receipt, so this is no flood. TCP's handshake has proved the
sender's address, and with HOST_POSTS_MAX in flight the sender gets no more than it answers. A
million final receipts take 34 minutes; at the rate for other hosts they would take 83. The limit
protects this process: one receipt costs the accepting loop 0.3 ms (measured).
"""
HOST_PENDING_MAX = 1_000
"""Most receipts that wait for their turn for one host, 5 s at full rate.

Further ones are tried again later.
"""
HOST_POSTS_MAX = 4
"""Most posts to one host at once; further ones wait.

A host that does not answer must not delay the others.
"""
POSTS_MAX = 64
"""Most posts to all hosts at once; further ones wait."""
OWED_MAX = 100_000
"""Most delivery receipts that wait in memory.

Further ones are dropped and counted, because a sender may request a receipt with each message and
never accept one.
"""
OWED_SECONDS = RECEIPT_TIME_TO_REACH_QUEUE_US / 1_000_000
FOUND_TRIED_SECONDS = 6 * 3600.0
"""Least seconds for which a receipt that a start has found is tried, however old it looks.

The wall clock may have been wrong when its message arrived, or may be wrong now. It is less than a
day, so a machine that is restarted every night still drops receipts that cannot be delivered.
"""
HOSTS_MAX = 10_000
"""Most hosts whose rate is remembered. At the limit the host that was idle longest is forgotten.

A host with receipts in progress is never forgotten.
"""
WARNED_MAX = 1_000
"""Most blocked URLs that are logged, once each, and most blocked hosts that are counted in
``status``. Further hosts count as "other".
"""
PATTERNS_OF_HOST_MAX = 10
"""Most patterns that ``status`` shows of one blocked host.

A sender chooses the ports, and the log has the other patterns.
"""

log = logging.getLogger(__name__)

Outcome = Literal["delivered", "refused", "failed", "busy"]
"""Result of one attempt. "delivered": answered 200. "refused": answered 400, so never try again.
"failed": no success, try again. "busy": not tried, because too many receipts wait for that host.
"""


def host_of_peer(peer: str) -> str:
    """Return the IP address in a text ``host:port`` or ``[host]:port``, without brackets."""
    return peer.rpartition(":")[0].strip("[]")


@dataclass(slots=True)
class _Host:
    """The state of the limits for receipts to one host.

    ``posts`` has a place for each post in flight. ``next_free`` is the time of the next turn, in
    seconds of the monotonic clock. ``pending`` is the number of receipts that wait or are in
    flight.
    """

    posts: asyncio.Semaphore
    next_free: float = 0.0
    pending: int = 0


class _Owed(NamedTuple):
    """A delivery receipt that waits for its next attempt.

    Waiting receipts are sorted by the time at which they are due.
    """

    due: float
    """Time of the next attempt, in seconds of the monotonic clock like the other two times."""
    id: int
    attempts: int
    stored: StoredReceipt
    believe_wall_from: float
    """Time from which the receipt is dropped if the wall clock shows that its time is over."""
    drop_from: float
    """Time from which the receipt is dropped in any case."""


class ReceiptsSender:
    """Sends the receipts of one queue manager. Waiting times are in seconds."""

    def __init__(self, core: Core, policy: UrlPolicy, tls: ClientTls) -> None:
        """Prepare to send. ``policy`` states which URLs may be called, ``tls`` how over HTTPS."""
        self._receiver = core.receiver
        self._journal = core.journal
        self._identifiers = core.identifiers
        self._policy = policy
        self._metrics = core.metrics
        self._clock = core.clock
        self._public_base = core.public_base
        self._resend_table = tuple(core.config.resend_table)
        self._resolve: Resolve = resolve
        self._lookups = ReceiptLookups(core.clock.monotonic)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hosts: OrderedDict[str, _Host] = OrderedDict()
        self._posts = asyncio.Semaphore(POSTS_MAX)
        self._stream_alarm = Alarm(self._loop, self._streams_due, self._clock.monotonic)
        self._owed: list[_Owed] = []
        self._owed_alarm = Alarm(self._loop, self._owed_due, self._clock.monotonic)
        self._tls = tls
        self._warned: set[str] = set()
        self.blocked: dict[str, int] = {}
        """For each host the number of receipts that were not sent because no rule allows their URL,
        or because the host has no address.
        """
        self.blocked_patterns: dict[str, list[str]] = {}
        """For each host the ``--allow-url`` patterns that would allow its blocked receipts.

        The list is empty if no pattern can allow the host, and has at most PATTERNS_OF_HOST_MAX.
        """
        self._closed = False
        self._is_allowed = core.directory.held is None
        """Whether receipts may be sent. A copied data directory sends none until it is activated.
        """

    def __repr__(self) -> str:
        return (
            f"<ReceiptsSender tasks={len(self._tasks)} owed={len(self._owed)} "
            f"blocked={sum(self.blocked.values())}>"
        )

    async def close(self) -> None:
        """Cancel all attempts and timers.

        Delivery receipts that were not sent stay in the store. The engine makes stream receipts due
        again after the next start.
        """
        self._closed = True
        self._stream_alarm.stop()
        self._owed_alarm.stop()
        await end(tuple(self._tasks))
        await self._lookups.close()

    def allow(self) -> None:
        """Let receipts be sent from now on. Then call :meth:`arm`.

        Receipts that became due before have waited.
        """
        self._is_allowed = True

    # --- stream receipts --------------------------------------------------------------------------

    def arm(self) -> None:
        """Set the timer for the next stream receipt that the engine makes due.

        Call this whenever that receipt may have become due earlier.
        """
        due = self._receiver.next_timer()
        if due is not None and self._is_allowed and not self._closed:
            self._stream_alarm.by(due + TICK_SECONDS)

    def _streams_due(self) -> None:
        for effect in self._receiver.due(self._clock.monotonic()):
            self._start(partial(self._send_stream_receipt, effect))
        self.arm()

    async def _send_stream_receipt(self, effect: SendStreamReceipt) -> None:
        async def build() -> Message:
            return stream_receipt(
                identity=self._receiver.identity,
                uniquifier=await self._identifiers.take(),
                to=effect.url,
                via=self.queue_url(effect.queue),
                stream_id=effect.stream_id,
                last_ordinal=effect.last_ordinal,
                sent_at=self._clock.utc(),
            )

        outcome: Outcome = "failed"
        try:
            # This is the queue manager's own stream (``srmp-spark send``).
            if effect.stream_id.guid == self._receiver.identity and not effect.peer:
                outcome = "delivered"
            else:
                outcome = await self.deliver(
                    effect.url, build, peer=effect.peer, sender_name=effect.sender_name
                )
        finally:
            self._stream_receipt_done(effect, outcome)

    def _stream_receipt_done(self, effect: SendStreamReceipt, outcome: Outcome) -> None:
        now = self._clock.monotonic()
        guid = effect.stream_id.guid
        if outcome == "delivered":
            if effect.peer:
                self._metrics.receipts_sent["stream"] += 1
            log.debug(
                "receipt.sent queue=%s stream_id=%s last_ordinal=%d",
                effect.queue,
                effect.stream_id,
                effect.last_ordinal,
            )
            self._receiver.receipt_delivered(
                effect.queue, guid, effect.stream_id, effect.last_ordinal, now
            )
            if not self._closed:
                self._journal.touch()
        else:
            given_up = self._receiver.receipt_failed(effect.queue, guid, now, outcome == "refused")
            if given_up is not None:
                log.warning(
                    "receipt.refused queue=%s stream_id=%s url=%s",
                    given_up.queue,
                    given_up.stream_id,
                    given_up.url,
                )
        self.arm()

    # --- delivery receipts ------------------------------------------------------------------------

    def owe(self, receipts: Sequence[StoredReceipt], *, found: bool = False) -> None:
        """Begin to send delivery receipts that are stored, and repeat each until it is delivered.

        A receipt ends too when a peer answers 400 or its time is over (the module has the rules).
        ``found`` is set if a start has found the receipts in the store. Receipts beyond OWED_MAX
        are dropped: they are counted and deleted from the store.
        """
        dropped: list[int] = []
        now = self._clock.monotonic()
        drop_from = now + OWED_SECONDS
        believe_wall_from = now + FOUND_TRIED_SECONDS if found else drop_from
        for stored in receipts:
            if len(self._owed) + len(self._tasks) >= OWED_MAX:
                dropped.append(stored.id)
            else:
                heapq.heappush(
                    self._owed, _Owed(now, stored.id, 0, stored, believe_wall_from, drop_from)
                )
        if dropped:
            self._drop(dropped)
        self._arm_owed()

    def _arm_owed(self) -> None:
        if self._owed and self._is_allowed and not self._closed:
            self._owed_alarm.by(self._owed[0].due)

    def _owed_due(self) -> None:
        now = self._clock.monotonic()
        while self._owed and self._owed[0].due <= now:
            self._start(partial(self._send_delivery_receipt, heapq.heappop(self._owed)))
        self._arm_owed()

    def _is_over(self, owed: _Owed) -> bool:
        now = self._clock.monotonic()
        if now < owed.believe_wall_from:
            return False
        return (
            now >= owed.drop_from
            or self._clock.utc() > owed.stored.receipt.arrived_at + RECEIPT_TIME_TO_REACH_QUEUE_US
        )

    async def _send_delivery_receipt(self, owed: _Owed) -> None:
        stored, receipt, attempts = owed.stored, owed.stored.receipt, owed.attempts
        if self._is_over(owed):
            log.warning(
                "receipt.expired url=%s message_id=%s@%s",
                receipt.url,
                receipt.uniquifier,
                receipt.lineage,
            )
            self._drop([stored.id])
            return

        async def build() -> Message:
            return delivery_receipt(
                receipt,
                identity=self._receiver.identity,
                uniquifier=await self._identifiers.take(),
                via=self.queue_url(receipt.queue),
                sent_at=self._clock.utc(),
            )

        outcome = await self.deliver(
            receipt.url,
            build,
            peer=receipt.peer,
            sender_name=receipt.sender_name,
            first=attempts == 0,
        )
        if outcome == "delivered":
            self._metrics.receipts_sent["delivery"] += 1
            self._forget([stored.id])
        elif outcome == "refused":
            log.warning("receipt.refused queue=%s url=%s", receipt.queue, receipt.url)
            self._forget([stored.id])
        else:
            busy = outcome == "busy"
            wait = (
                HOST_PENDING_MAX / HOST_RECEIPTS_PER_SECOND
                if busy
                else self._resend_table[min(attempts, len(self._resend_table) - 1)]
            )
            again = owed._replace(
                due=self._clock.monotonic() + wait, attempts=attempts + (not busy)
            )
            heapq.heappush(self._owed, again)
            self._arm_owed()

    def _forget(self, numbers: Sequence[int]) -> None:
        if not self._closed:  # After a close the table keeps them, and a repeat is harmless.
            self._journal.call(
                lambda transaction: state.delete_owed(transaction.connection, numbers), _ignore
            )

    def _drop(self, numbers: Sequence[int]) -> None:
        self._metrics.receipts_dropped += len(numbers)
        self._forget(numbers)

    # --- one receipt ------------------------------------------------------------------------------

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.ensure_future(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception:  # A bug in one receipt must not end the others.
            log.exception("receipt.failed")

    def queue_url(self, queue: str) -> str:
        """Return the URL of a local queue as peers know it: the ``<via>`` of its receipts."""
        return f"{self._public_base}/msmq/{quote(queue, safe='/$')}"

    def _host(self, name: str) -> _Host:
        host = self._hosts.get(name)
        if host is None:
            if len(self._hosts) >= HOSTS_MAX:
                idle = next((key for key, value in self._hosts.items() if value.pending == 0), None)
                if idle is not None:
                    del self._hosts[idle]
            host = self._hosts[name] = _Host(asyncio.Semaphore(HOST_POSTS_MAX))
        self._hosts.move_to_end(name)
        return host

    async def deliver(
        self,
        url: str,
        build: Callable[[], Awaitable[Message]],
        *,
        peer: str,
        sender_name: str | None,
        first: bool = True,
    ) -> Outcome:
        """Make one attempt to send a receipt to ``url``, and return its :data:`Outcome`.

        The URL is judged and its host looked up (:meth:`judged`), and the attempt waits for the
        host's turn. Then ``build`` is called and returns the receipt; an :class:`ApiError` of
        ``build`` means that no identifier is left, and the outcome is "failed". ``peer`` and
        ``sender_name`` name the sender of the message to which the receipt belongs. ``first``
        states that this is the first attempt, which alone is counted if it is blocked. Raises
        :class:`LocalProtocolError` if the receipt cannot be encoded.
        """

        async def send(parts: UrlParts, addresses: tuple[str, ...]) -> Outcome:
            try:
                message = await build()
            except ApiError as error:  # No message identifiers are left, for good.
                log.warning('receipt.not_made url=%s reason="%s"', url[:200], error)
                return "failed"
            return await self._post(parts, addresses, message)

        return await self.call(url, send, peer=peer, sender_name=sender_name, first=first)

    async def judged(
        self, url: str, *, peer: str, sender_name: str | None, first: bool = True
    ) -> tuple[UrlParts, tuple[str, ...]] | Outcome:
        """Judge a URL that a message from ``peer`` named, and look up its host.

        ``sender_name`` is the authenticated name of the sender, if there is one. Return the parts
        of the URL and the addresses to call, or the outcome if the URL cannot be called: "refused"
        for a malformed URL, "failed" if no rule allows it or the host has no address, and "busy" if
        too many look-ups of the peer wait. "refused" and "failed" are logged, and counted if
        ``first`` is set (:meth:`deliver`).
        """
        try:
            parts = split_receipt_url(url)
        except ValueError as error:
            self._block(Blocked("(malformed)", str(error), ""), url, first)
            return "refused"
        source = host_of_peer(peer)
        resolved = await self._lookups.addresses(
            self._resolve, parts.host, parts.port, peer=source, allowed=self._policy.names(parts)
        )
        if resolved is None:
            return "busy"
        if not resolved:
            # The sender waits for a receipt that cannot be sent. Make this as visible as a receipt
            # that is not allowed.
            hint = f"make {parts.host} known to this host: DNS, or a line in /etc/hosts"
            self._block(Blocked(parts.host, "the host has no address here", ""), url, first, hint)
            return "failed"
        verdict = self._policy.decide(
            parts, resolved, peer=source, tls_name=host_of_sender(sender_name)
        )
        if isinstance(verdict, Blocked):
            self._block(verdict, url, first)
            return "failed"
        return parts, verdict.addresses

    async def call(
        self,
        url: str,
        send: Callable[[UrlParts, tuple[str, ...]], Awaitable[Outcome]],
        *,
        peer: str,
        sender_name: str | None,
        first: bool = True,
    ) -> Outcome:
        """Judge a URL as :meth:`judged`, wait for the host's turn, and call ``send``.

        ``send`` gets the parts of the URL and the addresses to call. Return the outcome of
        ``send``, or the outcome of :meth:`judged` if the URL cannot be called. "busy" is returned
        if HOST_PENDING_MAX attempts wait for the host. Every call to a URL from a message is made
        through this method.
        """
        found = await self.judged(url, peer=peer, sender_name=sender_name, first=first)
        if isinstance(found, str):
            return found
        parts, addresses = found
        host = self._host(parts.host)
        if host.pending >= HOST_PENDING_MAX:
            return "busy"
        host.pending += 1
        try:
            now = self._clock.monotonic()
            turn = max(host.next_free, now)
            own = all(
                address_of(address) == address_of(host_of_peer(peer)) for address in addresses
            )
            host.next_free = turn + 1.0 / (
                OWN_SENDER_RECEIPTS_PER_SECOND if own else HOST_RECEIPTS_PER_SECOND
            )
            await asyncio.sleep(turn - now)
            async with host.posts, self._posts:
                return await send(parts, addresses)
        finally:
            host.pending -= 1

    async def _post(self, parts: UrlParts, addresses: tuple[str, ...], message: Message) -> Outcome:
        content_type, content = encode(message, boundary="")
        head = http_head(parts.request_target, parts.authority, content_type, len(content))
        tls = self._tls.context() if parts.scheme == "https" else None
        try:
            answer = await post(
                addresses, parts.port, head, content, tls=tls, server_hostname=parts.host
            )
        except PostFailedError as error:
            log.info("receipt.not_delivered url=%s reason=%s", message.destination, error)
            return "failed"
        if answer.status == 200:
            return "delivered"
        log.info(
            "receipt.answered url=%s status=%d reason=%s",
            message.destination,
            answer.status,
            answer.reason,
        )
        return "refused" if answer.status == 400 else "failed"

    def _block(self, verdict: Blocked, url: str, first: bool, hint: str | None = None) -> None:
        if first:
            self._metrics.receipts_blocked += 1
            key = (
                verdict.host
                if verdict.host in self.blocked or len(self.blocked) < WARNED_MAX
                else "other"
            )
            self.blocked[key] = self.blocked.get(key, 0) + 1
            patterns = self.blocked_patterns.setdefault(key, [])
            if (
                verdict.pattern
                and verdict.pattern not in patterns
                and len(patterns) < PATTERNS_OF_HOST_MAX
            ):
                patterns.append(verdict.pattern)
        warning = verdict.pattern or f"{verdict.host}: {verdict.reason}"
        if warning not in self._warned and len(self._warned) < WARNED_MAX:
            self._warned.add(warning)
            if hint is None:
                hint = (
                    f"allow it with: --allow-url {verdict.pattern}"
                    if verdict.pattern
                    else "no pattern can allow it"
                )
            log.warning(
                'receipt.blocked url=%r reason="%s" hint="%s"', url[:200], verdict.reason, hint
            )


def _ignore(result: None, error: BaseException | None) -> None:
    """Do nothing with the result of a deletion: the journal reports a failure to the process."""
