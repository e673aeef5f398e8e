"""The data directory: who owns it, whose it is, and since when.

    <data-dir>/lock            flock of the owner; names its process and host for whoever comes second
    <data-dir>/identity        which directory this is (below)
    <data-dir>/store.db        SQLite (store/schema.py), with -wal and -shm beside it
    <data-dir>/segments/       sealed rows (store/sealing.py)

**One owner.** The lock keeps a second process on this host out. A second host is kept out by the fence: each owner raises
the counter in the database and every commit checks it, so an owner that was paused, and lost its volume meanwhile, writes
nothing more. Network file systems are refused: neither lock nor WAL can be trusted there.

**Epoch.** Sequences are only comparable within one history. A directory that was copied, or put back from a backup, would
give out numbers again that readers already know with other content, so it must be seen as another history: a new epoch. Peers
know message identifiers, and these have no epoch: there a copy goes on far above what the original can have given out.
``identity`` holds what a copy does not keep: the inodes of the directory, of itself and of the database, and when the
database was born. Inodes alone may come again by chance (a restore onto a fresh file system gives them out in order); the
time of birth cannot be set by any copying tool, and unlike the time of change no ``chown`` moves it. Where the file system
does not tell it, inodes have to do. It also holds the number of starts and a lower bound of the commit number, which the
database must agree with: an older database put in place is found by these. What cannot be seen from inside is a block
device set back as a whole; comparing with the Delta state does that (queue_manager/maintenance.py).

The order of writes makes a crash in between harmless: at worst a directory that *was* foreign changes its epoch twice.
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
import sqlite3
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

from srmp_spark.errors import StoreDamagedError, StoreError, StoreSyncError
from srmp_spark.private_files import FOLDER_MODE, narrow, refuse_wide, replace_private
from srmp_spark.store import (
    decisions,
    epochs,
    held_subscriptions,
    holes,
    losses,
    marks,
    moves,
    state,
    unreadable_rows,
    wide_parts,
    wsrm_sequences,
)
from srmp_spark.store.durable import make_directory, sync_directory
from srmp_spark.store.lock import take_lock
from srmp_spark.store.outbox.limits import STAGES_DIRECTORY
from srmp_spark.store.schema import ADDED, RESTORE_HINT, connect_writer, readable

LOCK_FILE = "lock"
IDENTITY_FILE = "identity"
DATABASE_FILE = "store.db"
SEGMENTS_DIRECTORY = "segments"
OWN_FOLDERS = frozenset({SEGMENTS_DIRECTORY, STAGES_DIRECTORY, "delta", "subscriptions"})
"""Folders of the data directory whose content no other user may see."""
RESTORING_FILE = "restoring"
"""There while ``srmp-spark restore`` makes the directory: until it is gone nothing in it may be believed."""

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
"""Where flock or the shared memory of a WAL reaches one host only, or an fsync does not reach a disk."""

RECEIPTS_KEY_BYTES = 32
"""Of ``DataDirectory.receipts_key``: as many as the digest that it is a key of (SHA-256) has."""

STATX_BYTES = 256
_AT_FDCWD, _STATX_BTIME, _STATX_BTIME_AT = -100, 0x800, 80
"""The layout of ``struct statx``: the kernel's ABI, the same on every architecture."""

_log = logging.getLogger(__name__)


class Identity(NamedTuple):
    """The content of the file ``identity``."""

    queue_manager: str
    starts: int
    starting: int | None
    """Set while a start is under way: the database may hold this number already, or still ``starts``."""
    position: int
    """The database has had at least so many commits."""
    inodes: tuple[int, int, int]
    """Of the directory, of this file, of the database."""
    born: int | None = None
    """When the database file was made, nanoseconds since 1970; ``None`` if the file system does not tell."""


