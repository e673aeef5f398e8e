"""Saving consumers: marks and leases move in memory at once, and count from the commit that holds them.

Whoever is answered 200 is answered after that commit, also when there was nothing to change any more: a client that repeats its
call, because the answer did not come in time, asks whether it holds. An answer from memory would be a lie after a kill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from srmp_spark.queue_manager.catalogue import Queue
from srmp_spark.queue_manager.consumers import Consumer
from srmp_spark.store import state
from srmp_spark.store.journal import Journal
from srmp_spark.store.marks import StoredMarks
from srmp_spark.store.transaction import Transaction

PIECES_WAITING_MAX = 4_000
"""Changed pieces of what lies beyond the marks (:mod:`srmp_spark.store.marks`) of all consumers together, but for the default
ones, that wait to be written. One commit writes them all, in the loop: some milliseconds. Marks of others wait for the next
commit; those of a default consumer decide rows, and never wait."""


class ConsumerSaves:
    """The way of consumers to the disk."""

    def __init__(
        self,
        journal: Journal,
        *,
        is_there: Callable[[Queue], bool],
        decide: Callable[[Transaction, Queue], None],
    ) -> None:
        """``is_there`` is false for a queue that was deleted; ``decide`` stores what the marks of a queue have decided."""
        self._journal = journal
        self._is_there = is_there
        self._decide = decide
        self._door = asyncio.Lock()
        self._written = asyncio.Event()
        self._pieces = 0

    async def save(self, queue: Queue, consumer: Consumer) -> None:
        """It was changed: return when that is on stable storage. Raises :class:`StoreSyncError`."""
        consumer.changes += 1
        await self._save_in_turn(queue, consumer)

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
            await self._save_in_turn(queue, consumer)

    def join(self, transaction: Transaction, queue: Queue, consumer: Consumer) -> None:
        """Write a consumer that was changed by what is inside this transaction, in the transaction."""
        consumer.changes += 1
        self._store(transaction, queue, consumer)

    async def _save_in_turn(self, queue: Queue, consumer: Consumer) -> None:
        write = partial(self._write, queue=queue, consumer=consumer)
        if consumer is queue.default:
            await self._journal.transact(write)
            return
        async with self._door:  # first come, first served
            while self._pieces and self._pieces + consumer.ahead.changed > PIECES_WAITING_MAX:
                self._written.clear()
                await self._written.wait()
            pieces = consumer.ahead.changed
            self._pieces += pieces
        try:
            if not consumer.is_stored:  # else an earlier commit held this change, too
                await self._journal.transact(write)
        finally:
            self._pieces -= pieces
            self._written.set()

    def _write(self, transaction: Transaction, queue: Queue, consumer: Consumer) -> None:
        self._decide(transaction, queue)
        if not self._is_there(queue):
            return  # deleted meanwhile, and its consumers with it
        if queue.consumers.get(consumer.name) is not consumer:
            return  # deleted while it waited for its turn: it must not come back
        self._store(transaction, queue, consumer)

    def _store(self, transaction: Transaction, queue: Queue, consumer: Consumer) -> None:
        row, ahead = consumer.row(), consumer.ahead
        name = queue.stored_name(consumer.name)
        stored = state.StoredConsumer(
            queue.log_name, name, row.received, ahead, row.planned, row.holder, row.lease_until
        )
        changes = StoredMarks.taken_from(ahead)
        transaction.when_undone.append(
            partial(changes.give_back, ahead)
        )  # then the next save must write them
        state.save_consumer(transaction.connection, queue.id, stored, changes)
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
