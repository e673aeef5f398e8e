"""Statements that wait for their transaction.

While a batch is prepared they are written in small transactions of their own, so that other writers get in between; those of a
small batch, and the last ones of a large batch, wait for the transaction that makes the batch count: one sync in all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from srmp_spark.store.outbox.database import OutboxDatabase
from srmp_spark.store.outbox.limits import CHUNK_BYTES

PARAMETERS_MAX = 32_766
"""SQLite's limit for one statement (SQLITE_MAX_VARIABLE_NUMBER)."""


class Writes:
    """Statements in order, with their rows."""

    def __init__(self) -> None:
        self._statements: list[tuple[str, Sequence[Sequence[Any] | Mapping[str, Any]]]] = []
        self.bytes = 0

    def add(self, statement: str, *row: object, size: int = 100) -> None:
        """One row; ``size`` is about its bytes."""
        self.many(statement, [row], size)

    def many(
        self, statement: str, rows: Sequence[Sequence[Any] | Mapping[str, Any]], size: int
    ) -> None:
        """Some rows."""
        self._statements.append((statement, rows))
        self.bytes += size

    def rows(self, insert: str, rows: Sequence[Sequence[Any]], size: int) -> None:
        """Some rows in one statement, ``INSERT INTO … VALUES``: Python's lock is waited for once, not once a row."""
        assert 0 < len(rows) * len(rows[0]) <= PARAMETERS_MAX, f"{len(rows)} rows in one statement"
        marks = f"({', '.join('?' * len(rows[0]))})"
        self.many(
            f"{insert} {', '.join([marks] * len(rows))}",
            [[value for row in rows for value in row]],
            size,
        )

    @property
    def is_full(self) -> bool:
        """It is time for a transaction."""
        return self.would_be_full(self.bytes)

    @staticmethod
    def would_be_full(size: int) -> bool:
        """Whether so many bytes are more than one transaction."""
        return size >= CHUNK_BYTES

    def execute(self, connection: sqlite3.Connection) -> None:
        """Write them, in the caller's transaction, and forget them."""
        for statement, rows in self._statements:
            connection.executemany(statement, rows)
        self._statements = []
        self.bytes = 0

    def flush(self, database: OutboxDatabase) -> None:
        """Write them in a transaction of their own."""
        with database.transaction(unsynced_bytes=self.bytes) as connection:
            self.execute(connection)

    def __len__(self) -> int:
        return len(self._statements)
