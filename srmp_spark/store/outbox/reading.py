"""The outbox from another process than its owner's: what the Delta state publishes, what ``status`` shows. It cannot write.

A page is one snapshot, so the WAL is held back for no longer than a page; between two pages the outbox moves on. A publisher
therefore reads until a page is empty and notes the position from before the first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from srmp_spark.srmp.outgoing_effects import OutgoingQueueRow, QueueKey
from srmp_spark.store.outbox.queue_rows import load_queues
from srmp_spark.store.outbox.schema import DATABASE_FILE, OUTBOX
from srmp_spark.store.outbox.waiting import Moved, Waiting, WaitingRow
from srmp_spark.store.sqlite_file import connect_reader

PAGE_ROWS = 4_096
"""Rows of one page: 4 MB of bodies of 1 KB, and at the most 16 groups."""


class OutboxReader:
    """An outbox that somebody else owns. For one thread."""

    def __init__(self, directory: Path) -> None:
        """Raises :class:`StoreDamagedError` where there is no outbox (:meth:`exists`), or one of a newer format."""
        self._connection = connect_reader(directory / DATABASE_FILE, OUTBOX)
        facts = dict(self._connection.execute("SELECT key, value FROM meta"))
        self._waiting = Waiting(self._connection, str(facts.get("queue_manager", "")), _no_ids)

    @staticmethod
    def exists(directory: Path) -> bool:
        """Whether anything was ever sent from this data directory."""
        return (directory / DATABASE_FILE).exists()

    def position(self) -> int:
        """The number of the last commit."""
        return int(self._connection.execute("SELECT position FROM head").fetchone()[0])

    def queues(self) -> list[OutgoingQueueRow]:
        """The outgoing queues as the engine saved them."""
        return load_queues(self._connection)

    def waiting(self, key: QueueKey, after: int, rows_max: int = PAGE_ROWS) -> list[WaitingRow]:
        """A page of what waits in a queue above serial ``after``, ascending; empty at the end."""
        with self._snapshot() as connection:
            row = connection.execute(
                "SELECT id FROM queues WHERE destination = ? AND kind = ?", key
            ).fetchone()
            return [] if row is None else self._waiting.page(key, row[0], after, rows_max)

    def moved(self, after: int, rows_max: int = PAGE_ROWS) -> list[Moved]:
        """Dead letters and journal copies with a number above ``after``: numbers are never used again, rows never change."""
        with self._snapshot():
            return list(self._waiting.moved(after, rows_max))

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN")
        try:
            yield self._connection
        finally:
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> OutboxReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<OutboxReader position={self.position()}>"


def _no_ids() -> int:
    raise AssertionError("a reader writes nothing")
