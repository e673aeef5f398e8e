"""Store which rows were copied from remote queues, and how far cut-overs are.

**Theory of operation.** A subscription with ``mode`` ``copy`` makes a row of each message of a
remote queue and removes nothing there. A *cut-over* changes such a subscription to ``move``. Then
each copied row must be given to a reader here or not, depending on who removed the original
(:mod:`srmp_spark.mqrr.copied_states`).

The table ``copied`` has the copied messages whose originals are still in the remote queue. The
table ``copied_rows`` has the row of each copied message, and ``gone_at``, which is set when the
original is gone without this queue manager's doing. Such an entry stays: it is the proof that the
message was received there, it recognizes the message if the remote queue shows it again, and the
cut-over marks its row. The log bounds the table: entries of rows that retention has deleted are
deleted, too (:func:`forget_trimmed`).

The table ``cutovers`` has an entry for each subscription that was cut over. While ``settled_at`` is
null, rows may still be decided, and a start of the queue manager continues there. The marks of the
consumers are made at the end, from ``copied_rows``. They may be made twice, which changes nothing,
so a kill between the marks and ``settled_at`` does no harm.

The table ``copied_ends`` has the copied messages whose removal was about to be requested, and is
not known to be carried out or refused. A batch of messages is in it at most, and those of a
connection that was lost.

Lookup identifiers are two's complement. The functions use the caller's connection, and the caller
commits.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from srmp_spark.interface import DEFAULT_CONSUMER

DDL = (
    """CREATE TABLE IF NOT EXISTS copied_rows(
    subscription TEXT NOT NULL, lookup_id INTEGER NOT NULL, message_id TEXT NOT NULL, \
sequence INTEGER, gone_at INTEGER,
    PRIMARY KEY (subscription, lookup_id, message_id)
) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS cutovers(
    subscription TEXT PRIMARY KEY, began_at INTEGER NOT NULL, consumers TEXT NOT NULL, \
moved INTEGER NOT NULL, settled_at INTEGER
) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS copied_ends(
    subscription TEXT NOT NULL, lookup_id INTEGER NOT NULL, message_id TEXT NOT NULL,
    PRIMARY KEY (subscription, lookup_id, message_id)
) WITHOUT ROWID""",
    """CREATE INDEX IF NOT EXISTS gone_rows ON copied_rows(subscription, sequence)
    WHERE gone_at IS NOT NULL""",
)
"""Tables that are new in 0.2, created at every open.

