"""When the WAL of the outbox is copied into the database, and by whom (the inbox has the same question: store/checkpointer.py).

A large batch writes without a pause. If the thread that writes copied too, the other core would be idle meanwhile; if another
thread did all of it, it would never meet the end of the WAL, and the WAL would never be begun anew. So another thread, with a
connection of its own, copies pass after pass, each shorter than the one before; when little is left, the thread that writes
copies that between two transactions.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from srmp_spark.store.outbox.limits import CHECKPOINT_BYTES, CHECKPOINT_REST_BYTES, WAL_BYTES_MAX
from srmp_spark.store.outbox.schema import OUTBOX
from srmp_spark.store.sqlite_file import connect_writer


class Checkpoints:
    """Asked by the one thread that writes, after each transaction."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, on_error: Callable[[Exception], object]
    ) -> None:
        """``connection`` is the one that writes. ``on_error`` is called in either thread; nothing is copied ever after."""
        self._path = path
        self._connection = connection
        self._on_error = on_error
        self._second: sqlite3.Connection | None = None
        self._pass: threading.Thread | None = None
        self._failed = False
        self._written = 0
        """Bytes in the WAL, about."""
        self._copied = 0
        """Of them before the last pass began."""

    def __repr__(self) -> str:
        return (
            f"<Checkpoints written={self._written} copied={self._copied} "
            f"running={self._pass is not None}>"
        )

    def wrote(self, size: int) -> None:
        """A transaction with so many bytes is committed. Copies what is due."""
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
        """Copy all that is in the log, between two transactions: the file of the database then ends with its last page."""
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
        except Exception as error:  # whatever it is, the next write tells
            self._fail(error)
            return
        self._copy(self._second)

    def _copy(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            if "full" not in str(
                error
            ):  # a full disk: nothing was synced, the WAL grows until there is room
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failed = True
        self._on_error(error)

    def close(self) -> None:
        """Wait for the pass that runs; the last connection to close copies what is left."""
        if self._pass is not None:
            self._pass.join()
        if self._second is not None:
            self._second.close()
