"""Keep stored data and secrets from other users of this machine.

The first rule is about the data directory. Only its owner may use it: folders have mode 0700 and
files 0600, whatever the umask is. Each file is created with this mode, because another user could
open a file before its mode is changed. A data directory that exists with a wider mode is refused at
the start, and the error names the command that repairs the mode. Version 0.1 created files with a
wider mode inside a folder that only its owner could enter. No other user could ever open these
files, so the start narrows their mode.

The second rule is about a file with a secret (a token, a private key, passwords), which is judged
as OpenSSH judges a private key. The file is refused if this user owns it and others have any right
to it. A file of another owner is accepted. Its owner, for example root or Kubernetes, decided who
may read the file, and this user could not change that.
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
"""Mode of every folder of a data directory."""
FILE_MODE = 0o600
"""Mode of every file of a data directory."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""Mode bits of every right of the group and of all other users."""


def create_private(path: Path) -> int:
    """Create a file that only its owner can use, and return a descriptor for writing.

    Raises :class:`FileExistsError` if the file exists.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)


def append_private(path: Path) -> int:
    """Open a file and return a descriptor for reading and appending.

    A missing file is created so that only its owner can read it.
    """
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)


def replace_private(path: Path) -> int:
    """Open a file, empty it, and return a descriptor for writing.

    A missing file is created so that only its owner can read it.
    """
    return os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)


def refuse_wide(directory: Path) -> None:
    """Raise :class:`ConfigurationError` if other users have a right to ``directory``.

    A missing directory is accepted.
    """
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
    """Remove the rights of other users from a data directory; return how many entries changed.

    Version 0.1 created its files with the mode that the umask left, inside a folder that no other
    user could enter. Call :func:`refuse_wide` first. The function changes the files in
    ``directory`` and everything below ``folders``. Other folders, for example a Delta state or a
    checkpoint, do not belong to the data directory's format and are left alone. Raises
    :class:`PermissionError` for a file of another owner.
    """
    count = 0
    for path in _own(directory, folders):
        # A helper process that is about to end deletes its own files.
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & OTHERS:
                path.chmod(mode & ~OTHERS)
                count += 1
    return count


def _own(directory: Path, folders: Collection[str]) -> Iterator[Path]:
    below = []
    for path in sorted(directory.iterdir()):
        # The mode of a link is that of another file.
        if path.is_symlink():
            continue
        if path.is_file():
            yield path
        elif path.name in folders:
            below.append(path)
    for top in below:
        for place, _, files in os.walk(top):
            yield Path(place)
            yield from (each for name in files if not (each := Path(place, name)).is_symlink())


def refuse_open_secret(where: str, path: str | Path) -> None:
    """Raise :class:`ConfigurationError` if this user owns the file and others have a right to it.

    Pipes and devices are not checked. Raises :class:`OSError` if the file does not exist.
    """
    found = Path(path).stat()
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and mode & OTHERS:
        raise ConfigurationError(
            f"{where}: {path} is open to other users of this machine (mode {mode:04o}), "
            "and it holds a secret: "
            f"run chmod 600 {shlex.quote(str(path))}"
        )
