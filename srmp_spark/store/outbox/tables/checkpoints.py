"""Decide when the WAL of the outbox is copied into the database, and which thread copies it.

The inbox answers the same question in ``store/database/checkpointer.py``.

A large batch writes without a pause. If the thread that writes also copied the WAL, the other core
would be idle meanwhile. If another thread did all of the copying, that thread would never reach the
end of the WAL, and SQLite would never begin the WAL anew. So another thread with its own connection
copies pass after pass, and each pass is shorter than the pass before. When little is left, the
thread that writes copies the rest between two transactions.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from srmp_spark.store.database.sqlite_file import connect_writer
from srmp_spark.store.outbox.limits import CHECKPOINT_BYTES, CHECKPOINT_REST_BYTES, WAL_BYTES_MAX
from srmp_spark.store.outbox.tables.schema import OUTBOX


class WalCheckpoints:
    """Copies the WAL of the outbox into the database, in two threads by turns.

    The one thread that writes calls :meth:`wrote` after each transaction.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, on_error: Callable[[Exception], object]
    ) -> None:
        """Begin without a copy in progress. ``connection`` is the one that writes.

        ``on_error`` is called with an error of a copy, in either thread. After an error nothing
        more is copied.
        """
        self._path = path
        self._connection = connection
        self._on_error = on_error
        self._second: sqlite3.Connection | None = None
        self._pass: threading.Thread | None = None
        self._failed = False
        self._written = 0
        """Approximate number of bytes in the WAL."""
        self._copied = 0
        """How many of the ``_written`` bytes the last pass copies."""

    def __repr__(self) -> str:
        return (
            f"<Checkpoints written={self._written} copied={self._copied} "
            f"running={self._pass is not None}>"
        )

    def wrote(self, size: int) -> None:
        """Count a committed transaction of ``size`` bytes, and copy the WAL if it is due.

        A thread of this object copies most of the WAL. The caller copies the rest, and waits for
        the thread if the WAL has WAL_BYTES_MAX bytes. An error is reported to ``on_error``, and not
        raised.
        """
        self._written += size
        if self._pass is not None:
            if self._pass.is_alive() and self._written < WAL_BYTES_MAX:
                return
            self._pass.join()
            self._pass = None
        if self._failed:
            return
        left = self._written - self._copied
        if self._written >= WAL_BYTES_MAX or (self._copied and left <= CHECKPOINT_REST_BYTES):
            self._copy(self._connection)
            self._written = self._copied = 0
        elif left >= CHECKPOINT_BYTES:
            self._copied = self._written
            self._pass = threading.Thread(target=self._run, name="outbox-checkpoint", daemon=True)
            self._pass.start()

    def finish(self) -> None:
        """Copy the whole WAL into the database, and return when that is done.

        Call this method between two transactions. Afterwards the file of the database ends with its
        last page. A reader with an open snapshot, a full disk or an error may prevent that; nothing
        is raised then.
        """
        if self._pass is not None:
            self._pass.join()
            self._pass = None
        if not self._failed:
            self._copy(self._connection)
            self._written = self._copied = 0

    def _run(self) -> None:
        try:
            if self._second is None:
                self._second = connect_writer(self._path, OUTBOX)
        except Exception as error:
            # Whatever the error is, the next write raises it.
            self._fail(error)
            return
        self._copy(self._second)

    def _copy(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            # If the disk is full, nothing was synced, and the WAL grows until there is room.
            if "full" not in str(error):
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failed = True
        self._on_error(error)

    def close(self) -> None:
        """Wait for the pass in progress, and close the second connection.

        SQLite copies the rest of the WAL when the last connection to the database closes.
        """
        if self._pass is not None:
            self._pass.join()
        if self._second is not None:
            self._second.close()
