"""Write files and folders so that they survive a power loss: all syncs in one place."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

from srmp_spark.private_files import FILE_MODE, FOLDER_MODE

SHARED_FOLDER_MODE = 0o777
"""Mode of a folder outside the data directory, for example of a Delta table.

The umask decides who may read it.
"""
SHARED_FILE_MODE = 0o666
"""Mode of a file outside the data directory. The umask decides who may read it."""


def sync_file(path: Path) -> None:
    """Sync the bytes and the length of a file to the disk.

    Raises :class:`OSError` if the sync fails. The caller must then give up, because a failed fsync
    must never be tried again.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Sync the entries of a folder to the disk.

    Without this sync the name of a new file may be gone after a power loss.

    Raises :class:`OSError` if the sync fails.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, mode: int = FOLDER_MODE) -> None:
    """Create a folder and its missing parents with ``mode``, by default for the owner only.

    Each new folder is synced in its parent folder. Otherwise a power loss would remove the folder
    with everything in it. The parent of a folder that already exists is synced, too, because the
    process that created it may have been killed before its sync. Raises :class:`OSError` if a
    folder cannot be created or synced.
    """
    if path.exists():
        # The parent folder belongs to another user. This process did not create this folder.
        with suppress(PermissionError):
            sync_directory(path.parent)
        return
    if not path.parent.exists():
        make_directory(path.parent, mode)
    path.mkdir(mode=mode, exist_ok=True)
    sync_directory(path.parent)


def write_durably(
    path: Path, data: bytes, *, sync_folder: bool = True, mode: int = FILE_MODE
) -> None:
    """Write and sync a file that is either whole or absent, even after a power loss.

    An existing file is replaced. ``mode`` holds the rights of a new file; by default only its owner
    can read it. With ``sync_folder=False`` the caller syncs the folder, once for several files.
    Raises :class:`OSError` if the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb"
        ) as file:
            file.write(data)
        sync_file(temporary)
        temporary.replace(path)
    except BaseException:
        # On a full disk, this frees the room that the half-written file took.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if sync_folder:
        sync_directory(path.parent)
