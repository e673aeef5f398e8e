"""The data directory: which process owns it, which queue manager it belongs to, and its epoch.

    <data-dir>/lock            flock of the owner; names its process and host
    <data-dir>/identity        which directory this is (below)
    <data-dir>/store.db        SQLite (store/database/schema.py), with -wal and -shm alongside it
    <data-dir>/segments/       sealed rows (store/stored_rows/sealing.py)

**One owner.** The lock keeps a second process on this host out. The fence keeps a second host out:
each owner raises a counter in the database, and every commit checks the counter. So an owner that
was paused, and lost its volume meanwhile, writes nothing more. Network file systems are refused,
because neither the lock nor the WAL can be trusted there.

**Epoch.** Sequences can be compared only within one history. A directory that was copied, or
restored from a backup, would issue numbers again that readers already know with other content. So
such a directory must count as another history: it gets a new epoch. Peers know message identifiers,
and these identifiers have no epoch. So a copy continues far above every number that the original
can have issued.

The file ``identity`` holds facts that a copy does not keep: the inodes of the directory, of the
file itself and of the database, and the time of birth of the database. Inodes alone may repeat by
chance (a restore onto a fresh file system assigns them in order). No copying tool can set the time
of birth, and unlike the time of change no ``chown`` changes it. Where the file system does not
report a time of birth, the inodes must suffice. The file also holds the number of starts and a
lower bound of the commit number. The database must agree with both, which reveals an older database
that was put in place. This process cannot see from inside that a block device was set back as a
whole. A comparison with the Delta state shows that (queue_manager/maintenance.py).

The order of writes makes a crash in between harmless: at worst a directory that *was* foreign
changes its epoch twice.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import logging
import os
import re
import secrets
import shlex
import sqlite3
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

from srmp_spark.errors import (
    ConfigurationError,
    StoreDamagedError,
    StoreError,
    StoreSyncError,
)
from srmp_spark.private_files import FOLDER_MODE, narrow, refuse_wide, replace_private
from srmp_spark.store import unreadable_rows
from srmp_spark.store.database.durable import make_directory, sync_directory
from srmp_spark.store.database.lock import take_lock
from srmp_spark.store.database.reserve import release_if_short
from srmp_spark.store.database.schema import ADDED, RESTORE_HINT, connect_writer, readable
from srmp_spark.store.outbox.limits import STAGES_DIRECTORY
from srmp_spark.store.stored_rows import wide_parts
from srmp_spark.store.tables import (
    cutovers,
    decisions,
    epochs,
    held_copy,
    held_subscriptions,
    holes,
    losses,
    marks,
    moves,
    state,
    wsrm_sequences,
)
from srmp_spark.store.tables.held_copy import HeldCopy

LOCK_FILE = "lock"
IDENTITY_FILE = "identity"
DATABASE_FILE = "store.db"
SEGMENTS_DIRECTORY = "segments"
OWN_FOLDERS = frozenset({SEGMENTS_DIRECTORY, STAGES_DIRECTORY, "delta", "subscriptions"})
"""Folders of the data directory whose content no other user may see."""
BACKUP_FILE = "backup.json"
"""Manifest of a backup (store/backup/manifest.py).

A folder with this file is a backup. A queue manager that started on it would change it.
"""
RESTORED_FILE = "restored-from.json"
"""File in a directory that was made of a backup: when the backup was made, for an operator."""
RESTORING_FILE = "restoring"
"""File that exists while ``srmp-spark restore`` makes the directory.

Until the file is gone, nothing in the directory may be trusted.
"""

NETWORK_FILE_SYSTEMS = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb2",
        "smb3",
        "smbfs",
        "ncpfs",
        "afs",
        "coda",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.gcsfuse",
        "fuse.blobfuse",
    ]
)
"""File systems that are refused.

