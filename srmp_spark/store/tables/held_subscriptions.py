"""Store which subscriptions are on hold because the data directory is a copy.

**Theory of operation.** The copy's original may still run (store/directory.py). A subscription with
``mode`` ``move`` takes messages out of a remote queue. If a copy of a data directory is started
while its original runs, each message goes to one of the two, and no one can predict which. So the
start that detects a copy puts all subscriptions on hold. The hold is stored in the transaction that
begins the new epoch. In the same way the outbox holds its waiting messages. The names of the
subscriptions are known only later in that start, so until then the note says "all". A later step
stores the names, and an operator releases the subscriptions one by one (``srmp-spark subscribe
resume``).
"""

from __future__ import annotations

import json
import sqlite3
from typing import NamedTuple

_KEY = "held_subscriptions"
"""Key of the note in the table ``meta``. Versions that do not know the key ignore it."""


class HeldSubscriptions(NamedTuple):
    """The subscriptions that are on hold, and the reason."""

    because: str
    """Finding of the start: why the directory counts as a copy."""
    names: frozenset[str] | None
    """Names of the held subscriptions; ``None`` means all subscriptions."""


def hold_all(connection: sqlite3.Connection, because: str) -> None:
    """Put every subscription on hold, in the caller's transaction.

    ``because`` is the reason, for an operator.
    """
    _store(connection, HeldSubscriptions(because, None))


def load(connection: sqlite3.Connection) -> HeldSubscriptions | None:
    """Return which subscriptions are on hold and why, or ``None`` if none is.

    If the stored note cannot be read, the result holds all subscriptions.
    """
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    if found is None:
        return None
    try:
        value = json.loads(found[0])
        names = value["names"]
        return HeldSubscriptions(
            str(value["because"]), None if names is None else frozenset(map(str, names))
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return HeldSubscriptions("the note about held subscriptions cannot be read", None)


def name_all(connection: sqlite3.Connection, names: frozenset[str]) -> HeldSubscriptions | None:
    """Replace a stored hold of all subscriptions by a hold of those in ``names``.

    ``names`` are the existing subscriptions. The change is stored in the caller's transaction. A
    hold that already has names is not changed. Return which subscriptions are on hold now, or
    ``None`` if none is. With empty ``names`` nothing is on hold afterwards, and the result has no
    names.
    """
    held = load(connection)
    if held is not None and held.names is None:
        held = held._replace(names=names)
        _store(connection, held)
    return held


def release(connection: sqlite3.Connection, name: str) -> None:
    """Take the subscription ``name`` off hold, in the caller's transaction.

    The function changes nothing if no subscription is on hold, or if the stored hold still covers
    all subscriptions (:func:`name_all`).
    """
    held = load(connection)
    if held is not None and held.names is not None:
        _store(connection, held._replace(names=held.names - {name}))


def release_all(connection: sqlite3.Connection) -> None:
    """Take every subscription off hold, in the caller's transaction."""
    connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,))


def _store(connection: sqlite3.Connection, held: HeldSubscriptions) -> None:
    if held.names is not None and not held.names:
        connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,))
        return
    value = json.dumps(
        {"because": held.because, "names": None if held.names is None else sorted(held.names)}
    )
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_KEY, value))
