"""Compute how much room a volume has, and how much of it must stay free.

An SQLite database keeps freed pages and writes the next rows into them. So a volume whose queues
were emptied has room although its file system shows none. The log (WAL) of the database is the
exception: it grows on the volume, whatever is free inside the database. Hence there are two
conditions, and :attr:`DiskRoom.left` is the smaller rest.

Writers other than the journal (sealing, the publisher) may not use pages of the database.
:meth:`Volume.spare` is what the volume itself can give them. Messages cannot use a share of it
(:data:`STATE_SHARES`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

DISK_FREE_MIN = 256 * 1_048_576
"""Bytes that stay free on a volume.

Below this value messages are answered 503, before a write can fail.
"""
DISK_FREE_SHARE = 0.05
"""Share of the volume that stays free, if that is less than :data:`DISK_FREE_MIN`."""
DISK_FREE_FLOOR = 8 * 1_048_576
"""Least number of bytes that stay free on any volume.

A commit and a checkpoint may still write as much (GROUP_BYTES_MAX, twice CHECKPOINT_BYTES).
"""
WAL_EDGE = DISK_FREE_FLOOR // 8
"""Bytes of the volume that stay free even if the WAL has its full size already.

They are for small files and folders.
"""
FREE_PAGES_KEPT = 4 * 1_048_576
"""Bytes of free pages in a database that do not count as room.

Marks of consumers, receipts and streams take pages, too, and are never refused.
"""
STATE_SHARES = 2
"""Factor for the least free room if a Delta state lies on the same volume.

Messages leave that much free, so that the publisher of the Delta tables has a share of its own.
Received rows can then be published and deleted, which frees more than publishing took.
"""


@dataclass(frozen=True, slots=True)
class Volume:
    """A file system, as a process without privileges sees it. ``size`` is its length in bytes."""

    free: int
    """Bytes that may still be written."""
    size: int

    @classmethod
    def look(cls, path: Path) -> Volume:
        """Return the present size and room of the file system on which ``path`` lies.

        Raises :class:`OSError` if the file system cannot be asked.
        """
        found = os.statvfs(path)
        return cls(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    @property
    def least(self) -> int:
        """Return the number of bytes that must stay free for the commits of accepted messages."""
        return min(DISK_FREE_MIN, max(DISK_FREE_FLOOR, int(self.size * DISK_FREE_SHARE)))

    @property
    def spare(self) -> int:
        """Return how many bytes other files than databases may take on the volume.

        The value is negative if less than :attr:`least` is free.
        """
        return self.free - self.least


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """The room on a volume that holds a database, measured at one time."""

    free: int
    """Bytes free on the volume, without bytes that are already promised.

    Promised are bytes for messages that are not written yet, and for the WAL that is not copied yet
    into the database, whose file then grows.
    """
    least: int
    """Bytes that must stay free, of the volume and of the counted pages together."""
    inside: int
    """Bytes of free pages in the database."""
    wal: int
    """Length of the WAL file in bytes.

    The WAL is overwritten in place, and grows to DISK_FREE_FLOOR at least.
    """

    @property
    def counted(self) -> int:
        """Return the bytes of free pages that count as room: all but :data:`FREE_PAGES_KEPT`."""
        return max(0, self.inside - FREE_PAGES_KEPT)

    @property
    def left(self) -> int:
        """Return how many bytes the database and its WAL may still take.

        If the value is negative, the database must not grow.
        """
        for_wal = self.free - max(WAL_EDGE, DISK_FREE_FLOOR - self.wal)
        return min(for_wal, self.free + self.counted - self.least)

    @property
    def without_log(self) -> DiskRoom:
        """Return the room as it would be after the file of the WAL is truncated."""
        return replace(self, free=self.free + self.wal, wal=0)


def wal_bytes(database: Path) -> int:
    """Return the size of the WAL file of ``database`` in bytes; 0 if the file does not exist."""
    with suppress(FileNotFoundError):
        return Path(f"{database}-wal").stat().st_size
    return 0


def on_one_volume(one: Path, other: Path) -> bool:
    """Return whether two folders lie on one file system.

    For a folder that does not exist yet, its nearest existing parent counts. Nothing is raised.
    """
    return _device(one) == _device(other)


def _device(path: Path) -> int | None:
    for each in (path, *path.parents):
        with suppress(OSError):
            return each.stat().st_dev
    return None
