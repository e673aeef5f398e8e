"""Functions for :meth:`Journal.transact` that create, change, empty and delete queues.

The entry of a deleted queue stays. A queue that is created again under its name continues counting,
because a sequence that readers know must never return with another message.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.errors import StoreError
from srmp_spark.sequences.ranges import Range
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.database import sweeper
from srmp_spark.store.database.schema import QUEUE_ID_MAX
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.tables import holes, moves, state
from srmp_spark.store.tables.epochs import end_of

SUBQUEUE_NAMES_MAX = 10_000
"""Largest number of names of undeclared subqueues, including deleted ones.

A name that had messages is remembered for good, because its sequences must not be issued again.
Beyond the limit new names are refused, for programs that invent a name for each message.
"""
SUBQUEUE_NAMES_OF_A_QUEUE_MAX = 1_000
"""Largest number of names of undeclared subqueues of one queue.

Beyond the limit new names are refused, so that a reader with access to one queue cannot use up the
names of all others.
"""
_UNDECLARED = "undeclared"
_UNDECLARED_OPTIONS = json.dumps({_UNDECLARED: True})
"""Options of an undeclared subqueue, as they are stored."""
_JOURNAL_AFTER = "journal_after"
_PAUSED_OUT = "paused_out"
_MADE_FOR = "made_for"


class MadeFor(NamedTuple):
    """The subscription for which a queue was created, and the last sequence at that time."""

    subscription: str
    end: int

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> MadeFor | None:
        """Return the mark in the stored ``options``, or ``None`` for a queue without it."""
        found = options.get(_MADE_FOR)
        if not isinstance(found, list) or [type(each) for each in found] != [str, int]:
            return None
        return cls(*found)


def is_paused_out(options: Mapping[str, Any]) -> bool:
    """Return whether the readers of the queue with these ``options`` wait."""
    return options.get(_PAUSED_OUT) is True


def create(
    transaction: Transaction,
    name: str,
    *,
    transactional: bool,
    journal: bool = False,
    made_for: str | None = None,
    undeclared: bool = False,
) -> state.StoredQueue:
    """Create the queue ``name``, or replace the options of an existing queue.

    ``transactional`` is fixed while the queue exists. ``journal`` lets the queue keep a journal
    from its first row on. ``made_for`` names the subscription that needs the queue. ``undeclared``
    marks a subqueue that a remote reader created. A deleted queue of that name is opened again, and
    is not paused. Return the queue as stored. Raises :class:`StoreError` if the queue exists and is
    transactional where a queue without transactions is wanted, or the reverse.
    """
    db = transaction.connection
    options: dict[str, Any] = {_JOURNAL_AFTER: 0} if journal else {}
    if undeclared:
        options[_UNDECLARED] = True
    text = json.dumps(options, sort_keys=True)
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
                f"queue {name} exists and is {was}: delete it first, or declare it as {was}"
            )
        db.execute(
            "UPDATE queues SET transactional = ?, options = ?, paused = paused AND "
            "deleted_at IS NULL, deleted_at = NULL "
            "WHERE id = ?",
            (transactional, text, queue_id),
        )
    end = end_of(db, queue_id)
    if made_for is not None:
        _change_options(
            transaction, name, lambda each: each.update({_MADE_FOR: MadeFor(made_for, end)})
        )
    transaction.queues_opened[name] = (queue_id, end)
    transaction.queues_closed.discard(name)
    return state.load_queue(db, queue_id)


def is_declared(options: Mapping[str, Any]) -> bool:
    """Return whether the queue with these ``options`` was declared.

    A subqueue that a remote reader created is not declared.
    """
    return options.get(_UNDECLARED) is not True


def create_subqueue(
    transaction: Transaction, name: str, *, transactional: bool
) -> state.StoredQueue:
    """Create, or open again, a subqueue that was not declared, and return it as stored.

    Such a subqueue is made when a remote reader opens it; all other queues are declared by an
    operator or a program. A deleted subqueue that never had a message leaves nothing that must be
    remembered: the next new name takes its entry. So a client that opens names without end makes
    only as many entries as subqueues exist at once. Raises :class:`StoreError` beyond
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
    return create(transaction, name, transactional=transactional, undeclared=True)


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
                f"{what} is {limit}: reuse names of subqueues that exist already, or declare "
                f"this one: --queue '{name}'"
            )


def declare(transaction: Transaction, name: str) -> None:
    """Store that the subqueue ``name``, which a remote reader created, is declared from now on.

    It is then kept like any other queue. Raises :class:`StoreError` if there is no such queue.
    """
    _change_options(transaction, name, lambda options: options.pop(_UNDECLARED, None))


def keep(transaction: Transaction, name: str) -> None:
    """Store that the queue ``name`` stays when the subscription that it was made for is removed.

    Raises :class:`StoreError` if there is no such queue.
    """
    _change_options(transaction, name, lambda options: options.pop(_MADE_FOR, None))


