"""The sending queue manager of [MC-MQSRM] 3.1.7.2, with the faults that a network adds.

:class:`ForeignQueueManager` has the identity, the counters and the ledger. :class:`MessageSender`
sends regular and durable messages over several connections. Streams have their own module,
``stream_sender``.

Faults are drawn from a seeded generator, so that two runs with the same seed inject the same faults
in the same places.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from srmp_spark.testing.foreign.messages import (
    CLASS_ACK_REACH_QUEUE,
    CLASS_ORDER_ACK,
    ORDERING_ACK,
    Dialect,
    ForeignMessage,
    ForeignReceipt,
    post,
)
from tests.kit.foreign.http import REPLY_TIMEOUT, NoAnswerError, Wire
from tests.kit.foreign.ledger import Entry, Ledger, digest

WINDOWS_RESEND_TABLE = (30.0,) * 3 + (300.0,) * 3 + (1800.0,) * 3 + (21_600.0,)
"""Seconds between two sends of an unreceipted stream message ([MC-MQSRM] appendix A <18>)."""
FAST_RESEND_TABLE = (1.2, 1.2, 1.2, 2.0, 2.0, 2.0, 3.0)
"""A resend table of the same shape for tests, in seconds.

The first value is longer than the 0.5 s that a receiver waits before it sends a receipt.
"""
FAST_RETRANSMISSION_TIMEOUT = 0.25
"""Seconds before a message is sent again that was answered neither 200 nor with a refusal.

Windows' timer is longer; this one is for short tests.
"""
GHOSTS_MAX = 400
"""Most old POSTs that a sender keeps to send them again later. Further ones are not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Probability of each fault, from 0 to 1, for each message."""

    lost_reply: float = 0.0
    """The request is sent completely, and the socket is closed before the answer is read."""
    duplicate: float = 0.0
    """The same POST is sent at the same time on a second connection."""
    reorder: float = 0.0
    """The message is sent after its successor.

    A stream message is swapped with its successor. Another message is delayed for a short time.
    """
    ghost: float = 0.0
    """An old POST is sent again, perhaps one of an earlier stream."""
    expire: float = 0.0
    """A stream message expires unsent.

    Its position stays empty, and ``<previous>`` of the next message states so.
    """


NO_FAULTS = Faults()


class StreamReceiptListener(Protocol):
    """A sender of streams that is notified of their receipts."""

    def receipted(self, receipt: ForeignReceipt) -> None:
        """Handle a stream receipt for one of this sender's streams."""


