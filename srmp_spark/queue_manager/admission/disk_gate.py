"""Stop accepting messages before the disk is full, and accept them again when there is room.

**Theory of operation.** The gate (:class:`.Gate`) is closed while messages are refused.
Room is the free space of the volume, and the free space inside the database
(store/database/disk_room.py). The gate closes before a write can fail. It opens when there is room
again: rows were purged or trimmed, and their pages take the next rows. While the volume is tight,
unused pages of the database are given back to the volume (store/database/giving_back.py). Then
sealing (rows are copied to segment files, store/stored_rows/sealing.py) and the publisher of the
Delta state, which write files of their own, have room too.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from srmp_spark.store.database.disk_room import (
    DISK_FREE_FLOOR,
    FREE_PAGES_KEPT,
    STATE_SHARES,
    WAL_EDGE,
    DiskRoom,
    Volume,
    on_one_volume,
    wal_bytes,
)
from srmp_spark.store.database.giving_back import GIVE_BACK_BYTES, give_back
from srmp_spark.store.database.reserve import RESERVE_BYTES, Reserve
from srmp_spark.store.database.schema import WAL_KEPT_BYTES
from srmp_spark.store.delta.tables.state_folder import state_folder
from srmp_spark.store.journal import GROUP_BYTES_MAX
from srmp_spark.store.stored_rows.sealing import SEAL_BYTES_MAX

if TYPE_CHECKING:
    from srmp_spark.queue_manager.admission.gate import Gate
    from srmp_spark.store.database.transaction import Transaction
    from srmp_spark.store.directory import DataDirectory
    from srmp_spark.store.journal import Journal

DISK_FULL = "disk-full"
"""Reason that the gate states while it is closed because the disk is full."""
DISK_LOOK_SECONDS = 0.5
DISK_LOOK_BYTES = DISK_FREE_FLOOR // 4
"""Accepted bytes after which the free space is measured, even before DISK_LOOK_SECONDS are over.

A fast sender can fill a small volume in less time.
"""
DISK_TIGHT_FACTOR = 2
"""The volume is tight while less than this many times the least free space is free.

Then rows that are received and durable elsewhere are deleted before their time, and free pages of
the database are given back.
"""
SEAL_ROOM_BYTES = SEAL_BYTES_MAX + GROUP_BYTES_MAX
"""Most bytes of the files of one segment (sealed rows): its posts, and one group more.

