"""How often each row was moved between a queue and its subqueues, and when last ([MS-MQRR] 2.2.5.3, [MS-MQDMPR] 3.1.7.1.16).

A move makes a new row, so what is known of the old one goes along, one move more, in the transaction that has the new row. One
without an entry was never moved. Entries go with their rows: when retention deletes these, or somebody the queue.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from srmp_spark.store.decisions import Moved
    from srmp_spark.store.transaction import Transaction

DDL = """
CREATE TABLE IF NOT EXISTS moves(
    queue_id INTEGER NOT NULL, sequence INTEGER NOT NULL, counter INTEGER NOT NULL, last_moved_at INTEGER NOT NULL,
    PRIMARY KEY (queue_id, sequence)
) WITHOUT ROWID
"""
"""New in 0.2, made at every open. An older version does not know it: what is moved meanwhile counts from the beginning."""
COUNTER_MAX = 2**32 - 1
"""A ULONG in the packet: it stays there."""


class Moves(NamedTuple):
    """Of one row."""

    counter: int
    last_moved_at: int
    """Microseconds since 1970, UTC."""


def count(transaction: Transaction, moved: Iterable[Moved], now: int) -> None:
    """These rows were moved once more. A function for :meth:`Journal.transact`."""
    transaction.connection.executemany(
        "INSERT OR REPLACE INTO moves(queue_id, sequence, counter, last_moved_at) VALUES "
        "(?, ?, min(?, 1 + coalesce("
        "(SELECT counter FROM moves WHERE queue_id = ? AND sequence = ?), 0)), ?)",
        [
            (each.to_queue_id, each.to_sequence, COUNTER_MAX, each.queue_id, each.sequence, now)
            for each in moved
        ],
    )


def load(db: sqlite3.Connection, queue_id: int, after: int, to: int) -> dict[int, Moves]:
    """By sequence, of those rows of (after, to] that were moved."""
    found = db.execute(
        "SELECT sequence, counter, last_moved_at FROM moves WHERE queue_id = ? AND "
        "sequence > ? AND sequence <= ?",
        (queue_id, after, to),
    )
    return {sequence: Moves(counter, moved_at) for sequence, counter, moved_at in found}


def forget(transaction: Transaction, queue_id: int, to: int) -> None:
    """The rows up to ``to`` are deleted."""
    transaction.connection.execute(
        "DELETE FROM moves WHERE queue_id = ? AND sequence <= ?", (queue_id, to)
    )
