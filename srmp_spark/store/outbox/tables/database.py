"""The database file of the outbox: its one owner, its connection, and its transactions.

The owner is the sender process. The lock file ``outbox.lock`` keeps a second owner out, and a new
process waits for the end of the old process. Each owner raises the fence in the table ``head``.
Each transaction checks the fence, counts the position up, and is synced.

After a failed write or sync this process writes nothing more (Rebello et al., ATC 2020). The
process raises :class:`StoreSyncError` and ends, and the next process reads from the disk what is
stored. An error of the caller within a transaction undoes that transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from srmp_spark.errors import StoreDamagedError, StoreError, StoreSyncError
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.store.database.disk_room import FREE_PAGES_KEPT, WAL_EDGE, Volume
from srmp_spark.store.database.giving_back import GIVE_BACK_BYTES, can_give_back, give_back
from srmp_spark.store.database.lock import take_lock
from srmp_spark.store.database.sqlite_file import assert_durable, connect_writer, readable
from srmp_spark.store.outbox.errors import NO_ROOM, BatchError
from srmp_spark.store.outbox.limits import (
    DISK_RESERVE_BYTES,
    DISK_RESERVE_SHARE,
    LOCK_WAIT_S,
    WAL_BYTES_MAX,
)
from srmp_spark.store.outbox.tables.checkpoints import WalCheckpoints
from srmp_spark.store.outbox.tables.queue_rows import add_columns
from srmp_spark.store.outbox.tables.schema import (
    DATABASE_FILE,
    LOCK_FILE,
    LOG_BYTES_KEPT,
    OUTBOX,
    PAGE_SIZE_BYTES,
)
from srmp_spark.store.outbox.tables.which_file import (
    WHICH_FILE,
    foreign_because,
    read_which,
    write_which,
)

COUNTED = ("batches", "parts", "data", "scopes", "sources", "identity_log")
"""Tables whose row ids this module assigns (:meth:`OutboxDatabase.next_id`).

