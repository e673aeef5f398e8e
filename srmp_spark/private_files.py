"""Keep what is stored, and what proves an identity, from other users of this machine.

Two rules. The data directory is for its owner alone: folders 0700, files 0600, whatever the umask is. Each file is made with
that mode, because a mode that is changed afterwards leaves a moment in which another user can open the file. A data directory
that was there before and is wider is refused at the start, with the command that repairs it. Wider files inside a folder that
only its owner could enter were never open to anybody: version 0.1 made such files, and the start narrows them.

A file with a secret (a token, a private key, passwords) is judged as OpenSSH judges a private key: it is refused if this
user owns it and others may do anything with it. A file of another owner is used as it is: whoever gave it to us, for example
root or Kubernetes, decided who else may read it, and this user could not change it.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from srmp_spark.errors import ConfigurationError

FOLDER_MODE = 0o700
"""Of every folder of a data directory."""
FILE_MODE = 0o600
"""Of every file of a data directory."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""Every right of the group and of all others."""


def create_private(path: Path) -> int:
    """Return a descriptor for writing to a new file that its owner alone can read. Raises :class:`FileExistsError`."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)


def append_private(path: Path) -> int:
    """Return a descriptor for reading and appending to a file, which is made for its owner alone if it is not there."""
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)


def replace_private(path: Path) -> int:
    """Return a descriptor for writing to a file that is emptied, and made for its owner alone if it is not there."""
    return os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)


def refuse_wide(directory: Path) -> None:
    """Raise :class:`ConfigurationError` if other users have a right to ``directory``; one that is not there is not judged."""
    try:
        mode = stat.S_IMODE(directory.stat().st_mode)
    except FileNotFoundError:
        return
    if mode & OTHERS:
        raise ConfigurationError(
            f"the data directory {directory} is open to other users of this machine (mode "
            f"{mode:04o}), and it holds messages "
            f"and passwords: run chmod -R go-rwx {shlex.quote(str(directory))} and start again"
        )


def narrow(directory: Path, folders: Collection[str]) -> int:
    """Take the rights of others from what this program keeps in ``directory``, and return how many entries had such rights.

    An earlier version made its files with the mode that the umask left, inside a folder that nobody else could enter:
    :func:`refuse_wide` comes first. The files in the directory are changed, and everything below ``folders``. Other folders
    are not ours, for example a Delta state or a checkpoint. Raises :class:`PermissionError` for a file of another owner.
    """
    count = 0
    for path in _own(directory, folders):
        with suppress(
            FileNotFoundError
        ):  # a helper process that is about to end deletes its own files
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & OTHERS:
                path.chmod(mode & ~OTHERS)
                count += 1
    return count


def _own(directory: Path, folders: Collection[str]) -> Iterator[Path]:
    below = []
    for path in sorted(directory.iterdir()):
        if path.is_symlink():
            continue  # its mode is that of another file
        if path.is_file():
            yield path
        elif path.name in folders:
            below.append(path)
    for top in below:
        for place, _, files in os.walk(top):
            yield Path(place)
            yield from (each for name in files if not (each := Path(place, name)).is_symlink())


def refuse_open_secret(where: str, path: str | Path) -> None:
    """Raise :class:`ConfigurationError` if the file belongs to this user and others have a right to it.

    Pipes and devices are not judged. Raises :class:`OSError` for a file that is not there.
    """
    found = Path(path).stat()
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and mode & OTHERS:
        raise ConfigurationError(
            f"{where}: {path} is open to other users of this machine (mode {mode:04o}), "
            "and it holds a secret: "
            f"run chmod 600 {shlex.quote(str(path))}"
        )
