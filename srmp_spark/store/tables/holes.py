"""Store counted holes: sequences that were issued and no longer have a row, with the reason.

The table ``holes`` has one row for each hole. Readers, sealing, restore and the Delta state ask
where holes are, and a queue may be purged every minute for years without one row that stays. So
adjacent holes with one reason are stored as one row. For each reason, a queue has at most one hole
more than it has runs of rows. Adjacent holes with different reasons stay separate rows. These holes
count as one hole wherever the question is whether a sequence has a row
(:func:`srmp_spark.sequences.ranges.covered`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from srmp_spark.sequences.ranges import Range, covered, overlaps, subtract


class Hole(NamedTuple):
    """A closed range of sequences without rows, and the reason why the rows are gone."""

    first: int
    last: int
    reason: str
    """``purged``, ``damaged`` (given up by an operator) or ``lost`` (with a disk)."""


def joined(holes: Iterable[Hole]) -> Iterator[Hole]:
    """Yield the holes, with adjacent holes of the same reason joined to one.

    The holes must be ascending and disjoint.
    """
    before: Hole | None = None
    for hole in holes:
        if before is not None and hole.first == before.last + 1 and hole.reason == before.reason:
            before = before._replace(last=hole.last)
            continue
        if before is not None:
            yield before
        before = hole
    if before is not None:
        yield before


def make(
    db: sqlite3.Connection, queue_id: int, ranges: Sequence[Range], reason: str
) -> tuple[int, list[Range]]:
    """Make holes where ``ranges`` have none yet, in the caller's transaction.

    The closed ranges are ascending and disjoint. Return two values: how many sequences became
    holes, and the closed ranges without rows in which these sequences lie now. Such a range may be
    larger than the new hole: a group that was partly a hole before may now lie wholly in it.
    """
    if not ranges:
        return 0, []
    known = _near(db, queue_id, ranges[0][0], ranges[-1][1])
    made = list(subtract(ranges, [(hole.first, hole.last) for hole in known]))
    every = sorted([*known, *(Hole(first, last, reason) for first, last in made)])
    _replace(db, queue_id, known, list(joined(every)))
    spans = list(covered((hole.first, hole.last) for hole in every))
    grown = [span for span, new in zip(spans, overlaps(spans, made), strict=True) if new]
    return sum(last - first + 1 for first, last in made), grown


def join_all(db: sqlite3.Connection) -> int:
    """Join adjacent holes that versions before 0.2 stored as one row for each purge.

    Return how many database rows were removed.
    """
    side_by_side = (
        "SELECT DISTINCT one.queue_id FROM holes one JOIN holes other ON other.queue_id = "
        "one.queue_id "
        "AND other.first = one.last + 1 AND other.reason = one.reason"
    )
    gone = 0
    for (queue_id,) in db.execute(side_by_side).fetchall():
        rows = db.execute(
            "SELECT first, last, reason FROM holes WHERE queue_id = ? ORDER BY first", (queue_id,)
        ).fetchall()
        known = [Hole(*row) for row in rows]
        left = list(joined(known))
        _replace(db, queue_id, known, left)
        gone += len(known) - len(left)
    return gone


def _near(db: sqlite3.Connection, queue_id: int, first: int, last: int) -> list[Hole]:
    """Return the holes that overlap or touch the closed range ``first`` to ``last``."""
    before = "SELECT coalesce(max(first), 0) FROM holes WHERE queue_id = ? AND first < ?"
    # A hole that begins before the range may reach into it.
    (begin,) = db.execute(before, (queue_id, first)).fetchone()
    found = db.execute(
        "SELECT first, last, reason FROM holes WHERE queue_id = ? AND first BETWEEN ? AND "
        "? AND last >= ? ORDER BY first",
        (queue_id, begin, last + 1, first - 1),
    )
    return [Hole(*row) for row in found]


def _replace(
    db: sqlite3.Connection, queue_id: int, before: Sequence[Hole], after: Sequence[Hole]
) -> None:
    """Change the stored holes of a queue from ``before`` to ``after``.

    The function runs in the caller's transaction.
    """
    same = set(before) & set(after)
    gone = [(queue_id, hole.first) for hole in before if hole not in same]
    db.executemany("DELETE FROM holes WHERE queue_id = ? AND first = ?", gone)
    db.executemany(
        "INSERT INTO holes VALUES (?, ?, ?, ?)",
        [(queue_id, *hole) for hole in after if hole not in same],
    )