With less spare room rows stay unsealed in the database.
"""

log = logging.getLogger(__name__)


class DiskGate:
    """Measures the free space of one data directory. Opens and closes the gate.

    "The log" in this class is the write-ahead log of the database (SQLite's WAL file). A "page" is
    a page of the database file.
    """

    def __init__(
        self, gate: Gate, directory: DataDirectory, journal: Journal, state: str | None
    ) -> None:
        """Prepare to measure. ``state`` is the address of the Delta state, if there is one."""
        self._gate = gate
        self._directory = directory
        self._journal = journal
        folder = None if state is None else state_folder(state)
        self._shares = (
            STATE_SHARES
            if folder is not None and on_one_volume(directory.path, folder.absolute())
            else 1
        )
        self._cut_due = False
        """True when pages were given back and the file is not shorter yet, because a reader of the
        database uses an older state.
        """
        self._log_shuts = False
        """True when the length of the write-ahead log's file is what keeps the gate closed, or what
        keeps pages from being given back.
        """
        self._asked = False
        """True while an operator wants the free pages back, however much room the volume has."""
        self._reserve = Reserve(directory.path)
        self._beyond_tight = 0
        """Bytes that may be taken before the volume is tight, as measured last."""
        self.is_tight = False
        """Whether the volume has so little room that all code that can make room should do so."""
        self.spare = sys.maxsize
        """Bytes of the volume that files other than the databases may take, as measured last."""

    def __repr__(self) -> str:
        return f"<DiskGate tight={self.is_tight} spare={self.spare}>"

    @property
    def is_closed(self) -> bool:
        """Return whether the gate is closed because the disk is full."""
        closed = self._gate.closed
        return closed is not None and closed.reason == DISK_FULL

    def look_again(self) -> None:
        """Call :meth:`look` while a message is being accepted, and ignore an :class:`OSError`.

        Called when the acceptor has accepted as many bytes as the last measurement allowed.
        """
        self._gate.room = DISK_LOOK_BYTES
        with suppress(OSError):  # The next regular look raises the error.
            self.look()

    def look(self) -> None:
        """Measure the free space, and open or close the gate.

        A gate that is closed for another reason stays as it is. Also sets how many bytes may be
        accepted until the next measurement, updates :attr:`spare` and :attr:`is_tight`, and logs a
        change. Raises :class:`OSError` if the volume cannot be measured.
        """
        gate, journal = self._gate, self._journal
        volume = Volume.look(self._directory.path)
        least = self._shares * volume.least
        database = self._directory.database
        promised = gate.unwritten_bytes + max(0, journal.used_bytes - database.stat().st_size)
        room = DiskRoom(volume.free - promised, least, journal.free_bytes, wal_bytes(database))
        self.spare = volume.spare
        self._beyond_tight = volume.free - DISK_TIGHT_FACTOR * least
        self.is_tight = self._beyond_tight < 0
        # Only half of the room counts, because the log takes a message and its checkpoint may take
        # it again. The cap is there because other programs fill the disk meanwhile.
        gate.room = min(DISK_LOOK_BYTES, max(0, room.left) // 2)
        cut_helps = room.without_log.left >= 0 or (
            volume.free < WAL_EDGE <= room.wal and self.gives_back
        )
        self._log_shuts = room.left < 0 and cut_helps
        if room.left < 0 and gate.closed is None:
            gate.close(DISK_FULL, self._told(volume, room, promised))
            told = "disk.full free_bytes=%d promised_bytes=%d free_inside_bytes=%d least_bytes=%d"
            log.error(told, volume.free, promised, room.inside, least)
        elif room.left < 0 and self.is_closed:  # The message states the present numbers.
            gate.close(DISK_FULL, self._told(volume, room, promised))
        elif room.left >= 0 and self.is_closed:
            gate.open()
            log.info("disk.freed free_bytes=%d free_inside_bytes=%d", volume.free, room.inside)

    def _told(self, volume: Volume, room: DiskRoom, promised: int) -> str:
        taken = f", {promised} of them reserved for messages that were accepted" if promised else ""
        inbox = (
            " The Delta state lies on this volume too, and its table inbox keeps every row."
            if self._shares > 1
            else ""
        )
        return (
            f"only {volume.free} bytes are free below the data directory{taken}, "
            f"{room.inside} in its database; "
            f"{room.least} must stay free: delete received rows with `srmp-spark queue trim "
            "NAME --received`, discard waiting ones with `srmp-spark purge --queue NAME`, or give "
            f"the volume room.{inbox} Messages are accepted again without a restart."
        )

    # --- giving back ------------------------------------------------------------------------------

    @property
    def gives_back(self) -> bool:
        """Return whether free pages of the database should be given back to the volume now."""
        journal, wanted = self._journal, self.is_tight or self._asked
        return wanted and journal.can_give_back and journal.free_bytes > FREE_PAGES_KEPT

    def keep_reserve(self) -> None:
        """Make the reserve (:mod:`.reserve`) if it is missing and the volume has room for it."""
        if not self._asked:
            self._reserve.keep(self._beyond_tight)

    def use_reserve(self) -> None:
        """Give the reserve back to the volume if the volume is too full to delete rows.

        Call this before an operator deletes rows. Raises :class:`OSError` if the volume cannot be
        measured.
        """
        if Volume.look(self._directory.path).free < DISK_FREE_FLOOR and self._reserve.release():
            log.warning(
                "disk.reserve_used bytes=%d: to delete rows of a full volume", RESERVE_BYTES
            )
            self.look()

    def ask(self) -> None:
        """Have the free pages given back to the volume now, even if the volume is not tight.

        The caller makes :meth:`give_back` be called. The request ends when no page is left.
        """
        self._asked = True

    async def give_back(self) -> bool:
        """Give some free pages back to the volume, and return whether more should be given back.

        One call moves at most GIVE_BACK_BYTES, a quarter of that if little is free. Nothing is
        moved, and the result is ``False``, if :attr:`gives_back` is false or the volume has less
        than WAL_EDGE free bytes. Raises :class:`OSError` if the volume cannot be measured, and the
        errors of the journal.
        """
        free = Volume.look(self._directory.path).free
        # A page that is moved is written to the log first.
        if not self.gives_back or free < WAL_EDGE:
            self._asked = self._asked and self.gives_back
            return False
        short = free < DISK_FREE_FLOOR
        left = await self._journal.transact(
            partial(_slice, size=GIVE_BACK_BYTES // 4 if short else GIVE_BACK_BYTES)
        )
        self._cut_due = True
        if left == 0 or short:
            await self.cut()
        return left > 0

    async def cut(self) -> None:
        """Shorten the database file to its used pages, if pages were given back since the last cut.

        If a reader of the database uses an older state, the file stays longer, and the next call
        tries again. Then the free space is measured as :meth:`look` does. Raises the errors of
        :meth:`look` and of the journal.
        """
        if not self._cut_due:
            return
        await self._journal.checkpoint()
        self._cut_due = self._directory.database.stat().st_size > self._journal.used_bytes
        self.look()

    async def cut_log(self) -> bool:
        """Shorten the file of the write-ahead log to nothing, if the volume needs its room.

        Return whether that gave the volume room. The room is needed if it opens the gate, or if it
        is the room in which pages are given back. The log is written from its beginning again after
        each checkpoint, and its file keeps the greatest length. It grows again with later messages,
        so this call helps only if the gate opens for them. Then the free space is measured as
        :meth:`look` does. Raises the errors of :meth:`look` and of the journal.
        """
        if not self._log_shuts:
            return False
        journal, before = self._journal, wal_bytes(self._directory.database)
        await journal.transact(partial(_keep_of_log, size=0))
        await journal.checkpoint()  # The commit that restarts the log cuts its file.
        await journal.transact(partial(_keep_of_log, size=WAL_KEPT_BYTES))
        self.look()
        return wal_bytes(self._directory.database) < before


def _keep_of_log(transaction: Transaction, size: int) -> None:
    transaction.connection.execute(f"PRAGMA journal_size_limit = {size:d}")


def _slice(transaction: Transaction, size: int) -> int:
    transaction.written += size
    return give_back(transaction.connection, FREE_PAGES_KEPT, size)
