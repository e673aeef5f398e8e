r"""The sending half of Stream ([MC-MQSRM] 3.1.1.1.6): numbers, ``<previous>``, ``<start>``, and the wait for stream receipts.

Theory of operation. A stream ``uid:GUID\N`` begins with position 1 and ends when everything in it is acknowledged; the next
messages then begin one with a higher N (3.1.1.2). A position is the message's serial minus ``base``: it was fixed when the
message was committed, and each sending says the same. 200 means only that the message need not be sent at once again. What
frees it is a stream receipt of exactly this stream that covers its position.

Without one the Stream Receipt Wait Timer (3.1.2.2) ends and everything that is not acknowledged goes again (3.1.6.2). Where
we leave the text, and why:

- ResendIntervalIndex grows with each time-out and falls to zero with progress. As printed (3.1.5.1.8.2) it grows with each
  receipt and never otherwise: the better the peer answers, the longer we would wait.
- The timer also restarts with progress, and with the 200 to the first message that awaits a receipt, because no receipt comes
  before it: a large message on a slow line takes longer than the timer. The timer does not interrupt a pass that is still under
  way, nor a message that has no answer yet.
- ``<previous>`` names the nearest message before this one that is still in the queue, else the last that was acknowledged:
  what the peer has, or will have been sent before. 3.1.7.2.3 names the number before, also when that one was taken out
  unsent; a peer would wait for it for ever. It changes only when a message between was taken out, and goes out only when
  that is stored: after a crash the dead one would leave after all, be dropped as a repeat, and be told as delivered.
- Only position 1 carries ``<start>`` (2.2.5.3.4), each time it is sent. When it is taken out before anything of the stream
  was acknowledged, no peer could take the rest: the rest begins a new stream, from 1, under the same identifiers.
- A stream that has used up its positions is sent to its end and acknowledged before the next one begins.
"""

from __future__ import annotations

from srmp_spark.message import Message, Receipt, StreamId, StreamPosition
from srmp_spark.srmp.outgoing_effects import (
    DeadReason,
    EarlierStream,
    Load,
    MessageState,
    OutgoingQueueRow,
    ReceiptVerdict,
    Send,
    StoredMessage,
)
from srmp_spark.srmp.outgoing_ledger import OutgoingLedger
from srmp_spark.srmp.outgoing_queue import OutgoingQueue
from srmp_spark.srmp.outgoing_states import FINAL_RECEIPT_GRACE_S, MAY_SEND, SenderSettings
from srmp_spark.srmp.receipts_address import query_of, same_secret, without_secret
from srmp_spark.srmp.serial_runs import SerialRuns

EARLIER_STREAMS_MAX = 16
"""Streams before the live one that final stream receipts may still name. One more each time that an operator begins anew while
receipts are missing; what the oldest then waits for is given up when its time is over."""