@dataclass(slots=True)
class ForeignQueueManager:
    """A sending queue manager: its identity and counters, the receiver, and the receipts URL.

    Times are in seconds.
    """

    endpoint: Callable[[], tuple[str, int]]
    """Returns host and port of the receiver.

    The function is called at each connect, because a restarted receiver may have a new port.
    """
    ledger: Ledger
    receipts_url: str = ""
    """URL of the queue for receipts: the ``sendReceiptsTo`` of this queue manager's streams."""
    guid: str = field(default_factory=lambda: str(uuid.uuid4()))
    seed: int = 0
    host_name: str | None = None
    """Host in ``<to>``. The default is the host of the endpoint."""
    reply_timeout: float = REPLY_TIMEOUT
    retransmission_timeout: float = FAST_RETRANSMISSION_TIMEOUT
    resend_table: tuple[float, ...] = FAST_RESEND_TABLE
    message_id_ordinal: int = 1
    """MessageIdOrdinal of 3.1.1.1.5: number of the next message."""
    stream_id_ordinal: int = 1
    """StreamIdOrdinal of 3.1.1.1.5: ordinal of the next stream."""
    streams: dict[str, StreamReceiptListener] = field(default_factory=dict)
    """Stream id → the sender that is notified of receipts for the stream."""
    awaiting_delivery: dict[str, Entry] = field(default_factory=dict)
    """``uuid:N@GUID`` → entry of a message that requested a delivery receipt."""
    started_at: int = field(default_factory=lambda: int(time.time()))
    tls: ssl.SSLContext | None = None
    """TLS settings, with trusted authorities and the client certificate.

    With this value messages are sent over HTTPS.
    """

    def queue_url(self, queue: str) -> str:
        """Return the URL of a queue of the receiver, as ``<to>`` has it."""
        host, port = self.endpoint()
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{self.host_name or host}:{port}/msmq/{queue}"

    def wire(self) -> Wire:
        """Return a new connection to the receiver, which is not open yet."""
        return Wire(self.endpoint, reply_timeout=self.reply_timeout, tls=self.tls)

    def next_id(self) -> int:
        """Return the next MessageIdOrdinal, and count it up. No value is used twice."""
        self.message_id_ordinal += 1
        return self.message_id_ordinal - 1

    def next_stream_id(self) -> int:
        """Return a new stream number (2.2.5.3.1).

        The start time is in its high 32 bits, the ordinal in its low 32 bits.
        """
        self.stream_id_ordinal += 1
        return self.started_at << 32 | self.stream_id_ordinal - 1

    def on_receipt(self, receipt: ForeignReceipt) -> None:
        """Pass a stream receipt to its sender, or record a delivery receipt in the ledger.

        The fields are checked (2.2.5.4, 2.2.5.6), and each broken rule is recorded in the ledger as
        a violation. A receipt for an unknown stream or message is otherwise ignored.
        """
        if receipt.headers.get("content-type", "").split(";")[0].strip() != "text/xml":
            self.ledger.violation(
                f"a receipt is text/xml, not {receipt.headers.get('content-type')!r} (chapter 4)"
            )
        if receipt.stream_id is not None and receipt.commitment_of is None:
            sender = self.streams.get(receipt.stream_id)
            if receipt.action != ORDERING_ACK or receipt.message_class != CLASS_ORDER_ACK:
                self.ledger.violation(
                    f"a stream receipt with action {receipt.action!r} and class "
                    f"{receipt.message_class}"
                )
            if sender is not None and receipt.last_ordinal is not None:
                self.ledger.stream_receipts += 1
                sender.receipted(receipt)
        elif receipt.delivery_of is not None:
            entry = self.awaiting_delivery.get(receipt.delivery_of)
            if entry is not None:
                self.ledger.delivery_receipts += 1
                if receipt.message_class != CLASS_ACK_REACH_QUEUE:
                    self.ledger.violation(
                        f"a delivery receipt of class {receipt.message_class} (3.1.5.1.5)"
                    )
                if entry.first_sent_at is None:
                    self.ledger.violation(
                        f"a delivery receipt for {receipt.delivery_of}, which was never sent"
                    )
                self.ledger.receipted(entry, receipt.at)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message in an outgoing queue. Its bytes never change (2.2.5.1.2: sentAt never changes).

    ``raw`` is the whole POST, ``entry`` the message's entry of the ledger.
    """

    message: ForeignMessage
    raw: bytes
    entry: Entry

    @property
    def position(self) -> int:
        """Return ``<current>`` of the message, or 0 without a stream."""
        return self.message.stream.current if self.message.stream else 0


def outgoing(message: ForeignMessage, queue: str, dialect: Dialect) -> Outgoing:
    """Serialise a message and create its entry, which enters the ledger at the first send.

    Raises :class:`ValueError` if the destination of the message is no HTTP URL.
    """
    kind = "stream" if message.stream else "durable" if message.durable else "regular"
    entry = Entry(
        key=(message.lineage, message.uniquifier),
        queue=queue,
        # ``kind`` is one of the three literals by construction.
        kind=kind,  # type: ignore[arg-type]
        body=digest(message.body),
        stream_id=message.stream.id if message.stream else None,
        position=message.stream.current if message.stream else 0,
        wants_receipt=message.stream is not None or message.delivery_receipt_to is not None,
    )
    return Outgoing(message, post(message, dialect).raw, entry)


class Copies:
    """Sends second copies of POSTs alongside the normal traffic, each on its own connection."""

    def __init__(self, manager: ForeignQueueManager) -> None:
        self._manager = manager
        self._old: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, item: Outgoing, *, conclusive: bool) -> None:
        """Start to send the same POST again, and record the send and its answer in the ledger.

        ``conclusive`` means that a 200 proves the message accepted.
        """

        async def copy() -> None:
            wire = self._manager.wire()
            self._manager.ledger.sending(item.entry)
            try:
                answer = await wire.exchange(item.raw)
                self._manager.ledger.answered(item.entry, answer.status, conclusive=conclusive)
            except NoAnswerError:
                self._manager.ledger.answered(item.entry, None, conclusive=False)
            await wire.close()

        self._keep(copy())

    def remember(self, raw: bytes) -> None:
        """Keep a POST whose delivery is finished, for :meth:`ghost`; at most :data:`GHOSTS_MAX`."""
        if len(self._old) < GHOSTS_MAX:
            self._old.append(raw)

    def ghost(self, dice: random.Random) -> None:
        """Start to send one of the kept POSTs again, if there is one. Its answer is ignored."""

        async def copy(raw: bytes) -> None:
            wire = self._manager.wire()
            with contextlib.suppress(NoAnswerError):
                await wire.exchange(raw)
            await wire.close()

        if self._old:
            self._manager.ledger.fault("ghost")
            self._keep(copy(dice.choice(self._old)))

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait until every copy was answered or lost."""
        await asyncio.gather(*self._tasks)

    def cancel(self) -> None:
        """Cancel the copies that are still in flight."""
        for task in self._tasks:
            task.cancel()


