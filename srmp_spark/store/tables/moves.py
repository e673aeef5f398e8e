"""Count how often each row was moved between a queue and its subqueues, and when last.

See [MS-MQRR] 2.2.5.3 and [MS-MQDMPR] 3.1.7.1.16. A move makes a new row. The entry of the old row,
with one move more, goes to the new row in the transaction that stores the new row. A row without an
entry was never moved. Entries are deleted with their rows, by retention or when a queue is deleted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from srmp_spark.store.database.transaction import Transaction
    from srmp_spark.store.tables.decisions import MovedRowTarget

DDL = """
CREATE TABLE IF NOT EXISTS moves(
    queue_id INTEGER NOT NULL, sequence INTEGER NOT NULL, counter INTEGER NOT NULL, \
last_moved_at INTEGER NOT NULL,
    PRIMARY KEY (queue_id, sequence)
) WITHOUT ROWID
"""
"""Table that is new in 0.2, created at every open.

An older version does not know the table; rows that such a version moves are counted from the
beginning.
"""
COUNTER_MAX = 2**32 - 1
"""Largest move count, a ULONG in the packet. The count stays at this value."""


class Moves(NamedTuple):
    """Move count of one row, and the time of its last move."""

    counter: int
    last_moved_at: int
    """Time of the last move, in microseconds since 1970, UTC."""


def count(transaction: Transaction, moved: Iterable[MovedRowTarget], now: int) -> None:
    """Store for each moved row the move count of its old row plus one, and the time ``now``.

    ``now`` is in microseconds since 1970, UTC. A count stays at :data:`COUNTER_MAX`. The function
    is for :meth:`Journal.transact`.
    """
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
    """Return the :class:`Moves` of each moved row in (after, to], by sequence.

    A row that was never moved is missing from the result.
    """
    found = db.execute(
        "SELECT sequence, counter, last_moved_at FROM moves WHERE queue_id = ? AND "
        "sequence > ? AND sequence <= ?",
        (queue_id, after, to),
    )
    return {sequence: Moves(counter, moved_at) for sequence, counter, moved_at in found}


def forget(transaction: Transaction, queue_id: int, to: int) -> None:
    """Delete the move counts of the rows up to ``to``, because these rows are deleted."""
    transaction.connection.execute(
        "DELETE FROM moves WHERE queue_id = ? AND sequence <= ?", (queue_id, to)
    )