class OutgoingStream(OutgoingQueue):
    """The stream messages to one destination."""

    def __init__(
        self,
        row: OutgoingQueueRow,
        identity: str,
        settings: SenderSettings,
        ledger: OutgoingLedger,
        finals: SerialRuns,
    ) -> None:
        super().__init__(row, identity, settings, ledger)
        if row.stream_ordinal:
            ledger.streams[row.stream_ordinal] = self.key
        self.earlier = tuple(
            each._replace(receipts_url=each.receipts_url or row.receipts_url)
            for each in row.earlier
        )
        for stream in row.earlier:
            ledger.streams[stream.ordinal] = self.key
        self.ordinal = row.stream_ordinal
        self.base = row.base
        self.receipts_url = row.receipts_url
        self.resend_interval_index = row.resend_interval_index
        self.repeats = 0
        """How often everything without a receipt was sent again since the last receipt, in the life of the process."""
        self.started_at = row.started_at
        self.finals = finals
        """Serials that ask for a final stream receipt and have none (AwaitingFinalStreamReceipt)."""
        self.last_live = row.acknowledged_to
        """Serial of the message that was handed out last: the one before the next."""
        self.before_last = row.acknowledged_to
        """Serial of the one before that."""
        self.receipts = 0
        """Stream receipts for this stream since the process began (EodLastAckCount)."""
        self.last_receipt_at = 0
        """When the last of them came, microseconds since 1970, UTC (EodLastAckTime)."""
        self.sent_to = max(row.released_to, row.base)
        """The highest serial that left in *this* stream: no receipt can be for a later one."""
        self.pass_to = self.sent_to
        """Where the last pass through everything unacknowledged ends."""
        self.needs_receipt = False
        """Nothing may leave before a receipt comes."""
        self.receipt_wait_at: float | None = None
        self.final_wait_at: float | None = None
        self._finals_since = row.finals_since
        self._finals_mark = row.finals_to
        self._resumes_wait = True
        """The wait for final receipts of the process before has not been resumed: no clock is known yet."""
        self.restart = False
        """An operator wants the rest in a new stream."""

    def row(self) -> OutgoingQueueRow:
        """As it is saved."""
        return (
            super()
            .row()
            ._replace(
                stream_ordinal=self.ordinal,
                base=self.base,
                receipts_url=self.receipts_url,
                resend_interval_index=self.resend_interval_index,
                started_at=self.started_at,
                finals_since=self._finals_since,
                finals_to=self._finals_mark,
                earlier=self.earlier,
            )
        )

    @property
    def id(self) -> StreamId:
        """Stream.Id."""
        return StreamId(self.identity, self.ordinal)

    @property
    def ended(self) -> bool:
        """Everything is acknowledged: the next message begins another stream ([MC-MQSRM] 3.1.7.6)."""
        return len(self.finals) == 0 and (self.acknowledged_to >= self.end or self._nothing_left)

    @property
    def unacknowledged(self) -> int:
        """Messages that left and wait for a stream receipt; those taken out in between are counted too."""
        return max(self.cursor - self.acknowledged_to, 0)

    @property
    def unread(self) -> int:
        """Acknowledged messages that wait for a final stream receipt (EodNoReadCount)."""
        return sum(last - first + 1 for first, last in self.finals.inside(1, self.acknowledged_to))

    def message_state(self, serial: int) -> MessageState:
        """Where a message that is still in the outbox stands; after a restart what is in doubt counts as awaiting."""
        if serial <= self.acknowledged_to:
            return "awaiting_final_stream_receipt"
        return (
            "awaiting_stream_receipt" if serial <= self.held_to else super().message_state(serial)
        )

    # --- identity -----------------------------------------------------------------------------------------------------------

    def append(self, count: int, at: int, receipts_url: str, final_receipts: bool) -> int:
        """Give out ``count`` serials, in a new stream if this one has ended; the first of them."""
        if self.ordinal == 0 or self.ended:
            self._begin(self.end, at)
            self.receipts_url = self.ledger.replaces_receipts_url(
                self.key.destination, receipts_url
            )
        first, self.end = self.end + 1, self.end + count
        if final_receipts:
            self.finals.append(first, self.end)
        self.touch()
        return first

    def _begin(self, base: int, at: int) -> None:
        """Begin a stream behind ``base``, with position 1 ([MC-MQSRM] 3.1.7.2.3). It leaves when that is stored."""
        for send in self.in_flight.values():
            self.doubt(send)
        self.pass_number += 1
        if self.acknowledged_to > self.base and self.finals.inside(
            self.base + 1, self.acknowledged_to
        ):
            self.earlier += (
                EarlierStream(self.ordinal, self.base, self.acknowledged_to, self.receipts_url),
            )
        else:
            self.ledger.streams.pop(self.ordinal, None)
        self._forget_earlier()
        self.ordinal = self.ledger.new_stream_ordinal(at)
        self.ledger.streams[self.ordinal] = self.key
        if self.ledger.receipts_url:
            self.receipts_url = self.ledger.replaces_receipts_url(
                self.key.destination, self.ledger.receipts_url
            )
        self.base = self.sent_to = self.pass_to = self.last_live = self.before_last = base
        self.repeats = 0
        self.receipts = self.last_receipt_at = 0
        self.acknowledged_to = max(self.acknowledged_to, base)
        self.cursor = base
        self.loaded_to = max(self.loaded_to, base)
        self.resend_interval_index = 0
        self.receipt_wait_at = None
        self.started_at = at
        self.restart = False
        self.window = 1
        self.window_max = self.settings.in_flight_max
        self.touch()
        self.waits_for = self.ledger.generation + 1

    def _forget_earlier(self) -> None:
        """Streams whose messages have all been told of, and the oldest of too many: their messages wait in vain."""
        left = tuple(each for each in self.earlier if self.finals.inside(each.base + 1, each.last))[
            -EARLIER_STREAMS_MAX:
        ]
        for gone in set(self.earlier) - set(left):
            self.ledger.streams.pop(gone.ordinal, None)
        self.earlier = left

    def believes(self, ordinal: int, address: str) -> bool:
        """Whether a receipt about our stream ``ordinal`` may come to ``address``: to what its ``<start>`` told."""
        told = next(
            (each.receipts_url for each in self.earlier if each.ordinal == ordinal),
            self.receipts_url,
        )
        return same_secret(told, address)

    def receipts_go_to(self, url: str) -> bool:
        """We are reached at ``url`` now; whether this stream's receipts go there. Only ``<start>`` says it (2.2.5.3.4).

        While nothing is acknowledged it goes again and may say something new, but for another ``?SenderStream=``: a peer that
        has the old one would never be believed again. Later only a new stream can say it (:meth:`reset`). Where nothing but
        that secret is another, what the peer was told leads here as well.
        """
        if self.ended or self.receipts_url == url:
            return True
        untold = not self.receipts_url  # begun anew after a restore: no peer was told an address
        same = query_of(url) == query_of(self.receipts_url)
        if self.acknowledged_to > self.base or not (untold or same or self.sent_to == self.base):
            return without_secret(url) == without_secret(self.receipts_url)
        self.receipts_url = url
        self.touch()
        return True

    # --- sending ------------------------------------------------------------------------------------------------------------

    def previous_of(self, serial: int, at: int) -> int | None:
        """[MC-MQSRM] 3.1.7.2.3. ``None`` while something must be stored or acknowledged first."""
        previous = max(self.last_live, self.acknowledged_to)
        position = serial - self.base
        full = position > self.settings.stream_length_max
        too_many = serial - self.acknowledged_to > self.settings.unacknowledged_max
        if (full or too_many) and previous > self.acknowledged_to:
            self.needs_receipt = True
            return None
        if full or self.restart or (previous == self.base and position != 1):
            self._begin(serial - 1, at)
            return None
        return previous

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        """With its place in the stream. Priority and durability are not the application's choice here (2.2.5.3)."""
        position = stored.serial - self.base
        start = position == 1
        place = StreamPosition(
            self.id, position, previous - self.base, start, self.receipts_url if start else None
        )
        return stored.message._replace(stream=place, durable=True, priority=0)

    def on_sent(self, serial: int) -> None:
        """It is the one before the next."""
        self.before_last, self.last_live = self.last_live, serial
        self.sent_to = max(self.sent_to, serial)

    def pump(self, now: float, at: int, out: list[Send | Load]) -> None:
        """Send and read; then see whether all is acknowledged, or start the Stream Receipt Wait Timer (3.1.2.2)."""
        self.needs_receipt = False
        if self._resumes_wait:
            self._resumes_wait = False
            self._wait_for_finals(now, at)
        super().pump(now, at, out)
        if self.last_live > self.acknowledged_to:
            if self.receipt_wait_at is None and self.state in MAY_SEND:
                self.receipt_wait_at = now + self.resend_interval
        elif self.acknowledged_to < self.end and self._nothing_left and len(self.finals) == 0:
            self.acknowledged_to = self.cursor = self.end  # what was last was taken out
            self.touch()

    @property
    def _nothing_left(self) -> bool:
        """Everything there is was read, sent and acknowledged, or taken out."""
        return (
            not self.buffer
            and self.load is None
            and self.loaded_to >= self.end
            and self.last_live <= self.acknowledged_to
        )

    def reads_to(self) -> int:
        """No further than may be sent before a receipt comes."""
        limit = self.acknowledged_to + self.settings.unacknowledged_max + 1
        return limit if self.last_live > self.acknowledged_to else self.end

    @property
    def resend_interval(self) -> float:
        """OutgoingTransferInfo.EodResendInterval, seconds."""
        table = self.settings.resend_table
        return table[min(self.resend_interval_index, len(table) - 1)]

    def taken(self, send: Send, now: float, at: int) -> None:
        """200: it stays until a stream receipt covers it ([MC-MQSRM] 3.1.7.2.5)."""
        if send.pass_number == self.pass_number:
            self.held_to = max(self.held_to, send.serial)
            self._forget_doubts()
            if self.receipt_wait_at is not None and self._is_first(send):
                # A large one may have been under way for all of it
                self.receipt_wait_at = now + self.resend_interval

    def refused(self, send: Send, at: int) -> None:
        """400: it is taken out, and what followed it goes again with a ``<previous>`` that bridges it."""
        if send.pass_number != self.pass_number or send.serial <= self.acknowledged_to:
            return  # it is under way again and will be refused again, or the peer has it after all
        in_doubt = self.may_be_held(send.serial)
        self._go_back_to(send)
        self.bury(send.serial, send.serial, "refused", status=400, in_doubt=in_doubt)
        self.removed(send.serial, send.serial)

    def put_back(self, send: Send) -> None:
        """Everything from the first that has no answer goes again, in order; the receipt timer stops (3.1.7.2.5)."""
        self._go_back_to(send)
        self.receipt_wait_at = None

    def not_reached(self, load: Load, now: float) -> None:
        """As of every queue; the receipt timer stops (3.1.7.2.5)."""
        if load is self.load:
            self.receipt_wait_at = None
        super().not_reached(load, now)

    def _go_back_to(self, send: Send) -> None:
        waiting = [
            other for other in self.in_flight.values() if other.pass_number == self.pass_number
        ]
        first = min([*waiting, send], key=lambda each: each.serial)
        self._go_back(first.serial - 1, first.previous)

    def _go_back(self, after: int, last_live: int) -> None:
        self.go_back(max(after, self.acknowledged_to))
        self.last_live = max(last_live, self.acknowledged_to)

    def removed(self, first: int, last: int) -> None:
        """What follows must not tell the peer to skip them before it is stored that they are gone."""
        self.finals.remove(first, last)
        self.waits_for = self.ledger.generation + 1

    def _forget_doubts(self) -> None:
        if self.doubtful:
            self.doubtful = {serial for serial in self.doubtful if serial > self.held_to}

    # --- receipts -----------------------------------------------------------------------------------------------------------

    def receipt(self, receipt: Receipt, now: float, at: int, message_class: int) -> ReceiptVerdict:
        """A stream receipt or final stream receipt for this stream ([MC-MQSRM] 3.1.5.1.8, 3.1.5.1.9)."""
        assert receipt.last_ordinal is not None, "the decoder lets no such receipt through"
        assert receipt.stream_id is not None, "nor one without a stream"
        if receipt.stream_id.ordinal != self.ordinal:
            return self._receipt_of_earlier(
                receipt, receipt.stream_id.ordinal, now, at, message_class
            )
        serial = self.base + receipt.last_ordinal
        if serial > self.sent_to:
            return "beyond"
        if receipt.kind == "final_stream" and receipt.last_ordinal == 0:
            return "old"  # no message has position 0: this serial is of the stream before
        if receipt.kind == "stream":
            self.receipts += 1
            self.last_receipt_at = at
        progress = serial > self.acknowledged_to
        if progress:  # a final receipt, too: what the application took was in its queue
            self._acknowledge(serial, now, at)
        if receipt.kind == "final_stream" and self.finals.discard(serial):
            self._final(serial, receipt.decision == "positive", message_class, now, at)
            return "final"
        return "progress" if progress else "old"

    def _receipt_of_earlier(
        self, receipt: Receipt, ordinal: int, now: float, at: int, message_class: int
    ) -> ReceiptVerdict:
        """3.1.7.6 keeps a stream as long as a message of it awaits a receipt, also when another has begun."""
        assert receipt.last_ordinal is not None, "looked at before"
        stream = next((each for each in self.earlier if each.ordinal == ordinal), None)
        if stream is None:
            return "another-stream"
        serial = stream.base + receipt.last_ordinal
        if (
            receipt.kind != "final_stream"
            or not stream.base < serial <= stream.last
            or not self.finals.discard(serial)
        ):
            return "old"
        self._final(serial, receipt.decision == "positive", message_class, now, at)
        self._forget_earlier()
        return "final"

    def _acknowledge(self, serial: int, now: float, at: int) -> None:
        for first, last in self.finals.outside(self.acknowledged_to + 1, serial):
            self.ledger.finish(self.key, first, last)
        self.acknowledged_to = serial
        self.last_acknowledged_at = at
        self.held_to = max(self.held_to, serial)
        self.left_to = max(self.left_to, serial)
        self._forget_doubts()
        self.repeats = 0
        self.resend_interval_index = 0
        self.cursor = max(self.cursor, serial)
        self.loaded_to = max(self.loaded_to, serial)
        while self.buffer and self.buffer[0].serial <= serial:
            self.buffer.popleft()
        self.receipt_wait_at = None  # pump() starts it again if there is more to wait for
        self._wait_for_finals(now, at)
        self.touch()

    def _final(self, serial: int, positive: bool, message_class: int, now: float, at: int) -> None:
        if positive:
            self.ledger.finish(self.key, serial, serial)
            self.touch()
        else:
            self.bury(serial, serial, "not-received", message_class=message_class)
        self._end_wait()
        self._wait_for_finals(now, at)

    def _wait_for_finals(self, now: float, at: int) -> None:
        """Wait for a final receipt, or go on with the wait that the process before began."""
        if self.final_wait_at is not None or not len(self.finals) or not self.unread:
            return
        if not self._finals_since:
            self._finals_since, self._finals_mark = at, self.acknowledged_to
            self.touch()
        whole = self.settings.final_receipt_wait
        left = max(whole - (at - self._finals_since) / 1e6, FINAL_RECEIPT_GRACE_S)
        self.final_wait_at = now + min(whole, left)

    def _end_wait(self) -> None:
        self.final_wait_at = None
        self._finals_since = self._finals_mark = 0

    # --- timers and operators -------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """The earliest of its timers."""
        return min(
            (
                at
                for at in (self.retry_at, self.receipt_wait_at, self.final_wait_at)
                if at is not None
            ),
            default=None,
        )

    def due(self, now: float, at: int) -> None:
        """Timers whose time has come."""
        super().due(now, at)
        if self.receipt_wait_at is not None and self.receipt_wait_at <= now:
            self._receipt_missing(now)
        if self.final_wait_at is not None and self.final_wait_at <= now:
            self._finals_missing(now, at)

    def _receipt_missing(self, now: float) -> None:
        """[MC-MQSRM] 3.1.6.2."""
        self.receipt_wait_at = None
        if self.last_live <= self.acknowledged_to or self.state not in MAY_SEND:
            return
        is_over = (
            self.needs_receipt
            or (self.buffer[0].serial if self.buffer else self.loaded_to + 1) > self.pass_to
        )
        if (
            is_over and not self._first_is_under_way
        ):  # else its connection says when that takes too long
            self.resend_interval_index = min(
                self.resend_interval_index + 1, len(self.settings.resend_table) - 1
            )
            self.repeats += 1
            self.window_max = max(
                1, self.window_max // 2
            )  # perhaps something on the way does not keep the order
            self.resend()
        # The pass before may still be under way: let it end
        self.receipt_wait_at = now + self.resend_interval

    @property
    def _first_is_under_way(self) -> bool:
        """The first message without a receipt has no answer yet: no receipt can be missing. A large one on a slow line may take
        longer than the timer, and would be sent twice."""
        return any(
            self._is_first(send)
            for send in self.in_flight.values()
            if send.pass_number == self.pass_number
        )

    def _is_first(self, send: Send) -> bool:
        """Return whether everything before it is acknowledged, and it is not."""
        return send.previous <= self.acknowledged_to < send.serial

    def _finals_missing(self, now: float, at: int) -> None:
        for first, last in self.finals.inside(1, self._finals_mark):
            self.bury(first, last, "final-receipt-missing", in_doubt=True)
        self.finals.remove(1, self._finals_mark)
        self._forget_earlier()
        self._end_wait()
        self._wait_for_finals(now, at)
        self.touch()

    def resend(self) -> None:
        """Send everything again that is not acknowledged."""
        self.window = 1
        self.pass_to = self.sent_to
        self._go_back(self.acknowledged_to, self.acknowledged_to)
        self.touch()

    def pause(self) -> None:
        """[MC-MQSRM] 3.1.7.4."""
        super().pause()
        self.receipt_wait_at = None

    def reset(self) -> None:
        """Send the rest in a new stream: for a peer that lost its state, or that will never take this stream."""
        self.resend()
        self.restart = self.acknowledged_to < self.end

    @property
    def holds_messages(self) -> bool:
        """As of every queue; a message that waits for its final receipt is in it, too."""
        return super().holds_messages or not self.ended

    def drop(self, at: int, reason: DeadReason = "dropped") -> None:
        """Give the stream up with everything in it that is not acknowledged, and what waits for a final receipt."""
        unsure = max(
            [self.held_to, *self.doubtful, *(send.serial for send in self.in_flight.values())]
        )
        for first, last in [
            *self.finals.inside(1, self.acknowledged_to),
            (self.acknowledged_to + 1, self.end),
        ]:
            if first <= min(last, unsure):
                self.bury(first, min(last, unsure), reason, in_doubt=True)
            if max(first, unsure + 1) <= last:
                self.bury(max(first, unsure + 1), last, reason)
        self.finals.remove(1, self.end)
        self._forget_earlier()
        self.go_back(self.end)
        self.acknowledged_to = self.held_to = self.left_to = self.last_live = self.end
        self.doubtful.clear()
        self.receipt_wait_at = None
        self._end_wait()
        self.last_acknowledged_at = at
        self.touch()

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} {self.id} base={self.base} finals={len(self.finals)}>"
