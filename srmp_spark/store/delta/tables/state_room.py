"""Limit how much the publisher may write.

On the volume of the data directory the publisher leaves what commits of messages need. The queue
manager's gate keeps messages from using a part of that volume (store/database/disk_room.py,
STATE_SHARES). The publisher uses that part, and nothing below it. An object store and a separate
volume have no such limit: there a full disk stops only the publisher.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from srmp_spark.errors import StoreError
from srmp_spark.store.database.disk_room import Volume, on_one_volume

LOOK_BYTES = 1 << 20
"""Bytes of one file after which the free room of the volume is read again.

Other programs write to the volume, too.
"""
CYCLE_BYTES_MIN = 1 << 20
"""Bytes that must be free before a cycle begins, for the tables of current state and the log
entries of all tables.
"""


class NoRoomError(StoreError):
    """The volume of the Delta state has no room for a write. The rows stay in the log."""


class StateRoom:
    """Computes how much one publisher may still write on the volume of the Delta state."""

    def __init__(self, data_dir: Path, folder: Path | None) -> None:
        """Use ``folder`` as the folder of the Delta state; ``None``: it is on an object store."""
        self._data_dir = data_dir.absolute()
        self._folder = folder and folder.absolute()

    def __repr__(self) -> str:
        return f"<StateRoom of {self._folder}>"

    def spare(self) -> int:
        """Return how many bytes may be written now; without a limit it is ``sys.maxsize``.

        The result is negative if commits of messages already lack room.
        """
        if self._folder is None or not on_one_volume(self._data_dir, self._folder):
            return sys.maxsize
        return Volume.look(self._data_dir).spare

    def check(self, needed: int) -> int:
        """Return how many bytes may be written now, which is at least ``needed``.

        Raises :class:`NoRoomError` if there are fewer than ``needed``.
        """
        spare = self.spare()
        if spare < needed:
            volume = Volume.look(self._data_dir)
            raise NoRoomError(
                f"the volume of --state and of the data directory has {volume.free} bytes "
                f"free; {needed} must be written, and {volume.least} stay reserved for "
                "accepted messages: make room, or put --state on a volume of its own; the "
                "publisher tries again"
            )
        return spare


class GuardedFile(io.BufferedWriter):
    """A buffered file that checks the free room before each LOOK_BYTES bytes are written.

    ``check`` is :meth:`StateRoom.check`.
    """

    def __init__(self, raw: io.FileIO, check: Callable[[int], int]) -> None:
        super().__init__(raw)
        self._check = check
        self._left = 0

    def write(self, data: Any) -> int:  # noqa: ANN401  # any buffer, as in the io module
        """Write all of ``data``, and return its length in bytes.

        Raises :class:`NoRoomError`, and writes nothing, if there is no room.
        """
        size = memoryview(data).nbytes
        if size > self._left:
            self._left = min(self._check(size), max(size, LOOK_BYTES))
        self._left -= size
        return super().write(data)
