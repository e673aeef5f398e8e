"""Epochs: the histories that sequences belong to (INTERFACE.md section 1).

A row keeps the epoch it was accepted in; a new epoch goes on counting where the old one stopped. So the rows of one epoch in
one queue are a range: from its entry in ``queue_epochs`` to the sequence before the next one's.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from srmp_spark.sequences.ranges import SEQUENCE_BITS, SEQUENCE_MAX


class Epoch(NamedTuple):
    """One history."""

    id: int
    epoch: str
    """Random text, made when it began."""


def current(connection: sqlite3.Connection) -> Epoch:
    """The epoch that new rows get."""
    return Epoch(*connection.execute("SELECT id, epoch FROM epochs ORDER BY id DESC LIMIT 1").fetchone())


def begin(connection: sqlite3.Connection, epoch: str, now: int, reason: str) -> Epoch:
    """Start a new epoch, in the caller's transaction: every queue notes the first sequence that belongs to it."""
    cursor = connection.execute("INSERT INTO epochs(epoch, started_at, reason) VALUES (?, ?, ?)", (epoch, now, reason))
    assert cursor.lastrowid is not None
    for (queue_id,) in connection.execute("SELECT id FROM queues").fetchall():
        first = end_of(connection, queue_id) + 1
        connection.execute("INSERT INTO queue_epochs VALUES (?, ?, ?)", (queue_id, cursor.lastrowid, first))
    return Epoch(cursor.lastrowid, epoch)


_END = """max(
    coalesce((SELECT max(id) FROM groups WHERE id BETWEEN {low} AND {high}) - ({low}), 0),
    coalesce((SELECT max(id) FROM segments WHERE id BETWEEN {low} AND {high}) - ({low}), 0),
    coalesce((SELECT max(last) FROM holes WHERE queue_id = {queue}), 0),
    coalesce({trimmed_to}, 0)
)"""
_END_OF_ONE = "SELECT " + _END.format(  # noqa: S608  # our own names
    low=":low", high=":high", queue=":queue", trimmed_to="(SELECT trimmed_to FROM queues WHERE id = :queue)"
)
_END_OF_EACH = f"SELECT id, {_END} FROM queues".format(  # noqa: S608  # our own names
    low=f"queues.id << {SEQUENCE_BITS}", high=f"queues.id << {SEQUENCE_BITS} | {SEQUENCE_MAX}", queue="queues.id",
    trimmed_to="trimmed_to",
)  # fmt: skip


def end_of(connection: sqlite3.Connection, queue_id: int) -> int:
    """The last sequence that the queue gave out, whatever became of the row; 0 if none."""
    low, high = queue_id << SEQUENCE_BITS, queue_id << SEQUENCE_BITS | SEQUENCE_MAX
    (end,) = connection.execute(_END_OF_ONE, {"low": low, "high": high, "queue": queue_id}).fetchone()
    return int(end)


def ends(connection: sqlite3.Connection) -> dict[int, int]:
    """Return :func:`end_of` of each queue, deleted ones too, in a tenth of the time."""
    return dict(connection.execute(_END_OF_EACH))
