"""Functions for :meth:`Journal.transact` that make, change, empty and remove queues.

A removed queue leaves its entry behind: made again under its name it goes on counting, because a sequence that readers know
must never come back with another message.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.errors import StoreError
from srmp_spark.interface import DEFAULT_CONSUMER
from srmp_spark.sequences.ranges import Range
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store import holes, marks, moves, state, sweeper
from srmp_spark.store.epochs import end_of
from srmp_spark.store.schema import QUEUE_ID_MAX
from srmp_spark.store.transaction import Transaction

SUBQUEUE_NAMES_MAX = 10_000
"""Names of subqueues that nobody declared, those that are gone among them: a name that had messages is remembered for ever,
because its sequences must not be given out again. Programs that make up a name for each message are refused beyond it."""
SUBQUEUE_NAMES_OF_A_QUEUE_MAX = 1_000
"""Of one queue: a reader that may use one queue cannot use up the names of all others."""
_UNDECLARED = "undeclared"
_UNDECLARED_OPTIONS = json.dumps({_UNDECLARED: True})
"""Options of a subqueue that nobody declared, as they are stored."""


def create(
    transaction: Transaction,
    name: str,
    *,
    transactional: bool,
    options: Mapping[str, Any] | None = None,
) -> state.StoredQueue:
    """Make a queue, or change the options of one that exists; ``transactional`` is fixed for as long as it holds rows.

    Raises :class:`StoreError` if the queue exists as the other kind.
    """
    db = transaction.connection
    text = json.dumps(dict(options or {}), sort_keys=True)
    row = db.execute(
        "SELECT id, transactional, deleted_at FROM queues WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        cursor = db.execute(
            "INSERT INTO queues(name, transactional, options) VALUES (?, ?, ?)",
            (name, transactional, text),
        )
        queue_id = cursor.lastrowid
        assert queue_id is not None
        assert queue_id <= QUEUE_ID_MAX, "more queues than a rowid can tell apart"
        db.execute("INSERT INTO queue_epochs VALUES (?, ?, 1)", (queue_id, transaction.epoch_id))
    else:
        queue_id, kind, deleted_at = row
        if deleted_at is None and bool(kind) != transactional:
            was = "transactional" if kind else "not transactional"
            raise StoreError(
                f"queue {name} exists and is {was}: delete it first, or give it as it is"
            )
        db.execute(
            "UPDATE queues SET transactional = ?, options = ?, paused = paused AND "
            "deleted_at IS NULL, deleted_at = NULL "
            "WHERE id = ?",
            (transactional, text, queue_id),
        )
    transaction.queues_opened[name] = (queue_id, end_of(db, queue_id))
    transaction.queues_closed.discard(name)
    return state.load_queue(db, queue_id)


def is_declared(options: Mapping[str, Any]) -> bool:
    """Return whether a queue was declared; the options of a subqueue that remote readers made say so."""
    return options.get(_UNDECLARED) is not True


def create_subqueue(
    transaction: Transaction, name: str, *, transactional: bool
) -> state.StoredQueue:
    """Make a subqueue that nobody declared.

    One that is gone and never had a message leaves nothing that must be remembered: the next new name takes its entry. So
    whoever opens names without end makes as many entries as there are subqueues at once. Raises :class:`StoreError` beyond
    SUBQUEUE_NAMES_MAX or SUBQUEUE_NAMES_OF_A_QUEUE_MAX.
    """
    db = transaction.connection
    if db.execute("SELECT 1 FROM queues WHERE name = ?", (name,)).fetchone() is None:
        unused = db.execute(
            "SELECT id FROM queues WHERE deleted_at IS NOT NULL AND trimmed_to = 0 AND "
            "options = ? LIMIT 1",
            (_UNDECLARED_OPTIONS,),
        ).fetchone()
        if unused is not None:
            db.execute("UPDATE queues SET name = ? WHERE id = ?", (name, unused[0]))
        else:
            _check_names_max(db, name)
    return create(transaction, name, transactional=transactional, options={_UNDECLARED: True})


def _check_names_max(db: sqlite3.Connection, name: str) -> None:
    first = name.partition(";")[0] + ";"
    count = "SELECT count(*) FROM queues WHERE options = ?"
    (known,) = db.execute(count, (_UNDECLARED_OPTIONS,)).fetchone()
    (of_queue,) = db.execute(
        f"{count} AND substr(name, 1, ?) = ?", (_UNDECLARED_OPTIONS, len(first), first)
    ).fetchone()
    for found, limit, what in (
        (of_queue, SUBQUEUE_NAMES_OF_A_QUEUE_MAX, "SUBQUEUE_NAMES_OF_A_QUEUE_MAX"),
        (known, SUBQUEUE_NAMES_MAX, "SUBQUEUE_NAMES_MAX"),
    ):
        if found >= limit:
            raise StoreError(
                f"{what} is {limit}: use names of subqueues again that were used before, "
                f"or declare this one: --queue '{name}'"
            )


def declare(transaction: Transaction, name: str) -> None:
    """Keep a subqueue that remote readers made, as a queue like any other."""
    db, queue_id = transaction.connection, queue_id_of(transaction, name)
    options = json.loads(
        db.execute("SELECT options FROM queues WHERE id = ?", (queue_id,)).fetchone()[0]
    )
    options.pop(_UNDECLARED, None)
    db.execute(
        "UPDATE queues SET options = ? WHERE id = ?",
        (json.dumps(options, sort_keys=True), queue_id),
    )


def set_journal(transaction: Transaction, name: str, after: int | None) -> None:
    """From which mark on the queue keeps a journal; ``None``: it keeps none, and who read it is forgotten."""
    db, queue_id = transaction.connection, queue_id_of(transaction, name)
    options = json.loads(
        db.execute("SELECT options FROM queues WHERE id = ?", (queue_id,)).fetchone()[0]
    )
    if after is None:
        options.pop("journal_after", None)
        db.execute(
            "DELETE FROM consumers WHERE queue_id = ? AND substr(name, 1, ?) = ?",
            (queue_id, len(state.JOURNAL_CONSUMERS), state.JOURNAL_CONSUMERS),
        )
    else:
        options["journal_after"] = after
    db.execute(
        "UPDATE queues SET options = ? WHERE id = ?",
        (json.dumps(options, sort_keys=True), queue_id),
    )


def set_paused(transaction: Transaction, name: str, *, paused: bool) -> None:
    """Whether the queue takes messages (``pause``, ``resume``)."""
    transaction.connection.execute(
        "UPDATE queues SET paused = ? WHERE id = ?", (paused, queue_id_of(transaction, name))
    )


def delete(transaction: Transaction, name: str, segments: Path, now: int) -> None:
    """Remove a queue with its rows and consumers. Its messages' identifiers stay known.

    Which streams end with it the engine knows (:meth:`.Receiver.remove_queue`): what it drops is in the same transaction.
    """
    db, queue_id = transaction.connection, queue_id_of(transaction, name)
    end = end_of(db, queue_id)
    sweeper.drop(transaction, queue_id, 1, end, segments)
    for table in ("holes", "consumers"):
        db.execute(f"DELETE FROM {table} WHERE queue_id = ?", (queue_id,))  # noqa: S608  # our own names
    moves.forget(transaction, queue_id, end)
    db.execute(
        "UPDATE queues SET trimmed_to = ?, deleted_at = ? WHERE id = ?", (end, now, queue_id)
    )
    transaction.queues_opened.pop(name, None)
    transaction.queues_closed.add(name)


class TakenAway(NamedTuple):
    """What one transaction of a purge took away."""

    rows: int
    """Those that were no holes before."""
    holes: list[Range]
    to: int
    """What waited up to here is away."""


def take_away(
    transaction: Transaction,
    name: str,
    first: int,
    last: int,
    kept: SequenceSet,
    segments: Path,
    holes_max: int | None = None,
) -> TakenAway:
    """Make holes of the rows ``first`` to ``last`` but for those that are ``kept``: they were received out of turn, or a reader
    has them. The holes stay counted, for every consumer; their marks are the caller's.

    With ``holes_max`` at most so many separate holes: the caller goes on behind :attr:`TakenAway.to` in another transaction.
    """
    queue_id = queue_id_of(transaction, name)
    ranges = list(islice(kept.gaps(first, last), holes_max))
    to = ranges[-1][1] if ranges and len(ranges) == holes_max else last
    return TakenAway(_make_holes(transaction, queue_id, ranges, "purged", segments), ranges, to)


def purge(transaction: Transaction, name: str, segments: Path) -> int:
    """Take away every row that the default consumer has not received, and mark all as received; returns how many those were.

    It goes by the marks as they are stored, and takes as long as it takes: for who has the store for himself.
    """
    db, queue_id = transaction.connection, queue_id_of(transaction, name)
    end, received = end_of(db, queue_id), state.received_by_default(db, queue_id)
    ahead = marks.load(db, queue_id, DEFAULT_CONSUMER, received)
    (trimmed_to,) = db.execute("SELECT trimmed_to FROM queues WHERE id = ?", (queue_id,)).fetchone()
    taken = take_away(transaction, name, max(received, trimmed_to) + 1, end, ahead, segments)
    received = max(received, end)
    db.execute(
        "INSERT INTO consumers(queue_id, name, received) VALUES (?, ?, ?) "
        "ON CONFLICT (queue_id, name) DO UPDATE SET received = excluded.received, ahead = '[]'",
        (queue_id, DEFAULT_CONSUMER, received),
    )
    marks.save(db, queue_id, DEFAULT_CONSUMER, received, marks.StoredMarks([], []))
    return taken.rows


def give_up(transaction: Transaction, name: str, first: int, last: int, segments: Path) -> int:
    """Make a counted hole of rows that are damaged; returns how many. What else their group or segment holds stays.

    Raises :class:`StoreError` if the queue does not hold these sequences.
    """
    db, queue_id = transaction.connection, queue_id_of(transaction, name)
    (trimmed_to,) = db.execute("SELECT trimmed_to FROM queues WHERE id = ?", (queue_id,)).fetchone()
    end = end_of(db, queue_id)
    if not trimmed_to < first <= last <= end:
        raise StoreError(f"{name} holds {trimmed_to + 1} to {end}, not {first} to {last}")
    return _make_holes(transaction, queue_id, [(first, last)], "damaged", segments)


def queue_id_of(transaction: Transaction, name: str) -> int:
    """The id of a queue that exists. Raises :class:`StoreError`."""
    row = transaction.connection.execute(
        "SELECT id FROM queues WHERE name = ? AND deleted_at IS NULL", (name,)
    ).fetchone()
    if row is None:
        raise StoreError(f"there is no queue {name}")
    return int(row[0])


def _make_holes(
    transaction: Transaction, queue_id: int, ranges: Sequence[Range], reason: str, segments: Path
) -> int:
    """Make holes of these ranges, ascending and disjoint, where there are none; returns the number of rows."""
    made, empty = holes.make(transaction.connection, queue_id, ranges, reason)
    sweeper.drop_each(transaction, queue_id, empty, segments)
    return made
