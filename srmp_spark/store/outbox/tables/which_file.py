"""Detect a foreign ``outbox.db``: facts that a copy does not keep are noted in ``outbox.identity``.

The file ``identity`` of the data directory (``store/directory.py`` gives the reason for these
facts) does not cover the outbox, because the outbox is a database with an owner of its own. An
older copy of the outbox that is put back alone does not know what was sent since. The streams of
the copy would continue at positions that the peer has used. The peer would answer 200 as to
repeats, and the new messages would be finished undelivered. An outbox that was deleted would begin
empty without notice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from srmp_spark.errors import StoreDamagedError
from srmp_spark.store.database.durable import write_durably
from srmp_spark.store.directory import birth_of
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE, OUTBOX

WHICH_FILE = "outbox.identity"


class Which(NamedTuple):
    """The content of the file ``outbox.identity``: facts that identify the right ``outbox.db``.

    ``inode`` is that of ``outbox.db``.
    """

    inode: int
    born: int | None
    """Creation time in nanoseconds since 1970, or ``None`` if the file system does not store it."""
    fence: int
    """Number of times that the outbox was opened, at least."""
    position: int
    """Number of commits that the outbox has had, at least."""


def read_which(directory: Path) -> Which | None:
    """Return the content of the file ``outbox.identity``, or ``None`` if there is no file.

    Raises :class:`StoreDamagedError` if the file cannot be read, or if the file exists and the
    outbox does not.
    """
    path = directory / WHICH_FILE
    try:
        found = json.loads(path.read_text())
        which = Which(
            int(found["inode"]), found["born"], int(found["fence"]), int(found["position"])
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDamagedError(
            f"{path} cannot be read ({error!r}): remove it, what waits to be sent is then "
            "held until you decide"
        ) from error
    if not (directory / DATABASE_FILE).exists():
        raise StoreDamagedError(
            f"{directory / DATABASE_FILE} is gone, it had {which.position} commits. "
            f"{OUTBOX.restore_hint}; "
            f"or remove {path} to begin with an empty outbox: the waiting messages are lost, rows "
            "that were sent are no longer known"
        )
    return which


def foreign_because(
    which: Which | None, directory: Path, *, fence: int, position: int
) -> str | None:
    """Return a text why the outbox in ``directory`` is not the one that was used there last.

    Return ``None`` if it is the same outbox, or a new one. ``which`` is the content of the file,
    and ``fence`` and ``position`` come from the database.
    """
    if which is None:
        return f"it has no file {WHICH_FILE}" if fence else None
    path = directory / DATABASE_FILE
    inode, born = path.stat().st_ino, birth_of(path)
    if inode != which.inode:
        return f"it is a copy (inode {inode}, was {which.inode})"
    if None not in (born, which.born) and born != which.born:
        return f"it is a copy (born at {born}, was {which.born})"
    if fence < which.fence:
        return f"it was opened {fence} times, was {which.fence} times"
    if position < which.position:
        return f"it is at commit {position}, was at {which.position}"
    return None


def write_which(directory: Path, *, fence: int, position: int) -> None:
    """Write the file ``outbox.identity`` for the present ``outbox.db`` in ``directory``.

    ``fence`` is how often the outbox was opened, and ``position`` the number of its commits. Raises
    :class:`OSError` if the file cannot be written.
    """
    path = directory / DATABASE_FILE
    which = Which(path.stat().st_ino, birth_of(path), fence, position)
    write_durably(directory / WHICH_FILE, (json.dumps(which._asdict(), indent=1) + "\n").encode())