def set_journal(transaction: Transaction, name: str, after: int | None) -> None:
    """Let the queue keep a journal: its received rows with sequences above ``after``.

    With ``None`` the queue keeps no journal, and the consumers of the journal are deleted. Raises
    :class:`StoreError` if there is no such queue.
    """
    if after is None:
        queue_id = _change_options(
            transaction, name, lambda options: options.pop(_JOURNAL_AFTER, None)
        )
        transaction.connection.execute(
            "DELETE FROM consumers WHERE queue_id = ? AND substr(name, 1, ?) = ?",
            (queue_id, len(state.JOURNAL_CONSUMERS), state.JOURNAL_CONSUMERS),
        )
    else:
        _change_options(transaction, name, lambda options: options.update({_JOURNAL_AFTER: after}))


def _change_options(
    transaction: Transaction, name: str, change: Callable[[dict[str, Any]], object]
) -> int:
    """Apply ``change`` to the stored options of an existing queue, and return the queue's id."""
    db, queue_id = transaction.connection, queue_id_of(transaction, name)
    options = json.loads(
        db.execute("SELECT options FROM queues WHERE id = ?", (queue_id,)).fetchone()[0]
    )
    change(options)
    db.execute(
        "UPDATE queues SET options = ? WHERE id = ?",
        (json.dumps(options, sort_keys=True), queue_id),
    )
    return queue_id


def set_paused_out(transaction: Transaction, name: str, *, paused: bool) -> None:
    """Set whether the readers of the queue wait (``queue pause --out`` and ``queue resume``).

    Raises :class:`StoreError` if there is no such queue.
    """
    _change_options(
        transaction,
        name,
        lambda options: (
            options.update({_PAUSED_OUT: True}) if paused else options.pop(_PAUSED_OUT, None)
        ),
    )


def set_paused(transaction: Transaction, name: str, *, paused: bool) -> None:
    """Set whether the queue refuses messages (commands ``pause`` and ``resume``).

    Raises :class:`StoreError` if there is no such queue.
    """
    transaction.connection.execute(
        "UPDATE queues SET paused = ? WHERE id = ?", (paused, queue_id_of(transaction, name))
    )


def delete(transaction: Transaction, name: str, segments: Path, now: int) -> None:
    """Delete a queue with its rows, holes and consumers; message identifiers stay known.

    The groups are only marked, and deleted in slices later (:mod:`.sweeper`). The files of segments
    in the folder ``segments`` are deleted after the commit. The entry of the queue stays, too, and
    so do the streams of its senders (:meth:`.Receiver.remove_queue`). ``now`` is in microseconds
    since 1970, UTC. Raises :class:`StoreError` if there is no such queue.
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
    """Result of one transaction of a purge.

    ``holes`` are the closed ranges that the transaction covered.
    """

    rows: int
    """Number of rows that became holes; earlier holes do not count."""
    holes: list[Range]
    to: int
    """Last sequence that this transaction covered. No row up to this sequence waits."""


def take_away(
    transaction: Transaction,
    name: str,
    first: int,
    last: int,
    kept: SequenceSet,
    segments: Path,
    holes_max: int | None = None,
) -> TakenAway:
    """Make holes of the rows ``first`` to ``last``, both included, except the rows in ``kept``.

    The rows in ``kept`` were received out of turn, or a reader has them. The rows are gone for
    every consumer; moving the marks is the caller's task. ``holes_max`` limits the number of
    separate holes. If the limit is reached, the caller continues after :attr:`TakenAway.to` in
    another transaction. Raises :class:`StoreError` if there is no such queue.
    """
    queue_id = queue_id_of(transaction, name)
    ranges = list(islice(kept.gaps(first, last), holes_max))
    to = ranges[-1][1] if ranges and len(ranges) == holes_max else last
    return TakenAway(_make_holes(transaction, queue_id, ranges, "purged", segments), ranges, to)


def give_up(transaction: Transaction, name: str, first: int, last: int, segments: Path) -> int:
    """Make a hole of the damaged rows ``first`` to ``last``, both included.

    Return how many rows became a hole; earlier holes do not count. Other rows of their group or
    segment stay. Raises :class:`StoreError` if there is no such queue, or if it does not hold these
    sequences.
    """
    db, queue_id = transaction.connection, queue_id_of(transaction, name)
    (trimmed_to,) = db.execute("SELECT trimmed_to FROM queues WHERE id = ?", (queue_id,)).fetchone()
    end = end_of(db, queue_id)
    if not trimmed_to < first <= last <= end:
        raise StoreError(f"{name} holds {trimmed_to + 1} to {end}, not {first} to {last}")
    return _make_holes(transaction, queue_id, [(first, last)], "damaged", segments)


def queue_id_of(transaction: Transaction, name: str) -> int:
    """Return the id of an existing queue. Raises :class:`StoreError` if it does not exist."""
    row = transaction.connection.execute(
        "SELECT id FROM queues WHERE name = ? AND deleted_at IS NULL", (name,)
    ).fetchone()
    if row is None:
        raise StoreError(f"there is no queue {name}")
    return int(row[0])


def _make_holes(
    transaction: Transaction, queue_id: int, ranges: Sequence[Range], reason: str, segments: Path
) -> int:
    """Make holes of these ascending, disjoint ranges where there are none yet.

    Return the number of rows that became holes. Groups and segments that lie wholly in holes are no
    longer read, and are deleted (:func:`.sweeper.drop_each`).
    """
    made, empty = holes.make(transaction.connection, queue_id, ranges, reason)
    sweeper.drop_each(transaction, queue_id, empty, segments)
    return made
