"""The publisher's view of the data directory: one short snapshot per cycle, then rows piece by piece."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from srmp_spark.message import StreamId
from srmp_spark.sequences.as_json import set_as_json
from srmp_spark.store import losses, marks, reading, state
from srmp_spark.store.delta.log_source import CounterRow, HistoryRow, LogRange, QueueRow, SequenceRow, Snapshot, StreamRow
from srmp_spark.store.directory import DATABASE_FILE, SEGMENTS_DIRECTORY
from srmp_spark.store.epochs import end_of
from srmp_spark.store.log import Log
from srmp_spark.store.sqlite_file import pragma

PAGE_ROWS = 20_000
"""Runs of identifiers read at once: ten megabytes, and a tenth of a second in one snapshot."""


class StoredLog:
    """:class:`~srmp_spark.store.delta.log_source.LogSource` over a data directory. Belongs to the thread that first uses it."""

    def __init__(self, data_dir: Path, queue_manager: str) -> None:
        self._queue_manager = queue_manager
        self._log = Log(data_dir / DATABASE_FILE, data_dir / SEGMENTS_DIRECTORY)

    def close(self) -> None:
        """Give the connection back."""
        self._log.close()

    def stamp(self) -> object:
        """Return SQLite's own number of changes by other connections, and the last commit of the journal.

        The first counts for this connection alone. The second is there as well so that a commit of the journal would be seen
        even if a SQLite had an error in the first.
        """
        with self._log.snapshot() as db:
            (position,) = db.execute("SELECT position FROM head").fetchone()
            return pragma(db, "data_version"), position

    def snapshot(self) -> Snapshot:
        """Commit number, ends and streams, all of one commit."""
        with self._log.snapshot() as db:
            (position,) = db.execute("SELECT position FROM head").fetchone()
            (restores,) = db.execute("SELECT coalesce(max(value), 0) FROM meta WHERE key = 'restores'").fetchone()
            return Snapshot(
                position, _ranges(db), _streams(db), _queues(db), _counters(db), restores, losses.load(db), _sequences(db)
            )

    def identifiers(self) -> Iterator[list[HistoryRow]]:
        """Each page in a snapshot of its own: one that is open for long keeps the WAL from being begun anew.

        A run that is new to the page before may have swallowed what was to come: a page begins with the run that now holds the
        last one of the page before. Two's complement, as Delta and the JVM have it (rows/columns.py).
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
        """The rows in (after, to]. Raises as :meth:`srmp_spark.store.log.Log.chunks`."""
        return reading.batches(self._log, self._queue_manager, queue, epoch, after, to)


def _ranges(db: sqlite3.Connection) -> list[LogRange]:
    """What each queue holds in each epoch; an epoch ends where the next one of the queue begins."""
    found = []
    queues = db.execute("SELECT id, name, trimmed_to FROM queues WHERE deleted_at IS NULL ORDER BY name").fetchall()
    for queue_id, name, trimmed_to in queues:
        starts = db.execute(
            "SELECT epoch, first FROM queue_epochs JOIN epochs ON id = epoch_id WHERE queue_id = ? ORDER BY epoch_id",
            (queue_id,),
        ).fetchall()
        for at, (epoch, start) in enumerate(starts):
            current = at + 1 == len(starts)
            end = end_of(db, queue_id) if current else starts[at + 1][1] - 1
            found.append(LogRange(epoch, name, start, min(max(start, trimmed_to + 1), end + 1), end, current))
    return found


def _history_from(db: sqlite3.Connection, last: HistoryRow | None) -> list[HistoryRow]:
    """A page that begins with the run that holds the beginning of ``last``, if there is one."""
    begin: tuple[str, int] = ("", 0)
    if last is not None:
        key = last.lineage, last.uniquifier_first
        (holder,) = db.execute("SELECT max(first) FROM history WHERE lineage = ? AND first <= ?", key).fetchone()
        begin = (last.lineage, key[1] if holder is None else holder)
    found = db.execute(
        "SELECT lineage, first, last, last_received_at FROM history WHERE (lineage, first) >= (?, ?) "
        "ORDER BY lineage, first LIMIT ?",
        (*begin, PAGE_ROWS),
    )
    return [HistoryRow(*row) for row in found]


def _streams(db: sqlite3.Connection) -> list[StreamRow]:
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


def _sequences(db: sqlite3.Connection) -> list[SequenceRow]:
    """Of queues that are there: those of a deleted one go on if it is made again, and here alone."""
    columns = ", ".join(SequenceRow._fields[1:])
    found = db.execute(
        f"SELECT name, {columns} FROM wsrm_sequences JOIN queues ON id = queue_id WHERE deleted_at IS NULL "  # noqa: S608  # our own names
        "ORDER BY name, identifier"
    )
    return [SequenceRow(*row) for row in found]


def _queues(db: sqlite3.Connection) -> list[QueueRow]:
    """Also those that were deleted: made again they must go on counting."""
    found = db.execute(
        "SELECT id, name, transactional, paused, options, trimmed_to, deleted_at FROM queues ORDER BY name"
    ).fetchall()
    return [
        QueueRow(
            name, bool(transactional), bool(paused), options, trimmed_to, deleted_at,
            _json(db, "SELECT epoch, first FROM queue_epochs JOIN epochs ON id = epoch_id WHERE queue_id = ? "
                      "ORDER BY epoch_id", queue_id),
            _json(db, "SELECT first, last, reason FROM holes WHERE queue_id = ? ORDER BY first", queue_id),
            json.dumps([
                [consumer, received, set_as_json(marks.load(db, queue_id, consumer, received))]
                for consumer, received in db.execute(
                    "SELECT name, received FROM consumers WHERE queue_id = ? ORDER BY name", (queue_id,)
                ).fetchall()
            ]),
        )
        for queue_id, name, transactional, paused, options, trimmed_to, deleted_at in found
    ]  # fmt: skip


def _json(db: sqlite3.Connection, query: str, queue_id: int) -> str:
    return json.dumps(db.execute(query, (queue_id,)).fetchall())


def _counters(db: sqlite3.Connection) -> list[CounterRow]:
    return [CounterRow(*row) for row in db.execute("SELECT name, ceiling FROM ids ORDER BY name")]
