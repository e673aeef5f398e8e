"""How many rows became dead letters, by reason, since the outbox was made: for people and for Prometheus.

The counts lie in the table ``meta`` beside the number of the last row of ``moved`` that is in them, and change in the
transaction that moves rows. So they survive restarts, retention takes nothing from them, and nobody walks through ``moved`` to
know them.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping

COUNTED = "dead_letters_counted"
"""Key in the table ``meta``. Version 0.1 leaves it as it is, and what that version moves is counted at the next open."""


class DeadLetterCounts:
    """The counts of one outbox. For the thread of the outbox, but for :attr:`rows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        row = connection.execute("SELECT value FROM meta WHERE key = ?", (COUNTED,)).fetchone()
        self._to, self.rows = _read(None if row is None else row[0])

    def __repr__(self) -> str:
        return f"<DeadLetterCounts {dict(self.rows)} to={self._to}>"

    rows: Mapping[str, int]
    """Rows by reason. A new mapping after each change, so any thread may read it."""

    def count(self, connection: sqlite3.Connection) -> None:
        """Count what was moved since the last call, in the caller's transaction; what is not stored ends the process."""
        (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM moved").fetchone()
        if last <= self._to:
            return
        rows = Counter(self.rows)
        for reason, count in connection.execute(
            "SELECT reason, sum(rows) FROM moved WHERE id > ? AND fate = 'dead' GROUP BY reason",
            (self._to,),
        ):
            rows[str(reason)] += count
        self._to, self.rows = last, rows
        connection.execute(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)", (COUNTED, json.dumps([last, rows]))
        )


def _read(value: object) -> tuple[int, Mapping[str, int]]:
    """Return what was counted; nothing where that cannot be read, and then all that is there is counted again."""
    try:
        to, rows = json.loads(str(value))
        return int(to), {str(reason): int(count) for reason, count in rows.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return 0, {}
