"""Make checkpoints of a local Delta table durable, and drop those that a power loss may damage.

A checkpoint is a copy of what the commits before it state, and ``deltalake`` syncs no checkpoint.
After a power loss its file may have its name, its length and both of Parquet's marks while pages
between are zeros. Such a file fails in the reader, or worse, does not fail. So a note is written
before the writing of a checkpoint begins, and again when the checkpoint is synced:

    <data-dir>/delta/<table>/checkpoint.json    {"version": 40, "synced": false}

The commits that a checkpoint covers are forgotten and cleaned up only after it is synced. So a
checkpoint that was begun and not synced can be dropped whatever it holds. Dropping it costs only
the time to read the commits. All other checkpoints (of another queue manager, of Spark, of a time
before these notes) are dropped if some value in them cannot be decoded.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from srmp_spark.store.database.durable import sync_directory, sync_file, write_durably

NOTE_FILE = "checkpoint.json"
HINT_FILE = "_last_checkpoint"
"""Delta's own file that tells a reader where to begin.

Without it, or when it is stale, readers list the folder.
"""

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


class DeltaCheckpoints:
    """Makes the checkpoints of one local Delta table durable, and drops doubtful ones.

    ``folder`` is the folder of the table's shadow, ``log`` its ``_delta_log``.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self._note = folder / NOTE_FILE
        self._log = log

    def __repr__(self) -> str:
        return f"<Checkpoints {self.versions()} in {self._log}>"

    def versions(self) -> list[int]:
        """Return the table versions that have a checkpoint file, ascending."""
        if not self._log.is_dir():
            return []
        return sorted(
            int(match[1])
            for path in self._log.iterdir()
            if (match := _CHECKPOINT.fullmatch(path.name))
        )

    def begins(self, version: int) -> None:
        """Store the note that the checkpoint of ``version`` is about to be written.

        Call this before ``deltalake`` writes the checkpoint, which must not be trusted until
        :meth:`ended` is called. Raises :class:`OSError` if the note cannot be written.
        """
        self._tell(version, synced=False)

    def ended(self, version: int) -> bool:
        """Sync the checkpoint of ``version`` that was just written, and store a note of that.

        Return ``True``, or ``False`` if another process that repaired the table has dropped the
        checkpoint meanwhile. Raises :class:`OSError` if the disk refuses.
        """
        try:
            for path in self._files(version):
                sync_file(path)
            sync_file(self._log / HINT_FILE)
        except FileNotFoundError:
            return False
        if not self._files(version):
            return False
        sync_directory(self._log)
        self._tell(version, synced=True)
        return True

    def repair(self) -> list[int]:
        """Delete the checkpoints that a power loss may have damaged, and return their versions.

        The file ``_last_checkpoint`` is deleted, too, if it names no checkpoint. Call the method
        before the table is opened.
        """
        doubtful = self._unsynced()
        dropped = []
        for version in self.versions():
            path = self._log / f"{version:020d}.checkpoint.parquet"
            if version == doubtful or not can_be_read(path):
                path.unlink()
                dropped.append(version)
        hint = self._log / HINT_FILE
        if hint.exists() and not self._leads_somewhere(hint):
            hint.unlink()
        if self._log.is_dir():
            # This comes before the note is deleted: a dropped checkpoint must not come back.
            sync_directory(self._log)
        if doubtful is not None:
            self._note.unlink()
        return dropped

    def _leads_somewhere(self, hint: Path) -> bool:
        try:
            return bool(self._files(int(json.loads(hint.read_bytes())["version"])))
        except (ValueError, KeyError, TypeError):
            return False

    def _files(self, version: int) -> list[Path]:
        return list(self._log.glob(f"{version:020d}.checkpoint*.parquet"))

    def _unsynced(self) -> int | None:
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            note = json.loads(self._note.read_bytes())
            return None if note["synced"] else int(note["version"])
        return None

    def _tell(self, version: int, *, synced: bool) -> None:
        write_durably(self._note, json.dumps({"version": version, "synced": synced}).encode())


def can_be_read(path: Path) -> bool:
    """Return whether the Parquet file ``path`` exists and every value of it can be decoded.

    The marks at both ends of the file do not prove that the pages between them are sound.
    """
    try:
        with pq.ParquetFile(path) as parquet:
            for group in range(parquet.num_row_groups):
                parquet.read_row_group(group).validate(full=True)
    except (pa.ArrowException, OSError, ValueError):
        return False
    return True
