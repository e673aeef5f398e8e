"""How far ``private$/forward$`` is outgoing, in the table ``meta``; and that forwarding is held where nobody knows.

Another place than the true one loses messages or sends them twice. Therefore a place that cannot be read (:mod:`.unreadable`)
holds forwarding until nothing waits in the queue: then the end of its log is the place, whatever it was.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, NamedTuple

from srmp_spark.names import FORWARD_QUEUE
from srmp_spark.store.outbox.database import OutboxDatabase
from srmp_spark.store.set_aside import typed

READ_TO = "forward_read_to"
"""Key in the table ``meta``: the place."""
_HELD = "forward_held"
"""Key in the table ``meta``: why forwarding is held."""


class Cursor(NamedTuple):
    """A place in the log. A sequence alone would not do: a data directory that was put back gives it out again."""

    epoch: str
    sequence: int


def cursor_of(value: Any) -> Cursor:  # noqa: ANN401  # a value of SQLite
    """Return a place as it was stored. Raises :class:`TypeError` or :class:`ValueError` if it is none."""
    typed((value,), (str,))
    cursor = Cursor(*typed(json.loads(value), (str, int)))
    if cursor.sequence < 0:
        raise ValueError(f"sequence {cursor.sequence}")
    return cursor


def read_to(database: OutboxDatabase) -> Cursor | None:
    """Return the place; ``None`` before the first message."""
    row = database.connection.execute("SELECT value FROM meta WHERE key = ?", (READ_TO,)).fetchone()
    return None if row is None else cursor_of(row[0])


def hold_forwarding(connection: sqlite3.Connection, why: str) -> None:
    """Hold forwarding, in the caller's transaction, until :func:`held_because` finds the queue empty."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_HELD, why))


def held_because(database: OutboxDatabase, end: Cursor, waiting: int) -> str | None:
    """Return why forwarding is held, with what to do; ``None`` if it is not, or not any more.

    ``end``: of the log; ``waiting``: the messages in the queue that no consumer has received. Without any the place is ``end``.
    """
    row = database.connection.execute("SELECT value FROM meta WHERE key = ?", (_HELD,)).fetchone()
    if row is None:
        return None
    if waiting:
        return (
            f"{row[0]}; {waiting} messages wait in {FORWARD_QUEUE}, and some may have "
            "left: put a backup of the data directory "
            "back, or save them (`srmp-spark peek`), then `srmp-spark purge --queue "
            f"{FORWARD_QUEUE}` and start again"
        )
    with database.transaction() as connection:
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (READ_TO, json.dumps(end)))
        connection.execute("DELETE FROM meta WHERE key = ?", (_HELD,))
    return None
