"""The table ``queues``: save and load the sending engine's ``OutgoingQueueRow``."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, get_args

from srmp_spark.errors import StoreDamagedError
from srmp_spark.srmp.sending.outgoing_effects import EarlierStream, Kind, OutgoingQueueRow
from srmp_spark.store.database.set_aside import typed
from srmp_spark.store.outbox.tables import sessions
from srmp_spark.store.outbox.tables.schema import ADDED

_NAMES = (*OutgoingQueueRow._fields, "earlier_receipts")
COLUMNS = ", ".join(_NAMES)
_MARKS = ", ".join("?" * len(_NAMES))
_TYPES = (str, str, str, *(int,) * 4, str, *(int,) * 4, str, int, int, int, str, str)
KINDS: tuple[str, ...] = get_args(Kind)
_SETTINGS = ", ".join(f"{name} = ?" for name in _NAMES)


_ADDED = (
    ("queues", "origin", "TEXT NOT NULL DEFAULT ''"),
    ("queues", "begun_after", "INTEGER NOT NULL DEFAULT 0"),
    ("queues", "finals_since", "INTEGER NOT NULL DEFAULT 0"),
    ("queues", "finals_to", "INTEGER NOT NULL DEFAULT 0"),
    ("queues", "earlier", "TEXT NOT NULL DEFAULT '[]'"),
    (
        "queues",
        "earlier_receipts",
        "TEXT NOT NULL DEFAULT '{}'",
        # A column of its own, because versions that do not know it still read ``earlier``.
    ),
    # The queue that the application named, or NULL for the system's.
    ("parts", "dead_letter_queue", "TEXT"),
)


def is_current(connection: sqlite3.Connection) -> bool:
    """Return whether the tables have all columns of this version.

    Tables that version 0.1 made get the columns when the sender process opens them.
    """
    has_sessions = bool(_columns_of(connection, "reliable_sessions"))
    return has_sessions and all(
        column in _columns_of(connection, table) for table, column, _ in _ADDED
    )


def add_columns(connection: sqlite3.Connection) -> None:
    """Add the columns and tables that version 0.1 did not have, as far as they are missing.

    Version 0.1 still works with tables that have them.
    """
    for table, column, definition in _ADDED:
        if column not in _columns_of(connection, table):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {definition}")
    connection.execute(sessions.DDL)
    for statement in ADDED:
        connection.execute(statement)


def _columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def load_queues(connection: sqlite3.Connection) -> list[OutgoingQueueRow]:
    """Return the stored state of all outgoing queues, in the order in which they were made.

    Raises :class:`StoreDamagedError` for a row that cannot be read. The next start of the sender
    process sets such rows aside (:mod:`.unreadable`).
    """
    rows = connection.execute(f"SELECT {COLUMNS} FROM queues ORDER BY id").fetchall()  # noqa: S608  # our own names
    try:
        return [row_of_queue(row) for row in rows]
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise StoreDamagedError(
            f"a row of the table queues of the outbox cannot be read: {error}"
        ) from error


def row_of_queue(values: Sequence[Any]) -> OutgoingQueueRow:
    """Return the state of an outgoing queue from the values of its :data:`COLUMNS`.

    Raises :class:`TypeError`, :class:`ValueError`, :class:`KeyError` or :class:`IndexError` if the
    values are no valid row, and :class:`RecursionError` if their JSON is nested too deeply.
    """
    typed(values, _TYPES)
    row, urls = OutgoingQueueRow(*values[:-1]), json.loads(values[-1])
    streams = [typed(each, (int, int, int)) for each in json.loads(str(row.earlier))]
    earlier = tuple(
        EarlierStream(each[0], each[1], each[2], str(urls.get(str(each[0]), "")))
        for each in streams
    )
    found = row._replace(
        stream_ordinal=int(row.stream_ordinal), paused=bool(row.paused), earlier=earlier
    )
    if row.kind not in KINDS or not found.destination:
        raise ValueError(f"{row.destination!r:.50} {row.kind!r:.50} is no queue")
    if not (
        0 <= row.acknowledged_to <= row.end
        and 0 <= row.base <= row.end
        and 0 <= row.released_to <= row.end
    ):
        raise ValueError(
            f"base {row.base}, acknowledged {row.acknowledged_to}, released "
            f"{row.released_to}, end {row.end}"
        )
    if not 0 <= row.begun_after <= row.acknowledged_to:
        raise ValueError(f"begun after {row.begun_after}, acknowledged {row.acknowledged_to}")
    if row.finals_since < 0 or not 0 <= row.finals_to <= row.acknowledged_to:
        raise ValueError(
            f"final receipts since {row.finals_since} up to {row.finals_to}, acknowledged "
            f"{row.acknowledged_to}"
        )
    if not 0 <= found.stream_ordinal < 1 << 64 or row.resend_interval_index < 0:
        raise ValueError(
            f"stream {found.stream_ordinal}, resend interval {row.resend_interval_index}"
        )
    return found


def save_queue(connection: sqlite3.Connection, row: OutgoingQueueRow, number: int | None) -> int:
    """Write the state of an outgoing queue, and return its id in the table ``queues``.

    ``number`` is the id of a stored queue, or ``None`` for a new one. The function runs in the
    caller's transaction.
    """
    earlier = json.dumps([each[:3] for each in row.earlier])
    receipts = json.dumps({each.ordinal: each.receipts_url for each in row.earlier})
    values = (*row[:2], str(row.stream_ordinal), *row[3:-1], earlier, receipts)
    if number is None:
        cursor = connection.execute(f"INSERT INTO queues({COLUMNS}) VALUES ({_MARKS})", values)  # noqa: S608  # our own names
        assert cursor.lastrowid is not None, "an INSERT gives a number"
        return cursor.lastrowid
    connection.execute(f"UPDATE queues SET {_SETTINGS} WHERE id = ?", (*values, number))  # noqa: S608  # our own names
    return number
