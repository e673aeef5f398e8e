"""The database of a data directory: tables, format number, and how a connection is opened.

One SQLite file in WAL mode holds everything that a 200 depends on. ``synchronous=FULL`` is set and then *asserted* at every
open: SQLite builds differ in their default, and with ``NORMAL`` a commit makes no sync at all (measured: 0 syncs in 100
commits), which no test that kills the process can see.

A group or segment is found by ``row_key(queue_id, last)``, which is its rowid: one tree, no second index to write in each
commit, and the rows of a queue lie side by side.

SQLite knows signed 64 bit only: uniquifiers (xs:unsignedLong, and hostile) are stored as two's complement, ordinals as text.
Nothing here needs a newer SQLite than 3.24 (2018): long-lived distributions have old ones.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from srmp_spark.errors import StoreDamagedError, StoreError, StoreSyncError

FORMAT = 1
"""Of the database, the groups in it and the segment files. A data directory with a higher number is refused (exit code 6)."""

PAGE_SIZE_BYTES = 8192
"""Measured (32 senders, 2.3 KB posts): 8.8 us of CPU per message against 11.7 at 4096, which needs twice the writes per group;
16384 costs a lone sender one third more bytes per commit and gains nothing."""

BUSY_TIMEOUT_S = 5.0
"""Only a checkpoint's last step or a foreign tool makes a connection wait; past this something holds the database."""

WRITER_CACHE_KIB = 8192
"""Pages of the open transaction that stay in memory; a bigger one spills into the WAL, which is correct and slower."""

SEQUENCE_BITS = 44
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1
"""17 million million rows in one queue: 5,000 a second for a century."""
QUEUE_ID_MAX = (1 << (63 - SEQUENCE_BITS)) - 1
"""524,287 queues were ever created here: what is left of a rowid."""

_DISK_REFUSES = ("disk is full", "disk I/O error", "readonly database")
"""SQLite's words; before Python 3.11 its errors have no number."""

RESTORE_HINT = (
    "Put a backup of the whole data directory back; with --state the published rows are in the Delta table inbox "
    "(docs/troubleshooting.md, 'A damaged data directory')"
)
"""What there is today against a lost or damaged database."""

