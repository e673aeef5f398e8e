"""Create, change, purge and delete queues durably."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from srmp_spark.errors import ApiError, ConfigurationError, ProcessMustEndError, StoreError
from srmp_spark.interface import TOO_MANY_SUBQUEUES
from srmp_spark.names import (
    FORWARD_QUEUE,
    ORDER_QUEUE,
    OWN_QUEUES,
    base_of_journal,
    base_of_subqueue,
)
from srmp_spark.queue_manager.configuration.serve_config import (
    QUEUES_MAX,
    QUEUES_OF_TOKENS_MAX,
)
from srmp_spark.queue_manager.queues.catalogue import NoSuchQueueError, Queue
from srmp_spark.queue_manager.queues.in_use import check_unused
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
from srmp_spark.store.stored_rows import retention
from srmp_spark.store.tables import queues
from srmp_spark.store.tables.epochs import end_of
from srmp_spark.store.tables.queues import MadeFor

if TYPE_CHECKING:
    from srmp_spark.queue_manager.admission.gate import Gate
    from srmp_spark.queue_manager.core import Core
    from srmp_spark.queue_manager.queues.consumer_saves import ConsumerSaves
    from srmp_spark.queue_manager.receipts.row_decisions import RowDecisions
    from srmp_spark.store.database.transaction import Transaction

HOLES_OF_A_COMMIT = 1_000
"""Most holes that one commit of a purge makes. More need more commits, of some ms each."""

log = logging.getLogger(__name__)


class Only(Enum):
    """Limits what a call may do to a queue."""

    BOTH = "both"
    """Create a missing queue, or change an existing one."""
    CREATE = "create"
    """Never change an existing queue: it must have the settings that are named."""
    CHANGE = "change"
    """Never create a queue."""


class Deleted(NamedTuple):
    """The canonical name of a deleted queue, and its rows that ``default`` had not received."""

    name: str
    rows: int


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
        only: Only = Only.BOTH,
        made_for: str | None = None,
    ) -> bool:
        """Create a queue if none has this canonical name. Return whether it was created.

        ``journal`` switches the queue's journal on or off; ``None`` leaves it as it is. ``only``
        limits the call to creating, or to changing. ``is_restricted`` states that the caller's API
        token is not for all queues. ``made_for`` names the subscription that needs the queue: then
        :meth:`take_back` may delete it. A subqueue that a remote reader created is declared by this
        call, and stays. Raises :class:`ApiError`: 409 for another kind, for other settings with
        :attr:`Only.CREATE`, or for too many queues; 404 if there is none with :attr:`Only.CHANGE`;
        400 if name or kind is not possible.
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
                self._check_kind(existing, transactional)
                if only is Only.CREATE:
                    _check_journal(existing, journal)
                if not existing.state.declared:
                    self._check_queues_max(is_restricted=is_restricted)
                    await self._declare(existing)
                if made_for is None and existing.made_for is not None:
                    await self._keep(existing)
                await self._switch_journal(existing, journal)
                return False
            if only is Only.CHANGE:
                raise NoSuchQueueError(name)
            self._check_queues_max(is_restricted=is_restricted)
            _check_own(name, transactional=bool(transactional), journal=bool(journal))
            stored = await self._journal.transact(
                lambda t: queues.create(
                    t,
                    name,
                    transactional=bool(transactional),
                    journal=bool(journal),
                    made_for=made_for,
                )
            )
            open_queue(self._catalogue, self._receiver, self._core.directory, stored)
            log.info("queue.created name=%s transactional=%s", name, bool(transactional))
            if journal:
                log.info("queue.journal name=%s on=%s", name, True)
            return True

    def _check_kind(self, existing: Queue, transactional: bool | None) -> None:
        """Raise :class:`ApiError` (409) if the queue is not of the kind ``transactional``."""
        if transactional is None or existing.state.transactional == transactional:
            return
        kind = "transactional" if existing.state.transactional else "not transactional"
        config = self._core.config
        api = config.api.url("http" if config.api_cert is None else "https")
        flag = f" --api {api}" if config.api.port else ""
        hint = (
            "give it as it is, or delete it first, with its rows, while the queue manager runs: "
            f"srmp-spark queue delete {shlex.quote(existing.name)}{flag}"
        )
        raise ApiError(409, "queue-kind", f"queue {existing.name} exists and is {kind}", hint)

    async def _keep(self, queue: Queue) -> None:
        queue.made_for = None
        await self._journal.transact(lambda t: queues.keep(t, queue.name))

    async def take_back(self, name: str, subscription: str) -> None:
        """Delete the queue that was created for ``subscription`` if the queue was never used.

        A queue that had a row, that a receiver holds, or that an operator created, stays.
        """
        async with self._admin:
            queue = self._catalogue.get(name)
            if (
                queue is not None
                and queue.made_for == MadeFor(subscription, queue.end)
                and not any(
                    each.is_held(self._core.clock.monotonic()) for each in queue.consumers.values()
                )
            ):
                await self._delete(queue)

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
        _check_own(queue.name, transactional=False, journal=True)
        after: int | None = None
        if journal:
            after = begin_journal(queue).after
        elif queue.journal is not None:
            queue.journal.wake()
            queue.journal = None
        await self._journal.transact(lambda t: queues.set_journal(t, queue.name, after))
        log.info("queue.journal name=%s on=%s", queue.name, journal)

    async def delete(self, name: str, *, unused: bool = False) -> Deleted:
        """Delete a queue with its rows and its undeclared subqueues.

        ``name`` may have any allowed form. With ``unused`` a queue that is in use
        (:func:`.why_in_use`) stays. The call waits until the deletion is on stable storage. Raises
        :class:`ApiError`: 404 if there is no such queue, 400 if it cannot be deleted, 409 if
        ``unused`` forbids it.
        """
        async with self._admin:
            queue = self._catalogue.find_base(name)
            subqueues = self._catalogue.subqueues_of(queue.name)
            if unused:
                now = self._core.clock.monotonic()
                check_unused(queue, subqueues, now)
            rows = sum(each.state.count for each in (queue, *subqueues))
            await self._delete(queue)
            return Deleted(queue.name, rows)

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

    async def trim(self, queue: Queue, to: int, *, forced: bool) -> int:
        """Delete the rows up to ``to``, the end of a segment or group. Return the oldest one left.

        Only ``forced`` deletes rows that a consumer has not received. Rows that ``default`` has not
        received are purged first, so that their senders are notified. Raises :class:`ApiError`
        (404) if the queue was deleted.
        """
        async with self._admin:
            self._check_there(queue)
            if forced and queue.default.received < to:
                await self._purge(queue, SequenceSet(), to)
                self._check_there(queue)
            first = await self._journal.transact(
                lambda t: retention.trim(
                    t, queue.name, to, self._core.directory.segments, forced=forced
                )
            )
            queue.trimmed(first - 1)
            self._garbage.set()
            return first

    def _check_there(self, queue: Queue) -> None:
        if self._catalogue.get(queue.name) is not queue:
            raise NoSuchQueueError(queue.name)

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
            purged = await self._purge(queue, left)
            log.info("queue.purged name=%s rows=%d", queue.name, purged)
            return purged

    async def _purge(self, queue: Queue, spared: SequenceSet, to: int | None = None) -> int:
        """Delete the waiting rows of a queue up to ``to`` (``None``: all). Return their number."""
        # Hold remote readers first. After the first commit they would lock rows of the next.
        go_on = None if self._catalogue.hold_readers is None else self._catalogue.hold_readers()
        try:
            done = await self._journal.transact(lambda t: self._purge_slice(t, queue, to, spared))
            purged, whole = done.rows, done.end
            while done.to < whole and self._catalogue.get(queue.name) is queue:
                done = await self._journal.transact(
                    lambda t: self._purge_slice(t, queue, whole, spared)
                )
                purged += done.rows
        finally:
            if go_on is not None:
                go_on()
        self._garbage.set()
        if queue.name == FORWARD_QUEUE:
            self._on_forward_rows()  # The cursor passes the holes while they are known.
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

    async def pause(
        self, name: str, *, paused: bool | None = None, paused_out: bool | None = None
    ) -> None:
        """Pause a queue durably, or end its pause; ``None`` leaves a direction as it is.

        While a queue is ``paused``, new messages are answered 503. While it is ``paused_out``,
        readers that receive find no further rows. Raises :class:`ApiError`: 404 for an unknown
        queue, 400 for ``paused_out`` of a queue from which no application receives.
        """
        async with self._admin:
            queue = self._catalogue.find(name)
            if paused_out and queue.name in OWN_QUEUES:
                raise ApiError(
                    400,
                    "reserved-queue",
                    f"no application receives from {queue.name}: its readers cannot wait",
                    "to stop what is sent to a peer: srmp-spark streams pause --destination URL",
                )
            if paused is not None:
                queue.state.paused = paused
            if paused_out is not None:
                queue.paused_out = paused_out

            def store(transaction: Transaction) -> None:
                if paused is not None:
                    queues.set_paused(transaction, queue.name, paused=paused)
                if paused_out is not None:
                    queues.set_paused_out(transaction, queue.name, paused=paused_out)

            await self._journal.transact(store)
            log.info(
                "queue.paused name=%s in=%s out=%s",
                queue.name,
                queue.state.paused,
                queue.paused_out,
            )
            if not queue.paused_out:
                queue.wake()


def _check_journal(existing: Queue, journal: bool | None) -> None:
    """Raise :class:`ApiError` (409) if the queue's journal is not switched as ``journal`` says."""
    has = existing.journal is not None
    if journal is not None and journal is not has:
        raise ApiError(
            409,
            "queue-differs",
            f"queue {existing.name} exists and keeps {'a' if has else 'no'} journal",
            f"change it: srmp-spark queue set {shlex.quote(existing.name)} "
            f"journal={'on' if journal else 'off'}",
        )


def _check_own(name: str, *, transactional: bool, journal: bool) -> None:
    """Raise :class:`ApiError` (400) for settings that an own queue of a manager cannot have."""
    if name == ORDER_QUEUE and transactional:
        raise ApiError(400, "usage", f"{ORDER_QUEUE} accepts receipts: it cannot be transactional")
    if name in OWN_QUEUES and journal:
        raise ApiError(400, "usage", f"nobody receives from {name}: it cannot keep a journal")
