"""The sending half of the protocol, without any I/O.

See [MC-MQSRM] 3.1.7.2, 3.1.6.1, 3.1.6.2, 3.1.5.1.8 and 3.1.5.1.9. This theory of operation is for
the authors of the outbox and of the dispatcher around this engine. Messages are in a table under
(destination, kind, serial); a serial is the number of a message in its outgoing queue. The engine
assigns the serials, reads a few messages ahead, requests their sending and keeps the numbers. There
are five steps, and the types enforce their order (:mod:`.outgoing_effects`):

1. *Commit.* ``enqueue(…)`` assigns serials and stream positions. Write the rows and ``changes()``
   in **one** transaction, and give its proof to ``committed(changes, proof)``. The caller assigns
   the message identifiers at the same time and stores them in the rows. No message is sent before.
2. *Send.* After every call, ``poll(now, at)`` returns what to do. Answer a :class:`Load` with
   ``loaded``. Post a :class:`Send` and report its end once: ``answered`` for a complete answer,
   ``failed`` for none, ``withdrawn`` if it was never written. Whenever ``has_changes`` is true,
   write ``changes()`` in the next group commit, because some sendings wait for that.
3. *Receipt.* A message that arrives at the order queue and carries a stream receipt passes the
   receiving engine as always, and is durable before the peer is answered 200. A peer never repeats
   a receipt that was answered 200, so a receipt that is lost afterwards never arrives again. Call
   ``receipt(message, …)`` and commit ``changes()`` before the stored receipt is marked as read. A
   store that keeps receipts in a log of its own (ADR 0010) does so after the 200, and reads them
   again after a crash. Applying a receipt twice does no harm.
4. *End.* ``committed`` returns the final outcomes: :class:`Delivered`, :class:`DeadLettered`.
5. *Restart.* Call ``Sender.load(rows, …)`` with the content of the tables. Every unacknowledged
   message is sent again, with its identifier and its position.

Memory is ahead of the disk by one group commit and is never rolled back. If a commit fails, the
process ends, as on the receiving side. ``now`` is in monotonic seconds and drives every timer.
``at`` is the wall clock in microseconds. The wall clock is used only for expiry, for the time stamp
of a stream identifier, and for times that are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from srmp_spark.errors import ConfigurationError, LocalProtocolError
from srmp_spark.message import Message
from srmp_spark.srmp.codec.message_types import ABOUT_STREAMS, message_type
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.srmp.sending.outgoing_effects import (
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
from srmp_spark.srmp.sending.outgoing_ledger import OutgoingLedger
from srmp_spark.srmp.sending.outgoing_queue import OutgoingQueue
from srmp_spark.srmp.sending.outgoing_regular import OutgoingRegular
from srmp_spark.srmp.sending.outgoing_reliable import OutgoingReliable
from srmp_spark.srmp.sending.outgoing_room import DESTINATIONS_MAX, NO_ORIGIN, OutgoingRoom
from srmp_spark.srmp.sending.outgoing_states import QueueEvent, SenderSettings
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from srmp_spark.srmp.sending.serial_runs import SerialRuns
from srmp_spark.timers import Timers

RECORDS_MAX = 2 * DESTINATIONS_MAX
"""Most records of outgoing queues; at the limit a new destination is refused.

These are the queues that hold messages, and for a moment those whose only messages have just found
no room.
"""
ENQUEUE_MAX = 10_000_000
"""Most messages in one :meth:`Sender.enqueue`: one batch of a sink.

