r"""The sending half of Stream: numbers, ``<previous>``, ``<start>``, and the wait for receipts.

See [MC-MQSRM] 3.1.1.1.6. Theory of operation. A stream ``uid:GUID\N`` begins with position 1 and
ends when all its messages are acknowledged. The next messages begin a stream with a higher N
(3.1.1.2). A position is the serial of the message minus ``base``. The position was fixed when the
message was committed, and each sending uses the same position. A 200 only means that the message
need not be sent again at once. A message is finished by a stream receipt of exactly this stream
that covers its position.

Without a receipt the Stream Receipt Wait Timer (3.1.2.2) ends, and all unacknowledged messages are
sent again (3.1.6.2). This module differs from the specification in these points:

- ResendIntervalIndex grows with each time-out and falls to zero with progress. As printed
  (3.1.5.1.8.2) it grows with each receipt and never otherwise: the better the peer answers, the
  longer the sender would wait.
- The timer also restarts with progress, and with the 200 to the first message that awaits a
  receipt, because no receipt can arrive before this answer. A large message on a slow line takes
  longer than the timer. The timer does not interrupt a pass in progress, nor a message without an
  answer.
- ``<previous>`` names the nearest message before this one that is still in the queue, else the last
  acknowledged message. The peer has that message, or was sent it before. 3.1.7.2.3 names the number
  before, even if that message was removed unsent, and a peer would wait for it for ever.
  ``<previous>`` changes only when a message in between was removed, and is sent only when the
  removal is stored. Otherwise the dead message could be sent after a crash, be dropped by the peer
  as a repeat, and be reported as delivered.
- Only position 1 carries ``<start>`` (2.2.5.3.4), each time it is sent. If position 1 is removed
  before any message of the stream was acknowledged, no peer could accept the rest. The rest then
  begins a new stream, from position 1, under the same identifiers.
- A stream that has used all its positions is sent and acknowledged completely before the next
  stream begins.
"""

from __future__ import annotations

from srmp_spark.message import Message, Receipt, StreamId, StreamPosition
from srmp_spark.srmp.sending.outgoing_effects import (
    DeadReason,
    EarlierStream,
    Load,
    OutgoingQueueRow,
    ReceiptVerdict,
    Send,
    StoredMessage,
)
from srmp_spark.srmp.sending.outgoing_ledger import OutgoingLedger
from srmp_spark.srmp.sending.outgoing_queue import OutgoingQueue
from srmp_spark.srmp.sending.outgoing_states import FINAL_RECEIPT_GRACE_S, MAY_SEND, SenderSettings
from srmp_spark.srmp.sending.receipts_address import query_of, same_secret, without_secret
from srmp_spark.srmp.sending.serial_runs import SerialRuns

EARLIER_STREAMS_MAX = 16
"""Most streams before the live one that final stream receipts may still name.

An operator adds one with each new stream that begins while receipts are missing. At the limit the
oldest is forgotten, and its messages become dead letters when their time is over.
"""


