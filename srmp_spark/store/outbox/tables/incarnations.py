"""Incarnations: which life of the outbox assigned a number of ``moved`` or of a commit.

The numbers increase as long as the database is the same. A copy (another epoch), or an outbox that
began empty, may assign numbers again that the Delta tables have with other content. So each life of
the outbox, an *incarnation*, has a name of its own. Rows that were moved before a life began belong
to the life before it.
"""

from __future__ import annotations

import secrets
import sqlite3
from typing import NamedTuple

PREFIX = "incarnation:"
"""Beginning of a key in the table ``meta``; the name of an :class:`Incarnation` follows."""


class Incarnation(NamedTuple):
    """One life of the outbox: the time in which its numbers are not used again.

    A new life begins with an empty outbox, and when a copy is opened.
    """

    name: str
    """Random text that names this life."""
    moved_before: int
    """The highest id of ``moved`` that earlier lives assigned."""


def begin_incarnation(connection: sqlite3.Connection) -> None:
    """Begin a new life of the outbox with a random name, in the caller's transaction."""
    name = secrets.token_hex(8)
    connection.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)",
        [("incarnation", name), (PREFIX + name, last_moved(connection))],
    )


def incarnations(connection: sqlite3.Connection) -> list[Incarnation]:
    """Return all lives of the outbox in their order, the present one last."""
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
    """Return the highest id that the table ``moved`` ever assigned, or 0."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'moved'").fetchone()
    return 0 if row is None else int(row[0])
