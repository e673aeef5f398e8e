"""Which subscriptions are on hold, because the data directory is a copy (store/directory.py) and its original may go on.

Theory of operation. A subscription with ``mode`` ``move`` takes messages out of a remote queue. If a copy of a data directory
is started while its original runs, each message goes to one of the two, and nobody can say to which one. So the start that
finds a copy puts all of them on hold, in the transaction that begins the new epoch, as the outbox holds what waits in it.
Which subscriptions there are is known only later in that start: until then the note says "all". A later start finds the
names, and an operator takes them off one by one (``srmp-spark subscribe resume``).
"""

from __future__ import annotations

import json
import sqlite3
from typing import NamedTuple

_KEY = "held_subscriptions"
"""In the table ``meta``; versions that do not know it leave it alone."""


class Held(NamedTuple):
    """What is on hold."""

    because: str
    """What the start found: why the directory counts as a copy."""
    names: frozenset[str] | None
    """Of subscriptions; ``None``: all that there are."""


def hold_all(connection: sqlite3.Connection, because: str) -> None:
    """Hold every subscription, in the caller's transaction."""
    _store(connection, Held(because, None))


def load(connection: sqlite3.Connection) -> Held | None:
    """Return what is on hold; ``None``: nothing. A note that cannot be read holds all."""
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    if found is None:
        return None
    try:
        value = json.loads(found[0])
        names = value["names"]
        return Held(str(value["because"]), None if names is None else frozenset(map(str, names)))
    except (ValueError, TypeError, KeyError, RecursionError):
        return Held("the note of what is on hold cannot be read", None)


def name_all(connection: sqlite3.Connection, names: frozenset[str]) -> Held | None:
    """Return what is on hold, after a note that says all has been given the names of those that there are."""
    held = load(connection)
    if held is not None and held.names is None:
        held = held._replace(names=names)
        _store(connection, held)
    return held


def release(connection: sqlite3.Connection, name: str) -> None:
    """Take one off hold."""
    held = load(connection)
    if held is not None and held.names is not None:
        _store(connection, held._replace(names=held.names - {name}))


def _store(connection: sqlite3.Connection, held: Held) -> None:
    if held.names is not None and not held.names:
        connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,))
        return
    value = json.dumps(
        {"because": held.because, "names": None if held.names is None else sorted(held.names)}
    )
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_KEY, value))
