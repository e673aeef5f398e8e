"""Statements that wait for their transaction.

While a batch is prepared, its statements are written in small transactions of their own, so that
others can write in between. The statements of a small batch, and the last statements of a large
batch, wait for the transaction that makes the batch count. So a small batch needs one sync.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from srmp_spark.store.outbox.limits import CHUNK_BYTES
from srmp_spark.store.outbox.tables.database import OutboxDatabase

PARAMETERS_MAX = 32_766
"""SQLite's limit for the parameters of one statement (SQLITE_MAX_VARIABLE_NUMBER)."""


class Writes:
    """Collects SQL statements in order, with their rows, until a transaction executes them.

    ``bytes`` is the approximate size of all rows.
    """

    def __init__(self) -> None:
        self._statements: list[tuple[str, Sequence[Sequence[Any] | Mapping[str, Any]]]] = []
        self.bytes = 0

    def add(self, statement: str, *row: object, size: int = 100) -> None:
        """Add a statement with one row. ``size`` is the approximate size of the row, in bytes."""
        self.many(statement, [row], size)

    def many(
        self, statement: str, rows: Sequence[Sequence[Any] | Mapping[str, Any]], size: int
    ) -> None:
        """Add a statement that is executed for each of ``rows``.

        ``size`` is the approximate size of all rows, in bytes.
        """
        self._statements.append((statement, rows))
        self.bytes += size

    def rows(self, insert: str, rows: Sequence[Sequence[Any]], size: int) -> None:
        """Add one statement that inserts all ``rows``. ``insert`` is ``INSERT INTO … VALUES``.

        ``size`` is the approximate size of all rows, in bytes. There is at least one row, and at
        most PARAMETERS_MAX values in all. With one statement the thread waits for Python's global
        lock once, and not once for each row.
        """
        assert 0 < len(rows) * len(rows[0]) <= PARAMETERS_MAX, f"{len(rows)} rows in one statement"
        marks = f"({', '.join('?' * len(rows[0]))})"
        self.many(
            f"{insert} {', '.join([marks] * len(rows))}",
            [[value for row in rows for value in row]],
            size,
        )

    @property
    def is_full(self) -> bool:
        """Return whether at least :data:`.CHUNK_BYTES` are collected, enough for a transaction."""
        return self.would_be_full(self.bytes)

    @staticmethod
    def would_be_full(size: int) -> bool:
        """Return whether ``size`` is at least :data:`.CHUNK_BYTES`, enough for a transaction."""
        return size >= CHUNK_BYTES

    def execute(self, connection: sqlite3.Connection) -> None:
        """Execute all statements in the caller's transaction, and remove them from this object."""
        for statement, rows in self._statements:
            connection.executemany(statement, rows)
        self._statements = []
        self.bytes = 0

    def flush(self, database: OutboxDatabase) -> None:
        """Execute all statements in a synced transaction of their own, and remove them.

        Raises the errors of :meth:`.OutboxDatabase.transaction`.
        """
        with database.transaction(unsynced_bytes=self.bytes) as connection:
            self.execute(connection)

    def __len__(self) -> int:
        return len(self._statements)
