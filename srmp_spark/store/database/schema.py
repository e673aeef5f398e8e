"""The database of a data directory: tables, format number, settings.

One SQLite file in WAL mode holds everything on which a 200 depends. store/database/sqlite_file.py
opens it and asserts its settings.

A group or segment is found by ``row_key(queue_id, last)``, which is its rowid. So there is one
tree, no second index to write in each commit, and the rows of a queue are adjacent.

SQLite has only signed 64-bit numbers. Uniquifiers (xs:unsignedLong, and possibly hostile) are
stored as two's complement, ordinals as text. Nothing here needs a newer SQLite than 3.24 (2018),
because long-lived distributions have old versions.
"""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from srmp_spark.sequences.ranges import SEQUENCE_BITS, SEQUENCE_MAX
from srmp_spark.store.database import sqlite_file
from srmp_spark.store.database.sqlite_file import Database

FORMAT = 1
"""Format number of the database, its groups and the segment files.

A data directory with a higher number is refused (exit code 6).
"""

PAGE_SIZE_BYTES = 8192
"""Page size in bytes.

Measured with 32 senders and 2.3 KB posts: 8.8 us of CPU per message against 11.7 at 4096, which
needs twice the writes per group. 16384 costs a lone sender one third more bytes per commit and
gains nothing.
"""

WRITER_CACHE_KIB = 8192
"""Pages of the open transaction that stay in memory, in KiB.

A bigger transaction spills into the WAL, which is correct and slower.
"""

QUEUE_ID_MAX = (1 << (63 - SEQUENCE_BITS)) - 1
"""Highest id of a queue: 524,287.

Deleted queues keep their ids. The id takes the bits of a rowid that a sequence does not need.
"""

RESTORE_HINT = (
    "Put a backup of the whole data directory back; or, with --state, make a new one from "
    "the Delta tables (inbox and others): "
    "srmp-spark restore (docs/troubleshooting.md, 'A lost disk')"
)
"""Advice for an operator whose database is lost or damaged."""

