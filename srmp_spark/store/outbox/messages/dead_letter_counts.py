"""Counts how many rows became dead letters, by reason, since the outbox was made.

The counts are for people and for Prometheus. The counts are stored in the table ``meta`` together
with the number of the last row of ``moved`` that is counted, and change in the transaction that
moves rows. So the counts survive restarts, retention does not lower them, and reading them does not
need a scan of ``moved``.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping

COUNTED = "dead_letters_counted"
"""Key of the counts in the table ``meta``.

Version 0.1 does not change the value. Rows that version 0.1 moves are counted at the next open.
"""


class DeadLetterCounts:
    """Keeps the counts of one outbox.

    Only the thread of the outbox may use it, except :attr:`rows`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        row = connection.execute("SELECT value FROM meta WHERE key = ?", (COUNTED,)).fetchone()
        self._to, self.rows = _read(None if row is None else row[0])

    def __repr__(self) -> str:
        return f"<DeadLetterCounts {dict(self.rows)} to={self._to}>"

    rows: Mapping[str, int]
    """Number of dead letters by reason. Each change makes a new mapping, so any thread may read it.
    """

    def count(self, connection: sqlite3.Connection) -> None:
        """Count the dead letters that were moved since the last call, and store the counts.

        They are added to :attr:`rows`, and stored in the caller's transaction. If that transaction
        fails, the process ends, so the counts in memory are never ahead of the disk.
        """
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
    """Return the last counted id of ``moved`` and the counts by reason, from the stored value.

    Return 0 and an empty mapping if the value cannot be parsed. All rows of ``moved`` are then
    counted again.
    """
    try:
        to, rows = json.loads(str(value))
        return int(to), {str(reason): int(count) for reason, count in rows.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return 0, {}