def foreign_because(
    identity: Identity | None,
    *,
    starts: int,
    position: int,
    inodes: tuple[int, int, int],
    born: int | None = None,
) -> str | None:
    """Why the database in this directory is not the one that was used here last; ``None`` if it is."""
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
    """An open data directory; this process is its owner until :meth:`close`."""

    path: Path
    queue_manager: str
    """The GUID of the queue manager, made with the directory and never changed."""
    epoch: str
    epoch_id: int
    fence: int
    changed: str | None
    """Why this start began a new epoch in a directory that was in use before; ``None`` if it did not."""
    receipts_key: str
    """Random text, made once: what the secrets in the addresses for stream receipts are made with, and told to nobody
    (:mod:`srmp_spark.srmp.receipts_address`). A directory of 0.1 has a secret that every peer was told: that is no key."""
    writer: sqlite3.Connection
    """The one connection that writes: the journal's (store/journal.py)."""
    _lock: IO[str]
    _starts: int

    @classmethod
    def open(
        cls, path: Path, *, now: int, mountinfo: Path = Path("/proc/self/mountinfo")
    ) -> DataDirectory:
        """Take ownership of ``path``, which is created if need be. ``now`` is microseconds since 1970, UTC.

        Raises :class:`ConfigurationError` (exit code 2: other users have a right to it), :class:`StoreInUseError` (5),
        :class:`StoreDamagedError` (6), :class:`StoreSyncError` (1: the disk is full or refuses), :class:`StoreError`.
        """
        path = path.absolute()
        try:
            make_directory(path)
            refuse_network_file_system(path, mountinfo)
            refuse_wide(path)
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
        because = foreign_because(
            identity, starts=starts, position=position, inodes=_inodes(path), born=born
        )
        if because is None:
            # Before the database is told: a crash between the two must not make a foreign directory of our own.
            _write_identity(path, queue_manager, starts, starts + 1, position)
        writer.execute("BEGIN IMMEDIATE")
        decisions.create_tables(writer)
        for statement in (
            *ADDED.split(";"),
            losses.DDL,
            wide_parts.DDL,
            moves.DDL,
            wsrm_sequences.DDL,
        ):  # a directory that an older version made has none of these
            writer.execute(statement)
        marks.take_over(writer)
        moved_aside = unreadable_rows.move_unreadable_rows(writer, now)
        holes.join_all(writer)
        if starts == 0:
            writer.execute(
                "INSERT INTO meta VALUES ('queue_manager', ?), ('created_at', ?)",
                (queue_manager, now),
            )
            epochs.begin(writer, secrets.token_hex(8), now, "a new data directory")
        elif because is not None:
            epochs.begin(writer, secrets.token_hex(8), now, because)
            state.skip_used_identifiers(writer)
            held_subscriptions.hold_all(writer, because)
        elif (
            "holes" in moved_aside
        ):  # it may have been the last sequence of its queue: none is given out twice in an epoch
            epochs.begin(
                writer, secrets.token_hex(8), now, "a row of the table holes cannot be read"
            )
        elif beyond := epochs.marked_beyond(writer):
            for name, (mark, end) in beyond.items():
                told = (
                    "epoch.below_a_mark queue=%s received=%d last=%d: what came since the "
                    "last restore may count as received "
                    "by who never got it (srmp-spark peek shows it); a new epoch begins "
                    "beyond the mark"
                )
                _log.warning(told, name, mark, end)
            epochs.begin(
                writer, secrets.token_hex(8), now, "a consumer's mark lies beyond the last row"
            )
        if "undivided_until" not in facts:  # a new directory, or one that an older version made
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
            receipts_key,
            writer,
            lock,
            starts + 1,
        )

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.path / DATABASE_FILE

    @property
    def segments(self) -> Path:
        """The folder of the sealed rows."""
        return self.path / SEGMENTS_DIRECTORY

    def note_position(self, position: int) -> None:
        """Put on record that commit ``position`` was reached: an older database put in place later is then found out.

        Called at times, and at a clean stop; never in the way of a message. An owner that was paused, and whose directory has
        another one by now, notes nothing: the next start would take the directory for a foreign one.
        """
        with contextlib.suppress(StoreDamagedError):  # then it is written anew
            noted = _read_identity(self.path)
            if noted is not None and (noted.starts != self._starts or noted.starting is not None):
                return
        _write_identity(self.path, self.queue_manager, self._starts, None, position)

    def close(self) -> None:
        """Give the directory free. Closing the last connection also empties the WAL into the database."""
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


def _unusable(path: Path, error: OSError) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return StoreSyncError(
            f"{path} cannot be written ({error}): make room or repair the disk, then start again"
        )
    return StoreError(f"the data directory {path} cannot be used: {error}")


def refuse_network_file_system(path: Path, mountinfo: Path) -> None:
    """Raise :class:`StoreError` if ``path`` lies on NFS, CIFS or their like."""
    kind, mounted_at = file_system_of(path, mountinfo)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreError(
            f"{path} lies on {kind} (mounted at {mounted_at}): locks and syncs cannot be "
            "trusted there; use a local or "
            "block volume"
        )


def file_system_of(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> tuple[str, str]:
    """Return the kind of the file system of ``path`` and where it is mounted, by the kernel's list of mounts."""
    best, kind = "", ""
    target = os.path.realpath(path)
    for line in mountinfo.read_text(errors="surrogateescape").splitlines():
        fields, _, tail = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields.split(" ")[4])
        # Later lines lie above earlier ones: of two mounts on one point the last is what is seen.
        if (target == point or target.startswith(point.rstrip("/") + "/")) and len(point) >= len(
            best
        ):
            best, kind = point, tail.split(" ")[0]
    return kind, best


def _inodes(path: Path) -> tuple[int, int, int]:
    identity = path / IDENTITY_FILE
    # By name and never by opening the database: closing a second descriptor of it would drop SQLite's own locks.
    return (
        path.stat().st_ino,
        identity.stat().st_ino if identity.exists() else 0,
        (path / DATABASE_FILE).stat().st_ino,
    )


def birth_of(path: Path) -> int | None:
    """When the file was made, nanoseconds since 1970, by statx(2), which Python does not offer; ``None`` if nobody knows."""
    buffer = ctypes.create_string_buffer(STATX_BYTES)
    try:
        statx = ctypes.CDLL(None).statx
    except AttributeError:  # glibc before 2.28
        return None
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer) != 0:
        return None
    (known,) = struct.unpack_from("=I", buffer, 0)
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, _STATX_BTIME_AT)
    return (
        seconds * 1_000_000_000 + nanoseconds if known & _STATX_BTIME else 0
    ) or None  # tmpfs of old kernels says 0


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
    """Of a directory that was made from elsewhere, with ``starts`` 1: the next start finds its own."""
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
