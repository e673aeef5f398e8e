"""Read the data directory for the publisher: one short snapshot per cycle, then rows by pieces."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from srmp_spark.message import StreamId
from srmp_spark.sequences.as_json import set_as_json
from srmp_spark.sequences.ranges import Range
from srmp_spark.store.database.sqlite_file import pragma
from srmp_spark.store.delta.log_source import (
    CounterRow,
    HistoryRow,
    LogRange,
    QueueRow,
    Snapshot,
    StreamRow,
    WsrmSequenceRow,
)
from srmp_spark.store.directory import DATABASE_FILE, SEGMENTS_DIRECTORY
from srmp_spark.store.stored_rows import reading
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.tables import losses, marks, state
from srmp_spark.store.tables.epochs import ends
from srmp_spark.store.unreadable_rows import GUID_LENGTH_MAX, NAME_LENGTH_MAX

PAGE_ROWS = 20_000
"""Runs of identifiers read at once: ten megabytes, and a tenth of a second in one snapshot.

The rest is read in further pages.
"""


class StoredLog:
    """Reads a data directory as a :class:`~srmp_spark.store.delta.log_source.LogSource`.

    An instance belongs to the thread that first uses it.
    """

    def __init__(self, data_dir: Path, queue_manager: str) -> None:
        self._queue_manager = queue_manager
        self._log = Log(data_dir / DATABASE_FILE, data_dir / SEGMENTS_DIRECTORY)

    def close(self) -> None:
        """Close the connection to the database."""
        self._log.close()

    def stamp(self) -> object:
        """Return a pair: SQLite's number of changes by other connections, and the last commit.

        The first number counts for this connection alone. The second, from the journal, reveals a
        commit even if an SQLite version had an error in the first.
        """
        with self._log.snapshot() as db:
            (position,) = db.execute("SELECT position FROM head").fetchone()
            return pragma(db, "data_version"), position

    def snapshot(self) -> Snapshot:
        """Return the state of the log after its last commit, with the number of that commit."""
        with self._log.snapshot() as db:
            (position,) = db.execute("SELECT position FROM head").fetchone()
            (restores,) = db.execute(
                "SELECT coalesce(max(value), 0) FROM meta WHERE key = 'restores'"
            ).fetchone()
            return Snapshot(
                position,
                _ranges(db),
                _streams(db),
                _queues(db),
                _counters(db),
                restores,
                losses.load(db),
                _sequences(db),
            )

    def identifiers(self) -> Iterator[list[HistoryRow]]:
        """Yield the runs of message identifiers, each page in its own snapshot.

        A snapshot that is open for long keeps the WAL from starting again at its beginning. A new
        run may have absorbed runs that were still to be read. So a page begins with the run that
        now holds the last run of the page before. Numbers are in two's complement, as Delta and the
        JVM have them (rows/columns.py).
        """
        last: HistoryRow | None = None
        page: list[HistoryRow] = []
        while last is None or len(page) == PAGE_ROWS:
            with self._log.snapshot() as db:
                page = _history_from(db, last)
            news = page[1:] if page and page[0] == last else page
            if news:
                yield news
            last = page[-1] if page else HistoryRow("", 0, 0, 0)

    def batches(self, epoch: str, queue: str, after: int, to: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of the rows in (after, to], in order, with the columns of the Spark source.

        Raises the errors of :func:`srmp_spark.store.stored_rows.reading.batches`.
        """
        return reading.batches(self._log, self._queue_manager, queue, epoch, after, to)


def _ranges(db: sqlite3.Connection) -> list[LogRange]:
    """Return the range of rows that each queue holds in each epoch.

    An epoch ends where the next one of the queue begins.
    """
    found = []
    starts, end_of_each = _epochs(db), ends(db)
    queues = db.execute(
        "SELECT id, name, trimmed_to FROM queues WHERE deleted_at IS NULL ORDER BY name"
    ).fetchall()
    for queue_id, name, trimmed_to in queues:
        own = starts.get(queue_id, ())
        for at, (epoch, start) in enumerate(own):
            current = at + 1 == len(own)
            end = end_of_each[queue_id] if current else own[at + 1][1] - 1
            found.append(
                LogRange(epoch, name, start, min(max(start, trimmed_to + 1), end + 1), end, current)
            )
    return found


