"""Purge a queue of a store that no queue manager serves."""

from __future__ import annotations

from pathlib import Path

from srmp_spark.interface import DEFAULT_CONSUMER
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.tables import marks, state
from srmp_spark.store.tables.epochs import end_of
from srmp_spark.store.tables.queues import queue_id_of, take_away


def purge(transaction: Transaction, name: str, segments: Path) -> int:
    """Make holes of all rows that the default consumer has not received.

    All rows are then marked as received. Return how many rows became holes.
    """
    db, queue_id = transaction.connection, queue_id_of(transaction, name)
    end, received = end_of(db, queue_id), state.received_by_default(db, queue_id)
    ahead = marks.load(db, queue_id, DEFAULT_CONSUMER, received)
    (trimmed_to,) = db.execute("SELECT trimmed_to FROM queues WHERE id = ?", (queue_id,)).fetchone()
    taken = take_away(transaction, name, max(received, trimmed_to) + 1, end, ahead, segments)
    received = max(received, end)
    db.execute(
        "INSERT INTO consumers(queue_id, name, received) VALUES (?, ?, ?) "
        "ON CONFLICT (queue_id, name) DO UPDATE SET received = excluded.received, ahead = '[]'",
        (queue_id, DEFAULT_CONSUMER, received),
    )
    marks.save(db, queue_id, DEFAULT_CONSUMER, received, marks.StoredMarks([], []))
    return taken.rows
