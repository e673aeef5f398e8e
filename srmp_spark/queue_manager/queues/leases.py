"""Give leases to consumers, and mark rows as received, durably."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError
from srmp_spark.names import FORWARD_QUEUE
from srmp_spark.queue_manager.queues.catalogue import EpochSpan, NoSuchQueueError, Queue
from srmp_spark.queue_manager.queues.consumers import (
    SEQUENCES_OF_A_COMMIT,
    Consumer,
    HolderValue,
    Marked,
    holder_text,
    not_registered,
    try_register,
)
from srmp_spark.srmp.receiving.decisions import Reason
from srmp_spark.store.tables import state

if TYPE_CHECKING:
    from srmp_spark.queue_manager.core import Core
    from srmp_spark.queue_manager.queues.consumer_saves import ConsumerSaves

LEASE_LOOK_SECONDS = 0.5
"""Seconds after which a waiting receiver checks again whether the holder's process is gone."""

log = logging.getLogger(__name__)


class Leases:
    """Gives the leases of consumers to their holders, and stores what the holders received."""

    def __init__(self, core: Core, saves: ConsumerSaves) -> None:
        self._catalogue = core.catalogue
        self._receiver = core.receiver
        self._journal = core.journal
        self._clock = core.clock
        self._saves = saves

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
        if consumer.is_held(self._clock.monotonic()):
            raise consumer.refusal()
        await self._forget_consumer(queue, name)
        log.info(
            "consumer.deleted queue=%s consumer=%s received=%d", queue.name, name, consumer.received
        )

    async def _forget_consumer(self, queue: Queue, name: str) -> None:
        stored_name, queue_id = queue.stored_name(name), queue.id
        # Do this first, because a mark that is saved after this must not restore the consumer.
        del queue.consumers[name]
        await self._journal.transact(
            lambda each: state.delete_consumer(each.connection, queue_id, stored_name)
        )

    async def _make_room_for(self, queue: Queue, name: str) -> None:
        """Delete the unused consumer whose lease ended first, if ``name`` finds no room."""
        if name in queue.consumers or not queue.consumers_full:
            return
        now = self._clock.monotonic()
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
            queue = self._catalogue.find(queue.name)
            consumer = queue.consumer(name)
            if consumer is not known:
                known, seen = consumer, consumer.renewals
            before = consumer.planned, consumer.holder
            now, utc = self._clock.monotonic(), self._clock.utc()
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
            await self._saves.save(queue, consumer)
        else:
            await self._saves.settle(queue, consumer)
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
        consumer.renew(now=self._clock.monotonic(), utc=self._clock.utc())
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
            await self._saves.settle(queue, consumer)
        else:
            if decides:
                queue.deciding.marked(marked.runs, reason, self._clock.utc())
            queue.close_up(consumer)
            if decides:
                queue.marks_moved()
            await self._saves.save(queue, consumer)
        if not decides:
            self._check_there(queue, consumer)

    async def forwarded(self, epoch: str, to: int) -> None:
        """Mark the forward queue up to ``to`` as received: the sender process has the messages."""
        queue = self._catalogue.get(FORWARD_QUEUE)
        if queue is None or epoch not in [each.epoch for each in queue.epochs]:
            return
        if epoch == queue.epochs[-1].epoch:
            self._receiver.forward_room.forwarded(to)
        if queue.default.skip_to(min(to, queue.end)).rows:
            queue.marks_moved()
            await self._saves.save(queue, queue.default)

    async def release(self, queue: Queue, name: str, holder: HolderValue) -> None:
        """Release the lease of ``holder`` durably. Only log it if ``holder`` has none."""
        consumer = queue.consumers.get(name)
        if consumer is not None and consumer.holder == holder:
            consumer.release()
            await self._saves.save(queue, consumer)
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
            await self._saves.settle(queue, consumer)

    def check_holder(self, consumer: Consumer, holder: HolderValue) -> None:
        """Raise :class:`ApiError` (409) if ``holder`` is not the holder of the lease."""
        if consumer.holder == holder:
            return
        if consumer.is_held(self._clock.monotonic()):
            raise consumer.refusal()
        raise not_registered(consumer)

    def _check_there(self, queue: Queue, consumer: Consumer) -> None:
        """Raise :class:`ApiError` (404 or 409) if queue or consumer was deleted meanwhile."""
        if self._catalogue.get(queue.name) is not queue:
            raise NoSuchQueueError(queue.name)
        if queue.consumers.get(consumer.name) is not consumer:
            raise not_registered(consumer)
