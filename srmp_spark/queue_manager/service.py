"""Combine the parts of a queue manager into one object, which the API and the process use.

It connects engine, journal, catalogue, reader, receipts and metrics, and has the operations that
change more than one of them. The journal makes each change durable before it is reported. Memory
may run ahead of the disk, because a commit that fails ends the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from srmp_spark.clock import Clock
from srmp_spark.errors import (
    ApiError,
    ConfigurationError,
    ProcessMustEndError,
    StoreError,
)
from srmp_spark.interface import TOO_MANY_SUBQUEUES
from srmp_spark.names import (
    FORWARD_QUEUE,
    ORDER_QUEUE,
    OWN_QUEUES,
    LocalHosts,
    base_of_journal,
    base_of_subqueue,
    quote_queue_name,
)
from srmp_spark.queue_manager.admission.acceptor import Acceptor, Effects
from srmp_spark.queue_manager.admission.admission import Admission
from srmp_spark.queue_manager.admission.disk_gate import DiskGate
from srmp_spark.queue_manager.admission.gate import Gate
from srmp_spark.queue_manager.admission.refusal_log import RefusalLog
from srmp_spark.queue_manager.admission.signatures import Signatures
from srmp_spark.queue_manager.configuration.config import (
    QUEUES_MAX,
    QUEUES_OF_TOKENS_MAX,
    ServeConfig,
)
from srmp_spark.queue_manager.metrics import Metrics
from srmp_spark.queue_manager.multicast.ports import MulticastPorts
from srmp_spark.queue_manager.posting.url_policy import UrlPolicy
from srmp_spark.queue_manager.queues.catalogue import Catalogue, EpochSpan, Queue, UnknownQueueError
from srmp_spark.queue_manager.queues.consumer_saves import ConsumerSaves
from srmp_spark.queue_manager.queues.consumers import (
    SEQUENCES_OF_A_COMMIT,
    Consumer,
    ConsumerRow,
    HolderValue,
    Marked,
    holder_text,
    not_registered,
    try_register,
)
from srmp_spark.queue_manager.queues.identifiers import Identifiers
from srmp_spark.queue_manager.queues.own_order import OwnOrder
from srmp_spark.queue_manager.queues.queue_journal import (
    JournalSwitch,
    QueueJournal,
    begin_journal,
    journal_hint,
    open_journal,
    queue_of_consumer,
)
from srmp_spark.queue_manager.queues.remote_queues import RemoteQueues
from srmp_spark.queue_manager.queues.subqueues import (
    SUBQUEUES_MAX,
    SUBQUEUES_OF_A_QUEUE_MAX,
    Subqueues,
)
from srmp_spark.queue_manager.reader.link import ReaderLink
from srmp_spark.queue_manager.receipts.decision_receipts import DecisionReceipts
from srmp_spark.queue_manager.receipts.receipts_sender import ReceiptsSender
from srmp_spark.queue_manager.sender.link import Outgoing
from srmp_spark.queue_manager.slices import Slices
from srmp_spark.queue_manager.state_lag import StateLag
from srmp_spark.queue_manager.trust.signers import trusted_keys
from srmp_spark.queue_manager.trust.tls import ClientTls
from srmp_spark.queue_manager.trust.writers import Writers
from srmp_spark.sequences.ranges import Range, gaps
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.srmp.receiving.decisions import Reason, Undecided
from srmp_spark.srmp.receiving.history import MessageIdHistory
from srmp_spark.srmp.receiving.history_clock import HistoryClock
from srmp_spark.srmp.receiving.incoming_streams import IncomingStreams
from srmp_spark.srmp.receiving.receiver import Receiver, ReceiverSettings
from srmp_spark.store.database.set_aside import SetAside, tell_set_aside
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.journal import Journal
from srmp_spark.store.stored_rows import retention
from srmp_spark.store.tables import decisions, queues, state
from srmp_spark.store.tables.epochs import end_of

LEASE_LOOK_SECONDS = 0.5
"""Seconds after which a waiting receiver checks again whether the holder's process is gone."""