def _epochs(db: sqlite3.Connection) -> dict[int, list[tuple[str, int]]]:
    """Return the epochs of each queue, oldest first, with the first sequence of each."""
    return _by_queue(
        db,
        "SELECT queue_id, epoch, first FROM queue_epochs JOIN epochs ON id = epoch_id "
        "ORDER BY queue_id, epoch_id",
    )


def _by_queue(db: sqlite3.Connection, query: str) -> dict[int, list[Any]]:
    """Return the database rows of ``query``, grouped by their first column.

    The rows lack that column, and each list is in the order of the query.
    """
    found: dict[int, list[Any]] = {}
    for queue_id, *rest in db.execute(query):
        found.setdefault(queue_id, []).append(tuple(rest))
    return found


def _history_from(db: sqlite3.Connection, last: HistoryRow | None) -> list[HistoryRow]:
    """Return a page of runs, by lineage and number; without ``last`` the first page.

    The page begins with the last run of the same lineage that begins at or before ``last``: with
    ``last`` itself, or the run that absorbed it. Without such a run it begins after that place. A
    page has at most PAGE_ROWS runs.
    """
    begin: tuple[str, int] = ("", 0)
    if last is not None:
        key = last.lineage, last.uniquifier_first
        (holder,) = db.execute(
            "SELECT max(first) FROM history WHERE lineage = ? AND first <= ?", key
        ).fetchone()
        begin = (last.lineage, key[1] if holder is None else holder)
    found = db.execute(
        "SELECT lineage, first, last, last_received_at FROM history WHERE (lineage, "
        "first) >= (?, ?) "
        "ORDER BY lineage, first LIMIT ?",
        (*begin, PAGE_ROWS),
    )
    return [HistoryRow(*row) for row in found]


_STREAM_COLUMNS = (
    "queue, guid, 'uid:' || guid || '\\' || stream_ordinal, sequence_number, "
    "last_acknowledged, nullif(send_receipts_to, ''), "
    "nullif(peer, ''), reject_count, started_at, last_access_at, sender_name"
)
"""SQL columns for the fields of :class:`StreamRow`, for a row that satisfies
:data:`_READABLE_STREAM`.
"""
_READABLE_STREAM = (
    " AND ".join(
        f"typeof({name}) = 'text'"
        for name in ("queue", "guid", "stream_ordinal", "send_receipts_to", "peer")
    )
    + " AND "
    + " AND ".join(
        f"typeof({name}) = 'integer'"
        for name in (
            "sequence_number",
            "last_acknowledged",
            "reject_count",
            "started_at",
            "last_access_at",
        )
    )
    + " AND typeof(source_qm) IN ('text', 'null') AND typeof(sender_name) IN ('text', 'null')"
    + f" AND length(queue) <= {NAME_LENGTH_MAX} AND length(guid) <= {GUID_LENGTH_MAX}"
    + " AND stream_ordinal NOT GLOB '*[^0-9]*' AND length(stream_ordinal) BETWEEN 1 AND 20"
    + " AND (stream_ordinal NOT GLOB '0*' OR stream_ordinal = '0') AND instr(queue || "
    "guid, char(0)) = 0"
)
"""SQL condition: whether a row is one that this version writes, so that SQLite may make a
:class:`StreamRow` of it. For other rows, and for text that is not valid UTF-8,
:func:`.state.load_streams` decides.
"""


