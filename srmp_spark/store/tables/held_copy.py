"""Store that the data directory is a copy, which holds everything that acts outside.

**Theory of operation.** The copy's original may still run (store/directory.py). Both have the same
GUID. If both act on other machines, a message is taken from a remote queue by one of the two, a
receipt states what the other one's applications did, and both write one Delta state. So the start
that detects a copy stores this note, in the transaction that begins the new epoch. While the note
exists, the queue manager accepts messages and lets its rows be read. But it sends no message and
no receipt and publishes no Delta state, and its subscriptions that move messages take none
(:mod:`.held_subscriptions`). An operator decides which of the two lives: ``srmp-spark activate``
deletes the note.

A version that does not know the note ignores it.
"""

from __future__ import annotations

import json
import sqlite3
from typing import NamedTuple

_KEY = "held_copy"
"""Key of the note in the table ``meta``."""


class HeldCopy(NamedTuple):
    """Why and since when the data directory is held."""

    because: str
    """Finding of the start: why the directory counts as a copy."""
    since: int
    """Time of that start, in microseconds since 1970, UTC."""


def hold(connection: sqlite3.Connection, held: HeldCopy) -> None:
    """Store the note, in the caller's transaction. A note of an earlier copy is replaced."""
    connection.execute(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)", (_KEY, json.dumps(held._asdict()))
    )


def load(connection: sqlite3.Connection) -> HeldCopy | None:
    """Return the note, or ``None`` if the directory is no copy, or was activated.

    A note that cannot be read holds the directory, too.
    """
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    if found is None:
        return None
    try:
        value = json.loads(found[0])
        return HeldCopy(str(value["because"]), int(value["since"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return HeldCopy("the note about the copy cannot be read", 0)


def release(connection: sqlite3.Connection) -> None:
    """Delete the note, in the caller's transaction."""
    connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,))