HOLES_OF_A_COMMIT = 1_000
"""Most holes that one commit of a purge makes. More need more commits, of some ms each."""

log = logging.getLogger(__name__)


class _Purged(NamedTuple):
    """The rows that one commit of a purge has deleted, and the last sequence it reached."""

    rows: int
    to: int
    end: int
    """The last sequence that the whole purge deletes."""


class QueueManager:
    """Combines the parts of the main process. Create it in the running loop."""

    def __init__(
        self,
        config: ServeConfig,
        directory: DataDirectory,
        hosts: LocalHosts,
        public_base: str,
        clock: Clock,
        *,
        on_fatal: Callable[[ProcessMustEndError], object],
        client_tls: ClientTls | None = None,
    ) -> None:
        """Load the state of the data directory, and build the parts without starting them.

        ``on_fatal`` is called when a write or sync failed, and must end the process. ``client_tls``
        is for receipts over HTTPS; without it the authorities of the system are trusted.
        """
        self.config = config
        self.directory = directory
        self.public_base = public_base
        self.hosts = hosts
        self.clock = clock
        self.metrics = Metrics()
        self.catalogue = Catalogue()
        self.subqueues = Subqueues(self.catalogue, clock, self.make_subqueue, self.remove_subqueue)
        # Nothing can have waited longer than since the start.
        self.state_lag = StateLag(config.state, as_of=clock.utc() / 1e6)
        self.rows_committed = 0
        """Rows committed since the start. Sealing learns by it whether many messages arrive."""
        self.garbage = asyncio.Event()
        """Set when there are deleted rows or files to remove (store/database/sweeper.py)."""
        self.read_at = clock.monotonic()
        """Monotonic time of the last call for rows. A reader that only peeks has no lease."""
        self._admin = asyncio.Lock()
        stored = state.load(directory.writer)
        unreadable = list(stored.unreadable)
        history = MessageIdHistory.load(
            state.load_history(directory.writer, unreadable),
            state.undivided_until(directory.writer),
        )
        newest = (
            history.newest
            if history.newest is not None
            else retention.newest_arrival(directory.writer)
        )
        self.retention_clock = HistoryClock(newest)
        """The clock of retention. A start under a wrong wall clock must not delete everything."""
        self.retention_clock.read(clock.utc(), clock.monotonic())
        self.receiver = Receiver(
            directory.queue_manager,
            hosts,
            history,
            IncomingStreams.load(stored.streams, stored.accepted_gaps),
            ReceiverSettings(
                unknown_queue=config.unknown_queue,
                invalid_signature=config.invalid_signature,
                expired=config.expired,
                queue_quota_bytes=config.queue_quota_bytes,
                machine_quota_bytes=config.machine_quota_bytes,
                retransmission_timeout=config.retransmission_timeout,
                forwarding=config.forwarding,
            ),
        )
        self.journal = Journal(
            directory,
            asyncio.get_running_loop(),
            changes=self.receiver.changes,
            on_owed=lambda receipts: self.receipts.owe(receipts),
            on_fatal=on_fatal,
            on_commit=self._on_commit,
        )
        self.own_order = OwnOrder()
        self.slices = Slices()
        self.saves = ConsumerSaves(
            self.journal,
            is_there=lambda queue: self.catalogue.get(queue.name) is queue,
            decide=lambda transaction, queue: self.decide(transaction, queue, (), Reason.RECEIVED),
        )
        self.identifiers = Identifiers(
            self.journal,
            state.MESSAGE_IDENTIFIERS,
            stored.ceilings.get(state.MESSAGE_IDENTIFIERS, 0),
        )
        self.receipts = ReceiptsSender(
            self.receiver,
            self.journal,
            self.identifiers,
            UrlPolicy(config.allow_url),
            self.metrics,
            clock,
            public_base=public_base,
            resend_table=config.resend_table,
            tls=client_tls or ClientTls(),
        )
        self.decision_receipts = DecisionReceipts(
            self.receiver,
            self.journal,
            self.identifiers,
            self.receipts,
            self.metrics,
            clock,
            database=directory.database,
            resend_table=config.resend_table,
        )
        self.tokens = config.all_tokens()
        self.set_aside: list[SetAside] = [*tell_set_aside(unreadable)]
        """Database rows that were unreadable at the start, for ``status`` and ``doctor``."""
        self.gate = Gate()
        self.disk = DiskGate(self.gate, directory, self.journal, config.state)
        refusal_log = RefusalLog()
        self.admission = Admission(
            self.gate,
            self.receiver,
            self.catalogue,
            Signatures(trusted_keys(config.signer), self.metrics),
            Writers(config.writer, self.tokens) if config.writer else None,
            refusal_log,
        )
        self.acceptor = Acceptor(
            self.receiver,
            self.journal,
            self.gate,
            self.metrics,
            clock,
            refusal_log,
            Effects(
                arm_receipts=self.receipts.arm,
                stored=self._stored,
                moved=lambda row: self._told_without_row(row, partial(decisions.move, row=row)),
                discarded=lambda row, reason: self._told_without_row(
                    row, partial(decisions.discard, row=row, reason=reason, decided_at=clock.utc())
                ),
                measure_disk=self.disk.look_again,
            ),
        )
        self.receipts_came: Callable[[], object] = lambda: None
        """Called when the order queue has new rows: the process notifies the sender process."""
        self.forward_came: Callable[[], object] = lambda: None
        """Called when the forward queue has new rows: the process notifies the sender process."""
        self.remote_queues: RemoteQueues | None = None
        """The pullers, which read remote queues. The process sets it."""
        self.reader: ReaderLink
        self.outgoing: Outgoing
        """The main process's side of the sender process. The process sets it and ``reader``."""
        self.multicast: MulticastPorts | None = None
        """The multicast groups. The process sets it if multicast is on."""
        self.incoming_sequences: Callable[[Callable[[str], bool]], list[dict[str, object]]] = (
            lambda sees: []
        )
        """Returns the incoming sequences of allowed queues for ``status``. The process sets it."""
        for queue in stored.queues:
            self._open_queue(queue)
        for consumer in stored.consumers:
            row = ConsumerRow(
                consumer.received, consumer.planned, consumer.holder, consumer.lease_until
            )
            whose = queue_of_consumer(self.catalogue.find(consumer.queue), consumer.name)
            if whose is not None:
                of, name = whose
                of.consumers[name] = Consumer.load(name, row, consumer.ahead, now=clock.monotonic())
        for each in self.catalogue:
            each.marks_moved()
        forward = self.catalogue.get(FORWARD_QUEUE)
        # Messages in the forward queue may wait, or be outgoing.
        if forward is not None and (forward.end or len(forward.epochs) > 1):
            self.receiver.forward_room.starts(forward.end)
        self._owed_at_start = stored.owed

    def start_sending(self) -> None:
        """Begin to send receipts, first those that the last run has left in the store."""
        self.receipts.owe(self._owed_at_start, found=True)
        self._owed_at_start = []
        self.receipts.arm()
        self.decision_receipts.start()

    async def stop_sending(self) -> None:
        """Stop sending receipts. Receipts that were not sent stay in the store."""
        await self.decision_receipts.close()
        await self.receipts.close()

    @property
    def epoch(self) -> str:
        """Return the present epoch of the data directory."""
        return self.directory.epoch

    # --- queues -----------------------------------------------------------------------------------

    def _open_queue(self, stored: state.StoredQueue) -> Queue:
        engine = self.receiver.add_queue(
            stored.name,
            stored.transactional,
            stored.end,
            paused=stored.paused,
            declared=queues.is_declared(stored.options),
        )
        queue = self.catalogue.add(stored, engine)
        switch = JournalSwitch.of(stored.options)
        if switch is not None:
            open_journal(queue, switch, self.directory.writer)
        return queue

    async def create_queue(
        self,
        name: str,
        *,
        transactional: bool | None,
        journal: bool | None = None,
        is_restricted: bool = False,
    ) -> bool:
        """Create a queue if none has this canonical name. Return whether it was created.

        ``journal`` switches the queue's journal on or off; ``None`` leaves it as it is.
        ``is_restricted`` states that the caller's API token is not for all queues. A subqueue that
        a remote reader created is declared by this call, and stays. Raises :class:`ApiError`: 409
        for another kind or too many queues, 400 if name or kind is not possible.
        """
        async with self._admin:
            if base_of_journal(name) is not None:
                raise ApiError(
                    400,
                    "usage",
                    f"{name} is the name of a journal",
                    journal_hint(name),
                    "[MS-MQMQ] 2.1.2",
                )
            existing = self.catalogue.get(name)
            if existing is not None:
                if transactional is not None and existing.state.transactional != transactional:
                    kind = "transactional" if existing.state.transactional else "not transactional"
                    api = self.config.api.url("http" if self.config.api_cert is None else "https")
                    delete = (
                        f"curl -X DELETE {api if self.config.api.port else 'API'}/v1/queue"
                        f"s/{quote_queue_name(name)}"
                    )
                    hint = (
                        "give it as it is, or delete it first, with its rows, while the "
                        f"queue manager runs: {delete}"
                    )
                    raise ApiError(409, "queue-kind", f"queue {name} exists and is {kind}", hint)
                if not existing.state.declared:
                    self._check_queues_max(is_restricted=is_restricted)
                    await self._declare(existing)
                await self._switch_journal(existing, journal)
                return False
            self._check_queues_max(is_restricted=is_restricted)
            if name == ORDER_QUEUE and transactional:
                raise ApiError(
                    400, "usage", f"{ORDER_QUEUE} accepts receipts: it cannot be transactional"
                )
            stored = await self.journal.transact(
                lambda t: queues.create(t, name, transactional=bool(transactional))
            )
            made = self._open_queue(stored)
            log.info("queue.created name=%s transactional=%s", name, bool(transactional))
            await self._switch_journal(made, journal)
            return True

    def _check_queues_max(self, *, is_restricted: bool) -> None:
        """Raise :class:`ApiError` (409) if one more declared queue would be too many."""
        if self.catalogue.declared_count >= QUEUES_MAX:
            raise ApiError(
                409,
                "too-many-queues",
                f"QUEUES_MAX is {QUEUES_MAX}",
                "delete queues that are no longer used",
            )
        if is_restricted and self.catalogue.declared_count >= QUEUES_OF_TOKENS_MAX:
            raise ApiError(
                409,
                "too-many-queues",
                f"a token for some queues creates none beyond {QUEUES_OF_TOKENS_MAX} in all",
                "delete queues that are no longer used, or make it with a token for all queues",
            )

    async def _declare(self, queue: Queue) -> None:
        # Change memory first, so that the subqueue is no longer removed.
        self.receiver.declare_queue(queue.name)
        self.catalogue.note_declared(queue.name)
        await self.journal.transact(lambda t: queues.declare(t, queue.name))
        log.info("queue.declared name=%s", queue.name)

    async def make_subqueue(self, name: str) -> Queue:
        """Create an undeclared subqueue and return it. Raises as :meth:`.Subqueues.enter`."""
        async with self._admin:
            base = self.catalogue.get(base_of_subqueue(name) or "")
            if base is None or base.log_name != base.name or base.name in OWN_QUEUES:
                raise UnknownQueueError(name)
            if (existing := self.catalogue.get(name)) is not None:
                return existing
            for count, limit, of in (
                (
                    len(self.catalogue.subqueues_of(base.name)),
                    SUBQUEUES_OF_A_QUEUE_MAX,
                    "SUBQUEUES_OF_A_QUEUE_MAX",
                ),
                (len(self.catalogue.undeclared), SUBQUEUES_MAX, "SUBQUEUES_MAX"),
            ):
                if count >= limit:
                    hint = (
                        "receive what is in the existing ones, close them, or declare "
                        f"this one: --queue '{name}'"
                    )
                    raise ApiError(
                        503, TOO_MANY_SUBQUEUES, f"{of} is {limit}: {name} is not made", hint
                    )
            self.gate.check()
            try:
                stored = await self.journal.transact(
                    lambda t: queues.create_subqueue(
                        t, name, transactional=base.state.transactional
                    )
                )
            except ProcessMustEndError:
                raise
            except StoreError as error:
                raise ApiError(503, TOO_MANY_SUBQUEUES, str(error)) from None
            self.subqueues.tell("subqueue.made", name)
            return self._open_queue(stored)

    async def remove_subqueue(self, queue: Queue, is_over: Callable[[Queue], bool]) -> None:
        """Delete an undeclared subqueue if ``is_over`` returns True just before the deletion."""
        async with self._admin:
            if is_over(queue):
                await self._delete(queue)

    async def _switch_journal(self, queue: Queue, journal: bool | None) -> None:
        if journal is None or journal is (queue.journal is not None):
            return
        if queue.name in OWN_QUEUES:
            raise ApiError(
                400, "usage", f"nobody receives from {queue.name}: it cannot keep a journal"
            )
        after: int | None = None
        if journal:
            after = begin_journal(queue).after
        elif queue.journal is not None:
            queue.journal.wake()
            queue.journal = None
        await self.journal.transact(lambda t: queues.set_journal(t, queue.name, after))
        log.info("queue.journal name=%s on=%s", queue.name, journal)

    async def delete_queue(self, name: str) -> str:
        """Delete a queue with its rows and its undeclared subqueues. Return its canonical name.

        ``name`` may have any allowed form. The call waits until the deletion is on stable storage.
        Raises :class:`ApiError`: 404 if there is no such queue, 400 if it cannot be deleted.
        """
        async with self._admin:
            queue = self.catalogue.find_base(name)
            await self._delete(queue)
            return queue.name

    async def _delete(self, queue: Queue) -> None:
        gone = [*self.catalogue.subqueues_of(queue.name), queue]
        try:
            for each in gone:
                # Do this first, because nothing new may be accepted.
                self.receiver.remove_queue(each.name)
        except ConfigurationError as error:
            raise ApiError(400, "usage", str(error)) from None

        def delete(transaction: Transaction) -> None:
            for each in gone:
                end = end_of(transaction.connection, each.id)
                # Received rows were decided before.
                left = gaps(max(each.default.received, each.trimmed_to) + 1, end, ())
                self.decide(transaction, each, left, Reason.QUEUE_DELETED)
                queues.delete(transaction, each.name, self.directory.segments, self.clock.utc())
                # Remove the queue here, because a mark that is saved after this must not find it.
                self.catalogue.remove(each.name)

        await self.journal.transact(delete)
        self.garbage.set()
        for each in gone:
            if each.state.declared:
                log.info("queue.deleted name=%s", each.name)
            else:
                self.subqueues.tell("queue.deleted", each.name)

    async def purge_queue(self, name: str, spared: SequenceSet | None = None) -> int:
        """Delete the rows that wait in a queue or journal. Return the number of these rows.

        The rows of ``spared``, which remote readers have locked, stay. A journal's rows are only
        marked. Many rows that were received out of turn, or are spared, make many holes: each
        commit makes a slice of them. No remote reader is served until the last one is stored. After
        a kill in between, the rows after the last slice still wait. Raises :class:`ApiError` (404,
        400).
        """
        async with self._admin:
            queue, left = self.catalogue.find(name), SequenceSet() if spared is None else spared
            if isinstance(queue, QueueJournal):
                purged = queue.purge(left)
                await self.saves.save(queue, queue.default)
                return purged
            # Hold remote readers first. After the first commit they would lock rows of the next.
            go_on = None if self.catalogue.hold_readers is None else self.catalogue.hold_readers()
            try:
                done = await self.journal.transact(
                    lambda t: self._purge_slice(t, queue, None, left)
                )
                purged, whole = done.rows, done.end
                while done.to < whole and self.catalogue.get(queue.name) is queue:
                    done = await self.journal.transact(
                        lambda t: self._purge_slice(t, queue, whole, left)
                    )
                    purged += done.rows
            finally:
                if go_on is not None:
                    go_on()
            self.garbage.set()
            if queue.name == FORWARD_QUEUE:
                self.forward_came()  # The cursor passes the holes while they are known.
            log.info("queue.purged name=%s rows=%d", queue.name, purged)
            return purged

    def _purge_slice(
        self, transaction: Transaction, queue: Queue, end: int | None, spared: SequenceSet
    ) -> _Purged:
        """Delete waiting rows up to ``end`` (``None``: all), or as many as one commit may."""
        whole = end_of(transaction.connection, queue.id) if end is None else end
        default = queue.default
        kept = default.ahead.copy()
        kept.update(spared)
        first = max(default.received, queue.trimmed_to) + 1
        segments = self.directory.segments
        taken = queues.take_away(
            transaction, queue.name, first, whole, kept, segments, HOLES_OF_A_COMMIT
        )
        # Rows that were received out of turn were decided before, and keep that decision.
        self.decide(transaction, queue, spared.gaps(first, taken.to), Reason.QUEUE_PURGED)
        queue.cut(taken.holes)
        queue.damage.clear()
        # Move the mark here, so that a later save does not put the old mark back on disk.
        default.skip_all_but(taken.to, spared)
        self.saves.join(transaction, queue, default)
        self.catalogue.purging(transaction, queue)
        return _Purged(taken.rows, taken.to, whole)

    def decide(
        self, transaction: Transaction, queue: Queue, runs: Iterable[Range], reason: Reason
    ) -> None:
        """Record in ``transaction`` that ``runs`` leave the queue ([MC-MQSRM] 3.1.7.3).

        The transaction removes them. Decisions of marks are stored first: no received row is
        purged.
        """
        asked = queue.deciding.save(transaction, queue.id, queue.name)
        asked = (
            decisions.decide(transaction, queue.id, queue.name, runs, reason, self.clock.utc())
            or asked
        )
        if asked:
            transaction.after_commit.append(self.decision_receipts.wake)

    async def pause_queue(self, name: str, *, paused: bool) -> None:
        """Pause a queue durably, or end its pause. A paused queue's messages are answered 503."""
        async with self._admin:
            queue = self.catalogue.find(name)
            queue.state.paused = paused
            await self.journal.transact(lambda t: queues.set_paused(t, queue.name, paused=paused))

    def _stored(self, name: str, first: int, last: int, size: int, arrived_at: int) -> None:
        # The queue may have been deleted while the rows were being stored.
        if (queue := self.catalogue.get(name)) is not None:
            queue.stored(first, last, size, arrived_at)
        if name == ORDER_QUEUE:
            self.receipts_came()
        elif name == FORWARD_QUEUE:
            self.forward_came()

    def _told_without_row(self, row: Undecided, store: Callable[[Transaction], None]) -> None:
        """Store what a message without a row changes in receipts, in the commit of its 200."""

        def stored(result: None, error: BaseException | None) -> None:
            if error is None:
                self.decision_receipts.look(row)

        self.journal.call(store, stored)

    def _on_commit(self, rows: int, seconds: float) -> None:
        self.metrics.sync_seconds.observe(seconds)
        self.rows_committed += rows

    # --- consumers --------------------------------------------------------------------------------

    async def delete_consumer(self, queue: Queue, name: str) -> None:
        """Delete a consumer with its marks, and wait until that is on stable storage.

        Raises :class:`ApiError`: 404 if there is none, 409 while a receiver holds its lease, and
        400 for the default consumer, whose marks decide about rows.
        """
        consumer = queue.consumers.get(name)
        if consumer is None:
            said = f"queue {queue.name} has no consumer {name}"
            raise ApiError(404, "unknown-consumer", said, "srmp-spark consumers QUEUE lists them")
        if consumer is queue.default:
            raise ApiError(
                400, "usage", f"consumer {name} decides about rows; it cannot be deleted"
            )
        if consumer.is_held(self.clock.monotonic()):
            raise consumer.refusal()
        await self._forget_consumer(queue, name)
        log.info(
            "consumer.deleted queue=%s consumer=%s received=%d", queue.name, name, consumer.received
        )

    async def _forget_consumer(self, queue: Queue, name: str) -> None:
        stored_name, queue_id = queue.stored_name(name), queue.id
        # Do this first, because a mark that is saved after this must not restore the consumer.
        del queue.consumers[name]
        await self.journal.transact(
            lambda each: state.delete_consumer(each.connection, queue_id, stored_name)
        )

    async def _make_room_for(self, queue: Queue, name: str) -> None:
        """Delete the unused consumer whose lease ended first, if ``name`` finds no room."""
        if name in queue.consumers or not queue.consumers_full:
            return
        now = self.clock.monotonic()
        unused = [
            each
            for each in queue.consumers.values()
            if each is not queue.default
            and not each.received
            and not each.ahead
            and not each.is_held(now)
        ]
        if unused:
            oldest = min(unused, key=lambda each: each.lease_ends)
            log.info("consumer.made_way queue=%s consumer=%s for=%s", queue.name, oldest.name, name)
            await self._forget_consumer(queue, oldest.name)

    async def register(
        self,
        queue: Queue,
        name: str,
        holder: HolderValue,
        planned: int | None,
        gone: asyncio.Event,
        *,
        ranged: bool = False,
    ) -> Consumer:
        """Give ``holder`` the lease of a consumer, or renew it, and return the consumer.

        Waits while another receiver has the lease, and until the change is stored.
        :meth:`.Consumer.grant` explains ``planned`` and ``ranged``. ``gone`` is set when the caller
        disconnects. Raises :class:`ApiError`: 409 as soon as the present holder renews, 404 if the
        queue is deleted meanwhile; :class:`ConnectionResetError` if the caller has disconnected.
        """
        known, seen = None, 0
        await self._make_room_for(queue, name)
        while True:
            # A queue that was deleted and created again has other consumers.
            queue = self.catalogue.find(queue.name)
            consumer = queue.consumer(name)
            if consumer is not known:
                known, seen = consumer, consumer.renewals
            before = consumer.planned, consumer.holder
            now, utc = self.clock.monotonic(), self.clock.utc()
            if (
                try_register(consumer, holder, planned, seen, now=now, utc=utc, ranged=ranged)
                == "granted"
            ):
                break
            try:
                await asyncio.wait_for(gone.wait(), LEASE_LOOK_SECONDS)
            except asyncio.TimeoutError:
                continue
            raise ConnectionResetError
        if (consumer.planned, consumer.holder) != before:  # A renewal alone needs no sync.
            await self.saves.save(queue, consumer)
        else:
            await self.saves.settle(queue, consumer)
        self._check_there(queue, consumer)
        return consumer

    async def received(
        self,
        queue: Queue,
        span: EpochSpan,
        name: str,
        holder: HolderValue,
        to: int | None,
        sequences: list[int] | None,
        *,
        first: int | None = None,
        reason: Reason = Reason.RECEIVED,
    ) -> Consumer:
        """Mark rows as received by a consumer, wait until that is stored, and return the consumer.

        Marks of the default consumer decide about the rows, for ``reason``. The marked rows are
        ``sequences``, or ``first`` to ``to`` (included), or, without ``first``, everything up to
        ``to`` from the holder's plan. Raises :class:`ApiError`: 409 if ``holder`` does not have the
        lease or a mark is past the end of its epoch; 404 or 409 if queue or consumer are deleted
        meanwhile.
        """
        consumer = queue.consumer(name)
        self.check_holder(consumer, holder)
        highest = max([to or 0, *(sequences or [])])
        if highest > span.end:
            raise ApiError(
                409,
                "past-the-end",
                f"epoch {span.epoch} of {queue.name} ends at {span.end}, not {highest}",
                "nobody has read these rows: was the data directory put back from a copy?",
            )
        consumer.renew(now=self.clock.monotonic(), utc=self.clock.utc())
        if sequences is None:
            marked = (
                consumer.mark_to(to or 0) if first is None else consumer.mark_range(first, to or 0)
            )
            await self._marked(queue, consumer, marked, reason)
            return consumer
        for at in range(0, max(len(sequences), 1), SEQUENCES_OF_A_COMMIT):
            if at:
                self._check_there(queue, consumer)
            marked = consumer.mark_each(sequences[at : at + SEQUENCES_OF_A_COMMIT])
            await self._marked(queue, consumer, marked, reason)
        return consumer

    async def _marked(
        self, queue: Queue, consumer: Consumer, marked: Marked, reason: Reason
    ) -> None:
        """Apply the consequences of new marks in memory, and wait until they are stored.

        If the default consumer marks rows before its queue is deleted, the commit of the deletion
        decides them at the latest, and their senders get receipts. A mark of another consumer that
        is deleted meanwhile is stored nowhere: raises :class:`ApiError` (404 or 409).
        """
        decides = consumer is queue.default
        if not marked.rows:
            await self.saves.settle(queue, consumer)
        else:
            if decides:
                queue.deciding.marked(marked.runs, reason, self.clock.utc())
            queue.close_up(consumer)
            if decides:
                queue.marks_moved()
            await self.saves.save(queue, consumer)
        if not decides:
            self._check_there(queue, consumer)

    async def forwarded(self, epoch: str, to: int) -> None:
        """Mark the forward queue up to ``to`` as received: the sender process has the messages."""
        queue = self.catalogue.get(FORWARD_QUEUE)
        if queue is None or epoch not in [each.epoch for each in queue.epochs]:
            return
        if epoch == queue.epochs[-1].epoch:
            self.receiver.forward_room.forwarded(to)
        if queue.default.skip_to(min(to, queue.end)).rows:
            queue.marks_moved()
            await self.saves.save(queue, queue.default)

    def forward_holding(self, holding: dict[str, str], empty: list[str], begins: bool) -> None:
        """Record the sender of each outgoing queue that holds forwarded messages, by queue.

        ``empty`` are queues that hold none now. ``begins``: the sender process has just started.
        """
        self.receiver.forward_room.told(holding, empty, begins=begins)

    async def release(self, queue: Queue, name: str, holder: HolderValue) -> None:
        """Release the lease of ``holder`` durably. Only log it if ``holder`` has none."""
        consumer = queue.consumers.get(name)
        if consumer is not None and consumer.holder == holder:
            consumer.release()
            await self.saves.save(queue, consumer)
            return
        held_by = (
            "nobody"
            if consumer is None or consumer.holder is None
            else holder_text(consumer.holder)
        )
        told = 'consumer.release_ignored queue=%s consumer=%s by="%s" held_by="%s"'
        log.info(
            told,
            queue.name,
            ascii(name)[1:-1],
            ascii(holder_text(holder))[1:-1],
            ascii(held_by)[1:-1],
        )
        if consumer is not None:
            # This may be a repeat of the call that released the lease.
            await self.saves.settle(queue, consumer)

    def check_holder(self, consumer: Consumer, holder: HolderValue) -> None:
        """Raise :class:`ApiError` (409) if ``holder`` is not the holder of the lease."""
        if consumer.holder == holder:
            return
        if consumer.is_held(self.clock.monotonic()):
            raise consumer.refusal()
        raise not_registered(consumer)

    def _check_there(self, queue: Queue, consumer: Consumer) -> None:
        """Raise :class:`ApiError` (404 or 409) if queue or consumer was deleted meanwhile."""
        if self.catalogue.get(queue.name) is not queue:
            raise UnknownQueueError(queue.name)
        if queue.consumers.get(consumer.name) is not consumer:
            raise not_registered(consumer)
