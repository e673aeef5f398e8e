"""Read the outbox of a running queue manager: the messages that wait, and its dead letters."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from srmp_spark.srmp.sending.outgoing_effects import Load, OutgoingQueueRow, QueueKey, StoredMessage
from srmp_spark.store.database.sqlite_file import connect_reader
from srmp_spark.store.outbox.messages.waiting import SERIAL_MAX, MovedGroup, WaitingMessages
from srmp_spark.store.outbox.tables.queue_rows import load_queues
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE, OUTBOX

ROWS_MAX, BYTES_MAX = 10**6, 2**40
"""More than any test has."""


class OutboxReader:
    """Reads an outbox that another process owns."""

    def __init__(self, directory: Path) -> None:
        """Open the outbox of the data directory ``directory`` for reading."""
        self._connection = connect_reader(directory / DATABASE_FILE, OUTBOX)
        facts = dict(self._connection.execute("SELECT key, value FROM meta"))
        self._waiting = WaitingMessages(
            self._connection, str(facts.get("queue_manager", "")), _no_ids
        )

    def queues(self) -> list[OutgoingQueueRow]:
        """Return the stored state of each outgoing queue, as the sending engine saved it."""
        return load_queues(self._connection)

    def waiting(self, key: QueueKey) -> list[StoredMessage]:
        """Return all messages that wait in a queue, by serial."""
        with self._snapshot() as connection:
            (number,) = connection.execute(
                "SELECT id FROM queues WHERE destination = ? AND kind = ?", key
            ).fetchone()
            return self._waiting.load(Load(key, 0, SERIAL_MAX, ROWS_MAX, BYTES_MAX, 0), number)

    def moved(self) -> list[MovedGroup]:
        """Return all dead letters and journal copies."""
        with self._snapshot():
            return list(self._waiting.moved_groups(0, ROWS_MAX))

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN")
        try:
            yield self._connection
        finally:
            self._connection.execute("COMMIT")

    def __enter__(self) -> OutboxReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()


def _no_ids() -> int:
    raise AssertionError("a reader writes nothing")
