"""Epochs: the histories to which sequences belong (INTERFACE.md section 1).

A row keeps the epoch in which it was accepted. A new epoch continues counting where the earlier one
stopped. So the rows of one epoch in one queue are a range: from its entry in ``queue_epochs`` to
the sequence before the next entry.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from srmp_spark.sequences.ranges import SEQUENCE_BITS, SEQUENCE_MAX
from srmp_spark.store.tables import holes, marks


class Epoch(NamedTuple):
    """One epoch of the data directory, as stored."""

    id: int
    epoch: str
    """Random text, created when the epoch began."""


def current(connection: sqlite3.Connection) -> Epoch:
    """Return the present epoch, which new rows get."""
    return Epoch(
        *connection.execute("SELECT id, epoch FROM epochs ORDER BY id DESC LIMIT 1").fetchone()
    )


def begin(connection: sqlite3.Connection, epoch: str, now: int, reason: str) -> Epoch:
    """Start the new epoch ``epoch`` with its first sequence in each queue, and return it.

    The function runs in the caller's transaction. ``now`` is in microseconds since 1970, UTC. The
    first sequence lies after every row and after every consumer's mark. A row below a mark would
    count as received by that consumer, and would never be read. The range between the last row and
    the mark becomes a hole with the reason ``lost``. Deleted queues are included.
    """
    cursor = connection.execute(
        "INSERT INTO epochs(epoch, started_at, reason) VALUES (?, ?, ?)", (epoch, now, reason)
    )
    assert cursor.lastrowid is not None
    for (queue_id,) in connection.execute("SELECT id FROM queues").fetchall():
        end = end_of(connection, queue_id)
        marked = marks.highest(connection, queue_id)
        if marked > end:
            holes.make(connection, queue_id, [(end + 1, marked)], "lost")
        first = max(end, marked) + 1
        connection.execute(
            "INSERT INTO queue_epochs VALUES (?, ?, ?)", (queue_id, cursor.lastrowid, first)
        )
    return Epoch(cursor.lastrowid, epoch)


def marked_beyond(connection: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Return the queues in which a consumer has received more than the queue has issued.

    The result maps the name of the queue to a pair: the highest received sequence, and the last
    issued one. A queue manager does not mark sequences that it has not issued. The state can come
    from a version before 0.2 that began an epoch after a restore.
    """
    found = {}
    rows = connection.execute(
        "SELECT queues.id, queues.name, max(received), EXISTS (SELECT 1 FROM marks WHERE "
        "marks.queue_id = queues.id) "
        "FROM consumers JOIN queues ON queues.id = consumers.queue_id "
        "WHERE deleted_at IS NULL AND typeof(received) = 'integer' AND received <= ? "
        "GROUP BY queues.id",
        (marks.RECEIVED_MAX,),
    ).fetchall()
    for queue_id, name, received, has_ahead in rows:
        # Rows that were received out of turn count, too.
        mark = marks.highest(connection, queue_id) if has_ahead else received
        if mark > (end := end_of(connection, queue_id)):
            found[name] = mark, end
    return found


_END = """max(
    coalesce((SELECT max(id) FROM groups WHERE id BETWEEN {low} AND {high}) - ({low}), 0),
    coalesce((SELECT max(id) FROM segments WHERE id BETWEEN {low} AND {high}) - ({low}), 0),
    coalesce((SELECT max(last) FROM holes WHERE queue_id = {queue}), 0),
    coalesce({trimmed_to}, 0)
)"""
_END_OF_ONE = "SELECT " + _END.format(  # noqa: S608  # our own names
    low=":low",
    high=":high",
    queue=":queue",
    trimmed_to="(SELECT trimmed_to FROM queues WHERE id = :queue)",
)
_END_OF_EACH = f"SELECT id, {_END} FROM queues".format(  # noqa: S608  # our own names
    low=f"queues.id << {SEQUENCE_BITS}",
    high=f"queues.id << {SEQUENCE_BITS} | {SEQUENCE_MAX}",
    queue="queues.id",
    trimmed_to="trimmed_to",
)


def end_of(connection: sqlite3.Connection, queue_id: int) -> int:
    """Return the last sequence that the queue issued, even if its row is gone; 0 if none.

    ``queue_id`` is the id in the table ``queues``. Rows that are not committed do not count.
    """
    low, high = queue_id << SEQUENCE_BITS, queue_id << SEQUENCE_BITS | SEQUENCE_MAX
    (end,) = connection.execute(
        _END_OF_ONE, {"low": low, "high": high, "queue": queue_id}
    ).fetchone()
    return int(end)


def ends(connection: sqlite3.Connection) -> dict[int, int]:
    """Return the last issued sequence of each queue, by queue id, also of deleted queues.

    The function takes a tenth of the time of :func:`end_of` for each queue.
    """
    return dict(connection.execute(_END_OF_EACH))
