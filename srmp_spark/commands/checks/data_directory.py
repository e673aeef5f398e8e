"""Check the data directory and the folder of the Delta state, without changing either."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from srmp_spark.commands.checks.report import Check
from srmp_spark.errors import ConfigurationError, StoreError
from srmp_spark.interface import EndpointFile
from srmp_spark.private_files import refuse_wide
from srmp_spark.queue_manager.configuration.serve_config import ServeConfig
from srmp_spark.store.database.disk_room import STATE_SHARES, Volume, on_one_volume
from srmp_spark.store.database.lock import owner_of
from srmp_spark.store.delta.tables.state_folder import state_folder
from srmp_spark.store.directory import (
    DATABASE_FILE,
    LOCK_FILE,
    RESTORING_FILE,
    refuse_network_file_system,
)

NAME = "data-dir"
STATE = "state"
MIB = 1_048_576
MOUNTS = Path("/proc/self/mountinfo")
"""The kernel's list of mounts."""


def data_directory_checks(config: ServeConfig, running: EndpointFile | None) -> Iterator[Check]:
    """Yield whether ``serve`` could use the data directory, and who uses it now.

    ``running`` is the endpoint file of a queue manager that serves the directory.
    """
    path = config.data_dir.absolute()
    problem = _problem_of(path)
    if problem is not None:
        yield problem
        return
    if not path.exists():
        yield Check(NAME, True, f"{path} does not exist yet; serve creates it")
    else:
        is_used = (path / DATABASE_FILE).exists()
        yield Check(NAME, True, f"{path} can be used" + ("" if is_used else "; it is empty"))
        yield from _owner(path, running)
    folder = None if config.state is None else state_folder(config.state)
    shared = folder is not None and on_one_volume(path, folder.absolute())
    yield _room(path, STATE_SHARES if shared else 1)


def state_checks(config: ServeConfig) -> Iterator[Check]:
    """Yield whether the Delta state can be written, if it is in a folder of this machine."""
    if config.state is None:
        return
    folder = state_folder(config.state)
    if folder is None:
        detail = "the state is in an object store, which is not asked"
        yield Check(STATE, True, detail, "srmp-spark doctor shows later whether it is published")
        return
    place = nearest(folder.absolute())
    if not _may(place, os.W_OK | os.X_OK):
        hint = f"give the user of serve ({_user()}) the right to write there"
        yield Check(STATE, False, f"{place} cannot be written", hint)
        return
    made = "" if folder.exists() else "; serve creates it"
    yield Check(STATE, True, f"{folder} can be written{made}")


def nearest(path: Path) -> Path:
    """Return ``path``, or else its nearest parent that exists."""
    return next(each for each in (path, *path.parents) if os.path.lexists(each))


def _problem_of(path: Path) -> Check | None:
    """Return the failed check of a directory that ``serve`` cannot use; ``None`` if it can."""
    place = nearest(path)
    try:
        if not place.is_dir():
            hint = "name a folder, which serve creates if it is missing"
            return Check(NAME, False, f"{place} is no folder", hint)
        if not _may(place, os.R_OK | os.W_OK | os.X_OK):
            what = "it" if place == path else f"{path} there"
            hint = f"give the user of serve ({_user()}) every right to {place}, or name another one"
            return Check(
                NAME, False, f"{place} cannot be written, so serve cannot use {what}", hint
            )
        refuse_wide(path)
        refuse_network_file_system(place, MOUNTS)
        for name in (LOCK_FILE, DATABASE_FILE):
            if (path / name).exists() and not _may(path / name, os.R_OK | os.W_OK):
                hint = f"chown -R {_user()} {path}: serve ran as another user before"
                return Check(NAME, False, f"{path / name} cannot be written", hint)
    except (ConfigurationError, StoreError) as error:
        text, _, hint = str(error).partition(": ")
        return Check(NAME, False, text, hint)
    except OSError as error:
        return Check(NAME, False, f"{path}: {error.strerror}", "repair the disk or the path")
    if (path / RESTORING_FILE).exists():
        detail = f"a restore into {path} did not come to its end"
        return Check(NAME, False, detail, "run the same srmp-spark restore again")
    return None


def _owner(path: Path, running: EndpointFile | None) -> Iterator[Check]:
    """Yield who uses the directory. Its lock is not tried."""
    try:
        owner = owner_of(path / LOCK_FILE)
    except OSError:
        owner = None
    if running is not None:
        pid, version = running.get("pid"), running["queue_manager"]
        detail = f"queue manager {version} serves {path} now (process {pid})"
        hint = "restart it to use this configuration; a second serve here ends with exit code 5"
        yield Check("running", True, detail, hint)
    elif owner is not None:
        pid, host = owner
        detail = f"process {pid} on {host} holds {path}, and is no queue manager that is ready"
        hint = (
            "wait until it is ready, or until a restore there is done; serve ends with exit code 5"
        )
        yield Check("running", False, detail, hint)


def _room(path: Path, shares: int) -> Check:
    try:
        volume = Volume.look(nearest(path))
    except OSError as error:
        return Check("disk", False, f"{path}: {error.strerror}", "repair the disk or the path")
    least = shares * volume.least
    detail = f"{volume.free // MIB} MiB are free, {least // MIB} MiB must stay free"
    if volume.free >= least:
        return Check("disk", True, detail)
    hint = (
        "make room: until then senders are answered 503 and keep their messages, unless the "
        "database has room inside"
    )
    return Check("disk", False, detail, hint)


def _may(path: Path, rights: int) -> bool:
    return os.access(path, rights, effective_ids=True)


def _user() -> str:
    """Return the user of this process, which is that of ``serve`` in the unit."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
