"""The manifest of a backup: which files belong to it, with their checksums.

The manifest is written twice. Before the first file is copied, it states that the backup is
incomplete. After all files were written, synced and verified, it is replaced by the complete one.
So a process that is killed at any time, or a disk that gets full, leaves nothing that looks whole.
While a folder has a manifest of either kind, no queue manager starts on it
(:data:`.directory.BACKUP_FILE`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from srmp_spark.errors import ConfigurationError, StoreDamagedError
from srmp_spark.store.database.durable import write_durably
from srmp_spark.store.directory import BACKUP_FILE

FORMAT = 1
"""Format number of a backup. A manifest with a higher number is refused (exit code 6)."""


@dataclass(frozen=True, slots=True)
class SavedFile:
    """One file of a backup. ``name`` is its path below the folder of the backup, with ``/``."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of a complete manifest."""

    made_at: str
    """Time of the snapshot, RFC 3339 in UTC. Later commits are not in the backup."""
    version: str
    """Version of srmp-spark that made the backup."""
    host: str
    data_dir: str
    queue_manager: str
    epoch: str
    position: int
    """Number of the last commit of ``store.db`` in the backup."""
    outbox_position: int | None
    """Number of the last commit of ``outbox.db``, or ``None`` if there was no outbox yet."""
    files: tuple[SavedFile, ...]
    damaged: tuple[str, ...]
    """One sentence for each range of rows that was unreadable in the source already."""
    elsewhere: tuple[str, ...]
    """Paths of files that the configuration names and that are not in the backup."""

    @property
    def bytes(self) -> int:
        """Return the length of all files together, in bytes."""
        return sum(each.bytes for each in self.files)


def begin(folder: Path) -> None:
    """Mark ``folder`` durably as an incomplete backup. Raises :class:`OSError`."""
    _write(folder, {"format": FORMAT, "complete": False})


def complete(folder: Path, manifest: Manifest) -> None:
    """Make ``folder`` a complete backup, durably. All other files must be synced before.

    Raises :class:`OSError` if the manifest cannot be written; the backup then stays incomplete.
    """
    _write(folder, {"format": FORMAT, "complete": True, **asdict(manifest)})


def _write(folder: Path, content: dict[str, object]) -> None:
    write_durably(folder / BACKUP_FILE, (json.dumps(content, indent=1) + "\n").encode())


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of the backup in ``folder``.

    Raises :class:`ConfigurationError` if the folder is no backup, and :class:`StoreDamagedError` if
    the backup is incomplete, its manifest cannot be read, or a newer version made it.
    """
    path = folder / BACKUP_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] > FORMAT:
            raise StoreDamagedError(
                f"{path} has format {content['format']}, this version of srmp-spark knows "
                f"{FORMAT}: restore it with the newer version"
            )
        if content["complete"] is not True:
            raise StoreDamagedError(
                f"the backup in {folder} is incomplete, because srmp-spark backup did not come to "
                "its end: delete the folder, and use another backup"
            )
        files = tuple(
            SavedFile(_inside(each["name"]), int(each["bytes"]), str(each["sha256"]))
            for each in content["files"]
        )
        return Manifest(
            made_at=str(content["made_at"]),
            version=str(content["version"]),
            host=str(content["host"]),
            data_dir=str(content["data_dir"]),
            queue_manager=str(content["queue_manager"]),
            epoch=str(content["epoch"]),
            position=int(content["position"]),
            outbox_position=(
                None if content["outbox_position"] is None else int(content["outbox_position"])
            ),
            files=files,
            damaged=tuple(map(str, content["damaged"])),
            elsewhere=tuple(map(str, content["elsewhere"])),
        )
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(
            f"--backup {folder} has no {BACKUP_FILE}, so it is no backup: give the folder that "
            "srmp-spark backup --to named"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"--backup {folder}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreDamagedError(f"{path} cannot be read ({error!r}): use another backup") from error


def _inside(name: object) -> str:
    """Return ``name`` if it is a path inside a backup. Raises :class:`ValueError` otherwise."""
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    if not parts or ".." in parts or parts[0] == "/" or "\0" in str(name):
        raise ValueError(f"{name!r} is no path inside a backup")
    return "/".join(parts)
