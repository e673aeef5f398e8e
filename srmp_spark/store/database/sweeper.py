"""Delete groups and segments that are no longer read, in slices too short to delay anything.

SQLite reads every page of a body to free it: deleting 20 MB of groups at once would hold the loop
for tens of milliseconds. So the transaction that seals, purges or trims only notes which sequences
no longer count (table ``garbage``). Readers use the segments, holes and ``trimmed_to`` of the same
transaction. :func:`sweep` then deletes one slice per transaction. The free pages take the next
messages; a tight volume gets them back (store/database/giving_back.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from srmp_spark.sequences.ranges import Range, overlaps
from srmp_spark.store.database.schema import row_key
from srmp_spark.store.database.transaction import Transaction

SEGMENT_ENDINGS = (".columns.arrow", ".posts.arrow")
"""Name endings of the two files of a segment."""
SWEEP_BYTES_MAX = 1024 * 1024
"""Bytes of posts per slice, which take about 1 ms in the loop. The rest waits for the next slice.
"""
SWEEP_LOG_BYTES = 128 * 1024
"""Bytes that a slice writes into the WAL besides the pages of small rows.

They are lists of free pages and inner pages of the tree.
"""
SWEEP_GROUPS_MAX = 256
"""Groups per slice, for queues of small messages. The rest waits for the next slice."""


def discard(transaction: Transaction, queue_id: int, first: int, last: int) -> None:
    """Mark the groups wholly in ``first`` to ``last`` (both included) as no longer read.

    :func:`sweep` deletes these groups later. An empty range marks nothing. The change is made in
    ``transaction``.
    """
    if first <= last:
        transaction.connection.execute(
            "INSERT INTO garbage(queue_id, first, last) VALUES (?, ?, ?)", (queue_id, first, last)
        )


def drop(transaction: Transaction, queue_id: int, first: int, last: int, segments: Path) -> None:
    """Delete the segments, and mark the groups, that lie wholly in ``first`` to ``last``.

    Both sequences are included. The database rows of the segments are deleted in ``transaction``,
    and their files in the folder ``segments`` after the commit. A marked group is no longer read,
    and :func:`sweep` deletes it later.
    """
    discard(transaction, queue_id, first, last)
    db, span = transaction.connection, (row_key(queue_id, first), row_key(queue_id, last), first)
    files = db.execute(
        "SELECT file FROM segments WHERE id BETWEEN ? AND ? AND first >= ?", span
    ).fetchall()
    db.execute(
        "DELETE FROM wide_parts WHERE id IN (SELECT id FROM segments WHERE id BETWEEN ? "
        "AND ? AND first >= ?)",
        span,
    )
    db.execute("DELETE FROM segments WHERE id BETWEEN ? AND ? AND first >= ?", span)
    if files:
        transaction.after_commit.append(lambda: unlink(segments, [file for (file,) in files]))


def drop_each(
    transaction: Transaction, queue_id: int, ranges: Sequence[Range], segments: Path
) -> None:
    """Delete the segments, and mark the groups, that lie wholly in one of ``ranges``.

    The closed ranges are ascending and disjoint, as a purge makes them. The database rows of the
    segments are deleted in ``transaction``, and their files in the folder ``segments`` after the
    commit. A marked group is no longer read, and :func:`sweep` deletes it later. The number of
    statements is small, however many ranges there are.
    """
    if not ranges:
        return
    db = transaction.connection
    db.executemany(
        "INSERT INTO garbage(queue_id, first, last) VALUES (?, ?, ?)",
        [(queue_id, first, last) for first, last in ranges],
    )
    span = (row_key(queue_id, ranges[0][0]), row_key(queue_id, ranges[-1][1]))
    held = db.execute(
        "SELECT id, first, last, file FROM segments WHERE id BETWEEN ? AND ? ORDER BY id", span
    ).fetchall()
    inside = overlaps([(first, last) for _, first, last, _ in held], ranges)
    whole = [
        (key, file)
        for (key, first, last, file), rows in zip(held, inside, strict=True)
        if rows == last - first + 1
    ]
    if whole:
        for table in ("segments", "wide_parts"):
            db.executemany(f"DELETE FROM {table} WHERE id = ?", [(key,) for key, _ in whole])  # noqa: S608  # our own names
        transaction.after_commit.append(lambda: unlink(segments, [file for _, file in whole]))


def sweep(transaction: Transaction) -> bool:
    """Delete one slice of the marked groups; return whether there is more to delete.

    A slice ends at :data:`SWEEP_BYTES_MAX` bytes of posts or :data:`SWEEP_GROUPS_MAX` groups.

    This is a function for :meth:`Journal.transact`.
    """
    db = transaction.connection
    row = db.execute("SELECT id, queue_id, first, last FROM garbage ORDER BY id LIMIT 1").fetchone()
    if row is None:
        return False
    number, queue_id, first, last = row
    end, size = row_key(queue_id, first) - 1, 0
    found = db.execute(
        "SELECT id, bytes FROM groups WHERE id BETWEEN ? AND ? AND first >= ? ORDER BY id LIMIT ?",
        (row_key(queue_id, first), row_key(queue_id, last), first, SWEEP_GROUPS_MAX),
    ).fetchall()
    for key, length in found:
        end, size = key, size + length
        if size >= SWEEP_BYTES_MAX:
            break
    db.execute(
        "DELETE FROM groups WHERE id BETWEEN ? AND ? AND first >= ?",
        (row_key(queue_id, first), end, first),
    )
    # The real number is smaller for large bodies, whose pages are not written.
    transaction.written += size + SWEEP_LOG_BYTES
    if not found or (end == found[-1][0] and len(found) < SWEEP_GROUPS_MAX):
        db.execute("DELETE FROM garbage WHERE id = ?", (number,))
    else:
        # The next slice begins after this one. A group that begins before `first` stays where it
        # is.
        db.execute(
            "UPDATE garbage SET first = ? WHERE id = ?", (end - row_key(queue_id, 0) + 1, number)
        )
    return db.execute("SELECT 1 FROM garbage LIMIT 1").fetchone() is not None


def unlink(segments: Path, files: list[str]) -> None:
    """Delete both files of each segment that ``files`` names, below the folder ``segments``.

    Call this function when no database row names these files any longer. A missing file is no
    error. Raises :class:`OSError` if a file cannot be deleted.
    """
    for file in files:
        for ending in SEGMENT_ENDINGS:
            (segments / (file + ending)).unlink(missing_ok=True)
