"""The sending half of the protocol ([MC-MQSRM] 3.1.7.2, 3.1.6.1, 3.1.6.2, 3.1.5.1.8 and .9), without any I/O.

Theory of operation, for whoever writes the outbox and the dispatcher around it. Messages live in a table under (destination,
kind, serial); this engine says which serials, reads a few ahead, hands them out and keeps the numbers. Five steps, and the
order of them is forced by the types (:mod:`.outgoing_effects`):

1. *Commit.* ``enqueue(…)`` gives out serials and, with them, stream positions. Write the rows and ``changes()`` in **one**
   transaction; hand its proof to ``committed(changes, proof)``. Message identifiers are the caller's, given out at the same
   moment and stored in the row. Nothing leaves before.
2. *Send.* After every call, ``poll(now, at)`` says what to do: :class:`Load` (answer with ``loaded``) or :class:`Send` (post
   it, report its end once: ``answered`` for a complete answer, ``failed`` for none, ``withdrawn`` if it was never written).
   And whenever ``has_changes`` is true, write ``changes()`` in the next group commit: some sendings wait for that.
3. *Receipt.* A message at our order queue that carries a stream receipt goes through the receiving engine as always, and is
   durable before the peer is answered 200: a peer sends no receipt twice that was answered 200, so one that is lost then is
   missed for ever. Call ``receipt(message, …)`` and commit ``changes()``, at the latest before the stored receipt is passed
   over: whoever keeps receipts in a log of their own (ADR 0010) does so after the 200, and reads them again after a crash.
   Applied twice it does no harm.
4. *End.* ``committed`` returns what is final now: :class:`Delivered`, :class:`DeadLettered`.
5. *Restart.* ``Sender.load(rows, …)`` with what the tables hold. Everything unacknowledged goes again, with its identifier and
   its place.

Memory runs ahead of the disk by one group commit and is never rolled back: when a commit fails the process ends, as on the
receiving side. ``now`` is monotonic seconds and drives every timer; ``at`` is the wall clock in microseconds: expiry, the time
stamp of a stream identifier and what is shown, nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from srmp_spark.errors import ConfigurationError, LocalProtocolError
from srmp_spark.message import Message
from srmp_spark.names import is_reliable
from srmp_spark.srmp.effects import Committed
from srmp_spark.srmp.message_types import ABOUT_STREAMS, message_type
from srmp_spark.srmp.outgoing_effects import (
    DeadLettered,
    Delivered,
    Enqueued,
    Kind,
    Load,
    OutgoingChanges,
    OutgoingQueueRow,
    QueueKey,
    ReceiptVerdict,
    Send,
    StoredMessage,
    outcomes_of,
)
from srmp_spark.srmp.outgoing_ledger import OutgoingLedger
from srmp_spark.srmp.outgoing_queue import OutgoingQueue
from srmp_spark.srmp.outgoing_regular import OutgoingRegular
from srmp_spark.srmp.outgoing_reliable import OutgoingReliable
from srmp_spark.srmp.outgoing_room import DESTINATIONS_MAX, NO_ORIGIN, OutgoingRoom
from srmp_spark.srmp.outgoing_states import QueueEvent, SenderSettings
from srmp_spark.srmp.outgoing_stream import OutgoingStream
from srmp_spark.srmp.serial_runs import SerialRuns
from srmp_spark.timers import Timers

RECORDS_MAX = 2 * DESTINATIONS_MAX
"""Records of outgoing queues: those that hold messages, and those whose only messages just found no room, for a moment."""
ENQUEUE_MAX = 10_000_000
"""Messages given out at once: one batch of a sink. A limit against a count that was computed wrongly."""


class Sender:
    """One queue manager's sending engine."""

    stream_class: type[OutgoingStream] = OutgoingStream
    """What a stream is made of; the simulator puts a faulty one here to see that it is caught."""
    regular_class: type[OutgoingRegular] = OutgoingRegular

    def __init__(
        self,
        identity: str,
        settings: SenderSettings | None = None,
        *,
        last_stream_ordinal: int = 0,
        serials_after: int = 0,
    ) -> None:
        self.identity = identity
        """QueueManager.Identifier: the GUID in our stream identifiers and, as the lineage, in our messages'."""
        self.settings = settings or SenderSettings()
        self.receipts: Counter[ReceiptVerdict] = Counter()
        """What stream receipts did, for metrics and warnings."""
        self._ledger = OutgoingLedger(last_stream_ordinal)
        self._queues: dict[QueueKey, OutgoingQueue] = {}
        self.room = OutgoingRoom()
        """Which queues hold messages, for whom."""
        self.serials_after = serials_after
        """Serials up to here may have been given out by a queue that was forgotten: of its dead letters, for example."""
        self._awake: dict[OutgoingQueue, None] = {}
        self._timers: Timers[OutgoingQueue] = Timers()
        self._stored = 0
        self._proof: Committed | None = None

    @classmethod
    def load(
        cls,
        identity: str,
        settings: SenderSettings,
        rows: Iterable[OutgoingQueueRow],
        proof: Committed,
        *,
        finals: dict[QueueKey, list[tuple[int, int]]],
        last_stream_ordinal: int,
        serials_after: int = 0,
    ) -> Sender:
        """The engine as it was saved ([MC-MQSRM] 3.1.3).

        ``finals``: the serials of all stream messages that ask for a final stream receipt, as ascending runs. ``proof`` says
        that what was read is on stable storage. ``serials_after``: the highest serial of a queue that was forgotten.
        """
        sender = cls(
            identity, settings, last_stream_ordinal=last_stream_ordinal, serials_after=serials_after
        )
        sender._proof = proof
        for row in rows:
            queue = sender._make(row, finals.get(QueueKey(row.destination, row.kind), []))
            queue.was_stored(row, 0, proof)
            sender._note(queue)
        return sender

    def _make(self, row: OutgoingQueueRow, finals: list[tuple[int, int]]) -> OutgoingQueue:
        queue: OutgoingQueue
        if row.kind == "stream":
            queue = self.stream_class(
                row, self.identity, self.settings, self._ledger, SerialRuns(finals)
            )
        elif is_reliable(row.destination):
            queue = OutgoingReliable(row, self.identity, self.settings, self._ledger)
        else:
            queue = self.regular_class(row, self.identity, self.settings, self._ledger)
        self._queues[queue.key] = queue
        self._awake[queue] = None
        return queue

    def _note(self, queue: OutgoingQueue) -> None:
        self.room.note(queue.key, queue.origin, holds=queue.holds_messages)

    def receipts_go_to(
        self, url: str, replaced: Callable[[str, str], str] = lambda _, url: url
    ) -> list[OutgoingStream]:
        """Where streams that begin from now on have their receipts sent; the live ones whose receipts go elsewhere.

        ``replaced(destination, url)`` is what the peer is told ([MC-MQSRM] 3.1.7.2.4, :class:`~.redirection.ReceiptUrls`).
        """
        self._ledger.receipts_url = url
        self._ledger.replaces_receipts_url = replaced
        streams = [each for each in self if isinstance(each, OutgoingStream)]
        return [
            each for each in streams if not each.receipts_go_to(replaced(each.key.destination, url))
        ]

    # --- commit -------------------------------------------------------------------------------------------------------------

    def enqueue(
        self,
        destination: str,
        kind: Kind,
        count: int,
        at: int,
        *,
        receipts_url: str = "",
        final_receipts: bool = False,
        origin: str = NO_ORIGIN,
    ) -> Enqueued:
        """Give out ``count`` serials for messages to ``destination``, in the order in which they shall arrive.

        ``receipts_url`` is our order queue as the peer reaches it (``<sendReceiptsTo>``; a ``?SenderStream=`` in it must come
        back with the receipts). ``final_receipts``: they carry ``<DeadLetter/>`` and are finished by final stream receipts.
        ``origin``: for whom a queue counts that held nothing before (:attr:`room` says whether it admits them).
        Raises :class:`LocalProtocolError` for a stream without ``receipts_url``, :class:`ConfigurationError` beyond a limit.
        """
        if not 1 <= count <= ENQUEUE_MAX:
            raise ConfigurationError(
                f"1 to ENQUEUE_MAX = {ENQUEUE_MAX} messages at once, got {count}: send "
                "them in parts"
            )
        key = QueueKey(destination, kind)
        queue = self._queues.get(key)
        if queue is None:
            if len(self._queues) >= RECORDS_MAX:
                hint = "forget destinations that nothing waits for (srmp-spark streams drop)"
                raise ConfigurationError(f"RECORDS_MAX is {RECORDS_MAX}; {hint}")
            begin = self.serials_after
            row = OutgoingQueueRow(
                destination,
                kind,
                0,
                begin,
                begin,
                begin,
                begin,
                receipts_url,
                0,
                False,
                at,
                0,
                begun_after=begin,
            )
            queue = self._make(row, [])
        self._awake[queue] = None
        if not queue.holds_messages:
            queue.origin = origin
        if not isinstance(queue, OutgoingStream):
            assert isinstance(queue, OutgoingRegular), "there are two kinds"
            first = queue.append(count)
            self._note(queue)
            return Enqueued(key, first, queue.end, None, 0)
        if not receipts_url:
            raise LocalProtocolError(
                "a stream needs an address for its receipts ([MC-MQSRM] 2.2.5.3.4)"
            )
        first = queue.append(count, at, receipts_url, final_receipts)
        self._note(queue)
        return Enqueued(key, first, queue.end, queue.id, first - queue.base)

    def has_no_room(self, key: QueueKey, at: int) -> None:
        """Make dead letters of everything in a queue that held nothing before the last :meth:`enqueue`."""
        queue = self._queues[key]
        queue.drop(at, "no-room")
        self._note(queue)

    def give_up(self, key: QueueKey, count: int) -> Enqueued:
        """Give out ``count`` serials of messages that find no room, for a queue that has no record, and make none.

        The caller stores them as dead letters. No later queue gives these serials out.
        """
        first, self.serials_after = self.serials_after + 1, self.serials_after + count
        return Enqueued(key, first, self.serials_after, None, 0)

    @property
    def has_changes(self) -> bool:
        """Whether there is something to write; if so, do it with the next group commit."""
        return len(self._ledger) > 0

    def changes(self) -> OutgoingChanges:
        """What changed since the last call, for the transaction that holds the messages enqueued since then."""
        return self._ledger.take()

    def committed(
        self, changes: OutgoingChanges, proof: Committed
    ) -> list[Delivered | DeadLettered]:
        """The store has synced ``changes``, in the order they were taken: what is final now.

        Raises :class:`LocalProtocolError` for anything but the store's proof.
        """
        outcomes = outcomes_of(changes, proof)
        if self._proof is not None and proof.position < self._proof.position:
            raise LocalProtocolError(f"{proof!r} proves no commit after {self._proof!r}")
        self._ledger.check(changes.generation, self._stored)
        self._stored, self._proof = changes.generation, proof
        for row in changes.queues:
            queue = self._queues.get(QueueKey(row.destination, row.kind))
            if queue is not None:
                queue.was_stored(row, changes.generation, proof)
                self._awake[queue] = None
        return outcomes

    # --- sending ------------------------------------------------------------------------------------------------------------

    def poll(self, now: float, at: int) -> list[Send | Load]:
        """What to do now. Call it after every other call and after every commit."""
        if not self._awake or not self._ledger.releases:
            return []
        out: list[Send | Load] = []
        awake, self._awake = self._awake, {}
        for queue in awake:
            queue.pump(now, at, out)
            self._timers.set(queue, queue.deadline)
            self._note(queue)
        return out

    def loaded(self, load: Load, messages: Sequence[StoredMessage]) -> None:
        """The rows that ``load`` asked for. Raises :class:`LocalProtocolError` for others."""
        queue = self._find(load.key)
        if queue is not None:
            queue.was_loaded(load, messages)

    def not_reached(self, load: Load, now: float) -> None:
        """There is no connection to send over what ``load`` asks for. Nothing was read, so nothing left."""
        queue = self._find(load.key)
        if queue is not None:
            queue.not_reached(load, now)

    def must_see(self, load: Load, at: int) -> bool:
        """Whether rows of ``load`` must be read before :meth:`not_reached`: what is too late becomes a dead letter, whether its
        peer is ever reached or not. One row is enough at first; hand it to :meth:`seen`."""
        queue = self._queues.get(load.key)
        return queue is not None and queue.must_see(load, at)

    def seen(
        self, load: Load, messages: Sequence[StoredMessage] | None, now: float, at: int
    ) -> Load | None:
        """Rows of ``load``, ``None`` if they cannot be read, instead of :meth:`not_reached`; what is to be seen next."""
        queue = self._find(load.key)
        return None if queue is None else queue.seen(load, messages, now, at)

    def answered(
        self, send: Send, status: int, now: float, at: int, retry_after: float | None = None
    ) -> None:
        """A complete HTTP answer came ([MC-MQSRM] 3.1.7.2.5); ``retry_after`` is the peer's ``Retry-After`` in seconds.

        Only a 200 that is complete counts (bad input 33). Raises :class:`LocalProtocolError` if the sending ended before.
        """
        queue = self._find(send.key)
        if queue is not None:
            queue.answered(send, status, now, at, retry_after)

    def failed(self, send: Send, now: float, *, left: bool = True) -> None:
        """No complete answer came: not connected (``left=False``: no byte of it left), cut off, or too slow."""
        queue = self._find(send.key)
        if queue is not None:
            queue.failed(send, now, left)

    def withdrawn(self, send: Send) -> None:
        """It never left, because of the answer to the one before it: after that answer and before :meth:`poll`."""
        queue = self._find(send.key)
        if queue is not None:
            queue.withdrawn(send)

    def expired(self, send: Send) -> None:
        """The time of a message of a reliable session was over before it left; this ends the sending."""
        queue = self._find(send.key)
        if isinstance(queue, OutgoingReliable):
            queue.expired(send)

    def doubted(self, send: Send) -> None:
        """It left, no answer came, and it is posted once more before its end is told: the peer may have it, whatever that is.

        Tell it before the second attempt. A 503 to that one says nothing about the first.
        """
        queue = self._queues.get(send.key)
        if queue is not None:
            queue.doubt(send)

    def never_left(self, send: Send) -> None:
        """Nothing of it was or will be written; its end is told later, as that of one that failed with ``left=False``."""
        queue = self._queues.get(send.key)
        if queue is not None:
            queue.never_left(send)

    def closed(self, destination: str, kind: Kind) -> None:
        """Its connection was closed, with nothing under way ([MC-MQSRM] 3.1.6.4)."""
        queue = self._find(QueueKey(destination, kind))
        if queue is not None:
            if queue.in_flight:
                raise LocalProtocolError(f"{queue!r}: report what was under way first")
            queue.move(QueueEvent.CLOSED)
            queue.window = 1

    def _find(self, key: QueueKey) -> OutgoingQueue | None:
        queue = self._queues.get(key)
        if queue is not None:
            self._awake[queue] = None
        return queue

    # --- receipts -----------------------------------------------------------------------------------------------------------

    def receipt(self, message: Message, now: float, at: int) -> ReceiptVerdict | None:
        """A message at our order queue: what it did, if it is a receipt about a stream ([MC-MQSRM] 3.1.5.1.8, 3.1.5.1.9).

        It counts for exactly the stream it names, and not beyond what was sent; anything else changes nothing and is counted
        in :attr:`receipts`. A stream whose receipts go to ``…?SenderStream=X`` believes only those that come there
        (:mod:`.receipts_address`).
        """
        receipt = message.receipt
        if receipt is None or receipt.stream_id is None:
            return None
        key = self._ledger.streams.get(receipt.stream_id.ordinal)
        stream = None if key is None else self._queues.get(key)
        if message_type(message) not in ABOUT_STREAMS:
            verdict: ReceiptVerdict = (
                "another-type"  # 3.1.5.1.5: class, decision and action must agree
            )
        elif (
            not isinstance(stream, OutgoingStream)
            or receipt.stream_id.guid.lower() != self.identity
        ):
            verdict = "another-stream"
        elif not stream.believes(receipt.stream_id.ordinal, message.destination):
            verdict = "another-address"
        else:
            verdict = stream.receipt(receipt, now, at, message.message_class)
            self._awake[stream] = None
        self.receipts[verdict] += 1
        return verdict

    # --- timers -------------------------------------------------------------------------------------------------------------

    def next_timer(self) -> float | None:
        """When to call :meth:`due` next, on the monotonic clock."""
        return self._timers.next()

    def due(self, now: float, at: int) -> None:
        """Timers that have come; then :meth:`poll`."""
        for queue in self._timers.due(now):
            queue.due(now, at)
            self._awake[queue] = None

    # --- an operator's decisions: answer when their changes are committed -----------------------------------------------------

    def pause(self, destination: str, kind: Kind) -> bool:
        """Send nothing until :meth:`resume`; whether there is such a queue. Close its connection."""
        queue = self._find(QueueKey(destination, kind))
        if queue is not None:
            queue.pause()
        return queue is not None

    def resume(self, destination: str, kind: Kind) -> bool:
        """Send again."""
        queue = self._find(QueueKey(destination, kind))
        if queue is not None:
            queue.resume()
        return queue is not None

    def retry(self, destination: str, kind: Kind) -> bool:
        """Do not wait for the Retransmission Timer; a stream sends again whatever is not acknowledged."""
        queue = self._find(QueueKey(destination, kind))
        if queue is not None:
            queue.retry()
            if isinstance(queue, OutgoingStream):
                queue.resend()
        return queue is not None

    def reset(self, destination: str) -> bool:
        """Send the rest of a stream in a new stream: the peer lost its state, or takes a lower identifier for a late copy.

        What the peer took and did not acknowledge it takes again, unless it knows it by the message's identifier.
        """
        queue = self._find(QueueKey(destination, "stream"))
        if isinstance(queue, OutgoingStream):
            queue.reset()
        return queue is not None

    def drop(self, destination: str, kind: Kind, at: int) -> bool:
        """Give up everything in a queue: dead letters, marked where the peer may have them."""
        queue = self._find(QueueKey(destination, kind))
        if queue is not None:
            queue.drop(at)
            self._note(queue)
        return queue is not None

    def forget(self, destination: str, kind: Kind) -> bool:
        """Drop the record of a queue in which nothing is; whether it was one."""
        queue = self._queues.get(QueueKey(destination, kind))
        if (
            queue is None
            or not queue.idle
            or (isinstance(queue, OutgoingStream) and not queue.ended)
        ):
            return False
        del self._queues[queue.key]
        self.serials_after = max(self.serials_after, queue.end)
        self._awake.pop(queue, None)
        self._timers.set(queue, None)
        self.room.note(queue.key, queue.origin, holds=False)
        if isinstance(queue, OutgoingStream):
            for ordinal in (queue.ordinal, *(each.ordinal for each in queue.earlier)):
                self._ledger.streams.pop(ordinal, None)
        self._ledger.forget(queue)
        return True

    def forget_idle(self, count: int, may_forget: Callable[[QueueKey], bool]) -> list[QueueKey]:
        """Drop the records of ``count`` queues in which nothing is, those that were of no use for longest first; which ones.

        Not in one transaction with a message that is given to one of them.
        """
        idle = sorted(
            (queue for queue in self if queue.may_be_forgotten), key=lambda queue: queue.used_at
        )
        forgotten: list[QueueKey] = []
        for queue in idle:
            if len(forgotten) >= count:
                break
            if may_forget(queue.key) and self.forget(*queue.key):
                forgotten.append(queue.key)
        return forgotten

    def stop(self) -> None:
        """Hand out nothing more: what is released and has not left is taken back, so the next process knows what left.

        Call it when nothing leaves any more, and commit :meth:`changes`. After a crash nobody knows it: a receipt for one of
        the RELEASE_AHEAD messages behind the last one that left is then believed, of a peer that knows the stream's secret.
        """
        self._ledger.releases = False
        for queue in self:
            queue.take_back_release()

    def get(self, destination: str, kind: Kind) -> OutgoingQueue | None:
        """The queue, for ``status``; change it through the methods here alone."""
        return self._queues.get(QueueKey(destination, kind))

    def __iter__(self) -> Iterator[OutgoingQueue]:
        return iter(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    def __repr__(self) -> str:
        return (
            f"<Sender {self.identity} queues={len(self)} unsaved={len(self._ledger)} "
            f"stored={self._stored}>"
        )
