"""Stored pieces as batches of rows, or as the dense stream. Runs in the reader process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from srmp_spark.rows import dense
from srmp_spark.rows.decode import rows_of
from srmp_spark.rows.group import Record, unpack_group
from srmp_spark.rows.segment import read_segment, rows_kept
from srmp_spark.store.log import Chunk, GroupChunk

BATCH_ROWS = 4_096
"""Rows of a batch: enough that a batch's own cost does not count, small enough to be on its way soon."""
BATCH_BYTES = 8 * 1_048_576
"""Bytes of the posts of a batch, for large bodies."""


def arrow_batches(chunks: Iterable[Chunk], queue_manager: str, queue: str, *, envelope: bool) -> Iterator[pa.RecordBatch]:
    """The rows of the pieces, in order."""
    pairs: list[tuple[int, Record]] = []
    size = 0
    epoch = ""
    for chunk in chunks:
        epoch = chunk.epoch
        if isinstance(chunk, GroupChunk):
            for sequence, record in unpack_group(chunk.blob):
                if any(first <= sequence <= last for first, last in chunk.keep):
                    pairs.append((sequence, record))
                    size += len(record.post)
                    if len(pairs) >= BATCH_ROWS or size >= BATCH_BYTES:
                        yield rows_of(queue_manager, epoch, queue, pairs, envelope)
                        pairs, size = [], 0
            continue
        if pairs:
            yield rows_of(queue_manager, epoch, queue, pairs, envelope)
            pairs, size = [], 0
        posts = chunk.read_posts() if envelope else None
        yield from rows_kept(read_segment(chunk.read_columns(), queue_manager, epoch, queue, posts), chunk.keep)
    if pairs:
        yield rows_of(queue_manager, epoch, queue, pairs, envelope)


def dense_pieces(chunks: Iterable[Chunk], *, envelope: bool) -> Iterator[bytes]:
    """The pieces as they are stored, framed (rows/dense.py)."""
    for chunk in chunks:
        if isinstance(chunk, GroupChunk):
            yield dense.group_frame(chunk.epoch, chunk.keep, chunk.blob)
            continue
        columns = chunk.read_columns()
        yield dense.head(dense.SEGMENT, chunk.epoch, chunk.keep, chunk.columns_crc, len(columns))
        yield columns
        if envelope:
            posts = chunk.read_posts()
            yield dense.head(dense.POSTS, chunk.epoch, chunk.keep, chunk.posts_crc, len(posts))
            yield posts
    yield dense.end()
