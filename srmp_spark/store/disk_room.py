"""How much room a volume has, how much of it must stay free, and what the free pages of a database count for.

A database of SQLite keeps the pages that were freed and writes the next rows into them. So a volume whose queues were
emptied has room although its file system shows none. The log (WAL) of the database is the exception: it grows on the
volume, whatever is free inside. Hence two conditions, and :attr:`DiskRoom.left` is the smaller rest.

Whoever writes beside the messages (sealing, the publisher) may not use pages of the database: :meth:`Volume.spare` is
what the volume itself can give, and a share of it stays out of the messages' reach (:data:`STATE_SHARES`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

DISK_FREE_MIN = 256 * 1_048_576
"""Bytes that stay free: below it messages are answered 503, before a write can fail."""
DISK_FREE_SHARE = 0.05
"""On a small volume this share of it is enough …"""
DISK_FREE_FLOOR = 8 * 1_048_576
"""… but not less than what a commit and a checkpoint may still write (GROUP_BYTES_MAX, twice CHECKPOINT_BYTES)."""
WAL_EDGE = DISK_FREE_FLOOR // 8
"""The log has its full size already: so much of the volume stays free all the same, for small files and folders."""
FREE_PAGES_KEPT = 4 * 1_048_576
"""Free pages of a database that count for nothing: marks, receipts and streams take pages too, and are never refused."""
STATE_SHARES = 2
"""With a Delta state on the same volume messages leave so many times the least free, so that the publisher has a part for
itself: rows that are received can then be published, deleted and give back more than their publishing took."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A file system, as a process without privileges sees it."""

    free: int
    """Bytes that may still be written."""
    size: int

    @classmethod
    def look(cls, path: Path) -> Volume:
        """Ask the file system that ``path`` lies on. Raises :class:`OSError`."""
        found = os.statvfs(path)
        return cls(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    @property
    def least(self) -> int:
        """Bytes that stay free for the commits of what was taken already."""
        return min(DISK_FREE_MIN, max(DISK_FREE_FLOOR, int(self.size * DISK_FREE_SHARE)))

    @property
    def spare(self) -> int:
        """Bytes that files beside the databases may take; negative below the least."""
        return self.free - self.least


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """A volume with a database on it."""

    free: int
    """Bytes free on the volume, without those that are promised already: of messages that are not written, and of the log
    that is not copied into the database, whose file grows then."""
    least: int
    """Bytes that stay free: of the volume and of the pages that count."""
    inside: int
    """Bytes of free pages in the database."""
    wal: int
    """Bytes that the log's file has: it is overwritten in place, and grows to DISK_FREE_FLOOR at least."""

    @property
    def counted(self) -> int:
        """Bytes of free pages that count as room."""
        return max(0, self.inside - FREE_PAGES_KEPT)

    @property
    def left(self) -> int:
        """Bytes that may be written into the database; negative: it must not grow."""
        for_wal = self.free - max(WAL_EDGE, DISK_FREE_FLOOR - self.wal)
        return min(for_wal, self.free + self.counted - self.least)

    @property
    def without_log(self) -> DiskRoom:
        """What there is once the log's file is cut."""
        return replace(self, free=self.free + self.wal, wal=0)


def wal_bytes(database: Path) -> int:
    """Return the size of the log's file; 0 if there is none."""
    with suppress(FileNotFoundError):
        return Path(f"{database}-wal").stat().st_size
    return 0


def on_one_volume(one: Path, other: Path) -> bool:
    """Return whether two folders lie on one file system; of a folder that is not made yet, where it will be."""
    return _device(one) == _device(other)


def _device(path: Path) -> int | None:
    for each in (path, *path.parents):
        with suppress(OSError):
            return each.stat().st_dev
    return None
