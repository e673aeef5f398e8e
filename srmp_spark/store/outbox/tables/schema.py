"""The tables of ``outbox.db``.

A batch is stored as *parts*, one or more for each outgoing queue. The rows of a part lie in
*groups* of up to 256 rows, packed as Arrow (:mod:`.packed_group`), under their offset in the part.
A part has no queue and no serials until the batch counts. The last transaction sets ``queue_id``,
``first``, ``last`` and ``ids_first``, and only that makes its rows outgoing. So other writers can
assign serials of the same queue meanwhile, and nothing is written twice.

    serial = part.first + offset          message identifier = part.ids_first + offset

The row id of a group is ``group_key(part, last offset)``. The bytes of a group are in the table
``data``, so a group can become a dead letter without being copied.
"""

from __future__ import annotations

import sqlite3

from srmp_spark.store.database.sqlite_file import Database
from srmp_spark.store.outbox.limits import CHECKPOINT_BYTES, CHECKPOINT_REST_BYTES
from srmp_spark.transports import Transport

DATABASE_FILE = "outbox.db"
LOCK_FILE = "outbox.lock"

FORMAT_FORWARDED = 2
"""Format with forwarded messages (:mod:`.forwarded`).

An older version would send such messages as its own.
"""
FORMAT_RELIABLE = Transport.RELIABLE.rules.outbox_format
"""Format with messages of reliable sessions (:mod:`.sessions`).

An older version cannot send such messages.
"""
FORMAT_MARKED = 4
"""Format with marks of keys (:mod:`.key_contents`).

An older version would misread a mark as another content.
"""
FORMAT = FORMAT_MARKED
"""The newest format of the database and of its groups."""
FORMAT_OF_NEW = 1
"""The format of a new database.

The first message that needs a newer format raises the format (:func:`raise_format`).
"""

PAGE_SIZE_BYTES = 16_384
"""Size of a page of the database, in bytes.

Nearly all data are groups of 256 KB, and large pages make their chains short.
"""

LOG_BYTES_KEPT = CHECKPOINT_BYTES + CHECKPOINT_REST_BYTES
"""Bytes that the file of the WAL keeps when SQLite begins the WAL anew.

See :meth:`.database.OutboxDatabase.keep_log`.
"""

CACHE_KIB = 16_384
"""Size of the page cache, in KiB.

The cache is for the open transaction and for the identities that were looked up last.
"""

OFFSET_BITS = 24
OFFSET_MAX = (1 << OFFSET_BITS) - 1
"""The last offset of a part.

A queue that gets more rows of one batch has several parts of it (limits.PART_ROWS_MAX).
"""
PART_MAX = (1 << (63 - OFFSET_BITS)) - 1
"""The last number of a part, in the remaining bits of a row id.

The numbers are enough for a thousand parts a second during 17 years.
"""

