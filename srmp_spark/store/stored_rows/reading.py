"""Read rows of the log as Arrow batches, for the reader process.

This module loads Arrow; the accepting process never imports it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from srmp_spark.rows.columns import NAMES, with_sequence
from srmp_spark.rows.decode import rows_of
from srmp_spark.rows.dense import BATCH_BYTES, BATCH_ROWS
from srmp_spark.rows.group import Record
from srmp_spark.rows.segment import read_segment, records_of, rows_kept
from srmp_spark.store.stored_rows.log import Chunk, GroupChunk, Log


def batches(
    log: Log,
    queue_manager: str,
    queue: str,
    epoch: str | None,
    after: int,
    to: int,
    envelope: bool = False,
    *,
    shown: str | None = None,
    names: tuple[str, ...] = NAMES,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the rows in (after, to], in order, with the columns ``names``.

    Holes are left out. ``envelope`` fills the column of that name. ``shown`` is the value of the
    column ``queue`` if it is not ``queue`` (the rows of a journal). Raises the errors of
    :meth:`Log.chunks`, :class:`FileNotFoundError` if a segment is trimmed meanwhile, and
    :class:`StoreDamagedError` with queue and sequence if a row cannot be decoded.
    """
    inside = with_sequence(names)
    found = _batches(
        log, queue_manager, queue, epoch, after, to, envelope, shown=shown or queue, names=inside
    )
    yield from found if inside == names else (batch.select(names) for batch in found)


def _batches(
    log: Log,
    queue_manager: str,
    queue: str,
    epoch: str | None,
    after: int,
    to: int,
    envelope: bool,
    *,
    shown: str,
    names: tuple[str, ...],
) -> Iterator[pa.RecordBatch]:
    waiting: list[tuple[int, Record]] = []
    waiting_bytes = 0
    name = log.bounds(queue, epoch).epoch
    for chunk in log.chunks(queue, name, after, to):
        if isinstance(chunk, GroupChunk):
            for sequence, record in chunk.records():
                waiting.append((sequence, record))
                waiting_bytes += len(record.post)
                if len(waiting) >= BATCH_ROWS or waiting_bytes >= BATCH_BYTES:
                    yield rows_of(queue_manager, name, shown, waiting, envelope, names=names)
                    waiting, waiting_bytes = [], 0
            continue
        if waiting:
            yield rows_of(queue_manager, name, shown, waiting, envelope, names=names)
            waiting, waiting_bytes = [], 0
        posts = chunk.read_posts() if envelope else None
        yield from rows_kept(
            read_segment(chunk.read_columns(), queue_manager, name, shown, posts, names=names),
            chunk.keep,
        )
    if waiting:
        yield rows_of(queue_manager, name, shown, waiting, envelope, names=names)


def records(
    log: Log, queue: str, epoch: str | None, after: int, to: int
) -> Iterator[tuple[int, Record]]:
    """Yield the (sequence, record) pairs of the rows in (after, to], in order.

    The records hold the messages byte for byte as they were accepted, for remote read and
    forwarding. A restored row has a record of its columns. Holes are left out. Raises the errors of
    :func:`batches`.
    """
    for chunk in log.chunks(queue, epoch, after, to):
        yield from chunk_records(chunk)


def chunk_records(chunk: Chunk) -> Iterator[tuple[int, Record]]:
    """Yield the (sequence, record) pairs of the rows in the ranges ``keep`` of one piece.

    Raises :class:`StoreDamagedError` if the piece is damaged, and :class:`FileNotFoundError` if its
    segment was trimmed.
    """
    if isinstance(chunk, GroupChunk):
        yield from chunk.records()
        return
    yield from records_of(chunk.read_columns(), chunk.read_posts(), chunk.keep)
