"""Save consumers: marks and leases change in memory at once, and are valid once committed.

A mark (:mod:`.consumers`) records up to which row a consumer has received. A call is answered 200
only after that commit, also when there was nothing left to change. A client that repeats its call,
because the answer did not arrive in time, asks whether the change is stored. An answer from memory
would be wrong after a kill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from srmp_spark.queue_manager.queues.catalogue import Queue
from srmp_spark.queue_manager.queues.consumers import Consumer
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.journal import Journal
from srmp_spark.store.tables import state
from srmp_spark.store.tables.marks import StoredMarks

PIECES_WAITING_MAX = 4_000
"""Most changed pieces of rows received out of turn that wait to be written.

:mod:`srmp_spark.store.tables.marks` describes a piece. The limit is for all consumers together
except the default ones. One commit writes all pieces, in the loop, and takes some milliseconds. At
the limit the marks of further consumers wait for the next commit. Marks of a default consumer
decide about rows, and never wait.
"""


class ConsumerSaves:
    """Writes changed consumers (:class:`.Consumer`) of one queue manager to the disk."""

    def __init__(
        self,
        journal: Journal,
        *,
        is_there: Callable[[Queue], bool],
        decide: Callable[[Transaction, Queue], None],
    ) -> None:
        """Create the writer of one queue manager.

        ``is_there`` returns False for a queue that was deleted. ``decide`` writes, in a
        transaction, what the default consumer's marks have decided about the rows of a queue.
        """
        self._journal = journal
        self._is_there = is_there
        self._decide = decide
        self._door = asyncio.Lock()
        self._written = asyncio.Event()
        self._pieces = 0

    async def save(self, queue: Queue, consumer: Consumer) -> None:
        """Save a consumer that was changed in memory, and wait until it is on stable storage.

        If the queue or the consumer was deleted meanwhile, the consumer is not saved. Raises
        :class:`StoreSyncError` if the journal fails.
        """
        consumer.changes += 1
        await self._save_in_turn(queue, consumer)

    async def save_together(self, changed: Sequence[tuple[Queue, Consumer]]) -> None:
        """Save several changed consumers in one transaction, and wait as :meth:`save`."""
        for _, consumer in changed:
            consumer.changes += 1

        def write(transaction: Transaction) -> None:
            for queue, consumer in changed:
                self._write(transaction, queue=queue, consumer=consumer)

        await self._journal.transact(write)

    async def settle(self, queue: Queue, consumer: Consumer) -> None:
        """Wait until a consumer that this call did not change is on stable storage as it is.

        Mostly that is so at once; otherwise the consumer is saved. Raises as :meth:`save`.
        """
        if not consumer.is_stored:
            await self._save_in_turn(queue, consumer)

    def join(self, transaction: Transaction, queue: Queue, consumer: Consumer) -> None:
        """Write a consumer that the owner of ``transaction`` has changed, in that transaction.

        The call does not wait for the commit.
        """
        consumer.changes += 1
        self._store(transaction, queue, consumer)

    async def _save_in_turn(self, queue: Queue, consumer: Consumer) -> None:
        write = partial(self._write, queue=queue, consumer=consumer)
        if consumer is queue.default:
            await self._journal.transact(write)
            return
        async with self._door:  # The lock is fair: first come, first served.
            while self._pieces and self._pieces + consumer.ahead.changed > PIECES_WAITING_MAX:
                self._written.clear()
                await self._written.wait()
            pieces = consumer.ahead.changed
            self._pieces += pieces
        try:
            if not consumer.is_stored:  # An earlier commit may have held this change too.
                await self._journal.transact(write)
        finally:
            self._pieces -= pieces
            self._written.set()

    def _write(self, transaction: Transaction, queue: Queue, consumer: Consumer) -> None:
        self._decide(transaction, queue)
        if not self._is_there(queue):
            return  # The queue was deleted meanwhile, with its consumers.
        if queue.consumers.get(consumer.name) is not consumer:
            return  # The consumer was deleted while it waited for its turn, and must not come back.
        self._store(transaction, queue, consumer)

    def _store(self, transaction: Transaction, queue: Queue, consumer: Consumer) -> None:
        row, ahead = consumer.row(), consumer.ahead
        name = queue.stored_name(consumer.name)
        stored = state.StoredConsumer(
            queue.log_name, name, row.received, ahead, row.planned, row.holder, row.lease_until
        )
        changes = StoredMarks.taken_from(ahead)
        # If the transaction is undone, the next save must write the changes.
        transaction.when_undone.append(partial(changes.give_back, ahead))
        state.save_consumer(transaction.connection, queue.id, stored, changes)
        self._note(transaction, queue, consumer)

    def _note(self, transaction: Transaction, queue: Queue, consumer: Consumer) -> None:
        """Record in memory, right after the commit of ``transaction``, that the change is stored.

        That is before any caller is answered. So a caller that learns that a row was received finds
        the row in the journal of the queue.
        """
        changes, received = consumer.changes, consumer.received

        def stored() -> None:
            moved = received != consumer.stored_received
            consumer.stored(changes, received)
            if moved and queue.journal is not None:
                queue.journal.marks_moved()

        transaction.after_commit.append(stored)
