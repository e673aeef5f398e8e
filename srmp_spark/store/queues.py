"""Functions for :meth:`Journal.transact` that make, change, empty and remove queues.

A removed queue leaves its entry behind: made again under its name it goes on counting, because a sequence that readers know
must never come back with another message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from srmp_spark.errors import StoreError
from srmp_spark.srmp.ranges import Range, gaps
from srmp_spark.store import moves, state, sweeper
from srmp_spark.store.epochs import end_of
from srmp_spark.store.schema import QUEUE_ID_MAX
from srmp_spark.store.transaction import Transaction


def create(
    transaction: Transaction, name: str, *, transactional: bool, options: Mapping[str, Any] | None = None
) -> state.StoredQueue:
    """Make a queue, or change the options of one that exists; ``transactional`` is fixed for as long as it holds rows.

    Raises :class:`StoreError` if the queue exists as the other kind.
    """
    db = transaction.connection
    text = json.dumps(dict(options or {}), sort_keys=True)
    row = db.execute("SELECT id, transactional, deleted_at FROM queues WHERE name = ?", (name,)).fetchone()
    if row is None:
        cursor = db.execute("INSERT INTO queues(name, transactional, options) VALUES (?, ?, ?)", (name, transactional, text))
        queue_id = cursor.lastrowid
        assert queue_id is not None
        assert queue_id <= QUEUE_ID_MAX, "more queues than a rowid can tell apart"
        db.execute("INSERT INTO queue_epochs VALUES (?, ?, 1)", (queue_id, transaction.epoch_id))
    else:
        queue_id, kind, deleted_at = row
        if deleted_at is None and bool(kind) != transactional:
            was = "transactional" if kind else "not transactional"
            raise StoreError(f"queue {name} exists and is {was}: delete it first, or give it as it is")
        db.execute(
            "UPDATE queues SET transactional = ?, options = ?, paused = paused AND deleted_at IS NULL, deleted_at = NULL "
            "WHERE id = ?",
            (transactional, text, queue_id),
        )
    transaction.queues_opened[name] = (queue_id, end_of(db, queue_id))
    transaction.queues_closed.discard(name)
    return state.load_queue(db, queue_id)


def set_journal(transaction: Transaction, name: str, after: int | None) -> None:
    """From which mark on the queue keeps a journal; ``None``: it keeps none, and who read it is forgotten."""
    db, queue_id = transaction.connection, queue_id_of(transaction, name)
    options = json.loads(db.execute("SELECT options FROM queues WHERE id = ?", (queue_id,)).fetchone()[0])
    if after is None:
        options.pop("journal_after", None)
        db.execute("DELETE FROM consumers WHERE queue_id = ? AND substr(name, 1, ?) = ?",
                   (queue_id, len(state.JOURNAL_CONSUMERS), state.JOURNAL_CONSUMERS))  # fmt: skip
    else:
        options["journal_after"] = after
    db.execute("UPDATE queues SET options = ? WHERE id = ?", (json.dumps(options, sort_keys=True), queue_id))


def set_paused(transaction: Transaction, name: str, *, paused: bool) -> None:
    """Whether the queue takes messages (``pause``, ``resume``)."""
    transaction.connection.execute("UPDATE queues SET paused = ? WHERE id = ?", (paused, queue_id_of(transaction, name)))


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
    db.execute("UPDATE queues SET trimmed_to = ?, deleted_at = ? WHERE id = ?", (end, now, queue_id))
    transaction.queues_opened.pop(name, None)
    transaction.queues_closed.add(name)


def purge(
    transaction: Transaction, name: str, segments: Path, *, received: int | None = None, ahead: Iterable[Range] = (),
    spared: Iterable[int] = (),
) -> int:  # fmt: skip
    """Take away every row that the default consumer has not received, and mark all as received; returns how many those were.

    The purged rows become holes: they stay counted, for every consumer. ``received`` and ``ahead`` are its marks if they are
    known better than the store does: one that is still to be saved holds all the same. Else the stored ones count. Rows that
    are ``spared`` stay as they are: a remote reader has them.
    """
    db, queue_id = transaction.connection, queue_id_of(transaction, name)
    end = end_of(db, queue_id)
    if received is None:
        sql = "SELECT received, ahead FROM consumers WHERE queue_id = ? AND name = 'default'"
        found = db.execute(sql, (queue_id,)).fetchone()
        received, ahead = (found[0], json.loads(found[1])) if found else (0, [])
    (trimmed_to,) = db.execute("SELECT trimmed_to FROM queues WHERE id = ?", (queue_id,)).fetchone()
    alive = [(sequence, sequence) for sequence in spared if sequence > received]
    kept = [*((low, high) for low, high in ahead), *alive]  # rows that were received out of turn are no waiting rows
    purged = _make_holes(transaction, queue_id, max(received, trimmed_to) + 1, end, kept, "purged", segments)
    marked = gaps(1, max(end, received), alive)
    to = marked[0][1] if marked and marked[0][0] == 1 else 0
    beyond = [run for run in marked if run[0] > 1]
    db.execute(
        "INSERT INTO consumers(queue_id, name, received, ahead) VALUES (?, 'default', ?, ?) "
        "ON CONFLICT (queue_id, name) DO UPDATE SET received = excluded.received, ahead = excluded.ahead",
        (queue_id, to, json.dumps(beyond)),
    )
    return purged


def give_up(transaction: Transaction, name: str, first: int, last: int, segments: Path) -> int:
    """Make a counted hole of rows that are damaged; returns how many. What else their group or segment holds stays.

    Raises :class:`StoreError` if the queue does not hold these sequences.
    """
    db, queue_id = transaction.connection, queue_id_of(transaction, name)
    (trimmed_to,) = db.execute("SELECT trimmed_to FROM queues WHERE id = ?", (queue_id,)).fetchone()
    end = end_of(db, queue_id)
    if not trimmed_to < first <= last <= end:
        raise StoreError(f"{name} holds {trimmed_to + 1} to {end}, not {first} to {last}")
    return _make_holes(transaction, queue_id, first, last, [], "damaged", segments)


def queue_id_of(transaction: Transaction, name: str) -> int:
    """The id of a queue that exists. Raises :class:`StoreError`."""
    row = transaction.connection.execute("SELECT id FROM queues WHERE name = ? AND deleted_at IS NULL", (name,)).fetchone()
    if row is None:
        raise StoreError(f"there is no queue {name}")
    return int(row[0])


def _make_holes(
    transaction: Transaction, queue_id: int, first: int, last: int, kept: list[tuple[int, int]], reason: str, segments: Path
) -> int:
    """Holes for the closed range, without ``kept`` and the holes that are there; returns the number of rows."""
    db = transaction.connection
    there = db.execute("SELECT first, last FROM holes WHERE queue_id = ? AND last >= ?", (queue_id, first)).fetchall()
    holes = gaps(first, last, kept + there)
    db.executemany("INSERT INTO holes VALUES (?, ?, ?, ?)", [(queue_id, low, high, reason) for low, high in holes])
    sweeper.drop_each(transaction, queue_id, holes, segments)
    return sum(high - low + 1 for low, high in holes)
