"""Retention: decide what may be deleted, and delete it.

The rules of INTERFACE.md section 1 apply in this order:

* A row that the default consumer has not received is never deleted. The same holds for the
  consumer of the queue's journal, once a message was received from the journal. Of the order
  queue, which no application reads, a receipt that the sender process has not read is never
  deleted.
* A row older than the retention time is deleted.
* A queue that holds more bytes than its cap loses its oldest rows before their time. Only rows
  that are synced elsewhere are lost this way (the Delta state has proved them durable). Beyond
  another cap the order queue loses rows that were read in any case.

Whole segments and groups are deleted, oldest first, so a row may stay as long as its neighbours.
The result shows as ``first``; a reader that asks for earlier rows gets :class:`TrimmedError`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

from srmp_spark.names import FORWARD_QUEUE, ORDER_QUEUE
from srmp_spark.sequences.ranges import SEQUENCE_MAX
from srmp_spark.store.database import sweeper
from srmp_spark.store.database.schema import row_key
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.tables import moves, state
from srmp_spark.store.tables.queues import queue_id_of

RECEIVED_BY_NOBODY = frozenset({ORDER_QUEUE})
"""Queues from which no application receives.

:attr:`RetentionLimits.read_to` takes the place of a consumer's mark for them.
"""
ORDER_QUEUE_BYTES_MAX = 256 * 1_048_576
"""Bytes of read posts that the order queue may keep.

Beyond this limit the oldest posts are deleted once they are synced elsewhere. The limit is needed
because no quota counts these posts, and unauthenticated clients may send receipts without end.
"""
ORDER_QUEUE_UNPUBLISHED_MAX = 1024 * 1_048_576
"""Bytes of read posts that the order queue may keep if no Delta state has them yet.

Beyond this limit the oldest posts are deleted. While the store of the Delta state is unavailable,
unauthenticated clients must not fill the disk. The outbox has what the receipts stated about
outgoing streams. Only their rows of ``inbox`` are missing, which is counted and reported.
"""
FORWARD_HOLES_MAX = 1_000
"""Holes below the retained rows that ``private$/forward$`` keeps.

