"""Put the stored queues and consumers into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from srmp_spark.names import FORWARD_QUEUE
from srmp_spark.queue_manager.queues.catalogue import Catalogue, Queue
from srmp_spark.queue_manager.queues.consumers import Consumer, ConsumerRow
from srmp_spark.queue_manager.queues.queue_journal import (
    JournalSwitch,
    open_journal,
    queue_of_consumer,
)
from srmp_spark.store.tables import queues

if TYPE_CHECKING:
    from collections.abc import Iterable

    from srmp_spark.srmp.receiving.receiver import Receiver
    from srmp_spark.store.directory import DataDirectory
    from srmp_spark.store.tables.state import StoredConsumer, StoredQueue


def open_queue(
    catalogue: Catalogue, receiver: Receiver, directory: DataDirectory, stored: StoredQueue
) -> Queue:
    """Add a stored queue to engine and catalogue, with its journal, and return it."""
    engine = receiver.add_queue(
        stored.name,
        stored.transactional,
        stored.end,
        paused=stored.paused,
        declared=queues.is_declared(stored.options),
    )
    queue = catalogue.add(stored, engine)
    queue.paused_out = queues.is_paused_out(stored.options)
    queue.made_for = queues.MadeFor.of(stored.options)
    switch = JournalSwitch.of(stored.options)
    if switch is not None:
        open_journal(queue, switch, directory.writer)
    return queue


def open_queues(
    receiver: Receiver,
    directory: DataDirectory,
    stored_queues: Iterable[StoredQueue],
    stored_consumers: Iterable[StoredConsumer],
    now: float,
) -> Catalogue:
    """Return the catalogue of all stored queues, with their consumers.

    ``now`` is in seconds of the monotonic clock.
    """
    catalogue = Catalogue()
    for each in stored_queues:
        open_queue(catalogue, receiver, directory, each)
    for consumer in stored_consumers:
        row = ConsumerRow(
            consumer.received, consumer.planned, consumer.holder, consumer.lease_until
        )
        whose = queue_of_consumer(catalogue.find(consumer.queue), consumer.name)
        if whose is not None:
            of, name = whose
            of.consumers[name] = Consumer.load(name, row, consumer.ahead, now=now)
    for queue in catalogue:
        queue.marks_moved()
    forward = catalogue.get(FORWARD_QUEUE)
    # Messages in the forward queue may wait, or be outgoing.
    if forward is not None and (forward.end or len(forward.epochs) > 1):
        receiver.forward_room.starts(forward.end)
    return catalogue
