r"""A sending queue manager written from the document alone ([MC-MQSRM] 3.1.7.2, 3.1.6, 3.1.5.1.8), for the simulator.

It shares no line with the sending half of the package: two people who read the same text and agree are evidence.

- 3.1.7.2.5: 200 ends a regular or durable message; a stream message is kept until a stream receipt covers it. 400 deletes.
  Anything else: retransmission of everything in the queue after RetransmissionTimeout (3.1.6.1).
- 3.1.2.2, 3.1.6.2: without a receipt everything that awaits one is sent again, by the resend table of appendix A <18>. The
  index grows on each time-out and falls back on progress (3.1.5.1.8.2 as printed does neither).
- 3.1.7.2.1: an expired message leaves the queue unsent; the next one's ``<previous>`` bridges the gap. It names what the peer
  certainly can hold: the nearest lower message still in the queue, else the last acknowledged (3.1.7.2.3 as printed leaves it
  too high and stalls the stream).
- 3.1.1.2: when all is acknowledged the stream ends; the next message begins one with a higher ordinal.
- 3.1.7.2.2: each sending gives the message a new identifier. As printed this makes repeats of regular messages undetectable,
  so only some senders of stream messages do it here, where the position still tells.
- A stream whose first message expired cannot go on, for only ``<current>`` 1 carries ``<start>``: it is given up, and what is
  left begins a new one under the same identifiers.
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
"""[MC-MQSRM] appendix A <18>."""
RETRANSMISSION_TIMEOUT_S = 20.0

Post = Callable[[Message, Answer], None]


@dataclass(slots=True, eq=False)
class Outgoing:
    """A message in the OutgoingQueue."""

    key: str
    uniquifier: int
    expires_at: float | None
    """Simulated monotonic time; ``None``: never."""
    expires_utc: int | None = None
    """What the message says: microseconds since 1970, by the wall clock of when it was made."""
    position: int = 0
    sent: bool = False
    message: Message | None = None
    previous: int = -1


class SenderModel:
    """What all senders share: a queue, an identity, and the retransmission timer."""

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
        """How many requests are under way at once; above 1 the network may reorder them."""
        self.message_id_ordinal = random.choice((0, 7, 4_294_967_200))
        self.message_id_step = random.choice((1, 1, 3))
        """Above 1: the other numbers go to other destinations."""
        self.queue: list[Outgoing] = []
        self.faults_found: list[str] = []
        """What the peer did that the protocol forbids."""
        self.too_late: set[str] = set()
        """Keys of messages that the peer may answer 400, because they came when their time was over."""
        self.says_ttrq = True
        """``<TTrq>`` or ``<expiresAt>`` ([MC-MQSRM] 2.2.6.17, 2.2.5.1.1)."""
        self.awaited_delivery_receipts: dict[str, None] = {}
        self.decisions: DecisionOracle | None = None
        """Hears of every receipt about a decision."""
        self._delivery_receipts: dict[str, None] = {}
        self._cursor = 0
        self._under_way = 0
        self._waiting_to_retransmit = False

    def next_uniquifier(self) -> int:
        """SRMPState.MessageIdOrdinal."""
        self.message_id_ordinal += self.message_id_step
        return self.message_id_ordinal

    def submit(self, key: str, time_to_reach_queue: float | None) -> None:
        """The application sends."""
        item = Outgoing(key, self.next_uniquifier(), None)
        if time_to_reach_queue is not None:
            item.expires_at = self.clock.now + time_to_reach_queue
            item.expires_utc = self.clock.utc() + int(time_to_reach_queue * 1_000_000)
        self.queue.append(item)
        self.pump()

    @property
    def idle(self) -> bool:
        """Nothing is left to send or to wait for."""
        return not self.queue and not self.awaited_delivery_receipts

    def pump(self) -> None:
        """Send what may be sent now."""
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
        """[MC-MQSRM] 3.1.7.2.1."""
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
        """What the oracle watches the order of."""
        return None

    def message_for(self, item: Outgoing) -> Message:
        """The message as it goes out now."""
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
        """200 came."""
        if item in self.queue:
            self._remove(item)
        self.oracle.acknowledged(item.key)

    def _retransmit(self) -> None:
        """[MC-MQSRM] 3.1.6.1."""
        self._waiting_to_retransmit = False
        self._cursor = 0
        self.pump()

    def receive(self, message: Message, answer: Answer) -> None:
        """A receipt arrived."""
        receipt = message.receipt
        if receipt is None:
            answer(400)
            return
        if receipt.kind == "delivery":
            name = f"{receipt.lineage}/{receipt.uniquifier}"
            self._delivery_receipts[name] = None  # it may overtake the 200
            self.awaited_delivery_receipts.pop(name, None)
        elif receipt.kind in ("commitment", "final_stream") and self.decisions is not None:
            self.decisions.told(receipt, message.uniquifier)
        answer(200)


class DatagramSender(SenderModel):
    """Regular and durable messages."""

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
        """The same bytes each time."""
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
        """Finished, but for a delivery receipt."""
        name = f"{self.guid}/{item.uniquifier}"
        if self.wants_delivery_receipts and name not in self._delivery_receipts:
            self.awaited_delivery_receipts[name] = None
        super().accepted(item)


class StreamSender(SenderModel):
    """Stream messages to one transactional queue."""

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
        """Positions of the live stream: acknowledged, and waiting to hear of their end (AwaitingFinalStreamReceipt)."""

    @property
    def idle(self) -> bool:
        """Nothing is left, also to hear of."""
        return super().idle and not self.awaited_final_receipts

    @property
    def stream_name(self) -> str | None:
        """One order for all streams of this sender: they follow one another."""
        return self.name

    def _expired(self, item: Outgoing) -> bool:
        first = item.position == 1
        if first and self.new_id_for_each_sending:
            return False  # the stream would be given up, and a receiver cannot know its messages again by new identifiers
        if not super()._expired(item):
            return False
        if first:
            self._give_up_stream()
        elif not self.queue and not self.awaited_final_receipts:
            self.stream_id = None  # 3.1.7.6
        return True

    def _give_up_stream(self) -> None:
        self.marks["stream-given-up"] += 1
        self.stream_id = None
        self._cursor = 0
        for item in self.queue:
            item.position = 0

    def message_for(self, item: Outgoing) -> Message:
        """[MC-MQSRM] 3.1.7.2.2 and 3.1.7.2.3."""
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
        """Kept until a receipt covers it (3.1.7.2.5)."""

    def _await_receipt(self) -> None:
        """3.1.2.2: the Stream Receipt Wait Timer, one for the stream."""
        if self._receipt_wait == 0:
            self._start_receipt_wait()

    def _start_receipt_wait(self) -> None:
        self._receipt_wait += 1
        self.clock.after(
            RESEND_TABLE_S[self.resend_interval_index], self._receipt_wait_over, self._receipt_wait
        )

    def _receipt_wait_over(self, number: int) -> None:
        """[MC-MQSRM] 3.1.6.2."""
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
        """[MC-MQSRM] 3.1.5.1.8."""
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
        """[MC-MQSRM] 3.1.5.1.9: of an unknown stream it is discarded."""
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
