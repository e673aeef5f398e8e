"""Notes which messages of the outbox cannot be read, by queue.

The notes are shown in the log, in ``status`` and by ``doctor`` until the queue is forgotten.

A group of rows may lie on a bad sector. The group then stops its own queue and no other. If its
rows are finished or die nevertheless, their content is lost. The process must report both cases,
and must not stop. A restart of the process would forget notes in memory, so the notes are stored in
the table ``meta``.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from typing import Literal, NamedTuple

from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.store.database.set_aside import typed

What = Literal["waiting", "dead", "journal"]
"""Kind of damage.

``waiting``: rows that wait cannot be read. ``dead``: rows became dead letters without their
content. ``journal``: rows were delivered and their journal copy is lost.
"""

PREFIX = "damaged "
"""Beginning of the keys of the notes in the table ``meta``. Kind and destination follow."""
_SAYS: dict[What, str] = {
    "waiting": "wait and cannot be read",
    "dead": "became dead letters and their content cannot be read",
    "journal": "arrived and have no journal copy, as they cannot be read",
}

_log = logging.getLogger(__name__)


class UnreadableRows(NamedTuple):
    """A note about rows of one queue that cannot be read: how many, which, and the reason."""

    rows: int
    serials: tuple[int, int]
    """The first and the last serial of these rows."""
    reason: str


def noted_damage(value: str) -> dict[What, UnreadableRows]:
    """Return the damage of one queue, by kind, from ``value``, a note as it was stored.

    Raises :class:`TypeError` or :class:`ValueError` if ``value`` is no note.
    """
    found: dict[What, UnreadableRows] = {}
    noted = json.loads(value)
    if not isinstance(noted, dict):
        raise TypeError(f"{value!r:.50} is no note about damage")
    for what, (count, (first, last), reason) in noted.items():
        if what not in _SAYS:
            raise ValueError(f"{what!r:.50} is no kind of damage")
        typed((count, first, last, reason), (int, int, int, str))
        found[what] = UnreadableRows(count, (first, last), reason)
    return found


class Damage:
    """Keeps the notes about the damage of one outbox."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Read the notes that an earlier process stored."""
        self._connection = connection
        self._found: dict[QueueKey, dict[What, UnreadableRows]] = {}
        rows = connection.execute(
            "SELECT key, value FROM meta WHERE key >= ? AND key < ?",
            (PREFIX, PREFIX + "\U0010ffff"),
        )
        for name, value in rows.fetchall():
            kind, _, destination = name.removeprefix(PREFIX).partition(" ")
            self._found[QueueKey(destination, kind)] = noted_damage(value)

    def note(
        self, key: QueueKey, what: What, rows: int, serials: tuple[int, int], reason: str
    ) -> None:
        """Store and log a note about ``rows`` damaged rows, in the caller's transaction.

        ``serials`` are their first and last serial. The counts of lost rows add up. For rows that
        wait, only the newest note is kept. A note that changes nothing is neither stored nor
        logged.
        """
        noted = dict(self._found.get(key, {}))
        before = noted.get(what)
        if before is not None and what != "waiting":
            rows += before.rows
            serials = min(before.serials[0], serials[0]), max(before.serials[1], serials[1])
        if before == (found := UnreadableRows(rows, serials, reason)):
            return
        noted[what] = found
        self._store(key, noted)
        _log.error(
            'outbox.damaged destination=%s kind=%s what=%s rows=%d serials=%d-%d reason="%s"',
            key.destination,
            key.kind,
            what,
            rows,
            *serials,
            reason,
        )

    def ended(self, key: QueueKey, first: int, last: int) -> None:
        """Delete the note about waiting rows if the serials ``first`` to ``last`` include them all.

        Both serials are included. Call this method in the transaction after which these serials
        wait no longer.
        """
        found = self._found.get(key, {}).get("waiting")
        if found is not None and first <= found.serials[0] and found.serials[1] <= last:
            self.readable(key)

    def readable(self, key: QueueKey) -> None:
        """Delete the note about waiting rows, in the caller's transaction.

        Call this method when the rows could be read again, or wait no longer.
        """
        if self.waits(key):
            self._store(
                key, {what: found for what, found in self._found[key].items() if what != "waiting"}
            )

    def forget(self, key: QueueKey) -> None:
        """Delete all notes about a queue, in the caller's transaction."""
        if key in self._found:
            self._store(key, {})

    def waits(self, key: QueueKey) -> bool:
        """Return whether the queue has waiting rows that could not be read."""
        return "waiting" in self._found.get(key, {})

    def text(self, key: QueueKey) -> str | None:
        """Return a text for people about the damage of a queue, with what to do next.

        Return ``None`` if no damage is known. Any thread may call this method.
        """
        found = self._found.get(key)
        if not found:
            return None
        told = [
            f"{rows} messages to {key.destination} (serials {first} to {last}) "
            f"{_SAYS[what]}: {reason}"
            for what, (rows, (first, last), reason) in found.items()
        ]
        give_up = f"`srmp-spark streams drop --destination {key.destination}`"
        hint = (
            "restore a backup of the data directory, or discard all messages that wait "
            f"there: {give_up}"
            if "waiting" in found
            else f"send them again from their source, then delete this note: {give_up}"
        )
        return f"{'; '.join(told)}; {hint}"

    def _store(self, key: QueueKey, noted: dict[What, UnreadableRows]) -> None:
        name = f"{PREFIX}{key.kind} {key.destination}"
        if noted:
            self._connection.execute(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, json.dumps(noted))
            )
            self._found = {**self._found, key: noted}
        else:
            self._connection.execute("DELETE FROM meta WHERE key = ?", (name,))
            self._found = {each: found for each, found in self._found.items() if each != key}

    def __repr__(self) -> str:
        return f"<Damage queues={len(self._found)}>"