DDL = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
-- One row: the number of the last commit, and the fence of the owner that may write the next.
CREATE TABLE head(only_row INTEGER PRIMARY KEY CHECK (only_row = 1), position INTEGER NOT NULL, fence INTEGER NOT NULL);
CREATE TABLE epochs(
    id INTEGER PRIMARY KEY, epoch TEXT NOT NULL UNIQUE, started_at INTEGER NOT NULL, reason TEXT NOT NULL
);
CREATE TABLE queues(
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, transactional INTEGER NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0, options TEXT NOT NULL DEFAULT '{}',
    trimmed_to INTEGER NOT NULL DEFAULT 0,  -- rows up to here were deleted by retention: `first` is one more
    deleted_at INTEGER                      -- a queue that comes back goes on counting: sequences are never used again
);
-- The first sequence that a queue gave out, or would have, in an epoch.
CREATE TABLE queue_epochs(
    queue_id INTEGER NOT NULL, epoch_id INTEGER NOT NULL, first INTEGER NOT NULL, PRIMARY KEY (queue_id, epoch_id)
) WITHOUT ROWID;
CREATE TABLE groups(
    id INTEGER PRIMARY KEY,  -- row_key(queue_id, last)
    queue_id INTEGER NOT NULL, epoch_id INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    position INTEGER NOT NULL, bytes INTEGER NOT NULL, arrived_first INTEGER NOT NULL, arrived_last INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE segments(
    id INTEGER PRIMARY KEY,  -- row_key(queue_id, last)
    queue_id INTEGER NOT NULL, epoch_id INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    position_first INTEGER NOT NULL, position_last INTEGER NOT NULL, bytes INTEGER NOT NULL, rows INTEGER NOT NULL,
    arrived_first INTEGER NOT NULL, arrived_last INTEGER NOT NULL,
    file TEXT NOT NULL,      -- below segments/, without .columns.arrow and .posts.arrow
    columns_bytes INTEGER NOT NULL, columns_crc INTEGER NOT NULL, posts_bytes INTEGER NOT NULL, posts_crc INTEGER NOT NULL,
    sizes BLOB NOT NULL      -- u32 per sequence: bytes of its post, 0 for a hole
);
CREATE TABLE holes(
    queue_id INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (queue_id, first)
) WITHOUT ROWID;
-- Sequences whose groups are no longer read (sealed, purged, trimmed) and are deleted in slices (store/sweeper.py).
CREATE TABLE garbage(id INTEGER PRIMARY KEY, queue_id INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL);
CREATE TABLE streams(
    queue TEXT NOT NULL, guid TEXT NOT NULL, stream_ordinal TEXT NOT NULL, sequence_number INTEGER NOT NULL,
    last_acknowledged INTEGER NOT NULL, send_receipts_to TEXT NOT NULL, peer TEXT NOT NULL, source_qm TEXT,
    reject_count INTEGER NOT NULL, started_at INTEGER NOT NULL, last_access_at INTEGER NOT NULL, sender_name TEXT,
    PRIMARY KEY (queue, guid)
) WITHOUT ROWID;
CREATE TABLE history(
    lineage TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, last_received_at INTEGER NOT NULL,
    PRIMARY KEY (lineage, first)
) WITHOUT ROWID;
CREATE TABLE consumers(
    queue_id INTEGER NOT NULL, name TEXT NOT NULL, received INTEGER NOT NULL, ahead TEXT NOT NULL DEFAULT '[]',
    planned INTEGER, holder TEXT, lease_until INTEGER, PRIMARY KEY (queue_id, name)
) WITHOUT ROWID;
CREATE TABLE owed_receipts(
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, url TEXT NOT NULL, peer TEXT NOT NULL, payload TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE TABLE ids(name TEXT PRIMARY KEY, ceiling INTEGER NOT NULL) WITHOUT ROWID;
"""


def row_key(queue_id: int, last: int) -> int:
    """The rowid of the group or segment of ``queue_id`` that ends with sequence ``last``."""
    assert 0 <= queue_id <= QUEUE_ID_MAX, f"queue id {queue_id}"
    assert 0 <= last <= SEQUENCE_MAX, f"sequence {last}"
    return queue_id << SEQUENCE_BITS | last


def pragma(connection: sqlite3.Connection, name: str) -> object:
    """The present value of a setting."""
    row = connection.execute(f"PRAGMA {name}").fetchone()
    return row[0] if row else None


WRITER_PRAGMAS: dict[str, object] = {
    "page_size": PAGE_SIZE_BYTES,
    "journal_mode": "wal",
    "synchronous": 2,  # FULL: one sync of the WAL per commit
    "secure_delete": 0,  # Debian's SQLite overwrites deleted bodies with zeros: every sealed byte would be written again
    "wal_autocheckpoint": 0,  # store/checkpointer.py says when, and why
    "foreign_keys": 0,
    "cache_size": -WRITER_CACHE_KIB,
}


def assert_durable(connection: sqlite3.Connection) -> None:
    """Raise :class:`StoreError` unless a commit on this connection reaches the disk before it returns."""
    for name in ("journal_mode", "synchronous", "secure_delete", "wal_autocheckpoint"):
        found = pragma(connection, name)
        if found != WRITER_PRAGMAS[name]:
            raise StoreError(
                f"the database runs with {name}={found}, but a 200 promises {name}={WRITER_PRAGMAS[name]}; "
                "this SQLite build or this file system cannot keep the promise: use a local disk"
            )


def connect_writer(path: Path) -> sqlite3.Connection:
    """The one connection that writes. It may be handed from thread to thread, never used by two at once.

    Creates the tables in an empty database. Raises :class:`StoreDamagedError` (exit code 6) for a newer format or damage.
    """
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        found = check_format(connection)  # before the first write: a newer version's database is not ours to touch
        for name, value in WRITER_PRAGMAS.items():
            connection.execute(f"PRAGMA {name} = {value}")
        assert_durable(connection)
        if found == 0:
            _create(connection)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise store_error(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Around whatever opens and loads the database: its errors as ours, :func:`store_error` says which."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise store_error(path, error) from error


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, for one thread.

    Raises :class:`StoreDamagedError` when there is no database of ours.
    """
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise store_error(path, error) from error
    try:
        if check_format(connection) == 0:
            message = f"{path} is empty: start srmp-spark serve on this data directory first"
            raise StoreDamagedError(message)  # noqa: TRY301  # the connection is closed below in every case
    except sqlite3.DatabaseError as error:
        connection.close()
        raise store_error(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def check_format(connection: sqlite3.Connection) -> int:
    """The format found, 0 for an empty database.

    Raises :class:`StoreDamagedError` for a database of a newer version, or of another program.
    """
    found = pragma(connection, "user_version")
    assert isinstance(found, int)
    if found > FORMAT:
        raise StoreDamagedError(
            f"the data directory has format {found}, this version of srmp-spark knows {FORMAT}: start the newer version"
        )
    if found == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
        raise StoreDamagedError("the data directory holds a database of another program: give --data-dir another folder")
    return found


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in DDL.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO head VALUES (1, 0, 0)")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def store_error(path: Path, error: sqlite3.Error) -> StoreError:
    """What SQLite says as an error of ours: a disk that refuses (exit code 1), damage (6), or another user of the file (2)."""
    said = str(error)
    if isinstance(error, sqlite3.OperationalError):
        if any(words in said for words in _DISK_REFUSES):
            return StoreSyncError(f"{path} cannot be written ({said}): make room or repair the disk, then start again")
        if "unable to open" not in said:
            return StoreError(f"{path}: {said}")
    return StoreDamagedError(f"{path} cannot be read ({said}). {RESTORE_HINT}")
