"""Copy the segments that a snapshot of the database names.

Retention may delete the files of a segment while they are copied. So the files that exist are
copied *before* the snapshot, which may take long. After the snapshot only the files that are newer
are missing, and retention deletes the oldest rows first. A file that is gone nevertheless makes the
backup take another snapshot (:mod:`.backup`). The copies of the first round stay and need not be
made again.

A name may have been used by a segment that was never committed. So a copy counts only if its length
and its checksum are those that the snapshot names.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from srmp_spark.private_files import FOLDER_MODE
from srmp_spark.store.backup.files import OnBytes, Sums, copy_file
from srmp_spark.store.database.durable import sync_directory
from srmp_spark.store.database.schema import connect_reader
from srmp_spark.store.database.sweeper import SEGMENT_ENDINGS
from srmp_spark.store.directory import SEGMENTS_DIRECTORY


class NamedFile(NamedTuple):
    """A file of a segment as the database names it. ``name`` is its path below ``segments``."""

    name: str
    bytes: int
    crc: int


def named_files(database: Path) -> list[NamedFile]:
    """Return the files of all segments that ``database`` names. Raises SQLite's errors."""
    with closing(connect_reader(database)) as connection:
        return [
            NamedFile(f"{file}{ending}", size, crc)
            for file, *sums in connection.execute(
                "SELECT file, columns_bytes, columns_crc, posts_bytes, posts_crc FROM segments"
            )
            for ending, size, crc in zip(SEGMENT_ENDINGS, sums[::2], sums[1::2], strict=True)
        ]


class SegmentCopies:
    """The copies of the source's segments in the folder of a backup."""

    def __init__(self, data_dir: Path, folder: Path, on_bytes: OnBytes) -> None:
        self._from = data_dir / SEGMENTS_DIRECTORY
        self._to = folder / SEGMENTS_DIRECTORY
        self.on_bytes = on_bytes
        self.sums: dict[str, Sums] = {}
        """The sums of each copied file, by its path below ``segments``."""
        self._to.mkdir(mode=FOLDER_MODE)

    def copy_present(self) -> None:
        """Copy each file of the source that has no copy yet. Raises :class:`OSError`."""
        for path in sorted(self._from.glob("*/*")):
            if path.name.endswith(SEGMENT_ENDINGS) and not path.name.startswith("."):
                self._copy(path.relative_to(self._from).as_posix())

    def settle(self, named: list[NamedFile]) -> list[str]:
        """Make the copies those of the files ``named``, and return the names that are missing.

        A copy with other sums is made again, once. If the sums are still wrong, the file of the
        source is damaged, and the copy is as damaged. Copies of other files are deleted. All
        folders are synced. Raises :class:`OSError`.
        """
        missing = []
        for name, size, crc in named:
            found = self.sums.get(name)
            if found is not None and (found.bytes, found.crc) != (size, crc):
                self._delete(name)
            if not self._copy(name):
                missing.append(name)
        for name in self.sums.keys() - {each.name for each in named}:
            self._delete(name)
        for folder in self._to.iterdir():
            sync_directory(folder)
        sync_directory(self._to)
        return missing

    def _copy(self, name: str) -> bool:
        """Copy a file unless it has a copy. Return whether there is a copy now."""
        if name in self.sums:
            return True
        target = self._to / name
        target.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
        try:
            self.sums[name] = copy_file(self._from / name, target, self.on_bytes)
        except FileNotFoundError:
            # Retention has just deleted the file.
            return False
        return True

    def _delete(self, name: str) -> None:
        (self._to / name).unlink(missing_ok=True)
        self.sums.pop(name, None)
