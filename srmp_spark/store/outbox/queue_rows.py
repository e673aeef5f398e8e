"""The table ``queues``: the sending engine's OutgoingQueueRow, saved and loaded."""

from __future__ import annotations

import sqlite3

from srmp_spark.srmp.outgoing_effects import OutgoingQueueRow

_NAMES = OutgoingQueueRow._fields
_COLUMNS = ", ".join(_NAMES)
_MARKS = ", ".join("?" * len(_NAMES))
_SETTINGS = ", ".join(f"{name} = ?" for name in _NAMES)


def load_queues(connection: sqlite3.Connection) -> list[OutgoingQueueRow]:
    """All of them, in the order they were made."""
    rows = [OutgoingQueueRow(*row) for row in connection.execute(f"SELECT {_COLUMNS} FROM queues ORDER BY id")]  # noqa: S608  # our own names
    return [row._replace(stream_ordinal=int(row.stream_ordinal), paused=bool(row.paused)) for row in rows]


def save_queue(connection: sqlite3.Connection, row: OutgoingQueueRow, number: int | None) -> int:
    """Write a row, under ``number`` or as a new one; its number."""
    values = (*row[:2], str(row.stream_ordinal), *row[3:])
    if number is None:
        cursor = connection.execute(f"INSERT INTO queues({_COLUMNS}) VALUES ({_MARKS})", values)  # noqa: S608  # our own names
        assert cursor.lastrowid is not None, "an INSERT gives a number"
        return cursor.lastrowid
    connection.execute(f"UPDATE queues SET {_SETTINGS} WHERE id = ?", (*values, number))  # noqa: S608  # our own names
    return number
