"""A sending queue manager, written from the document alone, for the simulator.

The sections are [MC-MQSRM] 3.1.7.2, 3.1.6 and 3.1.5.1.8. The model shares no line with the sending
half of the package. Two independent implementations of the same text that agree are evidence.

- 3.1.7.2.5: A 200 ends a regular or durable message. A stream message is kept until a stream
  receipt covers it. A 400 deletes the message. After any other answer everything in the queue is
  sent again after RetransmissionTimeout (3.1.6.1).
- 3.1.2.2, 3.1.6.2: Without a receipt every message that awaits one is sent again, by the resend
  table of appendix A <18>. The index grows on each time-out and returns to 0 on progress
  (3.1.5.1.8.2 as printed does neither).
- 3.1.7.2.1: An expired message leaves the queue unsent, and the next message's ``<previous>``
  bridges the gap. The ``<previous>`` names a position that the peer certainly can hold: the nearest
  lower message that is still in the queue, else the last acknowledged one. (3.1.7.2.3 as printed
  leaves ``<previous>`` too high and stalls the stream.)
- 3.1.1.2: When all messages are acknowledged, the stream ends. The next message begins a stream
  with a higher ordinal.
- 3.1.7.2.2: Each sending gives the message a new identifier. As printed, this rule makes repeats of
  regular messages undetectable. Therefore only some senders of stream messages follow it here,
  because the position still identifies the message.
- A stream whose first message expired cannot continue, because only ``<current>`` 1 carries
  ``<start>``. The sender gives up the stream, and the remaining messages begin a new stream under
  the same identifiers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from srmp_spark.message import Message, Receipt, StreamId, StreamPosition
from tests.kit.decision_oracle import DecisionOracle
from tests.kit.oracle import Oracle
from tests.kit.sim_clock import SimClock
from tests.kit.sim_net import Answer

RESEND_TABLE_S = (30.0,) * 3 + (300.0,) * 3 + (1800.0,) * 3 + (21600.0,)
"""The resend intervals in seconds ([MC-MQSRM] appendix A <18>). The last one repeats."""
RETRANSMISSION_TIMEOUT_S = 20.0

Post = Callable[[Message, Answer], None]


@dataclass(slots=True, eq=False)
class Outgoing:
    """One message in the OutgoingQueue.

    ``position`` is its position in the stream, or 0 without one. ``sent`` says whether it was sent.
    """

    key: str
    uniquifier: int
    expires_at: float | None
    """Simulated monotonic time in seconds at which the message expires; ``None`` means never."""
    expires_utc: int | None = None
    """The expiry that the message states, in microseconds since 1970.

    The value follows the wall clock at the moment when the message was created.
    """
    position: int = 0
    sent: bool = False
    message: Message | None = None
    previous: int = -1


class SenderModel:
    """The common part of all senders: a queue, an identity, and the retransmission timer.

    ``post`` sends a message over the network and calls back with the status of the answer.
    """

    def __init__(
        self,
        name: str,
        guid: str,
        queue_url: str,
        clock: SimClock,
        random: Random,
        oracle: Oracle,
        post: Post,
    ) -> None:
        self.name = name
        self.guid = guid
        self.queue_url = queue_url
        self.clock = clock
        self.random = random
        self.oracle = oracle
        self.post = post
        self.marks: Counter[str] = Counter()
        self.window = random.choice((1, 1, 2, 4))
        """Number of requests that may be in flight; above 1 the network may reorder them."""
        self.message_id_ordinal = random.choice((0, 7, 4_294_967_200))
        self.message_id_step = random.choice((1, 1, 3))
        """Distance between two identifiers; above 1 the other numbers belong to other destinations.
        """
        self.queue: list[Outgoing] = []
        self.faults_found: list[str] = []
        """Actions of the peer that the protocol forbids."""
        self.too_late: set[str] = set()
        """Keys of late messages: the peer may answer them 400, because their time was over."""
        self.says_ttrq = True
        """Whether messages state ``<TTrq>``, else ``<expiresAt>`` ([MC-MQSRM] 2.2.6.17, 2.2.5.1.1).
        """
        self.awaited_delivery_receipts: dict[str, None] = {}
        self.decisions: DecisionOracle | None = None
        """Records every receipt about a decision; ``None`` if the run has no such oracle."""
        self._delivery_receipts: dict[str, None] = {}
        self._cursor = 0
        self._under_way = 0
        self._waiting_to_retransmit = False

    def next_uniquifier(self) -> int:
        """Increase SRMPState.MessageIdOrdinal by :attr:`message_id_step`, and return it."""
        self.message_id_ordinal += self.message_id_step
        return self.message_id_ordinal

    def submit(self, key: str, time_to_reach_queue: float | None) -> None:
        """Put a message of the application into the queue, and send whatever may be sent.

        ``time_to_reach_queue`` is in seconds from now; ``None`` means no limit.
        """
        item = Outgoing(key, self.next_uniquifier(), None)
        if time_to_reach_queue is not None:
            item.expires_at = self.clock.now + time_to_reach_queue
            item.expires_utc = self.clock.utc() + int(time_to_reach_queue * 1_000_000)
        self.queue.append(item)
        self.pump()

    @property
    def idle(self) -> bool:
        """Return whether the sender has nothing to send and awaits no receipt."""
        return not self.queue and not self.awaited_delivery_receipts

    def pump(self) -> None:
        """Send every message that may be sent now.

        The window and the retransmission timer decide this.
        """
        while (
            not self._waiting_to_retransmit
            and self._under_way < self.window
            and self._cursor < len(self.queue)
        ):
            item = self.queue[self._cursor]
            if self._expired(item):
                continue
            self._cursor += 1
            self._under_way += 1
            self._send(item)

    def _expired(self, item: Outgoing) -> bool:
        """Remove ``item`` if it has expired and return whether it has ([MC-MQSRM] 3.1.7.2.1)."""
        if item.expires_at is None or self.clock.now <= item.expires_at:
            return False
        self.marks["expired-at-sender"] += 1
        self._remove(item)
        return True

    def _remove(self, item: Outgoing) -> None:
        index = self.queue.index(item)
        del self.queue[index]
        if index < self._cursor:
            self._cursor -= 1

    def _send(self, item: Outgoing) -> None:
        if not item.sent:
            item.sent = True
            self.oracle.sent(item.key, stream=self.stream_name)
        self.post(self.message_for(item), lambda status: self._answered(item, status))

    @property
    def stream_name(self) -> str | None:
        """Return the name of the order that the oracle checks, or ``None`` if the order is free."""
        return None

    def message_for(self, item: Outgoing) -> Message:
        """Return the message in the form in which it is sent now.

        Each kind of sender replaces this.
        """
        raise AssertionError("a kind of sender says what it sends")

    def _answered(self, item: Outgoing, status: int | None) -> None:
        self._under_way -= 1
        if status == 200:
            self.accepted(item)
        elif status == 400:
            if item.key in self.too_late:
                self.marks["refused-too-late"] += 1
            else:
                self.faults_found.append(f"{item.key} was refused for good")
            if item in self.queue:
                self._remove(item)
        elif not self._waiting_to_retransmit:
            self._waiting_to_retransmit = True
            self.marks["retransmission"] += 1
            self.clock.after(RETRANSMISSION_TIMEOUT_S, self._retransmit)
        self.pump()

    def accepted(self, item: Outgoing) -> None:
        """Remove the message and record it as acknowledged, because the peer answered 200."""
        if item in self.queue:
            self._remove(item)
        self.oracle.acknowledged(item.key)

    def _retransmit(self) -> None:
        """Begin again with the first message of the queue ([MC-MQSRM] 3.1.6.1)."""
        self._waiting_to_retransmit = False
        self._cursor = 0
        self.pump()

    def receive(self, message: Message, answer: Answer) -> None:
        """Process a receipt that arrived and answer it; any other message is answered 400."""
        receipt = message.receipt
        if receipt is None:
            answer(400)
            return
        if receipt.kind == "delivery":
            name = f"{receipt.lineage}/{receipt.uniquifier}"
            # The receipt may overtake the 200.
            self._delivery_receipts[name] = None
            self.awaited_delivery_receipts.pop(name, None)
        elif receipt.kind in ("commitment", "final_stream") and self.decisions is not None:
            self.decisions.told(receipt, message.uniquifier)
        answer(200)


class DatagramSender(SenderModel):
    """Sends regular and durable messages."""

    def __init__(
        self,
        name: str,
        guid: str,
        queue_url: str,
        clock: SimClock,
        random: Random,
        oracle: Oracle,
        post: Post,
    ) -> None:
        super().__init__(name, guid, queue_url, clock, random, oracle, post)
        self.durable = random.random() < 0.5
        self.wants_delivery_receipts = random.random() < 0.3
        self.wants_commitment = random.choice(
            ((False, False), (False, False), (True, True), (True, False), (False, True))
        )

    def message_for(self, item: Outgoing) -> Message:
        """Return the message, which has the same bytes for each sending."""
        if item.message is None:
            item.message = Message(
                destination=self.queue_url,
                action="MSMQ:",
                lineage=self.guid,
                uniquifier=item.uniquifier,
                has_msmq=True,
                durable=self.durable,
                body=item.key.encode(),
                source_qm=self.guid,
                time_to_reach_queue=item.expires_utc if self.says_ttrq else None,
                expires_at=None if self.says_ttrq else item.expires_utc,
                delivery_receipt_to=f"http://{self.name}/msmq/private$/admin"
                if self.wants_delivery_receipts
                else None,
                commitment_receipt_to=f"http://{self.name}/msmq/private$/admin"
                if any(self.wants_commitment)
                else None,
                commitment_positive=self.wants_commitment[0],
                commitment_negative=self.wants_commitment[1],
            )
        return item.message

    def accepted(self, item: Outgoing) -> None:
        """Remove the message and record it as acknowledged.

        If the message requests a delivery receipt, the receipt is still awaited.
        """
        name = f"{self.guid}/{item.uniquifier}"
        if self.wants_delivery_receipts and name not in self._delivery_receipts:
            self.awaited_delivery_receipts[name] = None
        super().accepted(item)


class StreamSender(SenderModel):
    """Sends stream messages to one transactional queue."""

    def __init__(
        self,
        name: str,
        guid: str,
        queue_url: str,
        clock: SimClock,
        random: Random,
        oracle: Oracle,
        post: Post,
    ) -> None:
        super().__init__(name, guid, queue_url, clock, random, oracle, post)
        self.new_id_for_each_sending = random.random() < 0.3
        self.stream_id_ordinal = random.choice((0, 4_839_986_701_558_349_830))
        self.stream_id: StreamId | None = None
        self.sequence_number = 0
        self.last_acknowledged = 0
        self.resend_interval_index = 0
        self._receipt_wait = 0
        self.dead_letter = random.random() < 0.4
        self.awaited_final_receipts: dict[int, None] = {}
        """Positions of the live stream that are acknowledged and await a final receipt.

        The document calls this set AwaitingFinalStreamReceipt.
        """

    @property
    def idle(self) -> bool:
        """Return whether the sender has nothing to send and awaits no receipt of any kind."""
        return super().idle and not self.awaited_final_receipts

    @property
    def stream_name(self) -> str | None:
        """Return the sender's name.

        All streams of the sender share one order, because they follow one another.
        """
        return self.name

    def _expired(self, item: Outgoing) -> bool:
        first = item.position == 1
        if first and self.new_id_for_each_sending:
            # The sender would have to give up the stream. The receiver could not recognise the
            # stream's messages by their new identifiers.
            return False
        if not super()._expired(item):
            return False
        if first:
            self._give_up_stream()
        elif not self.queue and not self.awaited_final_receipts:
            # [MC-MQSRM] 3.1.7.6 ends the stream here.
            self.stream_id = None
        return True

    def _give_up_stream(self) -> None:
        self.marks["stream-given-up"] += 1
        self.stream_id = None
        self._cursor = 0
        for item in self.queue:
            item.position = 0

    def message_for(self, item: Outgoing) -> Message:
        """Return the message with its position and ``<previous>``.

        The sections are [MC-MQSRM] 3.1.7.2.2 and 3.1.7.2.3.
        """
        if item.position == 0:
            self._give_position(item)
        elif self.new_id_for_each_sending:
            item.uniquifier = self.next_uniquifier()
            item.message = None
        previous = self._previous(item)
        if item.message is None or previous != item.previous:
            item.previous = previous
            item.message = self._build(item)
        self._await_receipt()
        return item.message

    def _give_position(self, item: Outgoing) -> None:
        if self.stream_id is None:
            self.stream_id_ordinal += 1
            self.stream_id = StreamId(self.guid, self.stream_id_ordinal)
            self.sequence_number = self.last_acknowledged = self.resend_interval_index = 0
        self.sequence_number += 1
        item.position = self.sequence_number
        item.message = None

    def _previous(self, item: Outgoing) -> int:
        index = self.queue.index(item)
        return self.queue[index - 1].position if index else self.last_acknowledged

    def _build(self, item: Outgoing) -> Message:
        assert self.stream_id is not None
        start = item.position == 1
        return Message(
            destination=self.queue_url,
            action="MSMQ:",
            lineage=self.guid,
            uniquifier=item.uniquifier,
            has_msmq=True,
            durable=True,
            priority=0,
            body=item.key.encode(),
            source_qm=self.guid,
            dead_letter=self.dead_letter,
            time_to_reach_queue=item.expires_utc if self.says_ttrq else None,
            expires_at=None if self.says_ttrq else item.expires_utc,
            stream=StreamPosition(
                self.stream_id,
                item.position,
                item.previous,
                start,
                f"http://{self.name}/msmq/private$/order_queue$" if start else None,
            ),
        )

    def accepted(self, item: Outgoing) -> None:
        """Keep the message, because only a receipt ends it (3.1.7.2.5)."""

    def _await_receipt(self) -> None:
        """Start the stream's one Stream Receipt Wait Timer unless it runs already (3.1.2.2)."""
        if self._receipt_wait == 0:
            self._start_receipt_wait()

    def _start_receipt_wait(self) -> None:
        self._receipt_wait += 1
        self.clock.after(
            RESEND_TABLE_S[self.resend_interval_index], self._receipt_wait_over, self._receipt_wait
        )

    def _receipt_wait_over(self, number: int) -> None:
        """Send everything again, because no receipt arrived in time ([MC-MQSRM] 3.1.6.2)."""
        if number != self._receipt_wait:
            return
        if not self.queue:
            self._receipt_wait = 0
            return
        self.marks["resend"] += 1
        self.resend_interval_index = min(self.resend_interval_index + 1, len(RESEND_TABLE_S) - 1)
        self._start_receipt_wait()
        self._cursor = 0
        self.pump()

    def receive(self, message: Message, answer: Answer) -> None:
        """Process a stream receipt or a final stream receipt ([MC-MQSRM] 3.1.5.1.8)."""
        receipt = message.receipt
        if receipt is not None and receipt.kind == "stream":
            assert receipt.last_ordinal is not None
            if receipt.stream_id == self.stream_id:
                self._acknowledge(receipt.last_ordinal)
            else:
                self.marks["receipt-for-an-ended-stream"] += 1
        elif receipt is not None and receipt.kind == "final_stream":
            self._final(receipt)
        super().receive(message, answer)

    def _final(self, receipt: Receipt) -> None:
        """Process a final stream receipt ([MC-MQSRM] 3.1.5.1.9).

        A receipt for a stream other than the live one is discarded.
        """
        assert receipt.last_ordinal is not None
        if receipt.stream_id != self.stream_id:
            self.marks["final-receipt-discarded"] += 1
        elif any(item.position == receipt.last_ordinal for item in self.queue):
            self.faults_found.append(
                f"a final receipt for {receipt.last_ordinal}, which no stream receipt covers yet"
            )
        elif receipt.last_ordinal in self.awaited_final_receipts:
            del self.awaited_final_receipts[receipt.last_ordinal]
            if not self.awaited_final_receipts and not any(item.position for item in self.queue):
                self.stream_id = None
                self._receipt_wait = 0

    def _acknowledge(self, last_ordinal: int) -> None:
        if last_ordinal > self.sequence_number:
            self.faults_found.append(
                f"a receipt for {last_ordinal}, sent up to {self.sequence_number}"
            )
            return
        if last_ordinal <= self.last_acknowledged:
            return
        self.last_acknowledged = last_ordinal
        covered = [item for item in self.queue if 0 < item.position <= last_ordinal]
        for item in covered:
            self._remove(item)
            self.oracle.acknowledged(item.key)
            if self.dead_letter:
                self.awaited_final_receipts[item.position] = None
        self.resend_interval_index = 0
        if not any(item.position for item in self.queue) and not self.awaited_final_receipts:
            self.stream_id = None
            self._receipt_wait = 0
        else:
            self._start_receipt_wait()
        self.pump()