DDL = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE head(only_row INTEGER PRIMARY KEY CHECK (only_row = 1), position INTEGER NOT NULL, \
fence INTEGER NOT NULL);
-- OutgoingQueueRow of the sending engine: stream_ordinal is unsigned 64 bit, as text.
CREATE TABLE queues(
    id INTEGER PRIMARY KEY AUTOINCREMENT, destination TEXT NOT NULL, kind TEXT NOT NULL, \
stream_ordinal TEXT NOT NULL,
    base INTEGER NOT NULL, end INTEGER NOT NULL, acknowledged_to INTEGER NOT NULL, \
released_to INTEGER NOT NULL,
    receipts_url TEXT NOT NULL, resend_interval_index INTEGER NOT NULL, paused INTEGER NOT NULL, \
started_at INTEGER NOT NULL,
    last_acknowledged_at INTEGER NOT NULL, UNIQUE (destination, kind)
);
CREATE TABLE batches(
    no INTEGER PRIMARY KEY, application TEXT NOT NULL, batch TEXT NOT NULL, stages BLOB NOT NULL,
    new INTEGER NOT NULL, known INTEGER NOT NULL, at INTEGER NOT NULL,
    committed INTEGER NOT NULL  -- 0: in preparation, nothing of it counts, and the next open \
deletes it
);
CREATE UNIQUE INDEX batches_by_stages ON batches(application, batch, stages) WHERE committed;
CREATE TABLE parts(
    id INTEGER PRIMARY KEY, batch_no INTEGER NOT NULL, rows INTEGER NOT NULL, \
final INTEGER NOT NULL, journal INTEGER NOT NULL,
    queue_id INTEGER, first INTEGER, last INTEGER, ids_first INTEGER, application TEXT, \
batch TEXT, enqueued_at INTEGER
);
CREATE INDEX parts_by_serial ON parts(queue_id, last) WHERE queue_id IS NOT NULL;
CREATE INDEX parts_in_preparation ON parts(batch_no) WHERE queue_id IS NULL;
CREATE TABLE groups(
    id INTEGER PRIMARY KEY,  -- group_key(part, last offset)
    first INTEGER NOT NULL,  -- first offset
    bytes INTEGER NOT NULL,  -- of the bodies
    data_id INTEGER NOT NULL,
    gone BLOB                -- one byte a row, 1: finished, NULL: none of them
);
CREATE TABLE data(id INTEGER PRIMARY KEY, crc INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE stages(
    id TEXT PRIMARY KEY, application TEXT NOT NULL, batch TEXT NOT NULL, \
partition INTEGER NOT NULL, attempt TEXT NOT NULL,
    file TEXT NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL, order_by TEXT NOT NULL, \
dead_letter INTEGER NOT NULL,
    staged_at INTEGER NOT NULL, UNIQUE (application, batch, partition, attempt)
) WITHOUT ROWID;
-- Within what an identity counts: an application and a destination, for digests a batch too, \
else ''.
CREATE TABLE scopes(
    id INTEGER PRIMARY KEY, application TEXT NOT NULL, destination TEXT NOT NULL, \
batch TEXT NOT NULL,
    batch_no INTEGER NOT NULL,  -- which made it
    UNIQUE (application, destination, batch)
);
CREATE TABLE identities(
    scope_id INTEGER NOT NULL, hash BLOB NOT NULL,
    content BLOB,  -- of a key: see key_contents.py
    batch_no INTEGER NOT NULL, PRIMARY KEY (scope_id, hash)
) WITHOUT ROWID;
-- The same hashes by batch: what to delete when the batch is given up, or its time is over.
CREATE TABLE identity_log(id INTEGER PRIMARY KEY, batch_no INTEGER NOT NULL, \
scope_id INTEGER NOT NULL, hashes BLOB NOT NULL);
CREATE INDEX identity_log_by_batch ON identity_log(batch_no);
CREATE TABLE sources(
    id INTEGER PRIMARY KEY, queue_manager TEXT NOT NULL, epoch TEXT NOT NULL, queue TEXT NOT NULL,
    UNIQUE (queue_manager, epoch, queue)
);
-- Source positions that are known: see positions.py.
CREATE TABLE positions(
    scope_id INTEGER NOT NULL, source_id INTEGER NOT NULL, block INTEGER NOT NULL, \
known BLOB NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (scope_id, source_id, block)
) WITHOUT ROWID;
-- Dead letters and journal copies, with their content: never changed, numbers never used again.
CREATE TABLE moved(
    id INTEGER PRIMARY KEY AUTOINCREMENT, fate TEXT NOT NULL, destination TEXT NOT NULL, \
kind TEXT NOT NULL,
    stream_ordinal TEXT NOT NULL, base INTEGER NOT NULL, serials BLOB NOT NULL, \
ids_base INTEGER NOT NULL,
    application TEXT NOT NULL, batch TEXT NOT NULL, enqueued_at INTEGER NOT NULL, \
reason TEXT NOT NULL, status INTEGER,
    message_class INTEGER, in_doubt INTEGER NOT NULL, moved_at INTEGER NOT NULL, \
target TEXT NOT NULL, rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL, position INTEGER NOT NULL, data_id INTEGER NOT NULL,
    sent TEXT  -- how often and when they left, as far as the sender process knew (live.py)
);
CREATE INDEX moved_by_time ON moved(moved_at);
"""

ADDED = (
    # The contents of the rows at source positions, by batch: the marks of the offsets in ``known``,
    # ascending.
    """CREATE TABLE IF NOT EXISTS position_contents(
        scope_id INTEGER NOT NULL, source_id INTEGER NOT NULL, block INTEGER NOT NULL, \
batch_no INTEGER NOT NULL,
        known BLOB NOT NULL, contents BLOB NOT NULL, PRIMARY KEY (scope_id, source_id, block, \
batch_no)
    ) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS position_contents_by_batch ON position_contents(batch_no)",
    # The number of rows of a committed batch that were refused, because other content has their
    # identity. A batch without conflicts has no row.
    (
        "CREATE TABLE IF NOT EXISTS batch_conflicts(batch_no INTEGER PRIMARY KEY, conflicts "
        "INTEGER NOT NULL)"
    ),
    # The number of rows of a committed batch that can never be sent, and a text about the first. A
    # batch without such rows has no row.
    (
        "CREATE TABLE IF NOT EXISTS batch_bad_rows(batch_no INTEGER PRIMARY KEY, rows INTEGER "
        "NOT NULL, first TEXT NOT NULL)"
    ),
    # Up to which dead letter each queue of an application was served (letter_cursors.py).
    (
        "CREATE TABLE IF NOT EXISTS letter_cursors(queue TEXT PRIMARY KEY, handed_to INTEGER "
        "NOT NULL) WITHOUT ROWID"
    ),
    """CREATE INDEX IF NOT EXISTS moved_for_applications ON moved(target, id)
        WHERE fate = 'dead' AND target NOT IN ('deadletter$', 'deadxact$')""",
)
"""Tables and indexes that version 0.1 does not have. The open of a database makes them.

Version 0.1 still works with a database that has them.
"""

