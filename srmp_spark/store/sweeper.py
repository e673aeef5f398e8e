"""Deleting what is no longer read, in slices that nobody waits for.

SQLite walks every page of a body to free it: 20 MB of groups deleted at once would hold the loop for tens of milliseconds.
So the transaction that seals, purges or trims only says which sequences no longer count (table ``garbage``; readers go by the
segments, holes and ``trimmed_to`` of the same transaction), and :func:`sweep` deletes a slice per transaction. The free
pages take the next messages; a tight volume gets them back (store/giving_back.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from srmp_spark.sequences.ranges import Range, overlaps
from srmp_spark.store.schema import row_key
from srmp_spark.store.transaction import Transaction

SEGMENT_ENDINGS = (".columns.arrow", ".posts.arrow")
"""Of the two files of a segment."""
SWEEP_BYTES_MAX = 1024 * 1024
"""Of posts per slice: about 1 ms in the loop."""
SWEEP_LOG_BYTES = 128 * 1024
"""What a slice puts into the log of the database beside the pages of small rows: lists of free pages, inner pages."""
SWEEP_GROUPS_MAX = 256
"""Groups per slice, for queues of small messages."""


def discard(transaction: Transaction, queue_id: int, first: int, last: int) -> None:
    """The groups that lie wholly inside the closed range are no longer read."""
    if first <= last:
        transaction.connection.execute(
            "INSERT INTO garbage(queue_id, first, last) VALUES (?, ?, ?)", (queue_id, first, last)
        )


def drop(transaction: Transaction, queue_id: int, first: int, last: int, segments: Path) -> None:
    """The groups and the segments that lie wholly inside the closed range are no longer read."""
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
    """Many closed ranges, ascending and disjoint, as a purge makes them: few statements, however many they are."""
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
    """Delete one slice; True if there is more to do. A function for :meth:`Journal.transact`."""
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
    # Less for large bodies, whose pages are not written
    transaction.written += size + SWEEP_LOG_BYTES
    if not found or (end == found[-1][0] and len(found) < SWEEP_GROUPS_MAX):
        db.execute("DELETE FROM garbage WHERE id = ?", (number,))
    else:
        # The next slice begins behind this one: a group that reaches back before `first` stays where it is.
        db.execute(
            "UPDATE garbage SET first = ? WHERE id = ?", (end - row_key(queue_id, 0) + 1, number)
        )
    return db.execute("SELECT 1 FROM garbage LIMIT 1").fetchone() is not None


def unlink(segments: Path, files: list[str]) -> None:
    """Remove both files of segments that no row names any more."""
    for file in files:
        for ending in SEGMENT_ENDINGS:
            (segments / (file + ending)).unlink(missing_ok=True)
