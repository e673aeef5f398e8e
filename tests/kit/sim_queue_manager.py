"""The receiving engine between a simulated network and a simulated disk.

This module does the work of the queue manager around the engine in short form. Requests gather
while a commit is in progress. One transaction holds the rows of all these requests with the
engine's changes. Answers are sent after the sync. A crash discards the engine, and a restart builds
a new one from the disk, as the store does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TypeGuard

from srmp_spark.message import Arrival, Message
from srmp_spark.names import ORDER_QUEUE, LocalHosts
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.receiving.decisions import Reason, Undecided
from srmp_spark.srmp.receiving.effects import (
    Accepted,
    Changes,
    Committed,
    Ok,
    OwedReceipt,
    Pending,
    Refused,
    Repeated,
)
from srmp_spark.srmp.receiving.history import MessageIdHistory
from srmp_spark.srmp.receiving.incoming_streams import IncomingStreams
from srmp_spark.srmp.receiving.receipts import decision_receipt, delivery_receipt, stream_receipt
from srmp_spark.srmp.receiving.receiver import Receiver, ReceiverSettings
from srmp_spark.srmp.receiving.stream_effects import SendStreamReceipt
from tests.kit.sim_clock import SimClock
from tests.kit.sim_disk import (
    SimDecision,
    SimDiscarded,
    SimDisk,
    SimRow,
    SimTold,
    SimTransaction,
)
from tests.kit.sim_net import Answer

IDENTITY = "0a11ce00-0000-4000-8000-000000000001"
HOST = "qm"
SYNC_S_MAX = 0.02
STALL_PROBABILITIES = (0.0, 0.05, 0.4)
STALL_S_MAX = 5.0
"""Longest stalled sync, in seconds.

