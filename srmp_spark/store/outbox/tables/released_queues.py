"""Store which outgoing queues of a held copy an operator has released one by one.

A copy of a data directory sends nothing until an operator activates it
(:mod:`srmp_spark.store.tables.held_copy`). With ``srmp-spark streams resume`` or ``resend`` an
operator may let a single outgoing queue send before that. The next copy begins without released
queues (:mod:`.copies`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from typing import cast

from srmp_spark.srmp.sending.outgoing_effects import Kind, QueueKey

_KEY = "released_queues"
"""Key of the list in the table ``meta``. Versions that do not know the key ignore it."""


def load(connection: sqlite3.Connection) -> set[QueueKey]:
    """Return the released queues. A list that cannot be read releases none."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    try:
        return {
            QueueKey(str(destination), cast("Kind", str(kind)))
            for destination, kind in json.loads("[]" if row is None else row[0])
        }
    except (ValueError, TypeError, RecursionError):
        return set()


def store(connection: sqlite3.Connection, released: Collection[QueueKey]) -> None:
    """Replace the list, in the caller's transaction."""
    connection.execute(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)",
        (_KEY, json.dumps(sorted([*key] for key in released))),
    )


def forget(connection: sqlite3.Connection) -> None:
    """Delete the list, in the caller's transaction."""
    connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,))
