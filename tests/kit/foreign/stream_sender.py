"""One outgoing queue with its stream ([MC-MQSRM] 3.1.7.2.3) and timers (3.1.2.2, 3.1.6.2).

A message gets its position when the application passes the message to the sender. The message stays
in the outgoing queue, whatever the HTTP answer was, until a stream receipt covers it. When the
Stream Receipt Wait Timer fires, every message that was sent and is not covered is sent again. When
all messages of a stream are covered, the next message starts a new stream with a higher number
(3.1.1.2).

The document lets ``ResendIntervalIndex`` grow at each receipt (3.1.5.1.8.2) and does not say that
the index grows at a time-out. Its appendix <18> does say so. Here the index grows at a time-out and
is reset at progress.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import NamedTuple

from srmp_spark.testing.foreign.messages import (
    Dialect,
    ForeignMessage,
    ForeignReceipt,
    ForeignStream,
)
from tests.kit.foreign.http import NoAnswerError, Wire
from tests.kit.foreign.senders import (
    NO_FAULTS,
    Copies,
    Faults,
    ForeignQueueManager,
    Outgoing,
    outgoing,
)

STREAM_WINDOW = 25
"""Most stream messages that are sent and that no receipt covers yet.

At the limit the sender waits. A small window keeps a round of resends short.
"""
IDLE_POLL = 0.05
"""Seconds between two checks of the timer when there is nothing to send."""


class SeenReceipt(NamedTuple):
    """One receipt with the times of the messages that it covered, for tests of receipt timing.

    Times are in seconds of ``time.monotonic``.
    """

    stream_id: str
    last_ordinal: int
    at: float
    last_sent_at: float
    """Time at which the message of ``last_ordinal`` was first sent."""
    oldest_acknowledged_at: float | None
    """Time at which the first message that this receipt newly covers was answered 200 in order.

    ``None`` if that is not known.
    """


class StreamSender:
    """Sends the messages of one application to one transactional queue.

    ``window`` is the most messages that are sent and not covered by a receipt. ``seen`` has the
    receipts so far.
    """

    def __init__(
        self,
        manager: ForeignQueueManager,
        queue: str,
        *,
        faults: Faults = NO_FAULTS,
        dialect: Dialect = Dialect.EXAMPLES,
        window: int = STREAM_WINDOW,
        gap: float = 0.0,
    ) -> None:
        self.manager = manager
        self.queue = queue
        self.faults = faults
        self.dialect = dialect
        self.window = window
        self.gap = gap
        """Seconds of pause after each first send."""
        self.seen: list[SeenReceipt] = []
        self.streams_started = 0
        self._random = random.Random(f"{manager.seed}/{queue}/{manager.guid}/stream")
        self._copies = Copies(manager)
        self._waiting: list[Outgoing] = []
        """Messages that were enqueued and not yet sent."""
        self._sent: dict[int, Outgoing] = {}
        """Position → message that was sent and that no receipt covers yet."""
        self._all: dict[int, Outgoing] = {}
        """Position → message, for every message of the live stream."""
        self._stream_number = 0
        self._position = 0
        self._last_kept = 0
        """Highest position that was enqueued and did not expire.

        This is the ``<previous>`` of the next message.
        """
        self._accepted_through = 0
        """Highest position up to which all messages are known to be accepted."""
        self._resend_at: float | None = None
        self._resend_index = 0
        self._closed = False

    # --- methods for the application --------------------------------------------------------------

    def enqueue(self, body: bytes, *, label: str = "foreign stream", last: bool = True) -> Outgoing:
        """Enqueue a message and return it, with its identifier, stream and position (3.1.7.2.3).

        :meth:`run` sends it. With the fault ``expire`` a position before it may be left out.
        """
        manager = self.manager
        if not self._waiting and not self._sent:
            self._start_stream()
        elif self._random.random() < self.faults.expire:
            manager.ledger.fault("expired unsent")
            self._position += 1
        self._position += 1
        stream = ForeignStream(
            guid=manager.guid,
            ordinal=self._stream_number,
            current=self._position,
            previous=self._last_kept,
            receipts_to=manager.receipts_url if self._position == 1 else None,
        )
        message = ForeignMessage(
            to=manager.queue_url(self.queue),
            lineage=manager.guid,
            uniquifier=manager.next_id(),
            label=label,
            sent_at=int(time.time()),
            body=body,
            # The element MUST be present with a stream (2.2.5.2.1).
            durable=True,
            stream=stream,
            priority=0,
            first_in_transaction=True,
            last_in_transaction=last,
        )
        item = outgoing(message, self.queue, self.dialect)
        self._last_kept = self._position
        self._waiting.append(item)
        self._all[item.position] = item
        return item

    def close(self) -> None:
        """Declare that no more messages follow. :meth:`run` then returns when all are receipted."""
        self._closed = True

    @property
    def unreceipted(self) -> int:
        """Return the number of messages of this queue that no receipt covers yet."""
        return len(self._waiting) + len(self._sent)

    def _start_stream(self) -> None:
        self._stream_number = self.manager.next_stream_id()
        self._position = self._last_kept = self._accepted_through = 0
        self._all.clear()
        self.streams_started += 1
        self.manager.streams[f"uid:{self.manager.guid}\\{self._stream_number}"] = self

    # --- sending ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send and resend messages. Return after :meth:`close` when receipts cover all of them."""
        wire = self.manager.wire()
        try:
            while self._waiting or self._sent or not self._closed:
                if self._resend_at is not None and time.monotonic() >= self._resend_at:
                    await self._resend(wire)
                elif self._waiting and len(self._sent) < self.window:
                    await self._send_next(wire)
                    await asyncio.sleep(self.gap)
                else:
                    await asyncio.sleep(IDLE_POLL)
            await self._copies.finish()
        finally:
            self._copies.cancel()
            await wire.close()

    async def _send_next(self, wire: Wire) -> None:
        item = self._waiting[0]
        swap = (
            len(self._waiting) > 1
            and item.position > 1
            and self._random.random() < self.faults.reorder
        )
        if swap:
            self.manager.ledger.fault("reorder")
            successor = self._waiting.pop(1)
            self._sent[successor.position] = successor
            await self._deliver(wire, successor)
        if self._waiting and self._waiting[0] is item:
            self._waiting.pop(0)
            self._sent[item.position] = item
            await self._deliver(wire, item)
        # The timer is "started after sending the first message" (3.1.2.2).
        if self._resend_at is None:
            self._restart_timer()

    async def _resend(self, wire: Wire) -> None:
        """Send again every message that awaits a stream receipt (3.1.6.2)."""
        self._resend_index = min(self._resend_index + 1, len(self.manager.resend_table) - 1)
        for position in sorted(self._sent):
            # A receipt may arrive during the sends before and remove the message.
            item = self._sent.get(position)
            if item is not None:
                self.manager.ledger.fault("resent for want of a receipt")
                await self._deliver(wire, item)
        self._restart_timer()

    def _restart_timer(self) -> None:
        self._resend_at = (
            time.monotonic() + self.manager.resend_table[self._resend_index] if self._sent else None
        )

    async def _deliver(self, wire: Wire, item: Outgoing) -> None:
        """Send one message until it is answered 200 or refused, or a receipt covers it.

        A 200 acknowledges the message only if everything before it in the stream is accepted.
        """
        ledger, dice, entry = self.manager.ledger, self._random, item.entry
        if dice.random() < self.faults.ghost:
            self._copies.ghost(dice)
        if dice.random() < self.faults.duplicate:
            ledger.fault("duplicate")
            self._copies.send(item, conclusive=False)
        lose = dice.random() < self.faults.lost_reply
        while item.position in self._sent and entry.refused is None:
            stream = item.message.stream
            in_order = stream is not None and stream.previous <= self._accepted_through
            ledger.sending(entry)
            if lose:
                ledger.fault("lost reply")
            try:
                answer = await wire.exchange(item.raw, lose_reply=lose)
            except NoAnswerError:
                ledger.answered(entry, None, conclusive=False)
            else:
                ledger.answered(entry, answer.status, conclusive=in_order)
                if answer.status == 200:
                    if in_order and stream is not None and stream.ordinal == self._stream_number:
                        self._accepted_through = max(self._accepted_through, item.position)
                    return
            lose = False
            await asyncio.sleep(self.manager.retransmission_timeout)
        # A 400 deletes the message (3.1.7.2.5).
        if entry.refused is not None:
            self._sent.pop(item.position, None)

    def receipted(self, receipt: ForeignReceipt) -> None:
        """Remove all sent messages up to ``lastOrdinal`` from the queue (3.1.5.1.8.1, 3.1.5.1.8.3).

        A receipt of a stream other than the live one is ignored. A receipt for a message that was
        never sent is recorded as a violation.
        """
        last, ledger = receipt.last_ordinal, self.manager.ledger
        if receipt.stream_id != f"uid:{self.manager.guid}\\{self._stream_number}" or last is None:
            # The receipt is a late copy, for a stream that is over.
            return
        item = self._all.get(last)
        if item is None or item.entry.first_sent_at is None:
            ledger.violation(f"{receipt.stream_id}: a receipt for {last}, which was never sent")
            return
        covered = [position for position in self._sent if position <= last]
        oldest = min(
            (self._sent[position].entry for position in covered),
            key=lambda entry: entry.position,
            default=None,
        )
        known_since = oldest.acknowledged_at if oldest else None
        self.seen.append(
            SeenReceipt(receipt.stream_id, last, receipt.at, item.entry.first_sent_at, known_since)
        )
        for position in covered:
            done = self._sent.pop(position)
            ledger.receipted(done.entry, receipt.at)
            self._copies.remember(done.raw)
        if covered:
            self._accepted_through = max(self._accepted_through, last)
            self._resend_index = 0
            self._restart_timer()
