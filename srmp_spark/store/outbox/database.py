"""One connection, one owner, one way to write: a transaction that is fenced, synced, and proved.

The owner is the sender process. ``outbox.lock`` keeps a second one out; a new process waits for the end of the old one. Each
owner raises the fence in ``head``, and each transaction checks it and counts the position up.

After a failed write or sync nothing more is written by this process (Rebello et al., ATC 2020): :class:`StoreSyncError`, the
process ends, and the next one reads from the disk what is true. A caller's own error in a transaction undoes that transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from srmp_spark.errors import StoreDamagedError, StoreError, StoreSyncError
from srmp_spark.srmp.effects import Committed
from srmp_spark.store.disk_room import FREE_PAGES_KEPT, WAL_EDGE, Volume
from srmp_spark.store.giving_back import GIVE_BACK_BYTES, can_give_back, give_back
from srmp_spark.store.lock import take_lock
from srmp_spark.store.outbox.checkpoints import Checkpoints
from srmp_spark.store.outbox.errors import NO_ROOM, BatchError
from srmp_spark.store.outbox.limits import (
    DISK_RESERVE_BYTES,
    DISK_RESERVE_SHARE,
    LOCK_WAIT_S,
    WAL_BYTES_MAX,
)
from srmp_spark.store.outbox.queue_rows import add_columns
from srmp_spark.store.outbox.schema import (
    DATABASE_FILE,
    LOCK_FILE,
    LOG_BYTES_KEPT,
    OUTBOX,
    PAGE_SIZE_BYTES,
)
from srmp_spark.store.outbox.which_file import WHICH_FILE, foreign_because, read_which, write_which
from srmp_spark.store.sqlite_file import assert_durable, connect_writer, readable

COUNTED = ("batches", "parts", "data", "scopes", "sources", "identity_log")
"""Tables whose rowids are given out here, so that rows can refer to each other before they are written."""

GIVE_BACK_BELOW = 2
"""Free pages are given back to the volume while it has less than so many times the reserve free."""


def _reserve(volume: Volume) -> int:
    """Return what a commit leaves free on a volume."""
    return min(DISK_RESERVE_BYTES, max(volume.least, volume.size // DISK_RESERVE_SHARE))


class OutboxDatabase:
    """The open database. For one thread at a time."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, lock: IO[str], foreign: str | None = None
    ) -> None:
        self.path = path
        self.foreign = foreign
        """Why this is not the database that was used here last; ``None`` if it is."""
        self._noted = 0
        self.connection = connection
        self._lock = lock
        self._failure: StoreSyncError | None = None
        self._checkpoints = Checkpoints(
            path, connection, lambda error: self.fail("a checkpoint", error)
        )
        self.position, fence = connection.execute("SELECT position, fence FROM head").fetchone()
        self._fence: int = fence
        key = {"batches": "no"}
        self._last = {
            table: connection.execute(
                f"SELECT coalesce(max({key.get(table, 'id')}), 0) FROM {table}"  # noqa: S608  # our own names
            ).fetchone()[0]
            for table in COUNTED
        }
        # What is forwarded has a number of a batch and no row in batches.
        (of_parts,) = connection.execute(
            "SELECT coalesce(max(batch_no), 0) FROM parts WHERE typeof(batch_no) = 'integer'"
        ).fetchone()
        # What is known of positions may outlive its batch.
        (of_positions,) = connection.execute(  # numbers come before texts
            "SELECT coalesce(max(batch_no), 0) FROM position_contents WHERE batch_no < ''"
        ).fetchone()
        # So may the number of its conflicts: version 0.1 forgets batches and does not know of it.
        (of_conflicts,) = connection.execute(
            "SELECT coalesce(max(batch_no), 0) FROM batch_conflicts"
        ).fetchone()
        self._last["batches"] = max(
            self._last["batches"], of_parts, int(of_positions), of_conflicts
        )

    @classmethod
    def open(cls, directory: Path, *, lock_wait_s: float = LOCK_WAIT_S) -> OutboxDatabase:
        """Take ownership of the outbox in ``directory``, which must be the data directory of a queue manager that runs.

        Raises :class:`StoreInUseError` (exit code 5), :class:`StoreDamagedError` (6), :class:`StoreSyncError` (1),
        :class:`StoreError`.
        """
        try:
            lock = take_lock(directory / LOCK_FILE, lock_wait_s)
        except OSError as error:
            raise StoreError(f"the data directory {directory} cannot be used: {error}") from error
        path = directory / DATABASE_FILE
        try:
            which = read_which(directory)
            connection = connect_writer(path, OUTBOX)
            try:
                with readable(path, OUTBOX.restore_hint):
                    add_columns(connection)
                    position, fence = connection.execute(
                        "SELECT position, fence FROM head"
                    ).fetchone()
                    foreign = foreign_because(which, directory, fence=fence, position=position)
                    connection.execute("UPDATE head SET fence = fence + 1, position = position + 1")
                    return cls(path, connection, lock, foreign)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            lock.close()
            raise

    @property
    def fence(self) -> int:
        """Which owner of the outbox this process is."""
        return self._fence

    def note_position(self) -> None:
        """Put on record which database this is and how far it came: an older one put in its place is then found out.

        Called when what was foreign is dealt with, then at times, and at a clean stop.
        """
        if self.position != self._noted:
            try:
                write_which(self.path.parent, fence=self._fence, position=self.position)
            except OSError as error:
                raise StoreSyncError(
                    f"{self.path.parent} cannot be written ({error}): make room or repair the disk"
                ) from error
            self._noted = self.position

    def next_id(self, table: str) -> int:
        """A rowid of ``table`` that was never given out by this process and is not in use."""
        self._last[table] += 1
        return int(self._last[table])

    @contextmanager
    def transaction(self, *, unsynced_bytes: int = 0) -> Iterator[sqlite3.Connection]:
        """All or nothing of what the block writes; on stable storage when it ends.

        ``unsynced_bytes``: about how much is written, for the checkpoint. What the block raises undoes it and is raised. Raises
        :class:`StoreSyncError` when SQLite fails, and ever after.
        """
        if self._failure is not None:
            raise self._failure
        connection = self.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            moved = connection.execute(
                "UPDATE head SET position = position + 1 WHERE fence = ? AND position = ?",
                (self._fence, self.position),
            )
            if moved.rowcount != 1:
                message = (
                    "another process has taken over this outbox: this one must not write any more"
                )
                raise StoreError(message)  # noqa: TRY301  # undone below like everything else
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self.fail("a write", error) from error
        except StoreError as error:
            raise self.fail("a write", error) from error
        except BaseException:
            self._undo()
            raise
        self.position += 1
        self._checkpoints.wrote(unsynced_bytes + PAGE_SIZE_BYTES * 4)
        if self._failure is not None:
            raise self._failure

    def keep_log(self, *, is_long: bool) -> None:
        """Say whether the file of the WAL keeps its length when the WAL is begun anew: while a large batch is written.

        Cut and made longer again every 100 MB, it costs the thread that writes a tenth of its time, for pages that are made
        anew.
        """
        if self._failure is not None:
            return
        try:
            self.connection.execute(
                f"PRAGMA journal_size_limit = {WAL_BYTES_MAX if is_long else LOG_BYTES_KEPT}"
            )
        except sqlite3.Error as error:
            raise self.fail("a setting", error) from error

    def proof(self) -> Committed:
        """Proof of everything up to :attr:`position`; only between transactions."""
        assert not self.connection.in_transaction, "what is under way is not synced"
        if self._failure is not None:
            raise self._failure
        return Committed(self.position)

    def check_room(self, files: int, inside: int, doing: str) -> None:
        """Raise :class:`BatchError` (503) unless the volume has room for ``files`` bytes and the database for ``inside`` more.

        ``files`` bytes go into the log, or into files beside it. Pages that are free in the database count for the rest
        (store/disk_room.py). Only between transactions.
        """
        volume = Volume.look(self.path.parent)
        counted = max(0, self._free_bytes() - FREE_PAGES_KEPT)
        needed = files + inside + _reserve(volume)
        if volume.free < files + WAL_EDGE or volume.free + counted < needed:
            message = (
                f"the disk of the outbox has {volume.free} bytes free, and "
                f"{counted} in its database; {doing} may need {needed}"
            )
            raise BatchError(
                503,
                NO_ROOM,
                message,
                "make room, then commit again; what waits to be tried again is, by itself",
            )

    def give_back(self) -> bool:
        """Give a slice of the free pages back to a tight volume. Return whether there is more to do."""
        volume = Volume.look(self.path.parent)
        if (
            volume.free >= GIVE_BACK_BELOW * _reserve(volume)
            or self._free_bytes() <= FREE_PAGES_KEPT
        ):
            return False
        if not can_give_back(self.connection):
            return False
        with self.transaction(unsynced_bytes=GIVE_BACK_BYTES) as connection:
            left = give_back(connection, FREE_PAGES_KEPT)
        if left == 0:
            self._checkpoints.finish()
        return left > 0

    def _free_bytes(self) -> int:
        (pages,) = self.connection.execute("PRAGMA freelist_count").fetchone()
        return int(pages) * PAGE_SIZE_BYTES

    def fail(self, doing: str, error: Exception) -> StoreSyncError:
        """Nothing more is written; what to raise. The process must end."""
        if self._failure is None:
            self._failure = StoreSyncError(
                f"{doing} of the outbox failed after commit {self.position}: {error}"
            )
        return self._failure

    def _undo(self) -> None:
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self.fail("an undo", error)

    def assert_durable(self) -> None:
        """Raise :class:`StoreError` unless a commit is a sync."""
        assert_durable(self.connection, OUTBOX)

    def belongs_to(self, queue_manager: str) -> None:
        """Raise :class:`StoreDamagedError` if the outbox was made by another queue manager."""
        row = self.connection.execute(
            "SELECT value FROM meta WHERE key = 'queue_manager'"
        ).fetchone()
        if row is not None and row[0] != queue_manager:
            raise StoreDamagedError(
                f"{self.path} belongs to queue manager {row[0]}, the data directory to "
                f"{queue_manager}: they were mixed up; "
                "put back a backup of the whole data directory, or move this file and "
                f"{WHICH_FILE} away to begin with an "
                "empty outbox"
            )

    def close(self) -> None:
        """Give the outbox free. After a failure nothing is synced again: the process should simply end."""
        self._checkpoints.close()
        self.connection.close()
        self._lock.close()

    def __repr__(self) -> str:
        return (
            f"<OutboxDatabase {self.path} position={self.position} fence={self._fence} "
            f"failed={self._failure is not None}>"
        )
