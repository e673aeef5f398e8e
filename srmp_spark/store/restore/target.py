"""Prepare the folder that becomes a data directory: empty, local, and marked until complete."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from srmp_spark.errors import ConfigurationError, StoreError
from srmp_spark.private_files import FOLDER_MODE, refuse_wide
from srmp_spark.store.database.durable import make_directory, sync_directory, write_durably
from srmp_spark.store.database.lock import take_lock
from srmp_spark.store.directory import (
    LOCK_FILE,
    RESTORING_FILE,
    SEGMENTS_DIRECTORY,
    refuse_network_file_system,
)

OF_NOBODY = frozenset({"lost+found", LOCK_FILE})
"""Names that may exist in a folder that counts as empty.

A new volume has the first one, and a start that was refused leaves the second one.
"""


@contextmanager
def new_directory(path: Path, *, mountinfo: Path = Path("/proc/self/mountinfo")) -> Iterator[Path]:
    """Lock the folder, make it an empty data directory, and yield its absolute path.

    Use it in a ``with`` statement. While the block runs, the file ``restoring`` marks the folder as
    incomplete. The file is deleted when the block ends without an error; after an error it stays,
    and only a restore can use the folder. Files that an interrupted restore left are deleted first.
    Raises :class:`ConfigurationError` if the folder has other files or is open to other users,
    :class:`StoreInUseError` if another process has locked it, and :class:`StoreError` if it cannot
    be used.
    """
    path = path.absolute()
    try:
        make_directory(path)
        refuse_network_file_system(path, mountinfo)
        refuse_wide(path)
        lock = take_lock(path / LOCK_FILE)
    except OSError as error:
        raise StoreError(f"the data directory {path} cannot be used: {error}") from error
    try:
        begun = path / RESTORING_FILE
        present = {each.name for each in path.iterdir()} - OF_NOBODY
        if present and not begun.exists():
            raise ConfigurationError(
                f"--data-dir {path} is not empty ({', '.join(sorted(present)[:3])} …): a "
                "restore makes a new directory; "
                "name an empty one, or start the queue manager on this one with serve"
            )
        write_durably(begun, b"srmp-spark restore is at work, or did not come to its end\n")
        for name in present - {RESTORING_FILE}:
            found = path / name
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found)
            else:
                found.unlink()
        (path / SEGMENTS_DIRECTORY).mkdir(mode=FOLDER_MODE)
        sync_directory(path)
        yield path
        begun.unlink()
        sync_directory(path)
    finally:
        lock.close()
