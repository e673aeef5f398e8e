"""Store which rows consumers have received beyond their marks.

The *mark* of a consumer is the sequence up to which it has received every row. It is stored in the
table ``consumers``. A consumer that receives by priority, or out of turn, has also received rows
*beyond the mark*: a :class:`.SequenceSet`. The table ``marks`` has one row for each piece of this
set. A commit writes only the pieces that it has changed, 600 bytes each, and not the whole set
(docs/adr/0020). Sequences are only ever added, and that keeps everything here simple. A database
row that is older than the set states less than the set, but nothing false. So database rows that
the mark has passed, or that are now part of a longer run, are deleted a few at a time. The commits
that write this consumer in any case delete them, and the exact time does not matter.

The database rows belong to the consumer's row in ``consumers`` and are deleted with it. A trigger
does this, so that an earlier version that deletes a consumer deletes these rows, too. Otherwise a
new consumer of the same name would find the set of the deleted one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from srmp_spark.sequences.as_json import runs_from_json
from srmp_spark.sequences.ranges import SEQUENCE_BITS, SEQUENCE_MAX, Range
from srmp_spark.sequences.sequence_set import BLOCK_SEQUENCES, SequenceSet, SetPiece
from srmp_spark.store.database.set_aside import REASON_MAX, SetAside, readable, typed

DDL = (
    """CREATE TABLE IF NOT EXISTS marks(
    queue_id INTEGER NOT NULL, consumer TEXT NOT NULL, block INTEGER NOT NULL, \
blocks INTEGER NOT NULL, bits BLOB,
    PRIMARY KEY (queue_id, consumer, block)
) WITHOUT ROWID""",
    """CREATE TRIGGER IF NOT EXISTS marks_of_a_consumer AFTER DELETE ON consumers BEGIN
    DELETE FROM marks WHERE queue_id = OLD.queue_id AND consumer = OLD.name;
END""",
)
"""Table and trigger that are new in 0.2.

An older version does not know the table: it forgets what was received beyond the marks, and those
rows are delivered again. ``bits`` is null for full blocks (:class:`.SetPiece`).
"""

PASSED_DELETED_MAX = 500
"""Database rows that the mark has passed and that one commit deletes, in a millisecond.

The next commit of this consumer deletes more.
"""
RECEIVED_MAX = SEQUENCE_MAX >> 1
"""Highest sequence that is accepted as a mark: half of all sequences.

