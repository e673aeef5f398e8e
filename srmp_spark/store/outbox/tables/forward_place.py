"""The forwarding cursor, stored in ``meta``: how far ``private$/forward$`` is in the outbox.

A wrong cursor would lose messages or send them twice. So if the cursor cannot be read
(:mod:`.unreadable`), forwarding is held until no message waits in the queue. Then the end of the
queue's log is a correct cursor.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, NamedTuple

from srmp_spark.names import FORWARD_QUEUE
from srmp_spark.store.database.set_aside import typed
from srmp_spark.store.outbox.tables.database import OutboxDatabase

READ_TO = "forward_read_to"
"""Key of the cursor in the table ``meta``."""
_HELD = "forward_held"
"""Key in the table ``meta`` of the reason why forwarding is held."""


class ForwardPlace(NamedTuple):
    """A place in the log of ``private$/forward$``: the last row that was read.

    A sequence alone is not enough, because a restored data directory assigns the same sequences
    again.
    """

    epoch: str
    sequence: int


def cursor_of(value: Any) -> ForwardPlace:  # noqa: ANN401  # a value of SQLite
    """Return the cursor that was stored as ``value``.

    Raises :class:`TypeError` or :class:`ValueError` if ``value`` is no cursor.
    """
    typed((value,), (str,))
    cursor = ForwardPlace(*typed(json.loads(value), (str, int)))
    if cursor.sequence < 0:
        raise ValueError(f"sequence {cursor.sequence}")
    return cursor


def read_to(database: OutboxDatabase) -> ForwardPlace | None:
    """Return the stored forwarding cursor, or ``None`` before the first message.

    Raises :class:`TypeError` or :class:`ValueError` if the stored value is no cursor.
    """
    row = database.connection.execute("SELECT value FROM meta WHERE key = ?", (READ_TO,)).fetchone()
    return None if row is None else cursor_of(row[0])


def hold_forwarding(connection: sqlite3.Connection, why: str) -> None:
    """Store that forwarding is held, in the caller's transaction.

    It is held until :func:`held_because` is called while no message waits in ``private$/forward$``.
    ``why`` is the reason, for an operator.
    """
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_HELD, why))


def held_because(database: OutboxDatabase, end: ForwardPlace, waiting: int) -> str | None:
    """Return a text why forwarding is held, or ``None`` if forwarding is not held.

    The text also says what to do. ``end`` is the end of the log. ``waiting`` is the number of
    messages in the queue that no consumer has received. If forwarding is held and no message waits,
    this call stores ``end`` as the cursor in a transaction of its own, and forwarding is no longer
    held.
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
