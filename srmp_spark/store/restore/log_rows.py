"""Write rows of ``inbox`` back into the log as sealed segments.

The rows keep the epochs and sequences that readers know. There is one pass over the data files. The
rows of each queue are collected and written as a segment when there are as many as sealing would
take, or when a sequence is missing between them. So segments never overlap, whatever the order of
the files is. Delta does not have the received bytes, so these rows have their columns and no post
(:func:`~srmp_spark.rows.segment.segment_of_rows`). A caller that reads or moves a message gets a
record of the columns (:mod:`srmp_spark.rows.kept_columns`).
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.private_files import FOLDER_MODE
from srmp_spark.rows.columns import NAMES
from srmp_spark.rows.segment import segment_of_rows
from srmp_spark.sequences.ranges import Range, gaps
from srmp_spark.store.database.durable import sync_directory, write_durably
from srmp_spark.store.database.schema import row_key
from srmp_spark.store.restore.known_queues import KnownQueue
from srmp_spark.store.stored_rows.sealing import SEAL_BYTES_MAX, SEAL_ROWS_MAX
from srmp_spark.store.stored_rows.wide_parts import note_wide_part

BUFFERED_BYTES_MAX = 256 << 20
"""Bytes of collected rows of all queues together.

At the limit the rows of the queue that got the last rows are written.
"""

_Key = tuple[str, str]
"""Pair of epoch and queue."""


def pieces_of(batch: pa.RecordBatch) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """Yield (epoch, queue, rows) for each epoch and queue in a batch of ``inbox``.

    The rows stay in their order.
    """
    keys = pa.table(
        [batch.column(batch.schema.get_field_index(name)) for name in ("epoch", "queue")],
        ["epoch", "queue"],
    )
    for found in keys.group_by(["epoch", "queue"], use_threads=False).aggregate([]).to_pylist():
        mask = pc.and_(
            pc.equal(batch.column(batch.schema.get_field_index("epoch")), found["epoch"]),
            pc.equal(batch.column(batch.schema.get_field_index("queue")), found["queue"]),
        )
        yield found["epoch"], found["queue"], batch.filter(mask)


class LogRows:
    """Collects restored rows of all queues, and writes them as segments of the log."""

    def __init__(
        self, db: sqlite3.Connection, segments: Path, epochs: dict[str, int], ids: dict[str, int]
    ) -> None:
        """Begin without rows; segments are written to ``db`` and to the folder ``segments``.

        ``epochs`` and ``ids`` are the numbers of epochs and queues in the database. The numbers are
        read when a segment is written.
        """
        self._db = db
        self._segments = segments
        self._epochs = epochs
        self._ids = ids
        self._waiting: dict[_Key, list[pa.RecordBatch]] = {}
        self._bytes = 0
        self.rows = 0

    def take(self, epoch: str, queue: KnownQueue, rows: pa.RecordBatch) -> None:
        """Add rows of one epoch and queue, and write segments if enough rows are collected.

        Rows that retention had deleted, rows of a deleted queue, and rows that are restored already
        are left out. Written rows are added to :attr:`.KnownQueue.covered`. Raises :class:`OSError`
        if a file cannot be written.
        """
        if queue.deleted_at is not None:
            return
        rows = rows.filter(
            pc.greater(rows.column(rows.schema.get_field_index("sequence")), queue.trimmed_to)
        )
        if not rows.num_rows:
            return
        key = epoch, queue.name
        waiting = self._waiting.setdefault(key, [])
        waiting.append(rows)
        self._bytes += rows.nbytes
        if (
            sum(each.num_rows for each in waiting) >= SEAL_ROWS_MAX
            or sum(each.nbytes for each in waiting) >= SEAL_BYTES_MAX
            or self._bytes >= BUFFERED_BYTES_MAX
        ):
            self._write(key, queue)

    def finish(self, queues: dict[str, KnownQueue]) -> None:
        """Write the remaining rows as segments, and sync the folders of all segments.

        ``queues`` are the queues by name. Raises :class:`OSError` if the disk refuses.
        """
        for key in list(self._waiting):
            self._write(key, queues[key[1]])
        for folder in self._segments.iterdir():
            sync_directory(folder)
        sync_directory(self._segments)

    def _write(self, key: _Key, queue: KnownQueue) -> None:
        waiting = self._waiting.pop(key)
        self._bytes -= sum(each.nbytes for each in waiting)
        rows = pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]
        numbers = _sequences(rows)
        fresh = np.array(
            [not any(a <= n <= b for a, b in _near(queue.covered, n)) for n in numbers.tolist()],
            bool,
        )
        _, firsts = np.unique(numbers, return_index=True)
        # The order is ascending, with each sequence once.
        order = firsts[fresh[firsts]]
        if not len(order):
            return
        if len(order) < rows.num_rows or (np.diff(order) != 1).any():
            rows = rows.take(pa.array(order))
        numbers = _sequences(rows)
        cuts = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        for start, end in pairwise(cuts):
            for at in range(start, end, SEAL_ROWS_MAX):
                self._segment(key, queue, rows.slice(at, min(SEAL_ROWS_MAX, end - at)))
        self.rows += rows.num_rows

    def _segment(self, key: _Key, queue: KnownQueue, rows: pa.RecordBatch) -> None:
        queue_id, epoch_id = self._ids[queue.name], self._epochs[key[0]]
        numbers = _sequences(rows)
        first, last = int(numbers[0]), int(numbers[-1])
        encoded = segment_of_rows(rows.select(list(NAMES)))
        name = f"{queue_id}/{first}-{last}"
        folder = self._segments / str(queue_id)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        for ending, data in ((".columns.arrow", encoded.columns), (".posts.arrow", encoded.posts)):
            write_durably(self._segments / (name + ending), data, sync_folder=False)
        arrived = pc.min_max(
            rows.column(rows.schema.get_field_index("arrived_at")).cast(pa.int64())
        ).as_py()
        positions = pc.min_max(rows.column(rows.schema.get_field_index("position"))).as_py()
        self._db.execute(
            "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row_key(queue_id, last),
                queue_id,
                epoch_id,
                first,
                last,
                positions["min"],
                positions["max"],
                sum(encoded.sizes),
                rows.num_rows,
                arrived["min"],
                arrived["max"],
                name,
                len(encoded.columns),
                zlib.crc32(encoded.columns),
                len(encoded.posts),
                zlib.crc32(encoded.posts),
                struct.pack(f"<{len(encoded.sizes)}I", *encoded.sizes),
            ),
        )
        if encoded.wide is not None:
            note_wide_part(
                self._db, row_key(queue_id, last), zlib.crc32(encoded.columns), encoded.wide
            )
        _cover(queue.covered, first, last)


def missing(queue: KnownQueue) -> list[Range]:
    """Return the closed ranges of issued sequences that have neither a row nor a hole.

    The issued sequences are those above the rows that retention had deleted, up to
    :attr:`.KnownQueue.end`.
    """
    known = sorted([*queue.covered, *((first, last) for first, last, _ in queue.holes)])
    return list(gaps(queue.trimmed_to + 1, queue.end, known))


def _sequences(rows: pa.RecordBatch) -> np.ndarray:
    return np.asarray(rows.column(rows.schema.get_field_index("sequence")).to_numpy(), np.int64)


def _near(covered: list[Range], sequence: int) -> list[Range]:
    """Return ``covered``, or an empty list if ``sequence`` lies after all of its ranges.

    So most sequences need no search.
    """
    return [] if not covered or sequence > covered[-1][1] else covered


def _cover(covered: list[Range], first: int, last: int) -> None:
    if covered and covered[-1][1] + 1 == first:
        covered[-1] = (covered[-1][0], last)
    elif covered and covered[-1][1] > first:
        covered.append((first, last))
        covered.sort()
    else:
        covered.append((first, last))
