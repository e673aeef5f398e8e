"""Counted holes: sequences that were given out and have no row any more, with the reason. Table ``holes``, a row for each hole.

Readers, sealing, restore and the Delta state ask where holes are, and a queue may be purged every minute for years without one
row that stays. So holes that lie directly side by side and have one reason are one row: a queue has at most one hole more than
it has runs of rows, for each reason. Holes of several reasons side by side stay several rows, and count as one wherever the
question is whether a sequence has a row (:func:`srmp_spark.sequences.ranges.covered`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from srmp_spark.sequences.ranges import Range, covered, overlaps, subtract


class Hole(NamedTuple):
    """A closed range of sequences without rows."""

    first: int
    last: int
    reason: str
    """``purged``, ``damaged`` (given up) or ``lost`` (with a disk)."""


def joined(holes: Iterable[Hole]) -> Iterator[Hole]:
    """Yield ascending, disjoint holes so that no two neighbours of one reason lie side by side."""
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
    """Make holes of ``ranges``, ascending and disjoint, where there are none, in the caller's transaction.

    Return how many sequences that were, and the ranges without rows in which these lie now: a group of rows of which a part was
    a hole before may lie wholly in such a range.
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
    """Join what versions before 0.2 left side by side, a row for each purge; return how many rows are gone."""
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
    """Return the holes that overlap or touch the closed range."""
    before = "SELECT coalesce(max(first), 0) FROM holes WHERE queue_id = ? AND first < ?"
    (begin,) = db.execute(
        before, (queue_id, first)
    ).fetchone()  # one that begins before the range may reach into it
    found = db.execute(
        "SELECT first, last, reason FROM holes WHERE queue_id = ? AND first BETWEEN ? AND "
        "? AND last >= ? ORDER BY first",
        (queue_id, begin, last + 1, first - 1),
    )
    return [Hole(*row) for row in found]


def _replace(
    db: sqlite3.Connection, queue_id: int, before: Sequence[Hole], after: Sequence[Hole]
) -> None:
    """Write what differs."""
    same = set(before) & set(after)
    gone = [(queue_id, hole.first) for hole in before if hole not in same]
    db.executemany("DELETE FROM holes WHERE queue_id = ? AND first = ?", gone)
    db.executemany(
        "INSERT INTO holes VALUES (?, ?, ?, ?)",
        [(queue_id, *hole) for hole in after if hole not in same],
    )
