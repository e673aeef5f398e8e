"""Move aside rows of ``store.db`` that no reader understands, when the database is opened.

**Theory of operation.** SQLite keeps whatever was written, in any column. Most tables are read
once, at a start, row by row. A bad row of such a table stays where it is (:mod:`.set_aside`). The
tables here are read by SQL statements of several processes at any time, and one bad row in them
would fail again and again. So each bad row is moved, whole, into the table ``set_aside``. The move
is part of the transaction of the open, before anything reads the row:

==================== ===========================================================================
table                consequence of a row that is not read
==================== ===========================================================================
``queue_epochs``     a row that is made from the rows of the queue takes its place
``holes``            rows that were purged or given up are reported as damaged when they are
                     read; an epoch begins, because the hole may have been the last of its queue
``garbage``          groups that are no longer read stay on the disk
``undecided``        the sender is not notified of the end of its message
``decisions``        the senders of the decided rows are not notified
``decided_receipts`` this receipt is not sent
``told``             a message that its sender repeats in another stream is not answered again
``moves``            the move count of a row begins again
``pgm_loss``         a loss is no longer reported
==================== ===========================================================================
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Mapping, Sequence

from srmp_spark.sequences.ranges import SEQUENCE_MAX
from srmp_spark.srmp.limits import ENVELOPE_MAX
from srmp_spark.srmp.receiving.decisions import Reason
from srmp_spark.store.database.schema import QUEUE_ID_MAX
from srmp_spark.store.database.set_aside import KEY_MAX, REASON_MAX, TOLD_MAX, SetAside
from srmp_spark.store.database.sqlite_file import TEXT_IS_UTF8, add_is_utf8
from srmp_spark.store.tables.epochs import end_of

DDL = """
CREATE TABLE IF NOT EXISTS set_aside(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, key TEXT NOT NULL, reason TEXT NOT NULL, \
content TEXT NOT NULL,
    at INTEGER NOT NULL
)
"""
GUID_LENGTH_MAX = 64
"""Longest stored GUID, in characters; a GUID has 36. A row with a longer one is set aside."""
NAME_LENGTH_MAX = 3 * ENVELOPE_MAX
"""Longest stored name of a queue or a stream, in characters.

The name of a stream to another host is the URL in ``<to>``. The host in the URL has 253 characters
and the queue 124, each of which may be percent-encoded. The URL can also have as many blanks as an
envelope has room for (each ``%20``). If a legitimate stream were set aside, its position would be
lost and its messages would be stored twice.
"""

_NUMBER = "typeof({0}) = 'integer'"
_COUNT = "typeof({0}) = 'integer' AND {0} >= 0"
_TEXT = f"typeof({{0}}) = 'text' AND {TEXT_IS_UTF8}"
_GUID = f"{_TEXT} AND length({{0}}) <= {GUID_LENGTH_MAX}"
_NAME = f"{_TEXT} AND length({{0}}) <= {NAME_LENGTH_MAX}"
_ORDINAL = "typeof({0}) = 'text' AND length({0}) BETWEEN 1 AND 20 AND {0} NOT GLOB '*[^0-9]*'"
_REASON = (
    f"typeof({{0}}) = 'integer' AND {{0}} IN ({', '.join(str(each.value) for each in Reason)})"
)
_QUEUE_ID = f"typeof({{0}}) = 'integer' AND {{0}} BETWEEN 0 AND {QUEUE_ID_MAX}"
_SEQUENCE = f"typeof({{0}}) = 'integer' AND {{0}} BETWEEN 0 AND {SEQUENCE_MAX}"


def _or_null(condition: str) -> str:
    return f"{{0}} IS NULL OR {condition}"


_WANTED: Mapping[str, Mapping[str, str]] = {
    "holes": {
        "queue_id": _QUEUE_ID,
        "first": _SEQUENCE,
        "last": f"{_SEQUENCE} AND first <= last",
        "reason": _TEXT,
    },
    "queue_epochs": {"queue_id": _QUEUE_ID, "epoch_id": _COUNT, "first": _SEQUENCE},
    "garbage": {"queue_id": _QUEUE_ID, "first": _SEQUENCE, "last": _SEQUENCE},
    "undecided": {
        "queue_id": _QUEUE_ID,
        "sequence": _SEQUENCE,
        "lineage": _GUID,
        "uniquifier": _NUMBER,
        "action": _TEXT,
        "peer": _TEXT,
        "sender_name": _or_null(_TEXT),
        "commitment_to": _or_null(_TEXT),
        "positive": _NUMBER,
        "negative": _NUMBER,
        "final_to": _or_null(_TEXT),
        "stream_guid": _or_null(_GUID),
        "stream_ordinal": _or_null(_ORDINAL),
        "position": _COUNT,
        "stream_name": _or_null(_NAME),
    },
    "decisions": {
        "id": _NUMBER,
        "queue_id": _QUEUE_ID,
        "queue": _NAME,
        "first": _SEQUENCE,
        "last": _SEQUENCE,
        "reason": _REASON,
        "decided_at": _COUNT,
    },
    "decided_receipts": {
        "id": _NUMBER,
        "number": _or_null(_COUNT),
        "kind": "{0} IN ('final_stream', 'commitment')",
        "url": _TEXT,
        "queue": _NAME,
        "lineage": _GUID,
        "uniquifier": _NUMBER,
        "action": _TEXT,
        "peer": _TEXT,
        "sender_name": _TEXT,
        "reason": _REASON,
        "decided_at": _COUNT,
        "stream_guid": _GUID,
        "stream_ordinal": _or_null(_ORDINAL),
        "position": _COUNT,
        "stream_name": _or_null(_NAME),
    },
    "told": {
        "lineage": _TEXT,
        "first": _NUMBER,
        "last": _NUMBER,
        "reason": _REASON,
        "decided_at": _COUNT,
    },
    "moves": {
        "queue_id": _QUEUE_ID,
        "sequence": _SEQUENCE,
        "counter": _COUNT,
        "last_moved_at": _COUNT,
    },
    "pgm_loss": {
        "epoch_id": _COUNT,
        "position": _COUNT,
        "queue": _NAME,
        "address": _TEXT,
        "source": _TEXT,
        "tsi": _TEXT,
        "first": _COUNT,
        "last": _COUNT,
        "packets": _COUNT,
        "reason": _TEXT,
        "detail": _or_null(_TEXT),
        "lost_at": _COUNT,
    },
}
"""SQL condition that a readable value fulfils, for each column by table.

