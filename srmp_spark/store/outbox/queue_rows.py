"""The table ``queues``: the sending engine's OutgoingQueueRow, saved and loaded."""

from __future__ import annotations

import json
import sqlite3

from srmp_spark.srmp.outgoing_effects import EarlierStream, OutgoingQueueRow
from srmp_spark.store.outbox import sessions

_NAMES = (*OutgoingQueueRow._fields, "earlier_receipts")
_COLUMNS = ", ".join(_NAMES)
_MARKS = ", ".join("?" * len(_NAMES))
_SETTINGS = ", ".join(f"{name} = ?" for name in _NAMES)


_ADDED = (
    ("queues", "earlier", "TEXT NOT NULL DEFAULT '[]'"),
    ("queues", "earlier_receipts", "TEXT NOT NULL DEFAULT '{}'"),  # beside it: who does not know this column reads only that
    ("parts", "dead_letter_queue", "TEXT"),  # of the application; NULL: the system's
)


def is_current(connection: sqlite3.Connection) -> bool:
    """Whether the tables have all columns; those that 0.1 made have them once the sender process has opened them."""
    has_sessions = bool(_columns_of(connection, "reliable_sessions"))
    return has_sessions and all(column in _columns_of(connection, table) for table, column, _ in _ADDED)


def add_columns(connection: sqlite3.Connection) -> None:
    """What 0.1 did not have; it goes on to work with tables that have it."""
    for table, column, definition in _ADDED:
        if column not in _columns_of(connection, table):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {definition}")
    connection.execute(sessions.DDL)


def _columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def load_queues(connection: sqlite3.Connection) -> list[OutgoingQueueRow]:
    """All of them, in the order they were made."""
    found = []
    for *values, receipts in connection.execute(f"SELECT {_COLUMNS} FROM queues ORDER BY id"):  # noqa: S608  # our own names
        row, urls = OutgoingQueueRow(*values), json.loads(receipts)
        streams: list[tuple[int, int, int]] = json.loads(str(row.earlier))
        earlier = (EarlierStream(*each, urls.get(str(each[0]), "")) for each in streams)
        found.append(
            row._replace(stream_ordinal=int(row.stream_ordinal), paused=bool(row.paused), earlier=tuple(earlier))
        )  # fmt: skip
    return found


def save_queue(connection: sqlite3.Connection, row: OutgoingQueueRow, number: int | None) -> int:
    """Write a row, under ``number`` or as a new one; its number."""
    earlier = json.dumps([each[:3] for each in row.earlier])
    receipts = json.dumps({each.ordinal: each.receipts_url for each in row.earlier})
    values = (*row[:2], str(row.stream_ordinal), *row[3:-1], earlier, receipts)
    if number is None:
        cursor = connection.execute(f"INSERT INTO queues({_COLUMNS}) VALUES ({_MARKS})", values)  # noqa: S608  # our own names
        assert cursor.lastrowid is not None, "an INSERT gives a number"
        return cursor.lastrowid
    connection.execute(f"UPDATE queues SET {_SETTINGS} WHERE id = ?", (*values, number))  # noqa: S608  # our own names
    return number
