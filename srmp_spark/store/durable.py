"""Names and bytes that a power loss does not take: syncs of files and folders, in one place."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

from srmp_spark.private_files import FILE_MODE, FOLDER_MODE

SHARED_FOLDER_MODE = 0o777
"""Of a folder outside the data directory, for example of a Delta table: the umask decides who may read it."""
SHARED_FILE_MODE = 0o666
"""The same of a file there."""


def sync_file(path: Path) -> None:
    """The file's bytes and length to the disk. After an error the caller gives up: a failed fsync is never tried again."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """The folder's entries to the disk: without it a new file's name may be gone after a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, mode: int = FOLDER_MODE) -> None:
    """Make the folder, and those above it, as a rule for its owner alone.

    Each is durable in the one above: else a power loss takes all that is in it along.

    One that is there already is made durable too: whoever made it may have been killed before its sync.
    """
    if path.exists():
        with suppress(
            PermissionError
        ):  # the folder above is another's: it was made with what lies in it, not by us
            sync_directory(path.parent)
        return
    if not path.parent.exists():
        make_directory(path.parent, mode)
    path.mkdir(mode=mode, exist_ok=True)
    sync_directory(path.parent)


def write_durably(
    path: Path, data: bytes, *, sync_folder: bool = True, mode: int = FILE_MODE
) -> None:
    """Write a file that is whole or not there, also after a power loss, and that its owner alone can read.

    Without ``sync_folder`` the caller syncs the folder, once for several files.
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
        with suppress(OSError):  # a full disk gets the room back that half a file took
            temporary.unlink(missing_ok=True)
        raise
    if sync_folder:
        sync_directory(path.parent)