``{0}`` stands for the column.
"""
_KEYS = {
    "queue_epochs": ("queue_id", "epoch_id"),
    "holes": ("queue_id", "first"),
    "undecided": ("queue_id", "sequence"),
    "told": ("lineage", "first"),
    "moves": ("queue_id", "sequence"),
    "pgm_loss": ("number",),
}
"""Columns that identify a database row, for tables without ``id``."""


def move_unreadable_rows(connection: sqlite3.Connection, at: int) -> set[str]:
    """Move each database row that cannot be read into ``set_aside``; return the tables' names.

    The names are those of the tables that had such rows. The table ``set_aside`` is created if it
    is missing. A moved row of ``queue_epochs`` is replaced by one that is computed. The function
    runs in the caller's transaction. ``at`` is the wall clock, in microseconds since 1970, UTC.
    """
    connection.execute(DDL)
    add_is_utf8(connection)
    tables: set[str] = set()
    for table, columns in _WANTED.items():
        conditions = {
            name: f"coalesce({wanted.format(name)}, 0)" for name, wanted in columns.items()
        }
        types = ", ".join(f"typeof({name})" for name in _KEYS.get(table, ("id",)))
        found = connection.execute(
            f"SELECT *, {types} FROM {table} WHERE NOT ({' AND '.join(conditions.values())})"  # noqa: S608  # our own names
        )
        names = [column[0] for column in found.description]
        for row in found.fetchall():
            values = dict(zip(names, row, strict=True))
            key_types = [values.pop(name) for name in names if name.startswith("typeof(")]
            _move(connection, table, values, key_types, conditions, at)
            tables.add(table)
            if table == "queue_epochs":
                _begin_again(connection, values["queue_id"], values["epoch_id"])
    return tables


def rows_moved_aside(connection: sqlite3.Connection) -> list[SetAside]:
    """Return the database rows that this or an earlier start moved aside, newest first.

    The result has at most :data:`TOLD_MAX` + 1 rows: the one row too many shows that there are
    more.
    """
    rows = connection.execute(
        "SELECT name, key, reason FROM set_aside ORDER BY id DESC LIMIT ?", (TOLD_MAX + 1,)
    )
    return [SetAside(*row) for row in rows]


def _move(
    connection: sqlite3.Connection,
    table: str,
    values: Mapping[str, object],
    key_types: Sequence[object],
    conditions: Mapping[str, str],
    at: int,
) -> None:
    where = {name: values[name] for name in _KEYS.get(table, ("id",))}
    # Text that is not valid UTF-8 was read as bytes, and bytes equal no text.
    condition = " AND ".join(
        f"{name} IS CAST(? AS TEXT)" if kind == "text" else f"{name} IS ?"
        for name, kind in zip(where, key_types, strict=True)
    )
    place = (*where.values(),)
    checks = connection.execute(
        f"SELECT {', '.join(conditions.values())} FROM {table} WHERE {condition}",  # noqa: S608  # our own names
        place,
    )
    wrong = [
        name for name, is_right in zip(conditions, checks.fetchone(), strict=True) if not is_right
    ]
    reason = "; ".join(f"{name} is {values[name]!r:.50}" for name in wrong)
    key = " ".join(str(each) for each in place)
    connection.execute(
        "INSERT INTO set_aside(name, key, reason, content, at) VALUES (?, ?, ?, ?, ?)",
        (table, key[:KEY_MAX], reason[:REASON_MAX], json.dumps(values, default=_as_base64), at),
    )
    connection.execute(f"DELETE FROM {table} WHERE {condition}", place)  # noqa: S608  # our own names


def _begin_again(connection: sqlite3.Connection, queue_id: object, epoch_id: object) -> None:
    """Store where an epoch begins in a queue, in place of a database row that cannot be read.

    Nothing is stored for an unknown queue or epoch. The first sequence is computed from the rows
    that the queue has.
    """
    known = "SELECT 1 FROM queues, epochs WHERE queues.id = ? AND epochs.id = ?"
    if not isinstance(queue_id, int) or not isinstance(epoch_id, int):
        return
    if connection.execute(known, (queue_id, epoch_id)).fetchone() is None:
        return
    (first,) = connection.execute(
        "SELECT min(first) FROM (SELECT first FROM groups WHERE queue_id = :queue AND "
        "epoch_id = :epoch UNION ALL "
        "SELECT first FROM segments WHERE queue_id = :queue AND epoch_id = :epoch)",
        {"queue": queue_id, "epoch": epoch_id},
    ).fetchone()
    if first is None:
        first = end_of(connection, queue_id) + 1
    connection.execute(
        "INSERT OR IGNORE INTO queue_epochs VALUES (?, ?, ?)", (queue_id, epoch_id, first)
    )


def _as_base64(value: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(value).decode()}
