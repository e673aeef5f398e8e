"""Make a backup of a data directory, whether its queue manager runs or not.

    mark the folder as incomplete ▶ copy the segments that exist ▶ one moment of both databases
    (:mod:`.moment`) ▶ copy what the moment names and is missing ▶ sync ▶ read everything again
    (:mod:`.verify`) ▶ complete the manifest

**What is in it.** Both databases, the segments that the inbox names, and the passwords of
subscriptions that were added at run time. The databases contain secrets, too: the key of the
addresses for receipts, and message bodies. So a backup is as private as the data directory: folders
have mode 0700, files 0600.

**What is not.** The files ``identity`` and ``outbox.identity``: without them a restored directory
counts as a copy, and holds everything that acts outside. The stages of batches that were not
committed: the query writes them again. The marks of subscriptions and the copies of Delta commits:
a copy does not use them. Files that the configuration names (tokens, certificates, keys) belong to
the configuration and are only listed.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from srmp_spark import __version__
from srmp_spark.errors import ConfigurationError, StoreDamagedError, StoreError, StoreSyncError
from srmp_spark.private_files import FOLDER_MODE, OTHERS, create_private
from srmp_spark.store.backup import manifest, moment, verify
from srmp_spark.store.backup.files import OnBytes, copy_file, sums_of
from srmp_spark.store.backup.last_backup import LastBackup, note_backup
from srmp_spark.store.backup.manifest import Manifest, SavedFile
from srmp_spark.store.backup.segments import SegmentCopies, named_files
from srmp_spark.store.database.durable import make_directory, sync_directory
from srmp_spark.store.directory import (
    BACKUP_FILE,
    DATABASE_FILE,
    RESTORING_FILE,
    SEGMENTS_DIRECTORY,
)
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE as OUTBOX_FILE

ROUNDS_MAX = 5
"""Snapshots that are taken until the source has all files that the last one names.

A second one is rare (:mod:`.segments`). A file that is still missing after the last one is reported
as damage of the source.
"""
SUBSCRIPTIONS = "subscriptions"
"""Folder of the passwords of subscriptions."""
PASSWORD_ENDING = ".password"  # noqa: S105  # the ending of a file's name
OF_NOBODY = frozenset({"lost+found"})
"""Names that may exist in an empty folder. A new volume has them."""

Step = Literal["copy", "verify"]
OnStep = Callable[[Step, int], OnBytes]
"""Function that is called when a step begins, with the number of bytes that it will handle.