class OutgoingStream(OutgoingQueue):
    """Holds the stream messages to one destination.

    Arguments and serials are those of :class:`.OutgoingQueue`.
    """

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
        """Number of times that all unacknowledged messages were sent again since the last receipt,
        in this process.
        """
        self.started_at = row.started_at
        self.finals = finals
        """Serials that request a final stream receipt and have none (AwaitingFinalStreamReceipt).
        """
        self.last_live = row.acknowledged_to
        """Serial of the message that was handed out last.

        The next message names it as its previous one.
        """
        self.before_last = row.acknowledged_to
        """Serial of the message before ``last_live``."""
        self.receipts = 0
        """Number of stream receipts for this stream since the process began (EodLastAckCount)."""
        self.last_receipt_at = 0
        """Time at which the last of these receipts arrived, in microseconds since 1970, UTC
        (EodLastAckTime).
        """
        self.sent_to = max(row.released_to, row.base)
        """Highest serial that was sent in *this* stream. No receipt can be for a later one."""
        self.pass_to = self.sent_to
        """Last serial of the last pass through all unacknowledged messages."""
        self.needs_receipt = False
        """Whether no message may be sent before a receipt arrives."""
        self.receipt_wait_at: float | None = None
        self.final_wait_at: float | None = None
        self._finals_since = row.finals_since
        self._finals_mark = row.finals_to
        self._resumes_wait = True
        """Whether the wait for final receipts that an earlier process began must still be resumed.

        This needs a clock, which the constructor does not have.
        """
        self.restart = False
        """Whether an operator requested to send the unacknowledged messages in a new stream."""

    def row(self) -> OutgoingQueueRow:
        """Return the row to save."""
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
        """Return Stream.Id: the GUID of this queue manager and the ordinal of the stream."""
        return StreamId(self.identity, self.ordinal)

    @property
    def ended(self) -> bool:
        """Return whether all messages are acknowledged.

        The next message then begins another stream ([MC-MQSRM] 3.1.7.6).
        """
        return len(self.finals) == 0 and (self.acknowledged_to >= self.end or self._nothing_left)

    @property
    def unacknowledged(self) -> int:
        """Return the number of sent messages that wait for a stream receipt.

        Messages that were removed in between are counted too.
        """
        return max(self.cursor - self.acknowledged_to, 0)

    @property
    def unread(self) -> int:
        """Return the number of acknowledged messages that wait for a final receipt.

        The specification calls this number EodNoReadCount.
        """
        return sum(last - first + 1 for first, last in self.finals.inside(1, self.acknowledged_to))

    # --- identity ---------------------------------------------------------------------------------

    def append(self, count: int, at: int, receipts_url: str, final_receipts: bool) -> int:
        """Assign serials to ``count`` new messages and return the first serial.

        A stream that has ended is replaced by a new one first, with ``receipts_url`` as its URL for
        receipts. ``at`` is the wall clock, in microseconds since 1970. ``final_receipts`` means
        that the messages request final stream receipts.
        """
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
        """Begin a new stream after serial ``base``, with position 1 ([MC-MQSRM] 3.1.7.2.3).

        ``at`` is the wall clock, in microseconds since 1970. Its first message is sent when this is
        stored.
        """
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
        """Forget earlier streams whose final receipts are complete, and others beyond the limit.

        The limit is EARLIER_STREAMS_MAX, and the oldest go first. Messages of a stream that is
        forgotten early can get no final receipt any longer.
        """
        left = tuple(each for each in self.earlier if self.finals.inside(each.base + 1, each.last))[
            -EARLIER_STREAMS_MAX:
        ]
        for gone in set(self.earlier) - set(left):
            self.ledger.streams.pop(gone.ordinal, None)
        self.earlier = left

    def believes(self, ordinal: int, address: str) -> bool:
        """Return whether to believe a receipt about stream ``ordinal`` that arrived at ``address``.

        The address must have the secret (:mod:`.receipts_address`) that the ``<start>`` of the
        stream gave to the peer. The stream is the live one or an earlier one.
        """
        told = next(
            (each.receipts_url for each in self.earlier if each.ordinal == ordinal),
            self.receipts_url,
        )
        return same_secret(told, address)

    def receipts_go_to(self, url: str) -> bool:
        """Use ``url`` as the address for receipts if the stream can still tell it to the peer.

        Return whether this stream's receipts go to ``url``. Only ``<start>`` names the address
        (2.2.5.3.4). While no message is acknowledged, ``<start>`` is sent again and may name a new
        address, but not with another ``?SenderStream=``. A peer that got the old secret would never
        be believed again. Later only a new stream can name a new address (:meth:`reset`). If only
        the secret differs, the result is ``True``, because receipts to the old address arrive at
        the same place.
        """
        if self.ended or self.receipts_url == url:
            return True
        # After a restore the stream began again, and no peer was told an address.
        untold = not self.receipts_url
        same = query_of(url) == query_of(self.receipts_url)
        if self.acknowledged_to > self.base or not (untold or same or self.sent_to == self.base):
            return without_secret(url) == without_secret(self.receipts_url)
        self.receipts_url = url
        self.touch()
        return True

    # --- sending ----------------------------------------------------------------------------------

    def previous_of(self, serial: int, at: int) -> int | None:
        """Return the serial that ``<previous>`` names for ``serial`` ([MC-MQSRM] 3.1.7.2.3).

        Return ``None`` if something must be stored or acknowledged first. Then a new stream may
        have begun with ``serial``.
        """
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
        """Return the message to send for ``stored``, with its position in the stream.

        In a stream the application does not choose priority and durability (2.2.5.3).
        """
        position = stored.serial - self.base
        start = position == 1
        place = StreamPosition(
            self.id, position, previous - self.base, start, self.receipts_url if start else None
        )
        return stored.message._replace(stream=place, durable=True, priority=0)

    def on_sent(self, serial: int) -> None:
        """Record ``serial`` as sent, and as the previous message of the next one."""
        self.before_last, self.last_live = self.last_live, serial
        self.sent_to = max(self.sent_to, serial)

    def pump(self, now: float, at: int, out: list[Send | Load]) -> None:
        """Add to ``out`` every message that may be sent now and the next load; update the stream.

        Afterwards the Stream Receipt Wait Timer (3.1.2.2) runs if a message that was sent is not
        acknowledged, unless the queue is inactive or paused.
        """
        self.needs_receipt = False
        if self._resumes_wait:
            self._resumes_wait = False
            self._wait_for_finals(now, at)
        super().pump(now, at, out)
        if self.last_live > self.acknowledged_to:
            if self.receipt_wait_at is None and self.state in MAY_SEND:
                self.receipt_wait_at = now + self.resend_interval
        elif self.acknowledged_to < self.end and self._nothing_left and len(self.finals) == 0:
            # The last messages were removed.
            self.acknowledged_to = self.cursor = self.end
            self.touch()

    @property
    def _nothing_left(self) -> bool:
        """Return whether every message was read, and was then acknowledged or removed."""
        return (
            not self.buffer
            and self.load is None
            and self.loaded_to >= self.end
            and self.last_live <= self.acknowledged_to
        )

    def reads_to(self) -> int:
        """Return the last serial up to which messages may be read before a receipt arrives."""
        limit = self.acknowledged_to + self.settings.unacknowledged_max + 1
        return limit if self.last_live > self.acknowledged_to else self.end

    @property
    def resend_interval(self) -> float:
        """Return the present OutgoingTransferInfo.EodResendInterval, in seconds."""
        table = self.settings.resend_table
        return table[min(self.resend_interval_index, len(table) - 1)]

    def on_accepted(self, send: Send, now: float, at: int) -> None:
        """Process the answer 200 to a sending ([MC-MQSRM] 3.1.7.2.5).

        The message stays until a stream receipt covers it.
        """
        if send.pass_number == self.pass_number:
            self.held_to = max(self.held_to, send.serial)
            self._forget_doubts()
            if self.receipt_wait_at is not None and self._is_first(send):
                # A large message may have been in flight for the whole interval.
                self.receipt_wait_at = now + self.resend_interval

    def on_refused(self, send: Send, at: int) -> None:
        """Make a dead letter of the message after a 400.

        Later messages are sent again with a ``<previous>`` that skips it.
        """
        # The message is in flight again and will be refused again, or the peer has it nevertheless.
        if send.pass_number != self.pass_number or send.serial <= self.acknowledged_to:
            return
        in_doubt = self.may_be_held(send.serial)
        self._go_back_to(send)
        self.bury(send.serial, send.serial, "refused", status=400, in_doubt=in_doubt)
        self.removed(send.serial, send.serial)

    def put_back(self, send: Send) -> None:
        """Send all messages from the first unanswered one again, in order.

        The receipt timer stops (3.1.7.2.5).
        """
        self._go_back_to(send)
        self.receipt_wait_at = None

    def not_reached(self, load: Load, now: float) -> None:
        """End a :class:`.Load` without reading, as in every queue, and stop the receipt timer.

        The peer cannot be reached. See [MC-MQSRM] 3.1.7.2.5.
        """
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
        """Update the stream after messages were removed; send nothing before this is stored.

        Later messages must not tell the peer to skip them before that.
        """
        self.finals.remove(first, last)
        self.waits_for = self.ledger.generation + 1

    def _forget_doubts(self) -> None:
        if self.doubtful:
            self.doubtful = {serial for serial in self.doubtful if serial > self.held_to}

    # --- receipts ---------------------------------------------------------------------------------

    def receipt(self, receipt: Receipt, now: float, at: int, message_class: int) -> ReceiptVerdict:
        """Process a stream receipt or final stream receipt for this stream.

        See [MC-MQSRM] 3.1.5.1.8 and 3.1.5.1.9. Return the verdict: what the receipt changed.
        ``message_class`` is the class of the receipt.
        """
        assert receipt.last_ordinal is not None, "the decoder lets no such receipt through"
        assert receipt.stream_id is not None, "nor one without a stream"
        if receipt.stream_id.ordinal != self.ordinal:
            return self._receipt_of_earlier(
                receipt, receipt.stream_id.ordinal, now, at, message_class
            )
        serial = self.base + receipt.last_ordinal
        if serial > self.sent_to:
            return "beyond"
        # No message has position 0, so this serial belongs to the stream before.
        if receipt.kind == "final_stream" and receipt.last_ordinal == 0:
            return "old"
        if receipt.kind == "stream":
            self.receipts += 1
            self.last_receipt_at = at
        progress = serial > self.acknowledged_to
        # A final receipt is progress too: a message that the application received was in its queue.
        if progress:
            self._acknowledge(serial, now, at)
        if receipt.kind == "final_stream" and self.finals.discard(serial):
            self._final(serial, receipt.decision == "positive", message_class, now, at)
            return "final"
        return "progress" if progress else "old"

    def _receipt_of_earlier(
        self, receipt: Receipt, ordinal: int, now: float, at: int, message_class: int
    ) -> ReceiptVerdict:
        """Process a receipt for an earlier stream and return the verdict: what it changed.

        3.1.7.6 keeps a stream while one of its messages awaits a receipt, even if another stream
        has begun.
        """
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
        # pump() starts the timer again if more receipts are awaited.
        self.receipt_wait_at = None
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
        """Start the time-out for final receipts, or continue that of an earlier process.

        :data:`.FINAL_RECEIPT_WAIT_S` is the time.
        """
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

    # --- timers and operators ---------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """Return the time at which the earliest timer ends; ``None`` if no timer runs."""
        return min(
            (
                at
                for at in (self.retry_at, self.receipt_wait_at, self.final_wait_at)
                if at is not None
            ),
            default=None,
        )

    def due(self, now: float, at: int) -> None:
        """Handle the timers of the stream that have ended at ``now``.

        When the wait for a stream receipt ends, all unacknowledged messages are sent again. When
        the wait for final receipts ends, the messages that lack one become dead letters.
        """
        super().due(now, at)
        if self.receipt_wait_at is not None and self.receipt_wait_at <= now:
            self._receipt_missing(now)
        if self.final_wait_at is not None and self.final_wait_at <= now:
            self._finals_missing(now, at)

    def _receipt_missing(self, now: float) -> None:
        """Handle the end of the Stream Receipt Wait Timer ([MC-MQSRM] 3.1.6.2).

        All unacknowledged messages are sent again, unless a pass is in progress or the first of
        them is in flight. The timer starts again.
        """
        self.receipt_wait_at = None
        if self.last_live <= self.acknowledged_to or self.state not in MAY_SEND:
            return
        is_over = (
            self.needs_receipt
            or (self.buffer[0].serial if self.buffer else self.loaded_to + 1) > self.pass_to
        )
        # If the first message is in flight, its connection decides when that takes too long.
        if is_over and not self._first_is_under_way:
            self.resend_interval_index = min(
                self.resend_interval_index + 1, len(self.settings.resend_table) - 1
            )
            self.repeats += 1
            # Perhaps a device on the line does not keep the order of the messages.
            self.window_max = max(1, self.window_max // 2)
            self.resend()
        # The previous pass may still be in progress and must be able to end.
        self.receipt_wait_at = now + self.resend_interval

    @property
    def _first_is_under_way(self) -> bool:
        """Return whether the first unacknowledged message is in flight, without an answer yet.

        No receipt can be missing then. A large message on a slow line may take longer than the
        timer, and would be sent twice.
        """
        return any(
            self._is_first(send)
            for send in self.in_flight.values()
            if send.pass_number == self.pass_number
        )

    def _is_first(self, send: Send) -> bool:
        """Return whether the message of ``send`` is the first unacknowledged one of the stream."""
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
        """Begin to send all unacknowledged messages again, one in flight at first."""
        self.window = 1
        self.pass_to = self.sent_to
        self._go_back(self.acknowledged_to, self.acknowledged_to)
        self.touch()

    def pause(self) -> None:
        """Pause the queue and stop the receipt timer ([MC-MQSRM] 3.1.7.4)."""
        super().pause()
        self.receipt_wait_at = None

    def reset(self) -> None:
        """Send all unacknowledged messages again, in a new stream.

        Without such messages nothing is sent. This is for a peer that lost its state, or that will
        never accept this stream.
        """
        self.resend()
        self.restart = self.acknowledged_to < self.end

    @property
    def holds_messages(self) -> bool:
        """Return whether the queue has messages, including those that wait for a final receipt."""
        return super().holds_messages or not self.ended

    def drop(self, at: int, reason: DeadReason = "dropped") -> None:
        """Make dead letters of all messages of the stream that are not finished.

        These are the unacknowledged messages, and those that wait for a final receipt. ``reason``
        is the reason in the dead letters.
        """
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
