"""Whose numbers a number of ``moved`` or of a commit is.

They count on as long as it is the same database. A copy (another epoch), or an outbox that was begun anew, may give out
numbers again that the Delta tables know with another content. So each has a name of its own, and what was moved up to where
it began belongs to the one before.
"""

from __future__ import annotations

import secrets
import sqlite3
from typing import NamedTuple

PREFIX = "incarnation:"
"""Of a key in the table ``meta``; the name follows."""


class Incarnation(NamedTuple):
    """One life of the outbox."""

    name: str
    """Random."""
    moved_before: int
    """The last number of ``moved`` that an earlier one gave out."""


def begin_incarnation(connection: sqlite3.Connection) -> None:
    """In the caller's transaction."""
    name = secrets.token_hex(8)
    connection.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)",
        [("incarnation", name), (PREFIX + name, last_moved(connection))],
    )


def incarnations(connection: sqlite3.Connection) -> list[Incarnation]:
    """All of them, the present one last."""
    facts = dict(connection.execute("SELECT key, value FROM meta"))
    found = [
        Incarnation(key.removeprefix(PREFIX), int(value))
        for key, value in facts.items()
        if key.startswith(PREFIX)
    ]
    return sorted(
        found, key=lambda each: (each.moved_before, each.name == facts.get("incarnation"))
    )


def last_moved(connection: sqlite3.Connection) -> int:
    """The highest number that ``moved`` ever gave out."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'moved'").fetchone()
    return 0 if row is None else int(row[0])