On them flock or the shared memory of a WAL works within one host only, or an fsync does not reach a
disk.
"""

RECEIPTS_KEY_BYTES = 32
"""Number of random bytes in ``DataDirectory.receipts_key``, which has two digits for each.

It is the length of the digest (SHA-256) that uses the key.
"""

STATX_BYTES = 256
_AT_FDCWD, _STATX_BTIME, _STATX_BTIME_AT = -100, 0x800, 80
"""Constants for statx(2): the present folder, the bit and the offset of the time of birth.

They are the kernel's ABI, identical on every architecture.
"""

_log = logging.getLogger(__name__)


class Identity(NamedTuple):
    """The content of the file ``identity``, which the module explains.

    ``starts`` is how often the directory was opened.
    """

    queue_manager: str
    starts: int
    starting: int | None
    """Number of the start in progress, or ``None``.

    The database may already hold this number, or still ``starts``.
    """
    position: int
    """Lower bound of the number of commits that the database has had."""
    inodes: tuple[int, int, int]
    """Inodes of the directory, of this file and of the database."""
    born: int | None = None
    """Time when the database file was created, in nanoseconds since 1970; ``None`` if the file
    system does not report it.
    """


def foreign_because(
    identity: Identity | None,
    *,
    starts: int,
    position: int,
    inodes: tuple[int, int, int],
    born: int | None = None,
) -> str | None:
    """Return a text why the database is not the one last used in this directory.

    Return ``None`` if it is the same database. ``identity`` is the content of the file, or ``None``
    without a file. The other arguments are what was found now, with the meaning of the fields of
    :class:`Identity`: ``starts`` and ``position`` come from the database, ``inodes`` and ``born``
    (nanoseconds since 1970) from the file system.
    """
    if identity is None:
        return "it has no file identity"
    for kind, written, found in zip(
        ("directory", "identity file", "database"), identity.inodes, inodes, strict=True
    ):
        if written != found:
            return f"its {kind} is a copy (inode {found}, was {written})"
    if None not in (identity.born, born) and identity.born != born:
        return f"its database is a copy (born at {born}, was {identity.born})"
    if starts not in (identity.starts, identity.starting):
        return f"its database has seen {starts} starts, the directory {identity.starts}"
    if position < identity.position:
        return f"its database is at commit {position}, the directory was at {identity.position}"
    return None


@dataclass(slots=True)
class DataDirectory:
    """An open data directory; this process is its owner until :meth:`close`.

    New rows get the epoch ``epoch``, whose id in the database is ``epoch_id``. ``fence`` is the
    number of this owner, which every commit checks.
    """

    path: Path
    queue_manager: str
    """GUID of the queue manager, created with the directory and never changed."""
    epoch: str
    epoch_id: int
    fence: int
    changed: str | None
    """Reason why this start began a new epoch in a used directory; ``None`` if it did not."""
    held: HeldCopy | None
    """Why the directory, which is a copy, holds everything that acts outside; ``None`` if it does
    not.
    """
    receipts_key: str
    """Random text, created once and never shown to anyone.

    The text is the key for the secrets in the addresses for stream receipts
    (:mod:`srmp_spark.srmp.sending.receipts_address`). A directory of 0.1 has a secret that every
    peer knows; that secret is not used as this key.
    """
    writer: sqlite3.Connection
    """The one connection that writes; the journal uses it (store/journal.py)."""
    _lock: IO[str]
    _starts: int

    @classmethod
    def open(
        cls, path: Path, *, now: int, mountinfo: Path = Path("/proc/self/mountinfo")
    ) -> DataDirectory:
        """Take ownership of ``path``, and create the directory if it does not exist.

        ``now`` is in microseconds since 1970, UTC. Raises :class:`ConfigurationError` if other
        users have rights to the directory (exit code 2), :class:`StoreInUseError` if another
        process owns it (5), :class:`StoreDamagedError` if it is damaged (6),
        :class:`StoreSyncError` if the disk is full or refuses (1), and :class:`StoreError`
        otherwise.
        """
        path = path.absolute()
        try:
            make_directory(path)
            refuse_network_file_system(path, mountinfo)
            refuse_wide(path)
            _refuse_backup(path)
            if release_if_short(path):
                _log.warning("data_dir.reserve_used dir=%s: its volume is full", path)
            (path / SEGMENTS_DIRECTORY).mkdir(exist_ok=True, mode=FOLDER_MODE)
            lock = take_lock(path / LOCK_FILE)
            if count := narrow(path, OWN_FOLDERS):
                _log.warning(
                    "data_dir.narrowed entries=%d dir=%s: other users had rights to them by mode",
                    count,
                    path,
                )
        except OSError as error:
            raise _unusable(path, error) from error
        if (path / RESTORING_FILE).exists():
            lock.close()
            raise StoreDamagedError(
                f"a restore into {path} did not come to its end: run the same srmp-spark "
                "restore again"
            )
        writer: sqlite3.Connection | None = None
        try:
            identity = _read_identity(path)
            writer = connect_writer(path / DATABASE_FILE)
            with readable(path / DATABASE_FILE):
                return cls._begin(path, writer, identity, lock, now)
        except BaseException as error:
            if writer is not None:
                writer.close()
            lock.close()
            if isinstance(error, OSError):
                raise _unusable(path, error) from error
            raise

    @classmethod
    def _begin(
        cls,
        path: Path,
        writer: sqlite3.Connection,
        identity: Identity | None,
        lock: IO[str],
        now: int,
    ) -> DataDirectory:
        facts = dict(writer.execute("SELECT key, value FROM meta"))
        position, fence = writer.execute("SELECT position, fence FROM head").fetchone()
        starts: int = facts.get("starts", 0)
        queue_manager: str = facts.get("queue_manager") or str(uuid.uuid4())
        born = birth_of(path / DATABASE_FILE)
        because = _restored_because(path, identity) or foreign_because(
            identity, starts=starts, position=position, inodes=_inodes(path), born=born
        )
        if because is None:
            # This is written before the database. A crash between the two must not turn a foreign
            # directory into our own.
            _write_identity(path, queue_manager, starts, starts + 1, position)
        writer.execute("BEGIN IMMEDIATE")
        decisions.create_tables(writer)
        # A directory of an older version has none of these tables.
        for statement in (
            *ADDED.split(";"),
            losses.DDL,
            wide_parts.DDL,
            moves.DDL,
            wsrm_sequences.DDL,
            *cutovers.DDL,
        ):
            writer.execute(statement)
        marks.take_over(writer)
        moved_aside = unreadable_rows.move_unreadable_rows(writer, now)
        holes.join_all(writer)
        if starts == 0:
            writer.execute(
                "INSERT INTO meta VALUES ('queue_manager', ?), ('created_at', ?)",
                (queue_manager, now),
            )
        _begin_epoch_if_due(writer, starts, because, moved_aside, now)
        # The directory is new, or was made by an older version.
        if "undivided_until" not in facts:
            state.divide_history(writer)
        receipts_key: str = facts.get("receipts_key") or secrets.token_hex(RECEIPTS_KEY_BYTES)
        writer.execute(
            "INSERT OR REPLACE INTO meta VALUES ('starts', ?), ('receipts_key', ?)",
            (starts + 1, receipts_key),
        )
        writer.execute("UPDATE head SET fence = ?, position = position + 1", (fence + 1,))
        writer.execute("COMMIT")
        _write_identity(path, queue_manager, starts + 1, None, position + 1)
        current = epochs.current(writer)
        changed = because if starts > 0 else None
        return cls(
            path,
            queue_manager,
            current.epoch,
            current.id,
            fence + 1,
            changed,
            held_copy.load(writer),
            receipts_key,
            writer,
            lock,
            starts + 1,
        )

    @property
    def database(self) -> Path:
        """Return the path of the SQLite file ``store.db``."""
        return self.path / DATABASE_FILE

    @property
    def segments(self) -> Path:
        """Return the folder of the sealed rows."""
        return self.path / SEGMENTS_DIRECTORY

    def note_position(self, position: int) -> None:
        """Store in the file ``identity`` that commit ``position`` was reached.

        The next start then detects an older database that was put in place. The queue manager calls
        this function from time to time and at a clean stop, never while a message waits for it.
        Nothing is stored if another owner has the directory by now: its next start would treat the
        directory as foreign otherwise. Raises :class:`OSError` if the file cannot be written.
        """
        # If the file is damaged, it is written again.
        with contextlib.suppress(StoreDamagedError):
            noted = _read_identity(self.path)
            if noted is not None and (noted.starts != self._starts or noted.starting is not None):
                return
        _write_identity(self.path, self.queue_manager, self._starts, None, position)

    def close(self) -> None:
        """Close the connection that writes, and release the lock of the directory.

        Closing the last connection also copies the WAL into the database.
        """
        self.writer.close()
        self._lock.close()

    def __enter__(self) -> DataDirectory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _refuse_backup(path: Path) -> None:
    if (path / BACKUP_FILE).exists():
        raise ConfigurationError(
            f"{path} is a backup, and a queue manager would change it: make a data directory of it "
            f"with srmp-spark restore --backup {shlex.quote(str(path))} --data-dir NEW"
        )


def _unusable(path: Path, error: OSError) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return StoreSyncError(
            f"{path} cannot be written ({error}): make room or repair the disk, then start again"
        )
    return StoreError(f"the data directory {path} cannot be used: {error}")


def refuse_network_file_system(path: Path, mountinfo: Path) -> None:
    """Raise :class:`StoreError` if ``path`` lies on a file system of NETWORK_FILE_SYSTEMS.

    ``mountinfo`` is the kernel's list of mounts. Raises :class:`OSError` if the list cannot be
    read.
    """
    kind, mounted_at = file_system_of(path, mountinfo)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreError(
            f"{path} lies on {kind} (mounted at {mounted_at}): locks and syncs cannot be "
            "trusted there; use a local or "
            "block volume"
        )


def file_system_of(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> tuple[str, str]:
    """Return the kind of the file system of ``path``, and its mount point.

    The kind is a name of the kernel, such as ``ext4``. Both texts are empty if no mount is found.
    ``mountinfo`` is the kernel's list of mounts. Raises :class:`OSError` if the list cannot be
    read.
    """
    best, kind = "", ""
    target = os.path.realpath(path)
    for line in mountinfo.read_text(errors="surrogateescape").splitlines():
        fields, _, tail = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields.split(" ")[4])
        # Later lines hide earlier ones: of two mounts on one point, the last one is visible.
        if (target == point or target.startswith(point.rstrip("/") + "/")) and len(point) >= len(
            best
        ):
            best, kind = point, tail.split(" ")[0]
    return kind, best


def _begin_epoch_if_due(
    writer: sqlite3.Connection,
    starts: int,
    because: str | None,
    moved_aside: set[str],
    now: int,
) -> None:
    """Begin a new epoch if this start needs one.

    It needs one if the directory is new, is a copy (``because`` states why), has lost holes, or has
    a mark beyond the last row.
    """
    if starts == 0:
        epochs.begin(writer, secrets.token_hex(8), now, "a new data directory")
    elif because is not None:
        epochs.begin(writer, secrets.token_hex(8), now, because)
        state.skip_used_identifiers(writer)
        held_subscriptions.hold_all(writer, because)
        held_copy.hold(writer, HeldCopy(because, now))
    elif "holes" in moved_aside:
        # The unreadable hole may have held the last sequence of its queue. A sequence is never
        # issued twice in an epoch.
        epochs.begin(writer, secrets.token_hex(8), now, "a row of the table holes cannot be read")
    elif beyond := epochs.marked_beyond(writer):
        for name, (mark, end) in beyond.items():
            told = (
                "epoch.below_a_mark queue=%s received=%d last=%d: rows that arrived "
                "since the last restore may count as received by a consumer that never "
                "got them (srmp-spark peek shows them); a new epoch begins after the mark"
            )
            _log.warning(told, name, mark, end)
        epochs.begin(
            writer, secrets.token_hex(8), now, "a consumer's mark lies beyond the last row"
        )


def _restored_because(path: Path, identity: Identity | None) -> str | None:
    """Return that the directory was made of a backup, at its first start; ``None`` otherwise."""
    if identity is not None:
        return None
    try:
        made_at = json.loads((path / RESTORED_FILE).read_text(encoding="utf-8"))["made_at"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return f"it was restored from the backup of {made_at}"


def _inodes(path: Path) -> tuple[int, int, int]:
    identity = path / IDENTITY_FILE
    # Use the name and never open the database: closing a second descriptor of the file would drop
    # SQLite's own locks.
    return (
        path.stat().st_ino,
        identity.stat().st_ino if identity.exists() else 0,
        (path / DATABASE_FILE).stat().st_ino,
    )


def birth_of(path: Path) -> int | None:
    """Return the time at which the file was created, in nanoseconds since 1970.

    Return ``None`` if the time is unknown. The function calls statx(2), because Python does not
    report this time on Linux.
    """
    buffer = ctypes.create_string_buffer(STATX_BYTES)
    try:
        statx = ctypes.CDLL(None).statx
    except AttributeError:
        # glibc before 2.28 has no statx.
        return None
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer) != 0:
        return None
    (known,) = struct.unpack_from("=I", buffer, 0)
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, _STATX_BTIME_AT)
    # On old kernels tmpfs reports 0, which means unknown.
    return (seconds * 1_000_000_000 + nanoseconds if known & _STATX_BTIME else 0) or None


def _read_identity(path: Path) -> Identity | None:
    try:
        text = (path / IDENTITY_FILE).read_text()
    except FileNotFoundError:
        return None
    try:
        found = json.loads(text)
        inodes = found["inodes"]
        identity = Identity(
            str(found["queue_manager"]),
            int(found["starts"]),
            found["starting"],
            int(found["position"]),
            (int(inodes["directory"]), int(inodes["identity"]), int(inodes["database"])),
            found.get("born"),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDamagedError(
            f"{path / IDENTITY_FILE} cannot be read ({error!r}): remove it, the queue "
            "manager then begins a new epoch"
        ) from error
    if not (path / DATABASE_FILE).exists():
        raise StoreDamagedError(
            f"{path / DATABASE_FILE} is gone, it had {identity.position} commits. {RESTORE_HINT}; "
            f"or remove {path / IDENTITY_FILE} to begin with an empty queue manager"
        )
    return identity


def write_first_identity(path: Path, queue_manager: str, position: int) -> None:
    """Write the first file ``identity`` of a directory that a restore has made.

    The file states one start, so the next start accepts the directory as its own. ``position`` is
    the number of commits that the database has had. Raises :class:`OSError` if the file cannot be
    written.
    """
    _write_identity(path, queue_manager, 1, None, position)


def _write_identity(
    path: Path, queue_manager: str, starts: int, starting: int | None, position: int
) -> None:
    directory, _, database = _inodes(path)
    new = path / f"{IDENTITY_FILE}.new"
    with os.fdopen(replace_private(new), "w", encoding="utf-8") as file:
        inodes = {
            "directory": directory,
            "identity": os.fstat(file.fileno()).st_ino,
            "database": database,
        }
        content = {
            "queue_manager": queue_manager,
            "starts": starts,
            "starting": starting,
            "position": position,
        }
        content["inodes"] = inodes
        content["born"] = birth_of(path / DATABASE_FILE)
        file.write(json.dumps(content, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.rename(path / IDENTITY_FILE)
    sync_directory(path)