So rows can refer to each other before they are written.
"""

GIVE_BACK_BELOW = 2
"""Factor: free pages are returned to a volume with less room than this times the reserve."""


def _reserve(volume: Volume) -> int:
    """Return how many bytes a commit leaves free on a volume.

    See DISK_RESERVE_BYTES and DISK_RESERVE_SHARE (:mod:`.limits`).
    """
    return min(DISK_RESERVE_BYTES, max(volume.least, volume.size // DISK_RESERVE_SHARE))


class OutboxDatabase:
    """Owns the open database of the outbox, and runs its transactions.

    Only one thread may use the object at a time. ``position`` is the number of the last commit.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, lock: IO[str], foreign: str | None = None
    ) -> None:
        self.path = path
        self.foreign = foreign
        """Why this is not the database that this directory had last, or ``None`` if it is the same.
        """
        self._noted = 0
        self.connection = connection
        self._lock = lock
        self._failure: StoreSyncError | None = None
        self._checkpoints = WalCheckpoints(
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
        # Forwarded messages have the number of a batch and no row in ``batches``.
        (of_parts,) = connection.execute(
            "SELECT coalesce(max(batch_no), 0) FROM parts WHERE typeof(batch_no) = 'integer'"
        ).fetchone()
        # Known positions may outlive their batch.
        # Numbers sort before texts, so only numbers are compared.
        (of_positions,) = connection.execute(
            "SELECT coalesce(max(batch_no), 0) FROM position_contents WHERE batch_no < ''"
        ).fetchone()
        # So may the conflicts and the bad rows of a batch, because version 0.1 deletes batches and
        # not what it does not know of them.
        (of_counts,) = connection.execute(
            "SELECT max((SELECT coalesce(max(batch_no), 0) FROM batch_conflicts), "
            "(SELECT coalesce(max(batch_no), 0) FROM batch_bad_rows))"
        ).fetchone()
        self._last["batches"] = max(self._last["batches"], of_parts, int(of_positions), of_counts)

    @classmethod
    def open(cls, directory: Path, *, lock_wait_s: float = LOCK_WAIT_S) -> OutboxDatabase:
        """Open the outbox in ``directory`` as its owner, and create it if it does not exist.

        The directory belongs to a running queue manager. If another process has the lock, the call
        waits up to ``lock_wait_s`` seconds. Raises :class:`StoreInUseError` (exit code 5) if it
        still has the lock then, :class:`StoreDamagedError` (6), :class:`StoreSyncError` if the disk
        is full or refuses (1), and :class:`StoreError` otherwise.
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
        """Return the number of this owner of the outbox. Each new owner has a higher number."""
        return self._fence

    def note_position(self) -> None:
        """Write the file ``outbox.identity``, with the number of the last commit.

        The file (:mod:`.which_file`) shows at the next open if an older database is in the place of
        this one. Nothing is written if no commit was made since the last call. The caller calls
        this method after it has dealt with a foreign database, then from time to time, and at a
        clean stop. Raises :class:`StoreSyncError` if the file cannot be written.
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
        """Return the next unused row id of ``table``, one of :data:`COUNTED`.

        This process assigns each row id once.
        """
        self._last[table] += 1
        return int(self._last[table])

    @contextmanager
    def transaction(self, *, unsynced_bytes: int = 0) -> Iterator[sqlite3.Connection]:
        """Run the block of a ``with`` statement as one transaction, and sync it to the disk.

        The transaction is on stable storage when the block has ended. ``unsynced_bytes`` is about
        the number of bytes written, which decides when the WAL is copied. An error that the block
        raises undoes the transaction and is raised again. An SQLite error or a :class:`StoreError`
        is final: then :class:`StoreSyncError` is raised, now and in every later call.
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
                    "another process has taken over this outbox: this process must not write again"
                )
                raise StoreError(message)  # noqa: TRY301  # handled below
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
        """Set how much of the WAL's file is kept when SQLite begins the WAL anew.

        With ``is_long`` the file keeps up to :data:`.WAL_BYTES_MAX` bytes, else
        :data:`.LOG_BYTES_KEPT`. Use ``is_long`` while a large batch is written. If the file were
        cut and extended again every 100 MB, the thread that writes would spend a tenth of its time
        on it. After a failure of the outbox the call does nothing. Raises :class:`StoreSyncError`
        if SQLite refuses the setting; the outbox has then failed (:meth:`fail`).
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
        """Return the proof (:class:`.Committed`) that everything up to the last commit is stored.

        Call the method only between transactions. Raises :class:`StoreSyncError` after a failure.
        """
        assert not self.connection.in_transaction, "what is under way is not synced"
        if self._failure is not None:
            raise self._failure
        return Committed(self.position)

    def check_room(self, files: int, inside: int, doing: str) -> None:
        """Raise :class:`BatchError` (503) unless the disk has room for the given bytes.

        ``files`` bytes are written to the WAL or to files next to the database. ``inside`` bytes
        are written to the database, where free pages count as room
        (``store/database/disk_room.py``). ``doing`` names the work in the error's text. Call this
        method only between transactions. Raises :class:`OSError` if the volume cannot be asked.
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
                "make room, then commit again; waiting messages are tried again by themselves",
            )

    def give_back(self) -> bool:
        """Give one slice of the free pages back to a volume that is nearly full.

        The slice is given back in a transaction of its own. Return whether there is more to give
        back now. With enough room nothing is given back, and the result is False.
        """
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
        """Make every later write fail, and return the error that the caller must raise.

        The process must end. The first failure counts; later calls return its error.
        """
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
        """Raise :class:`StoreError` unless the settings make each commit sync the disk."""
        assert_durable(self.connection, OUTBOX)

    def belongs_to(self, queue_manager: str) -> None:
        """Raise :class:`StoreDamagedError` if another queue manager made the outbox."""
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
        """Close the database and release the lock of the outbox.

        SQLite syncs the database when it is closed. So do not close it after a failure: the process
        should simply end, because a failed sync must not be tried again.
        """
        self._checkpoints.close()
        self.connection.close()
        self._lock.close()

    def __repr__(self) -> str:
        return (
            f"<OutboxDatabase {self.path} position={self.position} fence={self._fence} "
            f"failed={self._failure is not None}>"
        )
