"""Read the outbox from another process than its owner, for the Delta state and for ``status``.

A reader cannot write. A page is one snapshot, so the WAL is held back no longer than for one page.
Between two pages the outbox may change. So a publisher reads until a page is empty, and notes the
position from before the first page.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from srmp_spark.srmp.sending.outgoing_effects import OutgoingQueueRow, QueueKey
from srmp_spark.store.database.sqlite_file import connect_reader
from srmp_spark.store.outbox.messages.waiting import Moved, Waiting, WaitingRow
from srmp_spark.store.outbox.tables.queue_rows import load_queues
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE, OUTBOX

PAGE_ROWS = 4_096
"""Rows of one page: 4 MB for bodies of 1 KB, and at most 16 groups."""


class OutboxReader:
    """Reads an outbox that another process owns. Only one thread may use it."""

    def __init__(self, directory: Path) -> None:
        """Open the outbox in the data directory ``directory`` for reading.

        Raises :class:`StoreDamagedError` if there is no outbox (:meth:`exists`), or one of a newer
        format.
        """
        self._connection = connect_reader(directory / DATABASE_FILE, OUTBOX)
        facts = dict(self._connection.execute("SELECT key, value FROM meta"))
        self._waiting = Waiting(self._connection, str(facts.get("queue_manager", "")), _no_ids)

    @staticmethod
    def exists(directory: Path) -> bool:
        """Return whether the data directory has an outbox.

        The first sender process of a data directory makes the outbox.
        """
        return (directory / DATABASE_FILE).exists()

    def position(self) -> int:
        """Return the number of the last commit of the outbox."""
        return int(self._connection.execute("SELECT position FROM head").fetchone()[0])

    def queues(self) -> list[OutgoingQueueRow]:
        """Return the stored state of each outgoing queue, as the sending engine saved it.

        Raises :class:`StoreDamagedError` if a database row cannot be read.
        """
        return load_queues(self._connection)

    def waiting(self, key: QueueKey, after: int, rows_max: int = PAGE_ROWS) -> list[WaitingRow]:
        """Return a page of the messages that wait in a queue above serial ``after``, ascending.

        The page is empty at the end. It ends with a whole group, so it may have more than
        ``rows_max`` messages. Raises :class:`StoreDamagedError` if a group is damaged.
        """
        with self._snapshot() as connection:
            row = connection.execute(
                "SELECT id FROM queues WHERE destination = ? AND kind = ?", key
            ).fetchone()
            return [] if row is None else self._waiting.page(key, row[0], after, rows_max)

    def moved(self, after: int, rows_max: int = PAGE_ROWS) -> list[Moved]:
        """Return a page of dead letters and journal copies with ids above ``after`` in ``moved``.

        The page is empty at the end. It ends once it has ``rows_max`` messages, and may have more.
        Ids are never used again, and the rows never change. A damaged entry is logged, and returned
        without its messages.
        """
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
        """Close the connection to the database."""
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