Some syncs take seconds, for example because another program writes or a disk array fails over.
Messages that arrive meanwhile must wait.
"""

READ_S_MAX = 20.0
"""Longest delay, in seconds, before the application reads the messages that arrived."""
PURGE_PROBABILITY = 0.2
"""Probability that an operator purges a queue before the application reads it."""
HELD_LOOK_S = 1.0

Post = Callable[[Message, Answer], None]
"""Sends a message to the destination that its ``<to>`` names."""
Request = Message | tuple[bytes, bytes]
"""A message as an object, or as it is sent over HTTP: Content-Type and content."""
Waiting = tuple[Pending, str, Answer]


def queue_url(queue: str) -> str:
    """Return the URL by which senders address a queue of the simulated queue manager."""
    return f"http://{HOST}/msmq/{queue}"


class SimQueueManager:
    """One receiving queue manager, through crashes and restarts.

    ``queues`` maps names to whether the queue is transactional. ``up`` is false while it is down.
    """

    receiver_class: type[Receiver] = Receiver
    history_class: type[MessageIdHistory] = MessageIdHistory
    streams_class: type[IncomingStreams] = IncomingStreams

    def __init__(
        self,
        clock: SimClock,
        disk: SimDisk,
        random: Random,
        post: Post,
        *,
        queues: dict[str, bool],
        settings: ReceiverSettings | None = None,
    ) -> None:
        self.clock = clock
        self.disk = disk
        self.random = random
        self.marks: Counter[str] = Counter()
        """How often each interesting event happened.

        A run in which an event never happens proves nothing about the event.
        """
        self.trace: Callable[[str], None] | None = None
        self.life = 0
        self.up = False
        self._post = post
        self._stall_probability = random.choice(STALL_PROBABILITIES)
        self._queues = queues
        self._settings = settings or ReceiverSettings()
        self._waiting: list[Waiting] = []
        self._syncing: list[Waiting] = []
        self._timer: float | None = None
        self._message_id_ordinal = 0
        self.judged: Callable[[Message, Arrival, Refused | Pending], object] = (
            lambda message, arrival, outcome: None
        )
        """Called with each message, its arrival, and the engine's decision about it."""
        self._also: tuple[
            list[Undecided], list[Undecided], list[SimDecision], bool, list[SimDiscarded]
        ] = [], [], [], False, []
        self._owed_on_their_way: set[int] = set()
        self._deciding: list[SimDecision] = []
        self._received: dict[str, int] = {}
        self._told_on_their_way: set[tuple[int, int]] = set()
        self.start()

    def start(self) -> None:
        """Begin a life from the content of the disk."""
        history = self.history_class.load(self.disk.history.values())
        streams = self.streams_class.load(
            self.disk.streams.values(), self.disk.accepted_gaps.values()
        )
        receiver = self.receiver_class(
            IDENTITY, LocalHosts(frozenset({HOST})), history, streams, self._settings
        )
        receiver.add_queue(ORDER_QUEUE, end=self.disk.end(ORDER_QUEUE))
        for name, transactional in self._queues.items():
            receiver.add_queue(name, transactional, self.disk.end(name))
        self.receiver = receiver
        self.life += 1
        self.up = True
        self._timer = None
        self._arm()
        self._received = dict(self.disk.received)
        self._send_owed()
        self._send_decisions()
        for queue in self._queues:
            self._read_later(queue)
        self.work()

    def crash(self, survives: bool) -> None:
        """Simulate a power failure. Requests that wait get the answer ``None``.

        If ``survives`` is true, the transaction in progress had just reached the disk. Call
        :meth:`start` to begin the next life.
        """
        self.up = False
        self.life += 1
        self.disk.crash(survives)
        hanging = self._syncing + self._waiting
        self._syncing, self._waiting = [], []
        self._owed_on_their_way.clear()
        self._told_on_their_way.clear()
        self._deciding = []
        for _, _, answer in hanging:
            answer(None)

    def receive(self, request: Request, answer: Answer) -> None:
        """Process a request: answer it at once if it is refused, else put it into a commit.

        While the queue manager is down, the answer is ``None``.
        """
        if not self.up:
            answer(None)
            return
        message = request if isinstance(request, Message) else decode(*request)
        key = message.body.decode()
        arrival = Arrival(self.clock.utc(), "http", "192.0.2.1:1801")
        outcome = self.receiver.receive(message, arrival, self.clock.now)
        self.judged(message, arrival, outcome)
        if isinstance(outcome, Refused):
            self.marks[f"refused-{outcome.reason}"] += 1
            if self.trace is not None:
                self.trace(f"{key} refused {outcome.status} {outcome.reason}")
            answer(outcome.status)
            return
        kind = "accepted" if isinstance(outcome, Accepted) else self._kind_of_repeat(outcome)
        self.marks[kind] += 1
        if self.trace is not None:
            self.trace(f"{key} {kind}")
        self.take((outcome, key, answer))

    def take(self, waiting: Waiting) -> None:
        """Put a message that will be answered 200, also a repeat, into the next commit."""
        self._waiting.append(waiting)
        if not self.disk.busy:
            self._begin()

    @staticmethod
    def is_discarded(pending: Pending) -> TypeGuard[Repeated]:
        """Return whether the message was too late to get a row (``--expired refuse``)."""
        return isinstance(pending, Repeated) and pending.kind == "expired"

    @staticmethod
    def _kind_of_repeat(pending: Pending) -> str:
        assert not isinstance(pending, Accepted)
        moved = pending.kind == "identifier" and pending.mark is not None
        return "repeated-identifier-at-new-position" if moved else f"repeated-{pending.kind}"

    def _begin(self) -> None:
        group, self._waiting = self._waiting, []
        decided, self._deciding = self._deciding, []
        expand = bool(self.disk.decisions)
        if not decided and not expand and not any(pending.needs_commit for pending, _, _ in group):
            self.answer(group, self.disk.proof())
            return
        self._syncing = group
        rows = [SimRow(p.queue, p.sequence, key) for p, key, _ in group if isinstance(p, Accepted)]
        owed = [receipt for p, _, _ in group if isinstance(p, Accepted) for receipt in p.owed]
        asking = [
            p.undecided for p, _, _ in group if isinstance(p, Accepted) and p.undecided is not None
        ]
        moved = [
            p.moved for p, _, _ in group if not isinstance(p, Accepted) and p.moved is not None
        ]
        discarded = [
            SimDiscarded(key, p.discarded, self.clock.utc())
            for p, key, _ in group
            if self.is_discarded(p)
        ]
        self._also = asking, moved, decided, expand, discarded
        self.write(rows, owed, self.receiver.changes())
        longest = STALL_S_MAX if self.random.random() < self._stall_probability else SYNC_S_MAX
        self.clock.after(self.random.random() * longest, self._synced, self.life)

    def write(self, rows: list[SimRow], owed: list[OwedReceipt], changes: Changes) -> None:
        """Begin one transaction that holds the rows, owed receipts and changes."""
        self.disk.begin(SimTransaction(rows, owed, changes, *self._also))

    def work(self) -> None:
        """Begin a transaction if there is something to write and no transaction is in progress."""
        if (
            self.up
            and not self.disk.busy
            and (self._waiting or self._deciding or self.disk.decisions)
        ):
            self._begin()

    def _synced(self, life: int) -> None:
        if life != self.life:
            return
        proof = self.disk.finish()
        group, self._syncing = self._syncing, []
        self.marks["commit"] += 1
        self.answer(group, proof)
        self._send_owed()
        self._send_decisions()
        for queue in dict.fromkeys(
            pending.queue for pending, _, _ in group if isinstance(pending, Accepted)
        ):
            self._read_later(queue)
        self.work()

    def answer(self, group: list[Waiting], proof: Committed) -> None:
        """Get the answers for ``group`` from the engine and send them.

        ``proof`` says that the commit is stored.
        """
        oks: list[Ok] = self.receiver.committed(
            [pending for pending, _, _ in group], proof, self.clock.now
        )
        for ok, (_, _, answer) in zip(oks, group, strict=True):
            answer(ok.status)
        self._arm()

    # --- receipts ---------------------------------------------------------------------------------

    def _arm(self) -> None:
        when = self.receiver.next_timer()
        if when is not None and (self._timer is None or when < self._timer):
            self._timer = when
            self.clock.at(when, self._on_timer, self.life)

    def _on_timer(self, life: int) -> None:
        if life != self.life:
            return
        self._timer = None
        for receipt in self.receiver.due(self.clock.now):
            self._send_stream_receipt(receipt)
        self._arm()

    def _send_stream_receipt(self, receipt: SendStreamReceipt) -> None:
        self._message_id_ordinal += 1
        message = stream_receipt(
            identity=IDENTITY,
            uniquifier=self._message_id_ordinal,
            to=receipt.url,
            via=queue_url(receipt.queue),
            stream_id=receipt.stream_id,
            last_ordinal=receipt.last_ordinal,
            sent_at=self.clock.utc(),
        )
        life = self.life
        self.marks["stream-receipt"] += 1
        if self.trace is not None:
            self.trace(f"stream receipt {receipt.stream_id} last_ordinal={receipt.last_ordinal}")

        def answered(status: int | None) -> None:
            if life != self.life:
                return
            guid, now = receipt.stream_id.guid, self.clock.now
            if status == 200:
                self.receiver.receipt_delivered(
                    receipt.queue, guid, receipt.stream_id, receipt.last_ordinal, now
                )
            else:
                self.marks["stream-receipt-failed"] += 1
                self.receiver.receipt_failed(receipt.queue, guid, now, permanent=status == 400)
            self._arm()

        self._post(message, answered)

    def _send_owed(self) -> None:
        for number, owed in list(self.disk.owed.items()):
            if number not in self._owed_on_their_way:
                self._owed_on_their_way.add(number)
                self._send_delivery_receipt(number, owed, self.life)

    def _send_delivery_receipt(self, number: int, owed: OwedReceipt, life: int) -> None:
        if life != self.life:
            return
        self._message_id_ordinal += 1
        message = delivery_receipt(
            owed,
            identity=IDENTITY,
            uniquifier=self._message_id_ordinal,
            via=queue_url(owed.queue),
            sent_at=self.clock.utc(),
        )
        self.marks["delivery-receipt"] += 1

        def answered(status: int | None) -> None:
            if life != self.life:
                return
            if status == 200:
                self.disk.receipt_delivered(number)
                self._owed_on_their_way.discard(number)
            else:
                timeout = self._settings.retransmission_timeout
                self.clock.after(timeout, self._send_delivery_receipt, number, owed, life)

        self._post(message, answered)

    # --- decisions --------------------------------------------------------------------------------

    def _read_later(self, queue: str) -> None:
        self.clock.after(self.random.random() * READ_S_MAX, self._read, queue, self.life)

    def _read(self, queue: str, life: int) -> None:
        """Decide about all committed rows of the queue: the application receives them.

        With :data:`PURGE_PROBABILITY` an operator purges them instead. The decision is stored
        later, with the next commit.
        """
        if life != self.life:
            return
        first, last = self._received.get(queue, 0) + 1, self.disk.end(queue)
        if first <= last:
            reason = (
                Reason.QUEUE_PURGED if self.random.random() < PURGE_PROBABILITY else Reason.RECEIVED
            )
            self.marks[f"decided-{reason.name.lower()}"] += 1
            self._received[queue] = last
            self.decide(SimDecision(queue, first, last, reason, self.clock.utc()))

    def decide(self, decision: SimDecision) -> None:
        """Put a decision into the next commit."""
        self._deciding.append(decision)
        self.work()

    def _send_decisions(self) -> None:
        for key, told in list(self.disk.told.items()):
            if (key, told.number) not in self._told_on_their_way:
                self._told_on_their_way.add((key, told.number))
                self.send_decision(key, told, self.life)

    def is_held(self, told: SimTold) -> bool:
        """Return whether a final receipt must wait until the stream receipt is delivered."""
        name, stream_id, position = (
            told.receipt.counted_by,
            told.receipt.stream_id,
            told.receipt.position,
        )
        return stream_id is not None and self.receiver.awaits_stream_receipt(
            name, stream_id, position
        )

    def send_decision(self, key: int, told: SimTold, life: int) -> None:
        """Send a decision's receipt again and again until it is delivered.

        ``key`` is its key in :attr:`SimDisk.told`. If the message moved in the meantime, another
        receipt has replaced this one, and the method sends nothing. The same holds after a crash.
        """
        if life != self.life or self.disk.told.get(key) != told:
            return
        if self.is_held(told):
            self.marks["final-receipt-held"] += 1
            self.clock.after(HELD_LOOK_S, self.send_decision, key, told, life)
            return
        receipt, via = told.receipt, queue_url(told.receipt.queue)
        message = decision_receipt(
            receipt, identity=IDENTITY, uniquifier=self.number_of(told), via=via
        )
        self.marks[f"{receipt.kind}-receipt-{receipt.reason.decision}"] += 1

        def answered(status: int | None) -> None:
            if life != self.life:
                return
            if status == 200:
                self.disk.decision_delivered(key, told)
            else:
                self.clock.after(
                    self._settings.retransmission_timeout, self.send_decision, key, told, life
                )

        self._post(message, answered)

    def number_of(self, told: SimTold) -> int:
        """Return the number in the receipt's identifier, which stays the same for each sending."""
        return told.number
