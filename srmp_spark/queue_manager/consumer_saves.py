"""Saving consumers: marks and leases move in memory at once, and count from the commit that holds them.

Whoever is answered 200 is answered after that commit, also when there was nothing to change any more: a client that repeats its
call, because the answer did not come in time, asks whether it holds. An answer from memory would be a lie after a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from srmp_spark.queue_manager.catalogue import Queue
from srmp_spark.queue_manager.consumers import Consumer
from srmp_spark.store import state
from srmp_spark.store.journal import Journal
from srmp_spark.store.transaction import Transaction


class ConsumerSaves:
    """The way of consumers to the disk."""

    def __init__(
        self, journal: Journal, *, is_there: Callable[[Queue], bool], decide: Callable[[Transaction, Queue], None]
    ) -> None:
        """``is_there`` is false for a queue that was deleted; ``decide`` stores what the marks of a queue have decided."""
        self._journal = journal
        self._is_there = is_there
        self._decide = decide

    async def save(self, queue: Queue, consumer: Consumer) -> None:
        """It was changed: return when that is on stable storage. Raises :class:`StoreSyncError`."""
        consumer.changes += 1
        await self._journal.transact(partial(self._write, queue=queue, consumer=consumer))

    async def save_together(self, changed: Sequence[tuple[Queue, Consumer]]) -> None:
        """:meth:`save` of several in one transaction."""
        for _, consumer in changed:
            consumer.changes += 1

        def write(transaction: Transaction) -> None:
            for queue, consumer in changed:
                self._write(transaction, queue=queue, consumer=consumer)

        await self._journal.transact(write)

    async def settle(self, queue: Queue, consumer: Consumer) -> None:
        """It was not changed: return when it is on stable storage as it is, mostly at once. Errors as for :meth:`save`."""
        if not consumer.is_stored:
            await self._journal.transact(partial(self._write, queue=queue, consumer=consumer))

    def join(self, transaction: Transaction, queue: Queue, consumer: Consumer) -> None:
        """It was changed by what is inside this transaction, which writes it."""
        consumer.changes += 1
        self._note(transaction, queue, consumer)

    def _write(self, transaction: Transaction, queue: Queue, consumer: Consumer) -> None:
        self._decide(transaction, queue)
        if not self._is_there(queue):
            return  # deleted meanwhile, and its consumers with it
        row = consumer.row()
        stored = state.StoredConsumer(
            queue.log_name, queue.stored_name(consumer.name), row.received, row.ahead, row.planned, row.holder, row.lease_until
        )
        state.save_consumer(transaction.connection, queue.id, stored)
        self._note(transaction, queue, consumer)

    def _note(self, transaction: Transaction, queue: Queue, consumer: Consumer) -> None:
        """Before anybody is answered: who is told that a row was received finds it in the journal."""
        changes, received = consumer.changes, consumer.received

        def stored() -> None:
            moved = received != consumer.stored_received
            consumer.stored(changes, received)
            if moved and queue.journal is not None:
                queue.journal.marks_moved()

        transaction.after_commit.append(stored)