DDL = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
-- One row: the number of the last commit, and the fence of the owner that may write the next.
CREATE TABLE head(only_row INTEGER PRIMARY KEY CHECK (only_row = 1), position INTEGER NOT NULL, \
fence INTEGER NOT NULL);
CREATE TABLE epochs(
    id INTEGER PRIMARY KEY, epoch TEXT NOT NULL UNIQUE, started_at INTEGER NOT NULL, \
reason TEXT NOT NULL
);
CREATE TABLE queues(
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, transactional INTEGER NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0, options TEXT NOT NULL DEFAULT '{}',
    trimmed_to INTEGER NOT NULL DEFAULT 0,  -- rows up to here were deleted by retention: `first` \
is one more
    deleted_at INTEGER                      -- a queue that comes back goes on counting: \
sequences are never used again
);
-- The first sequence that a queue gave out, or would have, in an epoch.
CREATE TABLE queue_epochs(
    queue_id INTEGER NOT NULL, epoch_id INTEGER NOT NULL, first INTEGER NOT NULL, \
PRIMARY KEY (queue_id, epoch_id)
) WITHOUT ROWID;
CREATE TABLE groups(
    id INTEGER PRIMARY KEY,  -- row_key(queue_id, last)
    queue_id INTEGER NOT NULL, epoch_id INTEGER NOT NULL, first INTEGER NOT NULL, \
last INTEGER NOT NULL,
    position INTEGER NOT NULL, bytes INTEGER NOT NULL, arrived_first INTEGER NOT NULL, \
arrived_last INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE segments(
    id INTEGER PRIMARY KEY,  -- row_key(queue_id, last)
    queue_id INTEGER NOT NULL, epoch_id INTEGER NOT NULL, first INTEGER NOT NULL, \
last INTEGER NOT NULL,
    position_first INTEGER NOT NULL, position_last INTEGER NOT NULL, bytes INTEGER NOT NULL, \
rows INTEGER NOT NULL,
    arrived_first INTEGER NOT NULL, arrived_last INTEGER NOT NULL,
    file TEXT NOT NULL,      -- below segments/, without .columns.arrow and .posts.arrow
    columns_bytes INTEGER NOT NULL, columns_crc INTEGER NOT NULL, posts_bytes INTEGER NOT NULL, \
posts_crc INTEGER NOT NULL,
    sizes BLOB NOT NULL      -- u32 per sequence: bytes of its post, 0 for a hole
);
CREATE TABLE holes(
    queue_id INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (queue_id, first)
) WITHOUT ROWID;
-- Sequences whose groups are no longer read (sealed, purged, trimmed) and are deleted in slices \
(store/database/sweeper.py).
CREATE TABLE garbage(id INTEGER PRIMARY KEY, queue_id INTEGER NOT NULL, first INTEGER NOT NULL, \
last INTEGER NOT NULL);
CREATE TABLE streams(
    queue TEXT NOT NULL, guid TEXT NOT NULL, stream_ordinal TEXT NOT NULL, \
sequence_number INTEGER NOT NULL,
    last_acknowledged INTEGER NOT NULL, send_receipts_to TEXT NOT NULL, peer TEXT NOT NULL, \
source_qm TEXT,
    reject_count INTEGER NOT NULL, started_at INTEGER NOT NULL, last_access_at INTEGER NOT NULL, \
sender_name TEXT,
    PRIMARY KEY (queue, guid)
) WITHOUT ROWID;
CREATE TABLE history(
    lineage TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, \
last_received_at INTEGER NOT NULL,
    PRIMARY KEY (lineage, first)
) WITHOUT ROWID;
CREATE TABLE consumers(
    queue_id INTEGER NOT NULL, name TEXT NOT NULL, received INTEGER NOT NULL, \
ahead TEXT NOT NULL DEFAULT '[]',
    planned INTEGER, holder TEXT, lease_until INTEGER, PRIMARY KEY (queue_id, name)
) WITHOUT ROWID;
CREATE TABLE owed_receipts(
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, url TEXT NOT NULL, peer TEXT NOT NULL, \
payload TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE TABLE ids(name TEXT PRIMARY KEY, ceiling INTEGER NOT NULL) WITHOUT ROWID;
"""

ADDED = """
CREATE TABLE IF NOT EXISTS accepted_gaps(
    queue TEXT NOT NULL, guid TEXT NOT NULL, stream_ordinal TEXT NOT NULL, \
started_at INTEGER NOT NULL,
    after INTEGER NOT NULL, next_position INTEGER, PRIMARY KEY (queue, guid)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pulled(
    subscription TEXT NOT NULL, lookup_id INTEGER NOT NULL, message_id TEXT NOT NULL, \
pulled_at INTEGER NOT NULL,
    packet BLOB NOT NULL, UNIQUE (subscription, lookup_id, message_id)
);
CREATE TABLE IF NOT EXISTS copied(
    subscription TEXT NOT NULL, lookup_id INTEGER NOT NULL, message_id TEXT NOT NULL,
    PRIMARY KEY (subscription, lookup_id, message_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS subscriptions(
    name TEXT PRIMARY KEY, entry TEXT NOT NULL, removing INTEGER NOT NULL
) WITHOUT ROWID
"""
"""Tables that are new in 0.2, created at every open.

``accepted_gaps`` has gaps in incoming streams that were accepted. It is separate from ``streams``,
because 0.1 counts the columns of ``streams`` when it writes; 0.1 opens such a directory, and
forgets accepted gaps. A row of ``accepted_gaps`` outlives its gap: it names the position that was
the last one at that time.

``pulled`` has messages of remote queues that are locked or removed in the remote queue, and are no
rows of this queue manager yet. ``copied`` has messages that are rows of this queue manager and
still in the remote queue. Lookup identifiers are two's complement. ``subscriptions`` has the
subscriptions that were added while the queue manager ran.
"""


def row_key(queue_id: int, last: int) -> int:
    """Return the rowid of the group or segment of ``queue_id`` that ends with ``last``.

    ``last`` is a sequence. Both numbers must be within their limits.
    """
    assert 0 <= queue_id <= QUEUE_ID_MAX, f"queue id {queue_id}"
    assert 0 <= last <= SEQUENCE_MAX, f"sequence {last}"
    return queue_id << SEQUENCE_BITS | last


WAL_KEPT_BYTES = 8 * 1_048_576
"""Largest length in bytes that the WAL file keeps.

A longer file, which a reader with an open snapshot caused, is truncated when the WAL starts again
at its beginning. The value is twice what one checkpoint copies.
"""

WRITER_PRAGMAS: dict[str, object] = {
    "page_size": PAGE_SIZE_BYTES,
    # INCREMENTAL, for a file that is created now: its free pages can be given back
    # (store/database/giving_back.py).
    "auto_vacuum": 2,
    "journal_mode": "wal",
    # FULL: one sync of the WAL per commit.
    "synchronous": 2,
    # Debian's SQLite overwrites deleted bodies with zeros by default: every sealed byte would be
    # written again.
    "secure_delete": 0,
    # store/database/checkpointer.py explains when the WAL is copied, and why.
    "wal_autocheckpoint": 0,
    "foreign_keys": 0,
    "cache_size": -WRITER_CACHE_KIB,
    "journal_size_limit": WAL_KEPT_BYTES,
}

INBOX = Database(
    format=FORMAT, ddl=DDL, pragmas=WRITER_PRAGMAS, promise="a 200", restore_hint=RESTORE_HINT
)


def assert_durable(connection: sqlite3.Connection) -> None:
    """Raise :class:`StoreError` unless the settings of this connection make commits durable.

    The database is the inbox, ``store.db``. See
    :func:`srmp_spark.store.database.sqlite_file.assert_durable`.
    """
    sqlite_file.assert_durable(connection, INBOX)


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open the one connection that writes to the inbox database ``store.db``.

    See :func:`srmp_spark.store.database.sqlite_file.connect_writer`, also for the errors.
    """
    return sqlite_file.connect_writer(path, INBOX)


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a read-only connection to the inbox database ``store.db``.

    See :func:`srmp_spark.store.database.sqlite_file.connect_reader`, also for the errors.
    """
    return sqlite_file.connect_reader(path, INBOX)


def readable(path: Path) -> AbstractContextManager[None]:
    """Raise SQLite errors of a ``with`` block as errors of srmp-spark, for the inbox database.

    See :func:`srmp_spark.store.database.sqlite_file.readable`.
    """
    return sqlite_file.readable(path, RESTORE_HINT)
