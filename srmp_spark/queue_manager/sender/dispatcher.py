"""Connect engine, outbox and connections: send committed messages and store the answers.

    commit ──▶ Preparation (steps) ──▶ enqueue ─┐
    receipt ──▶ Sender.receipt ─────────────────┤
    answer ──▶ Sender.answered ─────────────────┴▶ changes ──▶ one transaction
                                                  ──▶ Sender.committed ──▶ poll ──▶ Load, Send

Everything happens in one loop; only the outbox has a thread. One transaction is in progress at a
time, and the next one takes all changes that were collected meanwhile. So no message has a sync of
its own. ``released_to`` of an outgoing queue is the serial up to which messages may be sent. It is
a thousand messages ahead of the messages that were sent, so sending rarely waits for the disk.
Receipts are received and stored in groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from srmp_spark.clock import Clock
from srmp_spark.errors import LocalProtocolError, SrmpSparkError
from srmp_spark.message import Message
from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.queue_manager.sender.identifier_stock import IdentifierStock, Reserve
from srmp_spark.queue_manager.sender.late_at import LateAt
from srmp_spark.queue_manager.sender.receipts import FoundReceipts, Mark, ReceiptLog, note_read
from srmp_spark.queue_manager.sender.reporting.same_queues import SameQueues
from srmp_spark.queue_manager.sender.reporting.sendings import Sendings
from srmp_spark.queue_manager.sender.sending_transports import (
    Reports,
    SendingTransports,
    TransportSettings,
)
from srmp_spark.queue_manager.sender.store_thread import StoreThread
from srmp_spark.srmp.receiving.effects import Committed as Proof
from srmp_spark.srmp.sending.outgoing_effects import (
    DeadLettered,
    Delivered,
    Enqueued,
    Load,
    OutgoingChanges,
    QueueKey,
    Send,
    StoredMessage,
)
from srmp_spark.srmp.sending.outgoing_room import DESTINATIONS_MAX, NO_ORIGIN, OTHERS_MAX, sender_of
from srmp_spark.srmp.sending.outgoing_states import OutgoingState
from srmp_spark.srmp.sending.sender import RECORDS_MAX, Sender
from srmp_spark.store.outbox.messages.packed_group import BatchPart
from srmp_spark.store.outbox.outbox import Outbox
from srmp_spark.store.outbox.preparing.prepared import CommitResult, Numbered, Prepared
from srmp_spark.store.outbox.tables.sessions import SessionRow

PROBE_ROWS = 1
"""Messages that are read from the outbox for a peer that has not answered yet.

A thousand peers that accept connections and do not answer must not fill the memory.
"""
RECEIPTS_NOTED_SECONDS = 2.0
"""Interval at which the sequence up to which receipts were read is stored, in seconds.

It is stored even while more receipts are received, because ORDER_QUEUE_UNREAD_MAX counts from this
sequence.
"""
RECEIPTS_RETRY_SECONDS = 2.0
"""Pause after receipts could not be read, in seconds; then they are read again.

The notice of the next receipt may be a long time away.
"""
FORGOTTEN_AT_ONCE = 256
"""Least number of records of outgoing queues without messages that are forgotten together.

Finding such records costs more than forgetting them.
"""
BATCH_RECORDS_MAX = RECORDS_MAX - 1_000
"""Number of records of outgoing queues up to which a batch may create new ones.

The rest is for forwarded messages, and for outgoing queues without messages that have an open
session. Beyond this limit rows for a new destination become dead letters.
"""
NO_ROOM_TOLD_MAX = 100
"""Destinations without room that are logged one by one for one batch; further ones are not."""
DRAIN_SECONDS = 1.0
"""Longest time that peers get for their answers when the process ends, in seconds.