The limit protects against a count that was computed wrongly.
"""


class Sender:
    """The sending engine of one queue manager.

    ``now`` is in seconds on the monotonic clock, and ``at`` is the wall clock in microseconds since
    1970. Reports about a queue that has no record are ignored.
    """

    stream_class: type[OutgoingStream] = OutgoingStream
    """Class of the streams.

    The simulator of the tests sets a faulty class, to check that the fault is found.
    """
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
        """QueueManager.Identifier: the GUID in the identifiers of outgoing streams and, as lineage,
        of messages.
        """
        self.settings = settings or SenderSettings()
        self.receipts: Counter[ReceiptVerdict] = Counter()
        """Counts of the verdicts about stream receipts, for metrics and warnings."""
        self._ledger = OutgoingLedger(last_stream_ordinal)
        self._queues: dict[QueueKey, OutgoingQueue] = {}
        self.room = OutgoingRoom()
        """Counts which queues hold messages, and for whom."""
        self.serials_after = serials_after
        """Highest serial that a forgotten queue may have assigned, for example to its dead letters.

        New queues begin after it.
        """
        self._awake: dict[OutgoingQueue, None] = {}
        self._timers: Timers[OutgoingQueue] = Timers()
        self._stored = 0
        self._proof: Committed | None = None
        self._released: set[QueueKey] | None = None
        """The only queues that may send, or ``None`` if all may (:meth:`hold_all`)."""

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
        """Return the engine as it was saved ([MC-MQSRM] 3.1.3).

        ``finals`` holds the serials of all stream messages that request a final stream receipt, as
        ascending runs. ``proof`` proves that the rows are on stable storage. ``serials_after`` is
        the highest serial of a queue that was forgotten.
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
        elif QueueKey(row.destination, row.kind).transport.rules.numbers_in_session:
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
        """Set the address for receipts of new streams.

        Each live stream also gets the new address if it can still tell it to the peer. Return the
        live streams whose receipts still go to another address. ``replaced(destination, url)``
        returns the address that the peer is told ([MC-MQSRM] 3.1.7.2.4,
        :class:`~.redirection.ReceiptUrls`).
        """
        self._ledger.receipts_url = url
        self._ledger.replaces_receipts_url = replaced
        streams = [each for each in self if isinstance(each, OutgoingStream)]
        return [
            each for each in streams if not each.receipts_go_to(replaced(each.key.destination, url))
        ]

    # --- commit -----------------------------------------------------------------------------------

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
        """Assign ``count`` serials to messages for ``destination``, in their order of arrival.

        ``receipts_url`` is the URL of this queue manager's order queue as the peer reaches it
        (``<sendReceiptsTo>``). A ``?SenderStream=`` in it must come back with the receipts.
        ``final_receipts`` means that the messages carry ``<DeadLetter/>`` and are finished by final
        stream receipts. ``origin`` (:mod:`.outgoing_room`) is the origin for which the queue counts
        if it held no messages before. This method does not check whether there is room: ask
        :attr:`room`, and call :meth:`has_no_room` if there is none. Raises
        :class:`LocalProtocolError` for a stream without ``receipts_url``, and
        :class:`ConfigurationError` beyond a limit.
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
        """Make dead letters of all messages in a queue for which there is no room.

        The queue held no messages before the last :meth:`enqueue`. Raises :class:`KeyError` if the
        queue has no record.
        """
        queue = self._queues[key]
        queue.drop(at, "no-room")
        self._note(queue)

    def give_up(self, key: QueueKey, count: int) -> Enqueued:
        """Assign ``count`` serials to messages without room, for a queue that has no record.

        No record is created. The caller stores the messages as dead letters. No later queue assigns
        these serials.
        """
        first, self.serials_after = self.serials_after + 1, self.serials_after + count
        return Enqueued(key, first, self.serials_after, None, 0)

    @property
    def has_changes(self) -> bool:
        """Return whether there are changes to write with the next group commit."""
        return len(self._ledger) > 0

    def changes(self) -> OutgoingChanges:
        """Return the changes since the last call, and begin to collect again.

        The changes belong in the transaction that holds the messages enqueued since then.
        """
        return self._ledger.take()

    def committed(
        self, changes: OutgoingChanges, proof: Committed
    ) -> list[Delivered | DeadLettered]:
        """Record that the store has synced ``changes``, and return the final outcomes.

        Call it in the order in which the changes were taken. Raises :class:`LocalProtocolError`
        without the store's proof, or in another order.
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

    # --- sending ----------------------------------------------------------------------------------

    def poll(self, now: float, at: int) -> list[Send | Load]:
        """Return the loads and sends to execute now.

        Call this after every other call and after every commit. Each load and send is returned
        once.
        """
        if not self._awake or not self._ledger.releases:
            return []
        out: list[Send | Load] = []
        awake, self._awake = self._awake, {}
        for queue in awake:
            if self._released is not None and queue.key not in self._released:
                # The end of the hold wakes every queue.
                continue
            queue.pump(now, at, out)
            self._timers.set(queue, queue.deadline)
            self._note(queue)
        return out

    def loaded(self, load: Load, messages: Sequence[StoredMessage]) -> None:
        """Accept the rows that ``load`` requested. Then call :meth:`poll`.

        Raises :class:`LocalProtocolError` if they are not rows of its range in ascending order.
        """
        queue = self._find(load.key)
        if queue is not None:
            queue.was_loaded(load, messages)

    def not_reached(self, load: Load, now: float) -> None:
        """End ``load`` without reading, because the peer cannot be reached; retry later.

        No row was read, so no message was sent.
        """
        queue = self._find(load.key)
        if queue is not None:
            queue.not_reached(load, now)

    def must_see(self, load: Load, at: int) -> bool:
        """Return whether rows of ``load`` must be read although the peer cannot be reached.

        An expired message becomes a dead letter even if its peer is never reached. If the result is
        True, read one row or more and call :meth:`seen`; otherwise call :meth:`not_reached`.
        """
        queue = self._queues.get(load.key)
        return queue is not None and queue.must_see(load, at)

    def seen(
        self, load: Load, messages: Sequence[StoredMessage] | None, now: float, at: int
    ) -> Load | None:
        """Accept rows of ``load`` that were read because of :meth:`must_see`.

        ``messages`` is ``None`` if they cannot be read. Call this instead of :meth:`not_reached`.
        Return the next load to read, or ``None``.
        """
        queue = self._find(load.key)
        return None if queue is None else queue.seen(load, messages, now, at)

    def answered(
        self, send: Send, status: int, now: float, at: int, retry_after: float | None = None
    ) -> None:
        """Record a complete HTTP answer ([MC-MQSRM] 3.1.7.2.5).

        ``retry_after`` is the peer's ``Retry-After`` in seconds. An answer that ended early is no
        complete answer: call :meth:`failed`. Raises :class:`LocalProtocolError` if the end of this
        sending was reported before.
        """
        queue = self._find(send.key)
        if queue is not None:
            queue.answered(send, status, now, at, retry_after)

    def failed(self, send: Send, now: float, *, left: bool = True) -> None:
        """Record that no complete answer to a message was received.

        The connection failed, ended or was too slow. ``left=False`` means that no byte of the
        message was sent, so that the peer cannot have it. Raises :class:`LocalProtocolError` if the
        end of this sending was reported before.
        """
        queue = self._find(send.key)
        if queue is not None:
            queue.failed(send, now, left)

    def withdrawn(self, send: Send) -> None:
        """Record that a message was not sent because of the answer to the preceding message.

        The message is sent again, in order. Call this after that answer and before :meth:`poll`.
        Raises :class:`LocalProtocolError` if the end of this sending was reported before.
        """
        queue = self._find(send.key)
        if queue is not None:
            queue.withdrawn(send)

    def expired(self, send: Send) -> None:
        """Record that a message of a reliable session expired before it was sent.

        This ends the sending, and the message becomes a dead letter. A queue of another kind is
        unchanged.
        """
        queue = self._find(send.key)
        if isinstance(queue, OutgoingReliable):
            queue.expired(send)

    def doubted(self, send: Send) -> None:
        """Record that a message was sent without an answer and is now posted again.

        The peer may have the message, whatever the reported end is. Call this before the second
        attempt, because a 503 to the second attempt does not show the fate of the first.
        """
        queue = self._queues.get(send.key)
        if queue is not None:
            queue.doubt(send)

    def never_left(self, send: Send) -> None:
        """Record that no byte of the message was or will be written to the peer.

        Its end is reported later, as a failure with ``left=False``.
        """
        queue = self._queues.get(send.key)
        if queue is not None:
            queue.never_left(send)

    def closed(self, destination: str, kind: Kind) -> None:
        """Record that the connection was closed with no message in flight ([MC-MQSRM] 3.1.6.4).

        Raises :class:`LocalProtocolError` if a message is in flight: report its end first.
        """
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

    # --- receipts ---------------------------------------------------------------------------------

    def receipt(self, message: Message, now: float, at: int) -> ReceiptVerdict | None:
        """Process a message that arrived at the order queue, if it is a receipt about a stream.

        See [MC-MQSRM] 3.1.5.1.8 and 3.1.5.1.9. Return the verdict about the receipt, or ``None``
        for any other message. A receipt counts for exactly the stream that it names, and not beyond
        the messages that were sent. Any other receipt changes nothing and is counted in
        :attr:`receipts`. A stream whose receipts go to ``…?SenderStream=X`` believes only receipts
        that arrive there (:mod:`.receipts_address`).
        """
        receipt = message.receipt
        if receipt is None or receipt.stream_id is None:
            return None
        key = self._ledger.streams.get(receipt.stream_id.ordinal)
        stream = None if key is None else self._queues.get(key)
        if message_type(message) not in ABOUT_STREAMS:
            # Class, decision and action must agree (3.1.5.1.5).
            verdict: ReceiptVerdict = "another-type"
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

    # --- timers -----------------------------------------------------------------------------------

    def next_timer(self) -> float | None:
        """Return the time at which to call :meth:`due` next, or ``None`` if no timer runs.

        The time is in seconds on the monotonic clock.
        """
        return self._timers.next()

    def due(self, now: float, at: int) -> None:
        """Handle the timers that have ended. Then call :meth:`poll`."""
        for queue in self._timers.due(now):
            queue.due(now, at)
            self._awake[queue] = None

    # --- an operator's decisions: answer when their changes are committed -------------------------

    def pause(self, destination: str, kind: Kind) -> bool:
        """Send nothing to a queue until :meth:`resume`, and return whether the queue exists.

        The caller closes the connection of the queue.
        """
        queue = self._find(QueueKey(destination, kind))
        if queue is not None:
            queue.pause()
        return queue is not None

    def resume(self, destination: str, kind: Kind) -> bool:
        """Send the messages of a paused queue again, and return whether the queue exists."""
        queue = self._find(QueueKey(destination, kind))
        if queue is not None:
            queue.resume()
        return queue is not None

    def hold_all(self, released: Iterable[QueueKey]) -> None:
        """Send nothing to any queue but ``released``, until :meth:`release` or :meth:`release_all`.

        Call this before the first :meth:`poll`. The states of the queues do not change: messages
        are accepted, receipts count, and an operator may pause or drop a queue.
        """
        self._released = set(released)

    def release(self, key: QueueKey) -> bool:
        """Let one queue send although all are held. Return whether it was held until now."""
        if self._released is None or key in self._released:
            return False
        self._released.add(key)
        self._find(key)
        return True

    def release_all(self) -> None:
        """Let every queue send. Then call :meth:`poll`."""
        self._released = None
        self._awake = dict.fromkeys(self._queues.values())

    @property
    def released(self) -> frozenset[QueueKey] | None:
        """Return the only queues that may send, or ``None`` if all may."""
        return None if self._released is None else frozenset(self._released)

    def retry(self, destination: str, kind: Kind) -> bool:
        """Let a queue send again with the next :meth:`poll`, before its Retransmission Timer ends.

        A stream sends all unacknowledged messages again. Return whether the queue exists.
        """
        queue = self._find(QueueKey(destination, kind))
        if queue is not None:
            queue.retry()
            if isinstance(queue, OutgoingStream):
                queue.resend()
        return queue is not None

    def reset(self, destination: str) -> bool:
        """Send all unacknowledged messages of a stream again, in a new stream.

        Return whether the queue exists. This is for a peer that lost its state or takes a lower
        stream identifier for a late copy. The peer accepts messages again that it accepted without
        acknowledging them, unless it recognizes the identifier of the message.
        """
        queue = self._find(QueueKey(destination, "stream"))
        if isinstance(queue, OutgoingStream):
            queue.reset()
        return queue is not None

    def drop(self, destination: str, kind: Kind, at: int) -> bool:
        """Discard all messages of a queue, and return whether the queue exists.

        The messages become dead letters, with a mark on each message that the peer may have.
        """
        queue = self._find(QueueKey(destination, kind))
        if queue is not None:
            queue.drop(at)
            self._note(queue)
        return queue is not None

    def forget(self, destination: str, kind: Kind) -> bool:
        """Delete the record of a queue if it has no messages; return whether it was deleted."""
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
        """Delete the records of up to ``count`` queues without messages, and return their keys.

        The queues that were unused for longest come first. ``may_forget`` returns whether a queue
        may be deleted. Do not commit this in one transaction with a message for one of these
        queues.
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
        """Make :meth:`poll` return nothing from now on, at the end of the process.

        Released messages that were not sent are no longer released, so that the next process knows
        which messages were sent. Call this when nothing is in flight, and commit :meth:`changes`.
        After a crash this knowledge is missing: a receipt for one of the RELEASE_AHEAD messages
        after the last sent one is then believed, if the peer knows the secret of the stream.
        """
        self._ledger.releases = False
        for queue in self:
            queue.take_back_release()

    def get(self, destination: str, kind: Kind) -> OutgoingQueue | None:
        """Return the outgoing queue of ``destination`` and ``kind``; ``None`` without a record.

        The caller, for example the command ``status``, only reads it; the methods of this class
        change it.
        """
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