A hole is one database row for each purge between two messages. Older holes are deleted. An outbox
that is restored from an earlier time reports their rows as lost.
"""
GROUPS_PER_LOOK_MAX = 10_000
"""Groups that one call of :func:`plan` checks; the rest waits for the next call."""


def newest_arrival(connection: sqlite3.Connection) -> int | None:
    """Return the arrival time of the newest stored row, in microseconds since 1970, UTC.

    Return ``None`` if no row is stored.
    """
    found: list[int] = []
    for (queue_id,) in connection.execute("SELECT id FROM queues").fetchall():
        span = (row_key(queue_id, 1), row_key(queue_id, SEQUENCE_MAX))
        for what in ("SELECT arrived_last FROM segments", "SELECT arrived_last FROM groups"):
            found += [
                at
                for (at,) in connection.execute(
                    f"{what} WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1", span
                )
            ]
    return max(found, default=None)


class RetentionLimits(NamedTuple):
    """Limits that :func:`plan` applies to one queue: age, bytes, and what must be read before."""

    before: int
    """Rows that arrived before this time (microseconds since 1970, UTC) are past their retention
    time.
    """
    bytes_max: int | None = None
    """Bytes of posts that one queue may keep; ``None``: no cap.

    The cap deletes only rows up to ``synced_to``.
    """
    synced_to: int = 0
    """Sequence up to which rows are durable elsewhere (in the Delta state), or need not be."""
    read_to: int = 0
    """Sequence up to which the sender process has read the order queue for good.

    It counts for queues of :data:`RECEIVED_BY_NOBODY` only.
    """
    unsynced_max: int | None = None
    """Bytes of posts that one queue may keep, synced elsewhere or not; ``None``: no cap."""
    to_max: int | None = None
    """Last sequence that may be deleted; ``None``: no such limit."""
    forced: bool = False
    """Whether rows may be deleted that ``default`` has not received, as an operator decided."""


def plan(log: Log, queue: str, limits: RetentionLimits) -> int | None:
    """Return the sequence up to which :func:`trim` may delete rows now, or ``None``.

    ``None`` means that nothing may be deleted, or that the queue does not exist. The sequence is
    the end of a segment or group. At most GROUPS_PER_LOOK_MAX groups are checked. The function
    deletes nothing, and runs in the reader process.
    """
    with log.snapshot() as db:
        row = db.execute(
            "SELECT id, trimmed_to FROM queues WHERE name = ? AND deleted_at IS NULL", (queue,)
        ).fetchone()
        if row is None:
            return None
        queue_id, trimmed_to = row
        received = limits.read_to if queue in RECEIVED_BY_NOBODY else state.kept_after(db, queue_id)
        if limits.forced:
            received = SEQUENCE_MAX
        span = (row_key(queue_id, trimmed_to + 1), row_key(queue_id, SEQUENCE_MAX))
        what, where = (
            "SELECT last, bytes, arrived_last FROM",
            "WHERE id BETWEEN ? AND ? ORDER BY id",
        )
        units = db.execute(f"{what} segments {where}", span).fetchall()
        sealed = units[-1][0] if units else trimmed_to
        span = (row_key(queue_id, sealed + 1), span[1])
        units += db.execute(
            f"{what} groups {where} LIMIT ?", (*span, GROUPS_PER_LOOK_MAX)
        ).fetchall()
        held = sum(size for _, size, _ in units)
        to = trimmed_to
        for last, size, arrived_last in units:
            over = (
                limits.bytes_max is not None
                and held > limits.bytes_max
                and last <= limits.synced_to
            )
            over = over or (limits.unsynced_max is not None and held > limits.unsynced_max)
            if last > received or not (arrived_last < limits.before or over):
                break
            if limits.to_max is not None and last > limits.to_max:
                break
            to, held = last, held - size
        return to if to > trimmed_to else None


def trim(
    transaction: Transaction, queue: str, to: int, segments: Path, *, forced: bool = False
) -> int:
    """Delete the rows up to ``to``, the end of a segment or group.

    Return the sequence of the oldest row that is left. Nothing is deleted if the default consumer
    of the queue, or of its journal, has not received all rows up to ``to`` (except in queues of
    RECEIVED_BY_NOBODY, and with ``forced``). The groups are only marked (:mod:`.sweeper`), and the
    files of segments are deleted after the commit. Holes are deleted with the rows. The queue of
    forwarded messages keeps its newest holes: the sender process may still have to learn that an
    operator gave those rows up, and that these rows are not lost. The function is for
    :meth:`Journal.transact`. Raises :class:`StoreError` if the queue does not exist.
    """
    db, queue_id = transaction.connection, queue_id_of(transaction, queue)
    trimmed_to: int = db.execute(
        "SELECT trimmed_to FROM queues WHERE id = ?", (queue_id,)
    ).fetchone()[0]
    if not forced and queue not in RECEIVED_BY_NOBODY and to > state.kept_after(db, queue_id):
        # The plan belongs to a queue that was deleted and created again meanwhile, because marks
        # never go back.
        return trimmed_to + 1
    if to > trimmed_to:
        sweeper.drop(transaction, queue_id, trimmed_to + 1, to, segments)
        db.execute("UPDATE queues SET trimmed_to = ? WHERE id = ?", (to, queue_id))
        moves.forget(transaction, queue_id, to)
        kept = FORWARD_HOLES_MAX if queue == FORWARD_QUEUE else 0
        db.execute(
            "DELETE FROM holes WHERE queue_id = ? AND last <= ? AND first <= "
            "coalesce((SELECT first FROM holes "
            "WHERE queue_id = ? AND last <= ? ORDER BY first DESC LIMIT 1 OFFSET ?), 0)",
            (queue_id, to, queue_id, to, kept),
        )
    return max(to, trimmed_to) + 1