A message without an answer after this time is sent again after the next start.
"""

log = logging.getLogger(__name__)


class CommittedBatch(NamedTuple):
    """The answer to a commit, and the numbers that the commit assigned.

    ``enqueued`` has the serials and stream positions, one entry for each outgoing queue. It is
    empty if nothing new was committed. ``ids_first`` is the first message identifier, or 0.
    """

    result: CommitResult
    enqueued: tuple[Enqueued, ...]
    ids_first: int
    without_room: frozenset[QueueKey] = frozenset()
    """Outgoing queues that had no room. The rows for these queues became dead letters."""


class _New(NamedTuple):
    """A prepared batch that waits for the transaction that commits it."""

    preparation: Prepared
    ids_first: int
    origin: str
    done: asyncio.Future[CommittedBatch]


class _Given(NamedTuple):
    """A batch whose rows have serials and identifiers, in the transaction that commits it."""

    new: _New
    numbered: Numbered
    without_room: frozenset[QueueKey]


class Dispatcher:
    """The sending half of a queue manager: drives engine, outbox and transports in one loop.

    In all methods ``at`` is the present time in microseconds since 1970 (UTC), and ``now`` is in
    seconds of the monotonic clock.
    """

    def __init__(
        self,
        outbox: Outbox,
        sender: Sender,
        store: StoreThread,
        receipt_log: ReceiptLog,
        clock: Clock,
        *,
        receipts_url: str,
        receipts_read_to: int,
        reserve: Reserve,
        settings: TransportSettings | None = None,
    ) -> None:
        """Build the transports and connect them with the engine.

        ``receipts_url`` is the URL of this queue manager's order queue, to which peers send
        receipts. ``receipts_read_to`` is the sequence up to which the last process read that queue.
        ``reserve`` gets message identifiers from the main process. ``settings`` are those of the
        transports. Raises :class:`ConfigurationError` if a stored session names unknown versions.
        """
        settings = settings or TransportSettings()
        self.sender = sender
        self._outbox = outbox
        self._store = store
        self._receipt_log = receipt_log
        self._clock = clock
        self._late_at = LateAt(clock)
        self._receipts_url = receipts_url
        self.loop = self._loop = asyncio.get_running_loop()
        self.same_queues = SameQueues(sender, settings.endpoint_of)
        reports = Reports(
            on_answer=self._answered,
            on_failure=self._failed,
            on_unsent=sender.never_left,
            on_withdrawn=self._withdrawn,
            on_closed=self._closed_by_peer,
            on_doubt=sender.doubted,
            on_reached=self._read,
            on_not_reached=self._not_reached,
            on_addresses=self.same_queues.learnt,
            on_expired=self._expired,
            on_sending=self._note_sending,
            on_trouble=self._troubled,
            on_lost=self._hold,
            on_change=self.work,
            late_at=self._late_at,
        )
        self.transports = SendingTransports(settings, sender.identity, reports)
        self.errors: dict[QueueKey, str] = {}
        """The last error of each outgoing queue, until a message to that queue succeeds."""
        self.sendings = Sendings()
        self._new: list[_New] = []
        self._writing = False
        self._write_wanted: deque[asyncio.Future[None]] = deque()
        self._alarm = Alarm(self._loop, self._on_timer, self._clock.monotonic)
        self._commits = asyncio.Lock()
        self._identifiers = IdentifierStock(reserve)
        self._reading = ThreadPoolExecutor(1, "receipts")
        self._is_reading = self._read_again = self._has_read = False
        self._retry_alarm = Alarm(self._loop, self.receipts_came)
        self._read_to = self._noted_to = receipts_read_to
        self._read_mark: Mark | None = None
        """The last row of the order queue that was read in this process, or ``None``."""
        self._note_alarm = Alarm(self._loop, self._on_note)
        self._change_events: dict[QueueKey, asyncio.Event] = {}
        self._stopping = False
        self._has_begun = False
        """Whether sending has begun: the receipts from before this process's start were read.

        Messages that those receipts acknowledge must not be sent again. If reading fails, sending
        begins nevertheless.
        """
        self.on_dead: Callable[[], object] = lambda: None
        """Called when new dead letters are on stable storage, to notify the main process."""
        self.on_receipts_noted: Callable[[int], object] = lambda to: None
        """Called with the sequence up to which rows of the order queue are no longer needed."""

    def __repr__(self) -> str:
        return f"<Dispatcher {self.sender!r} {self.transports!r} writing={self._writing}>"

    # --- the loop ---------------------------------------------------------------------------------

    def work(self) -> None:
        """Perform the effects of the engine, start a write if there are changes, and set the timer.

        Call this after every event. Effects are performed only after sending has begun and before
        :meth:`stop`. If a write cannot begin, the process ends.
        """
        if self._has_begun and not self._stopping:
            for effect in self.sender.poll(self._clock.monotonic(), self._late_at()):
                if isinstance(effect, Load):
                    self._load(effect)
                else:
                    self._post(effect)
        has_changes = self.sender.has_changes or self.transports.has_changes()
        if not self._writing and (self._new or has_changes or self._write_wanted):
            self._writing = True
            try:
                self._write()
            except Exception as error:
                # This is a bug. The numbered rows are in the engine, and nothing more could ever be
                # written.
                log.exception("sender.write_failed")
                self._store.die("a write could not begin", error)
        when = self.sender.next_timer()
        if self._has_begun:
            self._alarm.by(when)

    def release_all(self) -> None:
        """Send everything from now on, because the data directory was activated."""
        if self.sender.released is not None:
            log.warning("sender.activated queues=%d", len(self.sender))
            self.sender.release_all()
            self.work()

    async def release(self, key: QueueKey) -> None:
        """Let one outgoing queue of a held copy send, durably. Otherwise nothing changes.

        If the list of released queues cannot be written, the process ends.
        """
        if self.sender.release(key):
            released = self.sender.released or frozenset()
            await self._store.run(partial(self._outbox.store_released, released))

    def _on_timer(self) -> None:
        if not self._stopping:
            self.sender.due(self._clock.monotonic(), self._clock.utc())
            self.work()

    def _post(self, send: Send) -> None:
        try:
            if not send.key.transport.rules.numbers_in_session:
                # Such a session reports itself when a message is sent.
                self._note_sending(send)
            self.same_queues.leaves(send.key)
            self.transports.of(send.key).post(send)
        except LocalProtocolError as error:
            log.exception("sender.cannot_be_written send=%r", send)
            self.sender.failed(send, self._clock.monotonic(), left=False)
            self._hold(send.key, f"a message cannot be written: {error}")

    def _note_sending(self, send: Send) -> None:
        self.sendings.note(send.key, send.serial, self._clock.utc())

    def _hold(self, key: QueueKey, why: str) -> None:
        """Pause an outgoing queue whose next message can be neither sent nor skipped.

        The reason ``why`` is shown by ``status``, and the connection is closed. An operator decides
        when the queue resumes.
        """
        self.errors[key] = why
        self.sender.pause(*key)
        self.transports.of(key).close(key)

    def _load(self, load: Load) -> None:
        if self.transports.of(load.key).may_load(load):
            self._read(load)

    def _read(self, load: Load) -> None:
        queue = self.sender.get(*load.key)
        proven = queue is not None and queue.state is OutgoingState.CONNECTED
        future = self._store.run(
            partial(self._outbox.load, load if proven else load._replace(rows_max=PROBE_ROWS))
        )
        future.add_done_callback(partial(self._loaded, load))

    def _loaded(self, load: Load, future: asyncio.Future[Sequence[StoredMessage]]) -> None:
        if (error := future.exception()) is not None:
            log.error('sender.load_failed destination=%s reason="%s"', load.key.destination, error)
            self._hold(load.key, str(error))
            queue = self.sender.get(*load.key)
            if queue is not None:
                queue.was_not_loaded(load)
        else:
            self.sender.loaded(load, future.result())
        self.work()

    def damaged(self, key: QueueKey) -> str | None:
        """Return a sentence about the damaged messages of a queue, or ``None`` if none is known."""
        return self._outbox.damage.text(key)

    # --- writing ----------------------------------------------------------------------------------

    def _write(self) -> None:
        new, self._new = self._new, []
        wanted, self._write_wanted = self._write_wanted, deque()
        at = self._clock.utc()
        self._forget_idle({part.key for each in new for part in each.preparation.parts})
        given = [self._give(each, at) for each in new]
        changes = self.sender.changes()
        batches = [each.numbered for each in given]
        sent = self.sendings.of(changes)
        # Take these changes after those of the engine: messages that the session rows no longer
        # name are finished by the engine's changes.
        sessions = self.transports.take_changes()
        future = self._store.run(
            partial(self._outbox.write, changes, at, batches=batches, sent=sent, sessions=sessions)
        )
        future.add_done_callback(partial(self._written, changes, given, wanted, sessions))

    def _give(self, new: _New, at: int) -> _Given:
        """Assign serials, stream positions and identifiers to the rows of a batch.

        Rows for a destination without room become dead letters, which is logged; the other rows are
        not affected.
        """
        enqueued: list[Enqueued] = []
        without_room: list[BatchPart] = []
        unsent: set[int] = set()
        for part in new.preparation.parts:
            origin = part.origin or new.origin
            if self._has_room(part.key, origin):
                enqueued.append(
                    self.sender.enqueue(
                        *part.key,
                        part.rows,
                        at,
                        receipts_url=self._receipts_url,
                        final_receipts=part.final,
                        origin=origin,
                    )
                )
            else:
                without_room.append(part)
                if self.sender.get(*part.key) is None:
                    unsent.add(part.number)
                enqueued.append(self._give_up(part, at))
        if without_room:
            _tell_no_room(without_room, unsent)
        numbered = new.preparation.numbered(new.ids_first, enqueued, unsent)
        return _Given(new, numbered, frozenset(part.key for part in without_room))

    def _give_up(self, part: BatchPart, at: int) -> Enqueued:
        """Assign serials to the rows of a batch for one queue whose destination has no room.

        The rows become dead letters. No record of an outgoing queue is created for them.
        """
        if self.sender.get(*part.key) is None:
            return self.sender.give_up(part.key, part.rows)
        given = self.sender.enqueue(
            *part.key, part.rows, at, receipts_url=self._receipts_url, final_receipts=part.final
        )
        self.sender.has_no_room(part.key, at)
        return given

    def _has_room(self, key: QueueKey, origin: str) -> bool:
        """Return whether messages of ``origin`` may wait in an outgoing queue.

        There must be room for the messages in the share of ``origin``, and for a record of the
        queue. Forwarded messages may use the records above BATCH_RECORDS_MAX too.
        """
        is_record_there = len(self.sender) < BATCH_RECORDS_MAX or self.sender.get(*key) is not None
        return self.sender.room.admits(key, origin) and (
            is_record_there or sender_of(origin) is not None
        )

    def _forget_idle(self, wanted: set[QueueKey]) -> None:
        """Forget records of outgoing queues without messages if new queues need their places.

        If a place is missing, at least FORGOTTEN_AT_ONCE records are forgotten, as far as there are
        idle ones. The queues in ``wanted``, which are about to get messages, keep their records,
        and so do queues with an open session.
        """
        new = sum(self.sender.get(*key) is None for key in wanted)
        missing = (
            len(self.sender) - DESTINATIONS_MAX + min(new, DESTINATIONS_MAX - len(self.sender.room))
        )
        if missing > 0:
            transport_of = self.transports.of
            count = max(missing, FORGOTTEN_AT_ONCE)
            for key in self.sender.forget_idle(
                count, lambda key: key not in wanted and transport_of(key).status(key) is None
            ):
                transport_of(key).forget(key)
                self.errors.pop(key, None)

    def _written(
        self,
        changes: OutgoingChanges,
        given: list[_Given],
        wanted: deque[asyncio.Future[None]],
        sessions: Mapping[QueueKey, SessionRow | None],
        future: asyncio.Future[Proof],
    ) -> None:
        try:
            proof = future.result()
            self.sendings.forget(changes)
            for outcome in self.sender.committed(changes, proof):
                self._tell(outcome)
            self.transports.stored(sessions)
        except Exception as error:
            log.exception("sender.write_failed")
            self._store.die("a write could not end", error)
        self._writing = False
        for row in changes.queues:
            self._wake(QueueKey(row.destination, row.kind))
        for new, numbered, without_room in given:
            result = new.preparation.result
            assert result is not None, "only what is ready is written"
            if new.preparation.letters or without_room:
                self.on_dead()
            if not new.done.done():
                new.done.set_result(
                    CommittedBatch(result, numbered.enqueued, new.ids_first, without_room)
                )
        for waiting in wanted:
            if not waiting.done():
                waiting.set_result(None)
        self.work()

    def _tell(self, outcome: Delivered | DeadLettered) -> None:
        if isinstance(outcome, DeadLettered):
            run, letter = outcome.letter.run, outcome.letter
            self.on_dead()
            log.warning(
                "sender.dead destination=%s rows=%d reason=%s status=%s in_doubt=%s",
                run.key.destination,
                run.last - run.first + 1,
                letter.reason,
                letter.status,
                letter.in_doubt,
            )
        else:
            run = outcome.run
        self._wake(run.key)

    def _wake(self, key: QueueKey) -> None:
        """Wake the tasks that wait in :meth:`wait_for_change` for the outgoing queue ``key``."""
        moved = self._change_events.pop(key, None)
        if moved is not None:
            moved.set()

    async def written(self) -> None:
        """Wait until all present changes of the engine are on stable storage.

        If they cannot be written, the process ends.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        self._write_wanted.append(future)
        self.work()
        await future

    async def wait_for_change(self, key: QueueKey, seconds: float) -> None:
        """Wait until a change of the queue ``key`` is stored, for at most ``seconds`` seconds.

        The change may be the end of a message. The method does not state whether there was a
        change.
        """
        event = self._change_events.setdefault(key, asyncio.Event())
        try:
            await asyncio.wait_for(event.wait(), seconds)
        except asyncio.TimeoutError:
            return

    # --- what goes in -----------------------------------------------------------------------------

    async def commit(
        self, prepare: Callable[[int], Prepared | CommitResult], origin: str = NO_ORIGIN
    ) -> CommittedBatch:
        """Make a batch outgoing, and wait until it is on stable storage.

        ``prepare`` is called in the thread of the outbox with the present time, in microseconds
        since 1970. If it returns a :class:`.CommitResult`, the batch was committed before, and this
        result is returned. ``origin`` states who wrote the batch. Raises :class:`.BatchError` if
        the outbox refuses the batch, and :class:`ApiError` if no message identifiers can be
        reserved. After an error nothing of the batch is committed.
        """
        async with self._commits:
            # Run commits one after another, because each may need memory for its order.
            preparation = await self._store.run(partial(prepare, self._clock.utc()), later=True)
            if isinstance(preparation, CommitResult):
                return CommittedBatch(preparation, (), 0)
            try:
                while not await self._store.run(preparation.step, later=True):
                    pass
                assert preparation.result is not None, "all steps are done"
                ids_first = await self._identifiers.take(preparation.identifiers)
            except BaseException:
                while not await self._store.run(preparation.abort_step, later=True):
                    pass
                raise
            done: asyncio.Future[CommittedBatch] = self._loop.create_future()
            self._new.append(_New(preparation, ids_first, origin, done))
            self.work()
            return await asyncio.shield(done)

    # --- receipts ---------------------------------------------------------------------------------

    def receipts_came(self) -> None:
        """Start to read this queue manager's order queue, because new rows may have arrived.

        If a read is in progress, another one follows. No message is sent before the first call and
        the end of its reading.
        """
        if self._is_reading:
            self._read_again = True
        elif not self._stopping:
            self._is_reading = True
            future = self._loop.run_in_executor(
                self._reading, self._receipt_log.read, self._read_to
            )
            future.add_done_callback(self._receipts_read)

    def _receipts_read(self, future: asyncio.Future[FoundReceipts]) -> None:
        self._is_reading = False
        if (error := future.exception()) is not None:
            bug = None if isinstance(error, SrmpSparkError) else error
            log.error(
                'sender.receipts_not_read after=%d reason="%s"', self._read_to, error, exc_info=bug
            )
            # Messages that are sent again are dropped by the peer. This is better than to send
            # nothing.
            self._has_begun = True
            self._retry_reading()
            self.work()
            return
        found = future.result()
        now, at = self._clock.monotonic(), self._clock.utc()
        for message in found.messages:
            self._receipt(message, now, at)
        self._read_to, self._has_read = found.to, True
        self._read_mark = found.mark or self._read_mark
        self._has_begun = self._has_begun or not found.more
        again, self._read_again = self._read_again or found.more, False
        self.work()
        if again:
            self.receipts_came()
        if not self._stopping:
            self._note_alarm.within(RECEIPTS_NOTED_SECONDS)

    def _receipt(self, message: Message, now: float, at: int) -> None:
        """Pass one receipt to the engine, and log a receipt that the engine rejects.

        A bug in the engine must not stop all other receipts, for every destination, until a
        restart. So a receipt that raises an exception is logged, counted and skipped. A skipped
        stream receipt is repeated: its messages are sent again, and the peer answers repeats with
        another receipt. A skipped final stream receipt is not repeated. Its message becomes a dead
        letter, ``final-receipt-missing`` and in doubt, when its time is over.
        """
        receipt = message.receipt
        stream_id, last = (
            (None, None) if receipt is None else (receipt.stream_id, receipt.last_ordinal)
        )
        try:
            verdict = self.sender.receipt(message, now, at)
        except Exception:
            self.sender.receipts["failed"] += 1
            log.exception(
                "sender.receipt_failed stream_id=%s last_ordinal=%s id=%s: the receipt is "
                "skipped; the messages that it acknowledges are sent again, or end in "
                "doubt; please report this",
                stream_id,
                last,
                message.id,
            )
            return
        if verdict in ("beyond", "another-stream", "another-address", "another-type"):
            log.warning(
                "sender.receipt_ignored verdict=%s stream_id=%s last_ordinal=%s",
                verdict,
                stream_id,
                last,
            )

    def _retry_reading(self) -> None:
        if not self._stopping:
            self._retry_alarm.within(RECEIPTS_RETRY_SECONDS)

    def _on_note(self) -> None:
        self._loop.create_task(self.note_receipts())

    async def note_receipts(self) -> None:
        """Store the sequence up to which the order queue was read, after its effects are stored.

        The sequence is reported by :attr:`on_receipts_noted` if this process has read the queue,
        even if the sequence was stored before.
        """
        to, mark = self._read_to, self._read_mark
        if to != self._noted_to:
            await self.written()
            await self._store.run(partial(note_read, self._outbox.database, to, mark))
            self._noted_to = to
        if self._has_read:
            # Before the first read, the stored position may belong to a log that an older copy has
            # replaced.
            self.on_receipts_noted(to)

    # --- what the peers say -----------------------------------------------------------------------

    def _answered(self, send: Send, answer: PeerAnswer) -> None:
        status = answer.status
        if status == 200:
            if self.errors:
                self.errors.pop(send.key, None)
        else:
            self.errors[send.key] = f"{status} {answer.reason}".strip()
            self.sendings.failed(send.key, send.serial, status)
            log.info(
                "sender.answered destination=%s status=%d reason=%s",
                send.key.destination,
                status,
                answer.reason,
            )
        self.sender.answered(
            send, status, self._clock.monotonic(), self._clock.utc(), answer.retry_after
        )
        if status == 200:
            self.work()
        else:
            # Work later: messages that were withdrawn because of this answer are reported first,
            # and are sent before those after them.
            self._loop.call_soon(self.work)

    def _troubled(self, key: QueueKey, why: str | None) -> None:
        """Record why an outgoing queue cannot send; ``None`` means that it can send again."""
        if why is None:
            self.errors.pop(key, None)
        else:
            self.errors[key] = why

    def _note_error(self, key: QueueKey, why: str) -> None:
        if self.errors.get(key) != why:
            self.errors[key] = why
            log.info('sender.failed destination=%s reason="%s"', key.destination, why)

    def _not_reached(self, load: Load, why: str) -> None:
        queue = self.sender.get(*load.key)
        if queue is not None and queue.state is not OutgoingState.ON_HOLD:
            # An operator or :meth:`_hold` closed the connection otherwise, and the reason is known.
            self._note_error(load.key, why)
        if self.sender.must_see(load, self._late_at()):
            self._see(load, load._replace(rows_max=PROBE_ROWS))
        else:
            self.sender.not_reached(load, self._clock.monotonic())
        self.work()

    def _see(self, load: Load, rows: Load) -> None:
        """Read messages of a queue whose peer is not reached, to check whether they have expired.

        ``load`` is the engine's request, and ``rows`` states the messages to read. The check is not
        urgent, so the steps of a commit may come between these reads.
        """
        self._store.run(partial(self._outbox.load, rows), later=True).add_done_callback(
            partial(self._seen, load)
        )

    def _seen(self, load: Load, future: asyncio.Future[Sequence[StoredMessage]]) -> None:
        # Damage is reported when the peer is reached.
        found = future.result() if future.exception() is None else None
        more = self.sender.seen(load, found, self._clock.monotonic(), self._late_at())
        if more is not None and not self._stopping:
            self._see(more, more)
        self.work()

    def _failed(self, send: Send, why: str, left: bool) -> None:
        self._note_error(send.key, why)
        self.sender.failed(send, self._clock.monotonic(), left=left)
        self.work()

    def _expired(self, send: Send) -> None:
        self.sender.expired(send)
        self.work()

    def _withdrawn(self, send: Send) -> None:
        self.sender.withdrawn(send)

    def _closed_by_peer(self, key: QueueKey) -> None:
        queue = self.sender.get(*key)
        if queue is not None and not queue.in_flight:
            self.sender.closed(*key)
            self.work()

    # --- the end ----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Send nothing more, and store all changes.

        Answers to messages in flight are awaited for at most DRAIN_SECONDS.
        """
        self._stopping = True
        for alarm in (self._alarm, self._retry_alarm, self._note_alarm):
            alarm.stop()
        end = self._loop.time() + DRAIN_SECONDS
        while any(queue.in_flight for queue in self.sender) and self._loop.time() < end:
            await asyncio.sleep(0.01)
        await self.transports.stop()
        self.sender.stop()
        await self.written()
        await self.note_receipts()


def _tell_no_room(parts: Sequence[BatchPart], unsent: AbstractSet[int]) -> None:
    """Log the rows that became dead letters because there was no room.

    Each entry of ``parts`` has the rows of a batch for one outgoing queue. ``unsent`` are the
    numbers of the parts that the engine does not log, because they have no queue; at most
    NO_ROOM_TOLD_MAX of these are logged one by one.
    """
    log.error(
        "sender.no_room destinations=%d rows=%d first=%s: the rows became dead letters, "
        "because messages wait for too many other destinations (OTHERS_MAX = %d, of which "
        "a token has a share); see `srmp-spark streams`",
        len(parts),
        sum(part.rows for part in parts),
        parts[0].key.destination,
        OTHERS_MAX,
    )
    for part in [each for each in parts if each.number in unsent][:NO_ROOM_TOLD_MAX]:
        log.warning(
            "sender.dead destination=%s rows=%d reason=no-room", part.key.destination, part.rows
        )
