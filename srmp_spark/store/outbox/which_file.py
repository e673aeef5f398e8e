"""Which ``outbox.db`` is ours: what a copy of it does not keep, noted beside it in ``outbox.identity``.

``identity`` of the data directory (store/directory.py, which says why these facts) does not cover the outbox, a database with
an owner of its own. An older copy of it put back alone does not know what went out since: its streams would go on at positions
that the peer has taken, the peer would answer 200 as to repeats, and the new messages be finished undelivered. An outbox that
is gone would silently be begun anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from srmp_spark.errors import StoreDamagedError
from srmp_spark.store.directory import birth_of
from srmp_spark.store.durable import write_durably
from srmp_spark.store.outbox.schema import DATABASE_FILE, OUTBOX

WHICH_FILE = "outbox.identity"


class Which(NamedTuple):
    """The content of the file."""

    inode: int
    born: int | None
    """Nanoseconds since 1970; ``None`` if the file system does not tell."""
    fence: int
    """How often it was opened, at least."""
    position: int
    """It has had at least so many commits."""


def read_which(directory: Path) -> Which | None:
    """What was noted, ``None`` if nothing was. Raises :class:`StoreDamagedError` for an outbox that is gone."""
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
            f"or remove {path} to begin with an empty outbox: what waited is lost, rows "
            "that were sent are no longer known"
        )
    return which


def foreign_because(
    which: Which | None, directory: Path, *, fence: int, position: int
) -> str | None:
    """Why the outbox in ``directory`` is not the one that was used here last; ``None`` if it is, or is a new one."""
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
    """Note that the outbox in ``directory`` is ours and has come so far."""
    path = directory / DATABASE_FILE
    which = Which(path.stat().st_ino, birth_of(path), fence, position)
    write_durably(directory / WHICH_FILE, (json.dumps(which._asdict(), indent=1) + "\n").encode())