def _streams(db: sqlite3.Connection) -> Sequence[tuple[Any, ...]]:
    """Return all readable streams as the fields of :class:`StreamRow`, sorted by their key.

    There can be 100,000 streams. A database row that cannot be read is left out.
    """
    with _plain_text(db):
        try:
            if (
                db.execute(
                    f"SELECT 1 FROM streams WHERE NOT ({_READABLE_STREAM}) LIMIT 1"  # noqa: S608  # our own names
                ).fetchone()
                is None
            ):
                return db.execute(
                    f"SELECT {_STREAM_COLUMNS} FROM streams ORDER BY queue, guid"  # noqa: S608  # our own names
                ).fetchall()
        except (sqlite3.OperationalError, UnicodeDecodeError):
            # Text that is not valid UTF-8 costs only its own row: each row is checked below.
            pass
    return _each_stream(db)


@contextmanager
def _plain_text(db: sqlite3.Connection) -> Iterator[None]:
    """Let Python's sqlite3 decode text itself in a ``with`` block.

    That saves a call for each value, but a statement of the block fails at text that is not UTF-8.
    """
    factory, db.text_factory = db.text_factory, str
    try:
        yield
    finally:
        db.text_factory = factory


def _each_stream(db: sqlite3.Connection) -> list[StreamRow]:
    """Return the streams whose database rows can be read, in the order of their key."""
    return [
        StreamRow(
            row.queue,
            row.guid,
            str(StreamId(row.guid, row.stream_ordinal)),
            row.sequence_number,
            row.last_acknowledged,
            row.send_receipts_to or None,
            row.peer or None,
            row.reject_count,
            row.started_at,
            row.last_access_at,
            row.sender_name,
        )
        for row in sorted(state.load_streams(db))
    ]


def _sequences(db: sqlite3.Connection) -> list[WsrmSequenceRow]:
    """Return the incoming WS-ReliableMessaging sequences of existing queues.

    A sequence of a deleted queue continues only in this data directory, if the queue is created
    again.
    """
    columns = ", ".join(WsrmSequenceRow._fields[1:])
    found = db.execute(
        f"SELECT name, {columns} FROM wsrm_sequences JOIN queues ON id = queue_id WHERE "  # noqa: S608  # our own names
        "deleted_at IS NULL "
        "ORDER BY name, identifier"
    )
    return [WsrmSequenceRow(*row) for row in found]


def _queues(db: sqlite3.Connection) -> list[QueueRow]:
    """Return the rows of the Delta table ``queues``, by name.

    Deleted queues are included, because they must continue counting if they are created again.
    """
    found = db.execute(
        "SELECT id, name, transactional, paused, options, trimmed_to, deleted_at FROM "
        "queues ORDER BY name"
    ).fetchall()
    epochs = _epochs(db)
    holes = _by_queue(
        db, "SELECT queue_id, first, last, reason FROM holes ORDER BY queue_id, first"
    )
    consumers = _by_queue(
        db, "SELECT queue_id, name, received FROM consumers ORDER BY queue_id, name"
    )
    ahead = set(db.execute("SELECT DISTINCT queue_id, consumer FROM marks"))
    return [
        QueueRow(
            name,
            bool(transactional),
            bool(paused),
            options,
            trimmed_to,
            deleted_at,
            json.dumps(epochs.get(queue_id, [])),
            json.dumps(holes[queue_id]) if queue_id in holes else "[]",
            json.dumps(
                [
                    [
                        consumer,
                        received,
                        _ahead(db, queue_id, consumer, received)
                        if (queue_id, consumer) in ahead
                        else [],
                    ]
                    for consumer, received in consumers[queue_id]
                ]
            )
            if queue_id in consumers
            else "[]",
        )
        for queue_id, name, transactional, paused, options, trimmed_to, deleted_at in found
    ]


def _ahead(
    db: sqlite3.Connection, queue_id: int, consumer: str, received: int
) -> list[Range] | str:
    """Return the sequences above ``received`` that a consumer has received, as a value for JSON.

    ``received`` is the consumer's mark: it has received all rows up to it.
    """
    return set_as_json(marks.load(db, queue_id, consumer, received))


def _counters(db: sqlite3.Connection) -> list[CounterRow]:
    return [CounterRow(*row) for row in db.execute("SELECT name, ceiling FROM ids ORDER BY name")]
