"""Note in the data directory when its last backup was made, for ``status`` and the metrics."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from srmp_spark.store.database.durable import write_durably

LAST_BACKUP_FILE = "last-backup.json"
"""Name of the note in the data directory. It is not part of a backup."""


class LastBackup(NamedTuple):
    """The last backup that came to its end."""

    made_at: str
    """Time of its snapshot, RFC 3339 in UTC."""
    to: str
    """Folder of the backup, on the machine that made it."""

    @property
    def seconds(self) -> float | None:
        """Return the time in seconds since 1970, or ``None`` if the text is no time."""
        try:
            return datetime.fromisoformat(self.made_at.replace("Z", "+00:00")).timestamp()
        except ValueError:
            return None


def note_backup(data_dir: Path, last: LastBackup) -> None:
    """Store the note durably. Raises :class:`OSError` if it cannot be written.

    The file gets the owner of the data directory, because root may make backups.
    """
    path = data_dir / LAST_BACKUP_FILE
    write_durably(path, (json.dumps(last._asdict()) + "\n").encode())
    if os.geteuid() == 0:
        owner = data_dir.stat()
        os.chown(path, owner.st_uid, owner.st_gid)


def read_last_backup(data_dir: Path) -> LastBackup | None:
    """Return the note, or ``None`` if there is none or it cannot be read."""
    try:
        content = json.loads((data_dir / LAST_BACKUP_FILE).read_text(encoding="utf-8"))
        return LastBackup(str(content["made_at"]), str(content["to"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