A higher value is damage, because an epoch that began after it would have no room.
"""
_BLOCKS_MAX = (1 << SEQUENCE_BITS) // BLOCK_SEQUENCES


class StoredMarks(NamedTuple):
    """Changes of the set of rows beyond one consumer's mark, for one commit to write.

    ``pieces`` are the pieces that were made or changed.
    """

    pieces: list[SetPiece]
    gone: list[int]
    """First blocks of database rows that are now part of another row, and are deleted."""

    @classmethod
    def taken_from(cls, ahead: SequenceSet) -> StoredMarks:
        """Take the changes from the set ``ahead``, which then counts these changes as stored."""
        return cls(*ahead.take_changes())

    def give_back(self, ahead: SequenceSet) -> None:
        """Give the changes back to the set ``ahead``, because they were not stored.

        The next :meth:`taken_from` then has them again.
        """
        ahead.note_changes([*(piece.block for piece in self.pieces), *self.gone])


def save(
    db: sqlite3.Connection, queue_id: int, consumer: str, received: int, marks: StoredMarks
) -> None:
    """Write ``marks``, the changes of the set beyond the mark ``received`` of a consumer.

    The function runs in the transaction that stores the mark. Up to :data:`PASSED_DELETED_MAX`
    database rows that the mark has passed are deleted, too.
    """
    db.executemany(
        "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?, ?)",
        [(queue_id, consumer, *piece) for piece in marks.pieces],
    )
    key = "queue_id = ? AND consumer = ? AND block"
    db.executemany(
        f"DELETE FROM marks WHERE {key} = ?",  # noqa: S608  # our own names
        [(queue_id, consumer, block) for block in marks.gone],
    )
    passed = received // BLOCK_SEQUENCES
    found = db.execute(
        f"SELECT block FROM marks WHERE {key} < ? ORDER BY block LIMIT ?",  # noqa: S608  # our own names
        (queue_id, consumer, passed, PASSED_DELETED_MAX),
    ).fetchall()
    if found:
        # A run of full blocks may begin below the mark and end beyond it. Then the set has the rest
        # of the run under another block.
        db.execute(f"DELETE FROM marks WHERE {key} <= ?", (queue_id, consumer, found[-1][0]))  # noqa: S608  # our own names


def load(
    db: sqlite3.Connection,
    queue_id: int,
    consumer: str,
    received: int,
    unreadable: list[SetAside] | None = None,
) -> SequenceSet:
    """Return the set of sequences that a consumer has received beyond its mark ``received``.

    A database row that cannot be read is left out, and reported in ``unreadable`` if that is given.
    The rows of the queue that it named are delivered again.
    """
    found = SequenceSet()
    rows = db.execute(
        "SELECT queue_id, consumer, block, blocks, bits FROM marks WHERE queue_id = ? AND "
        "consumer = ? ORDER BY block",
        (queue_id, consumer),
    )
    for piece in readable("marks", rows, _piece, [] if unreadable is None else unreadable, key=3):
        found.add_piece(piece)
    found.discard_through(received)
    found.take_changes()
    return found


def highest(db: sqlite3.Connection, queue_id: int) -> int:
    """Return the highest sequence that any consumer of the queue has received; 0 if none has.

    Sequences beyond a mark count, too. A mark that cannot be read does not count, nor does a
    sequence above :data:`RECEIVED_MAX`.
    """
    found = 0
    for name, received in db.execute(
        "SELECT name, received FROM consumers WHERE queue_id = ?", (queue_id,)
    ).fetchall():
        if type(name) is not str or type(received) is not int:
            continue
        ahead = load(db, queue_id, name, received)
        found = max(
            [
                found,
                *(each for each in (received, ahead.last if ahead else 0) if each <= RECEIVED_MAX),
            ]
        )
    return found


def _piece(row: Sequence[Any]) -> SetPiece:
    """Return a database row of the table ``marks`` as a piece of the set (:class:`.SetPiece`).

    Raises :class:`TypeError` or :class:`ValueError` for a row that no version has written.
    """
    _, _, block, blocks, bits = row
    typed((block, blocks, bits), (int, int, (bytes, type(None))))
    piece = SetPiece(block, blocks, bits)
    if block + blocks > _BLOCKS_MAX:
        raise ValueError(f"no queue has a block {block + blocks}")
    SequenceSet().add_piece(piece)
    return piece


def runs_of_text(text: object) -> list[Range]:
    """Return the runs (closed ranges) in ``text``, a value of the column ``ahead``.

    An earlier version stored the rows beyond the mark there, as JSON. Raises :class:`ValueError` or
    :class:`TypeError` if ``text`` is no list of runs.
    """
    if not isinstance(text, str):
        raise TypeError(f"marks are {text!r:.50}")
    try:
        runs = runs_from_json(json.loads(text))
    except RecursionError as error:
        raise ValueError(f"marks are nested too deeply: {text:.50}") from error
    SequenceSet(runs)
    return runs


def take_over(db: sqlite3.Connection) -> None:
    """Create the table ``marks``, and fill it from the column that an earlier version wrote.

    The column is ``ahead`` of the table ``consumers``. The function runs in the caller's
    transaction. A value that cannot be read stays unchanged, and is reported at the start
    (:func:`.state.load`).
    """
    for statement in DDL:
        db.execute(statement)
    found = db.execute(
        "SELECT queue_id, name, received, ahead FROM consumers WHERE ahead <> '[]'"
    ).fetchall()
    for queue_id, name, received, text in found:
        try:
            typed((name, received), (str, int))
            ahead = SequenceSet(runs_of_text(text))
            ahead.update(load(db, queue_id, name, received))
        except (ValueError, TypeError):
            continue
        ahead.discard_through(received)
        ahead.take_changes()
        save(db, queue_id, name, received, StoredMarks(list(ahead.pieces()), []))
        db.execute(
            "UPDATE consumers SET ahead = '[]' WHERE queue_id = ? AND name = ?", (queue_id, name)
        )


def set_aside_text(queue: str, name: str, text: object) -> SetAside | None:
    """Return a report if the value ``text`` of the column ``ahead`` cannot be read.

    Return ``None`` if the value can be read. ``queue`` and ``name`` (of the consumer) are for the
    report. Nothing is logged or changed.
    """
    try:
        runs_of_text(text)
    except (ValueError, TypeError) as error:
        return SetAside(
            "consumers", f"{queue} {name}", f"received ahead of its mark: {error}"[:REASON_MAX]
        )
    return None