``sequence`` is null if the row is in another queue than the subscription names, because a
``[[redirect]]`` led it there. The index counts what is gone, and finds what retention has deleted.
"""

PAGE_ROWS = 1_000
"""Rows of one page of :func:`received_there`: some 100 KB of JSON."""

Key = tuple[int, str]
"""Lookup identifier and message identifier of a copied message."""

_SIGNED = 2**63


class CutoverRow(NamedTuple):
    """One cut-over, as stored. Times are in microseconds since 1970, UTC."""

    began_at: int
    consumers: tuple[str, ...]
    """Names of the consumers here that get what was moved, and not what was received there."""
    moved: int
    """Number of copied messages that were removed in the remote queue since the cut-over began."""
    settled_at: int | None
    """Time at which every copied message was decided, or ``None`` if some are not decided yet."""


class CopiedRow(NamedTuple):
    """One copied message, as stored. ``gone_at`` is in microseconds since 1970, UTC."""

    lookup_id: int
    message_id: str
    sequence: int | None
    gone_at: int | None


def note_copied(
    connection: sqlite3.Connection, subscription: str, copied: Iterable[tuple[Key, int | None]]
) -> None:
    """Store messages that were copied, each with the sequence of its row, or None if unknown."""
    values = [(subscription, _signed(key[0]), key[1], sequence) for key, sequence in copied]
    connection.executemany(
        "INSERT OR IGNORE INTO copied(subscription, lookup_id, message_id) VALUES (?, ?, ?)",
        [each[:3] for each in values],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO copied_rows(subscription, lookup_id, message_id, sequence) "
        "VALUES (?, ?, ?, ?)",
        values,
    )


def note_gone(
    connection: sqlite3.Connection, subscription: str, keys: Iterable[Key], now: int
) -> None:
    """Store that the originals of copied messages are gone, and not by this queue manager.

    A message that an earlier build copied has no entry in ``copied_rows``, and gets one without a
    sequence.
    """
    values = [(subscription, _signed(key[0]), key[1]) for key in keys]
    connection.executemany(
        "INSERT OR IGNORE INTO copied_rows(subscription, lookup_id, message_id) VALUES (?, ?, ?)",
        values,
    )
    connection.executemany(
        "UPDATE copied_rows SET gone_at = ? "
        "WHERE subscription = ? AND lookup_id = ? AND message_id = ?",
        [(now, *each) for each in values],
    )
    _delete(connection, "copied", values)
    _delete(connection, "copied_ends", values)


def take_back(connection: sqlite3.Connection, subscription: str, keys: Iterable[Key]) -> set[Key]:
    """Store that originals are in the remote queue again that were noted as gone.

    Return those of ``keys`` for which that is so. They have a row already. All other keys are
    unknown, or were never gone.
    """
    back: set[Key] = set()
    for key in keys:
        entry = (subscription, _signed(key[0]), key[1])
        changed = connection.execute(
            "UPDATE copied_rows SET gone_at = NULL WHERE subscription = ? AND lookup_id = ? "
            "AND message_id = ? AND gone_at IS NOT NULL",
            entry,
        ).rowcount
        if changed:
            connection.execute(
                "INSERT OR IGNORE INTO copied(subscription, lookup_id, message_id) "
                "VALUES (?, ?, ?)",
                entry,
            )
            back.add(key)
    return back


def note_ends(connection: sqlite3.Connection, subscription: str, keys: Iterable[Key]) -> None:
    """Store that the call that removes the originals of copied messages is about to be made."""
    connection.executemany(
        "INSERT OR IGNORE INTO copied_ends(subscription, lookup_id, message_id) VALUES (?, ?, ?)",
        [(subscription, _signed(key[0]), key[1]) for key in keys],
    )


def note_answers(
    connection: sqlite3.Connection,
    subscription: str,
    moved: Iterable[Key],
    not_removed: Iterable[Key],
) -> None:
    """Store which originals of copied messages this queue manager removed, and which it did not."""
    values = [(subscription, _signed(key[0]), key[1]) for key in moved]
    for table in ("copied", "copied_rows", "copied_ends"):
        _delete(connection, table, values)
    _delete(
        connection,
        "copied_ends",
        [(subscription, _signed(key[0]), key[1]) for key in not_removed],
    )
    connection.execute(
        "UPDATE cutovers SET moved = moved + ? WHERE subscription = ?", (len(values), subscription)
    )


def ends(connection: sqlite3.Connection, subscription: str) -> set[Key]:
    """Return the undecided messages for which that call may have been made."""
    found = connection.execute(
        "SELECT lookup_id, message_id FROM copied_ends WHERE subscription = ?", (subscription,)
    )
    return {(each[0] % 2**64, str(each[1])) for each in found if isinstance(each[0], int)}


def forget_rows(connection: sqlite3.Connection, subscription: str, keys: Iterable[Key]) -> None:
    """Forget that messages were copied, because their rows no longer exist here."""
    values = [(subscription, _signed(key[0]), key[1]) for key in keys]
    _delete(connection, "copied", values)
    _delete(connection, "copied_rows", values)


def forget_trimmed(connection: sqlite3.Connection, subscription: str, trimmed_to: int) -> None:
    """Delete the entries of messages that are gone there, and whose rows retention has deleted.

    ``trimmed_to`` is the last sequence that retention has deleted in the local queue.
    """
    connection.execute(
        "DELETE FROM copied_rows WHERE subscription = ? AND gone_at IS NOT NULL AND sequence <= ?",
        (subscription, trimmed_to),
    )


def forget_all(connection: sqlite3.Connection, subscription: str) -> None:
    """Delete everything about the copies and the cut-over of a subscription."""
    for table in ("copied", "copied_rows", "copied_ends", "cutovers"):
        connection.execute(f"DELETE FROM {table} WHERE subscription = ?", (subscription,))  # noqa: S608  # our own names


def count_gone(connection: sqlite3.Connection, subscription: str) -> int:
    """Return how many copied messages were received there."""
    count: int = connection.execute(
        "SELECT COUNT(*) FROM copied_rows WHERE subscription = ? AND gone_at IS NOT NULL",
        (subscription,),
    ).fetchone()[0]
    return count


def rows_of(connection: sqlite3.Connection, subscription: str) -> Iterator[CopiedRow]:
    """Yield every copied message of a subscription that has an entry, by lookup identifier.

    Messages that are not settled, and those that were received there, are yielded. A damaged entry
    is yielded without a sequence.
    """
    for lookup_id, message_id, sequence, gone_at in connection.execute(
        "SELECT lookup_id, message_id, sequence, gone_at FROM copied_rows WHERE subscription = ? "
        "ORDER BY lookup_id, message_id",
        (subscription,),
    ):
        if isinstance(lookup_id, int):
            yield CopiedRow(
                lookup_id % 2**64,
                str(message_id),
                sequence if isinstance(sequence, int) else None,
                gone_at if isinstance(gone_at, int) else None,
            )
        else:
            yield CopiedRow(0, str(message_id), None, None)


def received_there(
    connection: sqlite3.Connection, subscription: str, after: Key | None, limit: int = PAGE_ROWS
) -> list[CopiedRow]:
    """Return the next messages that were received there, at most ``limit``.

    ``after`` is the key of the last message of the page before, or ``None`` for the first page.
    """
    low = (-_SIGNED, "") if after is None else (_signed(after[0]), after[1])
    found = connection.execute(
        "SELECT lookup_id, message_id, sequence, gone_at FROM copied_rows WHERE subscription = ? "
        "AND (lookup_id > ? OR (lookup_id = ? AND message_id > ?)) AND gone_at IS NOT NULL "
        "ORDER BY lookup_id, message_id LIMIT ?",
        (subscription, low[0], low[0], low[1], limit),
    )
    return [CopiedRow(int(each[0]) % 2**64, str(each[1]), each[2], each[3]) for each in found]


def load(connection: sqlite3.Connection, subscription: str) -> CutoverRow | None:
    """Return the cut-over of a subscription, or ``None`` if it was never cut over.

    If the names of the consumers cannot be read, the consumer ``default`` is returned in their
    place, which every reader without a name of its own uses.
    """
    found = connection.execute(
        "SELECT began_at, consumers, moved, settled_at FROM cutovers WHERE subscription = ?",
        (subscription,),
    ).fetchone()
    if found is None:
        return None
    try:
        consumers = tuple(map(str, json.loads(found[1]))) or (DEFAULT_CONSUMER,)
    except (ValueError, TypeError, RecursionError):
        consumers = (DEFAULT_CONSUMER,)
    return CutoverRow(found[0], consumers, found[2], found[3])


def begin(
    connection: sqlite3.Connection, subscription: str, consumers: Sequence[str], now: int
) -> None:
    """Store that a cut-over begins. It replaces an earlier one of the same subscription."""
    connection.execute(
        "INSERT OR REPLACE INTO cutovers(subscription, began_at, consumers, moved, settled_at) "
        "VALUES (?, ?, ?, 0, NULL)",
        (subscription, now, json.dumps(list(consumers))),
    )


def settle(connection: sqlite3.Connection, subscription: str, now: int) -> None:
    """Store that every copied message is decided, and the marks of the consumers are stored."""
    connection.execute(
        "UPDATE cutovers SET settled_at = ? WHERE subscription = ?", (now, subscription)
    )


def forget(connection: sqlite3.Connection, subscription: str) -> None:
    """Delete the cut-over of a subscription, because the subscription only copies again."""
    connection.execute("DELETE FROM cutovers WHERE subscription = ?", (subscription,))


def _delete(
    connection: sqlite3.Connection, table: str, values: Sequence[tuple[str, int, str]]
) -> None:
    connection.executemany(
        f"DELETE FROM {table} WHERE subscription = ? AND lookup_id = ? AND message_id = ?",  # noqa: S608  # our own names
        values,
    )


def _signed(number: int) -> int:
    return number - 2**64 if number >= _SIGNED else number
