"""Keep a file whose room is given back when another program has filled the volume.

Deleting rows takes room first: each commit is written to the log of the database before pages are
free. This queue manager stops accepting messages while there is still room for that. Another
program may take the rest. Then this file is deleted, so that an operator can delete rows, or that
the next start succeeds. The file is made again when the volume has room.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from srmp_spark.private_files import FILE_MODE
from srmp_spark.store.database.disk_room import DISK_FREE_FLOOR, WAL_EDGE, Volume

RESERVE_FILE = "room.reserve"
"""Name of the file in the data directory."""
RESERVE_BYTES = DISK_FREE_FLOOR
"""Length of the file: as much as a commit and a checkpoint may write."""


class Reserve:
    """The reserve of one data directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / RESERVE_FILE

    def keep(self, spare: int) -> bool:
        """Make the file if it is missing and fits in ``spare`` bytes. Return whether it is there.

        A volume that fills up meanwhile, or a file system that cannot allocate, leaves no file.
        """
        if self._path.exists():
            return True
        if spare < RESERVE_BYTES:
            return False
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
            try:
                os.posix_fallocate(file, 0, RESERVE_BYTES)
            finally:
                os.close(file)
        except OSError:
            self.release()
            return False
        return True

    def release(self) -> bool:
        """Delete the file. Return whether there was one. Never raises :class:`OSError`."""
        with contextlib.suppress(OSError):
            self._path.unlink()
            return True
        return False


def release_if_short(directory: Path) -> bool:
    """Delete the reserve of ``directory`` if its volume has less than WAL_EDGE free bytes.

    Return whether the reserve was deleted. A start could not write its first bytes otherwise.
    """
    try:
        free = Volume.look(directory).free
    except OSError:
        return False
    return free < WAL_EDGE and Reserve(directory).release()