class MessageSender:
    """Sends regular and durable messages to one queue, over several connections at once.

    No order is promised between these messages. ``delivery_receipts`` is the share, from 0 to 1, of
    messages that request a delivery receipt.
    """

    def __init__(
        self,
        manager: ForeignQueueManager,
        queue: str,
        *,
        connections: int = 4,
        faults: Faults = NO_FAULTS,
        dialect: Dialect = Dialect.EXAMPLES,
        delivery_receipts: float = 0.0,
    ) -> None:
        self.manager = manager
        self.queue = queue
        self.connections = connections
        self.faults = faults
        self.dialect = dialect
        self.delivery_receipts = delivery_receipts
        self._random = random.Random(f"{manager.seed}/{queue}/messages")
        self._copies = Copies(manager)

    def write(self, body: bytes, *, durable: bool, label: str = "foreign") -> Outgoing:
        """Create the next message, with its number and its serialised bytes. It is not sent."""
        manager = self.manager
        wants = self._random.random() < self.delivery_receipts
        message = ForeignMessage(
            to=manager.queue_url(self.queue),
            lineage=manager.guid,
            uniquifier=manager.next_id(),
            label=label,
            sent_at=int(time.time()),
            body=body,
            durable=durable,
            delivery_receipt_to=manager.receipts_url if wants else None,
        )
        item = outgoing(message, self.queue, self.dialect)
        if wants:
            manager.awaiting_delivery[f"uuid:{message.uniquifier}@{message.lineage}"] = item.entry
        return item

    async def run(self, bodies: Iterable[tuple[bytes, bool]], *, rate: float) -> None:
        """Send all ``bodies`` at ``rate`` messages a second.

        Each item of ``bodies`` is a body and whether the message is durable. The method returns
        when every message was answered 200 or refused.
        """
        pending: asyncio.Queue[Outgoing | None] = asyncio.Queue(maxsize=self.connections * 2)
        workers = [asyncio.create_task(self._work(pending)) for _ in range(self.connections)]
        begun = time.monotonic()
        try:
            for number, (body, durable) in enumerate(bodies):
                await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
                await pending.put(self.write(body, durable=durable))
            for _ in workers:
                await pending.put(None)
            await asyncio.gather(*workers)
            await self._copies.finish()
        finally:
            for task in workers:
                task.cancel()
            self._copies.cancel()

    async def _work(self, pending: asyncio.Queue[Outgoing | None]) -> None:
        wire = self.manager.wire()
        try:
            while (item := await pending.get()) is not None:
                await self.deliver(wire, item)
        finally:
            await wire.close()

    async def deliver(self, wire: Wire, item: Outgoing) -> None:
        """Send one message until a 200 or a refusal answers it (3.1.7.2.5).

        A 4xx other than 408 and 429 is a refusal. After any other answer, or none, the message is
        sent again.
        """
        ledger, dice, faults = self.manager.ledger, self._random, self.faults
        if dice.random() < faults.reorder:
            ledger.fault("reorder")
            await asyncio.sleep(dice.uniform(0.0, 0.2))
        if dice.random() < faults.duplicate:
            ledger.fault("duplicate")
            self._copies.send(item, conclusive=True)
        if dice.random() < faults.ghost:
            self._copies.ghost(dice)
        lose = dice.random() < faults.lost_reply
        while item.entry.acknowledged_at is None and item.entry.refused is None:
            ledger.sending(item.entry)
            if lose:
                ledger.fault("lost reply")
            try:
                answer = await wire.exchange(item.raw, lose_reply=lose)
                ledger.answered(item.entry, answer.status, conclusive=True)
            except NoAnswerError:
                ledger.answered(item.entry, None, conclusive=False)
            lose = False
            if item.entry.acknowledged_at is None and item.entry.refused is None:
                await asyncio.sleep(self.manager.retransmission_timeout)
        self._copies.remember(item.raw)
