"""The sending queue manager of [MC-MQSRM] 3.1.7.2: outgoing queues, streams, timers; and the faults a network adds.

:class:`ForeignQueueManager` owns the identity, the counters and the ledger. :class:`MessageSender` sends regular and
durable messages over several connections. A stream has its own module, ``stream_sender``.

Faults are drawn from a seeded generator, so that two runs with one seed inject the same ones in the same places.
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
"""The same shape for tests. The first is longer than the 0.5 s a receiver waits before its receipt."""
FAST_RETRANSMISSION_TIMEOUT = 0.25
"""Seconds before a message without an answer is sent again; Windows' timer is coarser, tests are short."""
GHOSTS_MAX = 400
"""How many old POSTs a sender remembers to send again one day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often each fault is injected, as a chance between 0 and 1 for each message."""

    lost_reply: float = 0.0
    """The request goes out whole, the socket is closed before the answer is read."""
    duplicate: float = 0.0
    """The same POST at once on a second connection."""
    reorder: float = 0.0
    """This message goes out after its successor, on another connection."""
    ghost: float = 0.0
    """An old POST, perhaps of an earlier stream, is sent again."""
    expire: float = 0.0
    """A stream message expires unsent: its position stays empty, and ``<previous>`` of the next one says so."""


NO_FAULTS = Faults()


class StreamReceiptListener(Protocol):
    """Whoever sends a stream and wants to hear of its receipts."""

    def receipted(self, receipt: ForeignReceipt) -> None:
        """A receipt that names one of its streams arrived."""


@dataclass(slots=True)
class ForeignQueueManager:
    """A sending queue manager: its identity, its counters, where it sends to and where it wants its receipts."""

    endpoint: Callable[[], tuple[str, int]]
    """Host and port of the receiver, asked at each dial: a restarted receiver may have moved."""
    ledger: Ledger
    receipts_url: str = ""
    """``sendReceiptsTo`` of our streams."""
    guid: str = field(default_factory=lambda: str(uuid.uuid4()))
    seed: int = 0
    host_name: str | None = None
    """The host in ``<to>``; default: the endpoint's."""
    reply_timeout: float = REPLY_TIMEOUT
    retransmission_timeout: float = FAST_RETRANSMISSION_TIMEOUT
    resend_table: tuple[float, ...] = FAST_RESEND_TABLE
    message_id_ordinal: int = 1
    """MessageIdOrdinal of 3.1.1.1.5."""
    stream_id_ordinal: int = 1
    """StreamIdOrdinal of 3.1.1.1.5."""
    streams: dict[str, StreamReceiptListener] = field(default_factory=dict)
    """By stream id: who wants to hear of a receipt."""
    awaiting_delivery: dict[str, Entry] = field(default_factory=dict)
    """By ``uuid:N@GUID``: messages that asked for a delivery receipt."""
    started_at: int = field(default_factory=lambda: int(time.time()))
    tls: ssl.SSLContext | None = None
    """Send over HTTPS, with these authorities and this certificate."""

    def queue_url(self, queue: str) -> str:
        """Where a queue of the receiver is: what goes into ``<to>``."""
        host, port = self.endpoint()
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{self.host_name or host}:{port}/msmq/{queue}"

    def wire(self) -> Wire:
        """A new connection."""
        return Wire(self.endpoint, reply_timeout=self.reply_timeout, tls=self.tls)

    def next_id(self) -> int:
        """The next MessageIdOrdinal; never used twice."""
        self.message_id_ordinal += 1
        return self.message_id_ordinal - 1

    def next_stream_id(self) -> int:
        """A stream number: start time in the high half, ordinal in the low half (2.2.5.3.1)."""
        self.stream_id_ordinal += 1
        return self.started_at << 32 | self.stream_id_ordinal - 1

    def on_receipt(self, receipt: ForeignReceipt) -> None:
        """A receipt came to one of our queues: find out for what, and whether it may say so (2.2.5.4, 2.2.5.6)."""
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
    """A message in an outgoing queue: its bytes are fixed, whatever happens to it (2.2.5.1.2: sentAt never changes)."""

    message: ForeignMessage
    raw: bytes
    entry: Entry

    @property
    def position(self) -> int:
        """``<current>``, 0 without a stream."""
        return self.message.stream.current if self.message.stream else 0


def outgoing(message: ForeignMessage, queue: str, dialect: Dialect) -> Outgoing:
    """Serialise a message and open its entry (which reaches the ledger at the first send)."""
    kind = "stream" if message.stream else "durable" if message.durable else "regular"
    entry = Entry(
        key=(message.lineage, message.uniquifier),
        queue=queue,
        kind=kind,  # type: ignore[arg-type]  # one of the three literals by construction
        body=digest(message.body),
        stream_id=message.stream.id if message.stream else None,
        position=message.stream.current if message.stream else 0,
        wants_receipt=message.stream is not None or message.delivery_receipt_to is not None,
    )
    return Outgoing(message, post(message, dialect).raw, entry)


class Copies:
    """Second copies of a POST, sent beside the ordinary traffic, each on a connection of its own."""

    def __init__(self, manager: ForeignQueueManager) -> None:
        self._manager = manager
        self._old: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, item: Outgoing, *, conclusive: bool) -> None:
        """Send the same POST now. ``conclusive``: its 200 means that the message was accepted."""

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
        """Keep a POST that is done with, for :meth:`ghost`."""
        if len(self._old) < GHOSTS_MAX:
            self._old.append(raw)

    def ghost(self, dice: random.Random) -> None:
        """Send one of the remembered POSTs again; whatever the answer is, it tells the sender nothing."""

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
        """Give up what is still on its way."""
        for task in self._tasks:
            task.cancel()


class MessageSender:
    """Regular and durable messages to one queue, over ``connections`` wires at once: their order is nobody's promise."""

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
        """The next message, serialised and numbered."""
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
        """Send each body (and whether it is durable) at ``rate`` a second; return when each was answered 200 or refused."""
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
        """Send one message until it is answered (3.1.7.2.5): 200 and 4xx end it, anything else is tried again."""
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
