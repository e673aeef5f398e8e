"""How much the publisher may write: on the volume of the data directory it leaves what commits of messages need.

The queue manager's gate keeps a part of that volume from messages (store/disk_room.py, STATE_SHARES); the publisher uses
that part, and never what lies below it. An object store and a volume of its own have no such limit: there a full disk
stops the publisher alone.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from srmp_spark.errors import StoreError
from srmp_spark.store.disk_room import Volume, on_one_volume

LOOK_BYTES = 1 << 20
"""After so many bytes of one file the volume is asked again: others write too."""
CYCLE_BYTES_MIN = 1 << 20
"""A cycle does not begin with less: the tables of current state, and the log entries of all."""


class NoRoomError(StoreError):
    """The volume of the Delta state has no room for more; the rows stay in the log."""


class StateRoom:
    """The room of one publisher."""

    def __init__(self, data_dir: Path, folder: Path | None) -> None:
        """``folder`` is the Delta state's; ``None``: it lies on an object store."""
        self._data_dir = data_dir.absolute()
        self._folder = folder and folder.absolute()

    def __repr__(self) -> str:
        return f"<StateRoom of {self._folder}>"

    def spare(self) -> int:
        """Return how many bytes may be written."""
        if self._folder is None or not on_one_volume(self._data_dir, self._folder):
            return sys.maxsize
        return Volume.look(self._data_dir).spare

    def check(self, needed: int) -> int:
        """Return how many bytes may be written. Raises :class:`NoRoomError` if they are fewer than ``needed``."""
        spare = self.spare()
        if spare < needed:
            volume = Volume.look(self._data_dir)
            raise NoRoomError(
                f"the volume of --state and of the data directory has {volume.free} bytes "
                f"free; {needed} are to be written, "
                f"and {volume.least} stay free for what is accepted already: make room, "
                "or put --state on a volume of its "
                "own; it is tried again by itself"
            )
        return spare


class GuardedFile(io.BufferedWriter):
    """A file that asks for room while it is written."""

    def __init__(self, raw: io.FileIO, check: Callable[[int], int]) -> None:
        super().__init__(raw)
        self._check = check
        self._left = 0

    def write(self, data: Any) -> int:  # noqa: ANN401  # any buffer, as io's own
        """Write all of it. Raises :class:`NoRoomError`."""
        size = memoryview(data).nbytes
        if size > self._left:
            self._left = min(self._check(size), max(size, LOOK_BYTES))
        self._left -= size
        return super().write(data)
