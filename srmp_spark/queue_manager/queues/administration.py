"""Create, change, purge and delete queues durably."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from srmp_spark.errors import ApiError, ConfigurationError, ProcessMustEndError, StoreError
from srmp_spark.interface import TOO_MANY_SUBQUEUES
from srmp_spark.names import (
    FORWARD_QUEUE,
    ORDER_QUEUE,
    OWN_QUEUES,
    base_of_journal,
    base_of_subqueue,
    quote_queue_name,
)
from srmp_spark.queue_manager.configuration.serve_config import (
    QUEUES_MAX,
    QUEUES_OF_TOKENS_MAX,
)
from srmp_spark.queue_manager.queues.catalogue import NoSuchQueueError, Queue
from srmp_spark.queue_manager.queues.opening import open_queue
from srmp_spark.queue_manager.queues.queue_journal import (
    QueueJournal,
    begin_journal,
    journal_hint,
)
from srmp_spark.queue_manager.queues.subqueues import (
    SUBQUEUES_MAX,
    SUBQUEUES_OF_A_QUEUE_MAX,
    Subqueues,
)
from srmp_spark.sequences.ranges import gaps
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.srmp.receiving.decisions import Reason
from srmp_spark.store.tables import queues
from srmp_spark.store.tables.epochs import end_of

if TYPE_CHECKING:
    from srmp_spark.queue_manager.admission.gate import Gate
    from srmp_spark.queue_manager.core import Core
    from srmp_spark.queue_manager.queues.consumer_saves import ConsumerSaves
    from srmp_spark.queue_manager.receipts.row_decisions import RowDecisions
    from srmp_spark.store.database.transaction import Transaction

HOLES_OF_A_COMMIT = 1_000
"""Most holes that one commit of a purge makes. More need more commits, of some ms each."""

log = logging.getLogger(__name__)


class _Purged(NamedTuple):
    """The rows that one commit of a purge has deleted, and the last sequence it reached."""

    rows: int
    to: int
    end: int
    """The last sequence that the whole purge deletes."""


class QueueAdministration:
    """Creates, changes, purges and deletes the queues of one queue manager.

    The journal makes each change durable before it is reported.
    """

    def __init__(
        self,
        core: Core,
        saves: ConsumerSaves,
        decisions: RowDecisions,
        gate: Gate,
        garbage: asyncio.Event,
        on_forward_rows: Callable[[], object],
    ) -> None:
        """Prepare to change queues.

        ``garbage`` is set when there are deleted rows or files to remove. ``on_forward_rows`` is
        called when the sender process must look at the forward queue.
        """
        self._core = core
        self._catalogue = core.catalogue
        self._receiver = core.receiver
        self._journal = core.journal
        self._saves = saves
        self._decisions = decisions
        self._gate = gate
        self._garbage = garbage
        self._on_forward_rows = on_forward_rows
        self._admin = asyncio.Lock()
        self.subqueues = Subqueues(
            core.catalogue, core.clock, self.make_subqueue, self.remove_subqueue
        )

    async def create(
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
            existing = self._catalogue.get(name)
            if existing is not None:
                if transactional is not None and existing.state.transactional != transactional:
                    kind = "transactional" if existing.state.transactional else "not transactional"
                    config = self._core.config
                    api = config.api.url("http" if config.api_cert is None else "https")
                    delete = (
                        f"curl -X DELETE {api if config.api.port else 'API'}/v1/queue"
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
            stored = await self._journal.transact(
                lambda t: queues.create(t, name, transactional=bool(transactional))
            )
            made = open_queue(self._catalogue, self._receiver, self._core.directory, stored)
            log.info("queue.created name=%s transactional=%s", name, bool(transactional))
            await self._switch_journal(made, journal)
            return True

    def _check_queues_max(self, *, is_restricted: bool) -> None:
        """Raise :class:`ApiError` (409) if one more declared queue would be too many."""
        if self._catalogue.declared_count >= QUEUES_MAX:
            raise ApiError(
                409,
                "too-many-queues",
                f"QUEUES_MAX is {QUEUES_MAX}",
                "delete queues that are no longer used",
            )
        if is_restricted and self._catalogue.declared_count >= QUEUES_OF_TOKENS_MAX:
            raise ApiError(
                409,
                "too-many-queues",
                f"a token for some queues creates none beyond {QUEUES_OF_TOKENS_MAX} in all",
                "delete queues that are no longer used, or make it with a token for all queues",
            )

    async def _declare(self, queue: Queue) -> None:
        # Change memory first, so that the subqueue is no longer removed.
        self._receiver.declare_queue(queue.name)
        self._catalogue.note_declared(queue.name)
        await self._journal.transact(lambda t: queues.declare(t, queue.name))
        log.info("queue.declared name=%s", queue.name)

    async def make_subqueue(self, name: str) -> Queue:
        """Create an undeclared subqueue and return it. Raises as :meth:`.Subqueues.enter`."""
        async with self._admin:
            base = self._catalogue.get(base_of_subqueue(name) or "")
            if base is None or base.log_name != base.name or base.name in OWN_QUEUES:
                raise NoSuchQueueError(name)
            if (existing := self._catalogue.get(name)) is not None:
                return existing
            for count, limit, of in (
                (
                    len(self._catalogue.subqueues_of(base.name)),
                    SUBQUEUES_OF_A_QUEUE_MAX,
                    "SUBQUEUES_OF_A_QUEUE_MAX",
                ),
                (len(self._catalogue.undeclared), SUBQUEUES_MAX, "SUBQUEUES_MAX"),
            ):
                if count >= limit:
                    hint = (
                        "receive what is in the existing ones, close them, or declare "
                        f"this one: --queue '{name}'"
                    )
                    raise ApiError(
                        503, TOO_MANY_SUBQUEUES, f"{of} is {limit}: {name} is not made", hint
                    )
            self._gate.check()
            try:
                stored = await self._journal.transact(
                    lambda t: queues.create_subqueue(
                        t, name, transactional=base.state.transactional
                    )
                )
            except ProcessMustEndError:
                raise
            except StoreError as error:
                raise ApiError(503, TOO_MANY_SUBQUEUES, str(error)) from None
            self.subqueues.tell("subqueue.made", name)
            return open_queue(self._catalogue, self._receiver, self._core.directory, stored)

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
        await self._journal.transact(lambda t: queues.set_journal(t, queue.name, after))
        log.info("queue.journal name=%s on=%s", queue.name, journal)

    async def delete(self, name: str) -> str:
        """Delete a queue with its rows and its undeclared subqueues. Return its canonical name.

        ``name`` may have any allowed form. The call waits until the deletion is on stable storage.
        Raises :class:`ApiError`: 404 if there is no such queue, 400 if it cannot be deleted.
        """
        async with self._admin:
            queue = self._catalogue.find_base(name)
            await self._delete(queue)
            return queue.name

    async def _delete(self, queue: Queue) -> None:
        gone = [*self._catalogue.subqueues_of(queue.name), queue]
        try:
            for each in gone:
                # Do this first, because nothing new may be accepted.
                self._receiver.remove_queue(each.name)
        except ConfigurationError as error:
            raise ApiError(400, "usage", str(error)) from None

        def delete(transaction: Transaction) -> None:
            for each in gone:
                end = end_of(transaction.connection, each.id)
                # Received rows were decided before.
                left = gaps(max(each.default.received, each.trimmed_to) + 1, end, ())
                self._decisions.decide(transaction, each, left, Reason.QUEUE_DELETED)
                queues.delete(
                    transaction, each.name, self._core.directory.segments, self._core.clock.utc()
                )
                # Remove the queue here, because a mark that is saved after this must not find it.
                self._catalogue.remove(each.name)

        await self._journal.transact(delete)
        self._garbage.set()
        for each in gone:
            if each.state.declared:
                log.info("queue.deleted name=%s", each.name)
            else:
                self.subqueues.tell("queue.deleted", each.name)

    async def purge(self, name: str, spared: SequenceSet | None = None) -> int:
        """Delete the rows that wait in a queue or journal. Return the number of these rows.

        The rows of ``spared``, which remote readers have locked, stay. A journal's rows are only
        marked. Many rows that were received out of turn, or are spared, make many holes: each
        commit makes a slice of them. No remote reader is served until the last one is stored. After
        a kill in between, the rows after the last slice still wait. Raises :class:`ApiError` (404,
        400).
        """
        async with self._admin:
            queue, left = self._catalogue.find(name), SequenceSet() if spared is None else spared
            if isinstance(queue, QueueJournal):
                purged = queue.purge(left)
                await self._saves.save(queue, queue.default)
                return purged
            # Hold remote readers first. After the first commit they would lock rows of the next.
            go_on = None if self._catalogue.hold_readers is None else self._catalogue.hold_readers()
            try:
                done = await self._journal.transact(
                    lambda t: self._purge_slice(t, queue, None, left)
                )
                purged, whole = done.rows, done.end
                while done.to < whole and self._catalogue.get(queue.name) is queue:
                    done = await self._journal.transact(
                        lambda t: self._purge_slice(t, queue, whole, left)
                    )
                    purged += done.rows
            finally:
                if go_on is not None:
                    go_on()
            self._garbage.set()
            if queue.name == FORWARD_QUEUE:
                self._on_forward_rows()  # The cursor passes the holes while they are known.
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
        segments = self._core.directory.segments
        taken = queues.take_away(
            transaction, queue.name, first, whole, kept, segments, HOLES_OF_A_COMMIT
        )
        # Rows that were received out of turn were decided before, and keep that decision.
        self._decisions.decide(
            transaction, queue, spared.gaps(first, taken.to), Reason.QUEUE_PURGED
        )
        queue.cut(taken.holes)
        queue.damage.clear()
        # Move the mark here, so that a later save does not put the old mark back on disk.
        default.skip_all_but(taken.to, spared)
        self._saves.join(transaction, queue, default)
        self._catalogue.purging(transaction, queue)
        return _Purged(taken.rows, taken.to, whole)

    async def pause(self, name: str, *, paused: bool) -> None:
        """Pause a queue durably, or end its pause. A paused queue's messages are answered 503."""
        async with self._admin:
            queue = self._catalogue.find(name)
            queue.state.paused = paused
            await self._journal.transact(lambda t: queues.set_paused(t, queue.name, paused=paused))