It returns the function that counts them. The number is an estimate while the queue manager runs.
"""


@dataclass(slots=True)
class _Facts:
    """What one moment of the source states about itself."""

    made_at: str
    queue_manager: str
    epoch: str
    position: int
    outbox_position: int | None
    copies: list[str] = field(default_factory=list)
    """Names of the databases that were copied."""


def backup(
    data_dir: Path,
    to: Path,
    *,
    on_step: OnStep = lambda _, __: lambda ___: None,
    elsewhere: Sequence[str] = (),
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
) -> Manifest:
    """Back up ``data_dir`` into the new or empty folder ``to``, and return its manifest.

    ``elsewhere`` lists files that are named in the manifest only. After an error nothing is left in
    ``to``; after a kill the folder is marked as incomplete. Raises :class:`ConfigurationError` if
    one of the folders cannot be used, :class:`StoreSyncError` if the backup cannot be written,
    :class:`StoreDamagedError` if a database of the source is damaged, and :class:`StoreError`. Rows
    that are unreadable in the source raise nothing: the manifest names them.
    """
    data_dir, to = data_dir.absolute(), to.absolute()
    _check_source(data_dir)
    with _new_folder(to, data_dir):
        made = _Backup(data_dir, to, on_step, now).run(elsewhere)
    # A backup that succeeded must not fail because of the note.
    with suppress(OSError):
        note_backup(data_dir, LastBackup(made.made_at, str(to)))
    return made


def _check_source(data_dir: Path) -> None:
    try:
        present = {each.name for each in data_dir.iterdir()}
    except FileNotFoundError:
        present = set()
    except OSError as error:
        raise ConfigurationError(
            f"--data-dir {data_dir}: {error.strerror}; run the backup as the user of serve"
        ) from error
    if BACKUP_FILE in present:
        raise ConfigurationError(
            f"--data-dir {data_dir} is a backup: copy the folder to have it twice"
        )
    if RESTORING_FILE in present:
        raise ConfigurationError(
            f"--data-dir {data_dir}: a restore did not come to its end there; run the same "
            "srmp-spark restore again"
        )
    if DATABASE_FILE not in present:
        raise ConfigurationError(
            f"--data-dir {data_dir} has no {DATABASE_FILE}: name the data directory of serve"
        )


@contextmanager
def _new_folder(to: Path, data_dir: Path) -> Iterator[None]:
    """Mark ``to`` as an incomplete backup, and delete everything in it after an error."""
    if to == data_dir or data_dir in to.parents:
        raise ConfigurationError(
            f"--to {to} lies in the data directory, and would be lost with it: name a folder on "
            "another disk"
        )
    is_new = not to.exists()
    try:
        make_directory(to)
        _refuse_used(to)
        # One of two backups that begin at the same time finds the file of the other.
        _mark(to)
    except FileExistsError:
        raise _used(to) from None
    except OSError as error:
        raise _unwritable(to, error) from error
    try:
        with _explained(to):
            manifest.begin(to)
            yield
    except BaseException:
        _clear(to)
        if is_new:
            with suppress(OSError):
                to.rmdir()
        raise


def _mark(to: Path) -> None:
    """Create the empty manifest of ``to``. Raises :class:`FileExistsError` if there is one."""
    os.close(create_private(to / BACKUP_FILE))


def _refuse_used(to: Path) -> None:
    present = {each.name for each in to.iterdir()} - OF_NOBODY
    if BACKUP_FILE in present:
        raise _used(to)
    if present:
        raise ConfigurationError(
            f"--to {to} is not empty ({', '.join(sorted(present)[:3])} …): name a new folder"
        )
    mode = to.stat().st_mode
    if mode & OTHERS:
        raise ConfigurationError(
            f"--to {to} is open to other users of this machine (mode {mode & 0o7777:04o}), and a "
            f"backup holds messages and passwords: run chmod go-rwx {shlex.quote(str(to))}, or "
            "name a new folder in it"
        )


def _used(to: Path) -> ConfigurationError:
    try:
        made = manifest.read_manifest(to)
    except (ConfigurationError, StoreDamagedError):
        return ConfigurationError(
            f"--to {to} holds an incomplete backup: another srmp-spark backup writes it now, or "
            "one was interrupted. If none runs, delete the folder; or name a new one"
        )
    return ConfigurationError(
        f"--to {to} holds the backup of {made.made_at} already: name a new folder for each backup"
    )


def _clear(to: Path) -> None:
    """Delete what this backup wrote. The marker goes last."""
    for each in sorted(to.iterdir(), key=lambda path: path.name == BACKUP_FILE):
        with suppress(OSError):
            if each.name in OF_NOBODY:
                continue
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()


@contextmanager
def _explained(to: Path) -> Iterator[None]:
    """Raise what the disk of the backup refuses as an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise _unwritable(to, error) from error
    except sqlite3.OperationalError as error:
        if "full" in str(error):
            raise _unwritable(to, error) from error
        if "no such table" in str(error):
            raise StoreError(
                f"the data directory was written by 0.1, and this version has not opened it yet "
                f"({error}): copy it with cp -a while it is stopped (docs/upgrades.md)"
            ) from error
        raise StoreError(f"the backup into {to} failed: {error}; run it again") from error
    except sqlite3.DatabaseError as error:
        raise StoreDamagedError(
            f"a database of the data directory is damaged ({error}), so no backup was made. Put "
            "an older backup back, or see docs/troubleshooting.md, 'Damaged rows'"
        ) from error


def _unwritable(to: Path, error: Exception) -> StoreError:
    is_full = "full" in str(error) or (
        isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    )
    if is_full:
        return StoreSyncError(
            f"the disk of {to} has no room for the backup ({getattr(error, 'strerror', error)}). "
            "What was written there was deleted: make room, or name a folder on another disk"
        )
    return StoreError(f"the backup into {to} failed: {error}")


