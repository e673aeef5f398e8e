"""The table ``queues``: the sending engine's OutgoingQueueRow, saved and loaded."""

from __future__ import annotations

import json
import sqlite3

from srmp_spark.srmp.outgoing_effects import EarlierStream, OutgoingQueueRow

_NAMES = OutgoingQueueRow._fields
_COLUMNS = ", ".join(_NAMES)
_MARKS = ", ".join("?" * len(_NAMES))
_SETTINGS = ", ".join(f"{name} = ?" for name in _NAMES)


def is_current(connection: sqlite3.Connection) -> bool:
    """Whether the table has all columns; one that 0.1 made has them once the sender process has opened it."""
    return "earlier" in {row[1] for row in connection.execute("PRAGMA table_info(queues)")}


def add_columns(connection: sqlite3.Connection) -> None:
    """What 0.1 did not have; it goes on to work with a table that has it."""
    if not is_current(connection):
        connection.execute("ALTER TABLE queues ADD COLUMN earlier TEXT NOT NULL DEFAULT '[]'")


def load_queues(connection: sqlite3.Connection) -> list[OutgoingQueueRow]:
    """All of them, in the order they were made."""
    rows = [OutgoingQueueRow(*row) for row in connection.execute(f"SELECT {_COLUMNS} FROM queues ORDER BY id")]  # noqa: S608  # our own names
    return [
        row._replace(
            stream_ordinal=int(row.stream_ordinal),
            paused=bool(row.paused),
            earlier=tuple(EarlierStream(*each) for each in json.loads(str(row.earlier))),
        )
        for row in rows
    ]


def save_queue(connection: sqlite3.Connection, row: OutgoingQueueRow, number: int | None) -> int:
    """Write a row, under ``number`` or as a new one; its number."""
    values = (*row[:2], str(row.stream_ordinal), *row[3:-1], json.dumps(row.earlier))
    if number is None:
        cursor = connection.execute(f"INSERT INTO queues({_COLUMNS}) VALUES ({_MARKS})", values)  # noqa: S608  # our own names
        assert cursor.lastrowid is not None, "an INSERT gives a number"
        return cursor.lastrowid
    connection.execute(f"UPDATE queues SET {_SETTINGS} WHERE id = ?", (*values, number))  # noqa: S608  # our own names
    return number