OUTBOX = Database(
    format=FORMAT,
    format_of_new=FORMAT_OF_NEW,
    ddl=DDL,
    pragmas={
        "page_size": PAGE_SIZE_BYTES,
        # INCREMENTAL, for a new file: its free pages can be returned to the volume.
        "auto_vacuum": 2,
        "journal_mode": "wal",
        # FULL: each commit syncs the WAL once.
        "synchronous": 2,
        "secure_delete": 0,
        # database.py copies the WAL, because an error of SQLite's own checkpoint would stay unseen.
        "wal_autocheckpoint": 0,
        "foreign_keys": 0,
        "cache_size": -CACHE_KIB,
        # A longer file is cut when SQLite begins the WAL anew.
        "journal_size_limit": LOG_BYTES_KEPT,
    },
    promise="a committed batch",
    restore_hint=(
        "Put a backup of the whole data directory back; with --state the messages that "
        "were waiting are in the Delta table "
        "outgoing_queue (docs/troubleshooting.md, 'A damaged data directory')"
    ),
)


def raise_format(connection: sqlite3.Connection, needed: int) -> None:
    """Raise the format of the database to ``needed``, in the caller's transaction.

    Older versions, which cannot read what this transaction writes, then refuse to open the
    database.
    """
    if needed <= FORMAT_OF_NEW:
        return
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found < needed:
        connection.execute(f"PRAGMA user_version = {needed}")


def group_key(part: int, last: int) -> int:
    """Return the row id of the group of ``part`` that ends with offset ``last``."""
    assert 0 <= part <= PART_MAX, f"part {part}"
    assert 0 <= last <= OFFSET_MAX, f"offset {last}"
    return part << OFFSET_BITS | last