class _Backup:
    """Makes one backup; :meth:`run` does all steps."""

    def __init__(
        self, data_dir: Path, folder: Path, on_step: OnStep, now: Callable[[], datetime]
    ) -> None:
        self._from = data_dir
        self._to = folder
        self._on_step = on_step
        self._now = now

    def run(self, elsewhere: Sequence[str]) -> Manifest:
        """Copy, verify, and complete the manifest, which is returned."""
        size = self._bytes()
        free = shutil.disk_usage(self._to).free
        if free < size:
            # Copying until the disk is full would only take longer to say the same.
            raise OSError(errno.ENOSPC, f"{size} bytes are needed and {free} are free")
        segments = SegmentCopies(self._from, self._to, self._on_step("copy", size))
        facts = self._copy(segments)
        files = self._files(facts, segments)
        sync_directory(self._to)
        on_bytes = self._on_step("verify", sum(each.bytes for each in files))
        verify.verify_files(self._to, files, on_bytes)
        verify.verify_databases(self._to)
        damaged = tuple(verify.damaged_rows(self._to))
        self._forget_readers()
        made = Manifest(
            made_at=facts.made_at,
            version=__version__,
            host=socket.gethostname(),
            data_dir=str(self._from),
            queue_manager=facts.queue_manager,
            epoch=facts.epoch,
            position=facts.position,
            outbox_position=facts.outbox_position,
            files=files,
            damaged=damaged,
            elsewhere=tuple(elsewhere),
        )
        manifest.complete(self._to, made)
        return made

    def _bytes(self) -> int:
        found = [
            # What is in a WAL only becomes part of the copy of its database.
            *(
                self._from / f"{name}{ending}"
                for name in (DATABASE_FILE, OUTBOX_FILE)
                for ending in ("", "-wal")
            ),
            *(self._from / SEGMENTS_DIRECTORY).glob("*/*"),
        ]
        size = 0
        for path in found:
            # Retention deletes files meanwhile, and there may be no outbox yet.
            with suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

    def _copy(self, segments: SegmentCopies) -> _Facts:
        """Copy everything until all files that the last snapshot names are there."""
        missing: list[str] = []
        for _ in range(ROUNDS_MAX):
            segments.copy_present()
            self._copy_passwords()
            facts = self._copy_databases(segments.on_bytes)
            before, missing = missing, segments.settle(named_files(self._to / DATABASE_FILE))
            # A file that two snapshots name and that is missing is no work of retention.
            if not missing or missing == before:
                break
        self._copy_passwords()
        return facts

    def _copy_databases(self, on_bytes: OnBytes) -> _Facts:
        for name in (DATABASE_FILE, OUTBOX_FILE):
            (self._to / name).unlink(missing_ok=True)
        with moment.at_one_moment(self._from) as at:
            facts = _facts_of(at, self._now())
            moment.copy_database(at.inbox, self._to / DATABASE_FILE, on_bytes)
            if at.outbox is not None:
                moment.copy_database(at.outbox, self._to / OUTBOX_FILE, on_bytes)
        return facts

    def _copy_passwords(self) -> None:
        """Copy the passwords of subscriptions, as they are now.

        One that was deleted meanwhile keeps its copy: the snapshot may still need it.
        """
        for path in sorted((self._from / SUBSCRIPTIONS).glob(f"*{PASSWORD_ENDING}")):
            target = self._to / SUBSCRIPTIONS / path.name
            target.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
            new = target.with_suffix(".new")
            new.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                copy_file(path, new, lambda _: None)
                new.replace(target)
        if (self._to / SUBSCRIPTIONS).exists():
            sync_directory(self._to / SUBSCRIPTIONS)

    def _files(self, facts: _Facts, segments: SegmentCopies) -> tuple[SavedFile, ...]:
        found = [
            SavedFile(f"{SEGMENTS_DIRECTORY}/{name}", sums.bytes, sums.sha256)
            for name, sums in sorted(segments.sums.items())
        ]
        paths = [self._to / name for name in facts.copies]
        paths += sorted((self._to / SUBSCRIPTIONS).glob(f"*{PASSWORD_ENDING}"))
        for path in paths:
            sums = sums_of(path, lambda _: None)
            found.append(SavedFile(path.relative_to(self._to).as_posix(), sums.bytes, sums.sha256))
        return tuple(found)

    def _forget_readers(self) -> None:
        """Delete the empty WAL files that SQLite made when the copies were read."""
        for name in (DATABASE_FILE, OUTBOX_FILE):
            for ending in ("-wal", "-shm"):
                (self._to / f"{name}{ending}").unlink(missing_ok=True)


def _facts_of(at: moment.Moment, now: datetime) -> _Facts:
    inbox, outbox = at
    facts = dict(inbox.execute("SELECT key, value FROM meta WHERE key = 'queue_manager'"))
    (epoch,) = inbox.execute("SELECT epoch FROM epochs ORDER BY id DESC LIMIT 1").fetchone()
    (position,) = inbox.execute("SELECT position FROM head").fetchone()
    outbox_position = None
    if outbox is not None:
        (outbox_position,) = outbox.execute("SELECT position FROM head").fetchone()
    return _Facts(
        now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        str(facts["queue_manager"]),
        epoch,
        position,
        outbox_position,
        [DATABASE_FILE, *([] if outbox is None else [OUTBOX_FILE])],
    )
