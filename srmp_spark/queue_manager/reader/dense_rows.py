"""Stored pieces as the dense stream (rows/dense.py): segments and groups as they are, framed. Runs in the reader process.

A segment's file goes from the page cache into the connection; its bytes are not looked at here. Who reads the stream checks
them against the checksum that stands before them, and asks for the other form if they differ: that one says what is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from srmp_spark.rows import dense
from srmp_spark.rows.columns import NAMES
from srmp_spark.store.log import Chunk, GroupChunk


class FilePiece(NamedTuple):
    """Spans of a file. Who takes it closes it."""

    file: BinaryIO
    spans: tuple[tuple[int, int], ...]
    """Where each begins and ends."""


def dense_pieces(
    chunks: Iterable[Chunk], *, envelope: bool, names: tuple[str, ...] = NAMES
) -> Iterator[bytes | FilePiece]:
    """Yield the pieces of the stream; nothing is decoded. A segment goes without what no column of ``names`` needs.

    Raises :class:`~srmp_spark.errors.StoreDamagedError` for a file of another length than it was sealed with.
    """
    is_narrow = not dense.needs_wide_part(names, envelope=envelope)
    for chunk in chunks:
        if isinstance(chunk, GroupChunk):
            yield dense.group_frame(chunk.epoch, chunk.keep, chunk.blob)
            continue
        file = chunk.open_columns()
        if is_narrow and chunk.wide is not None:
            yield dense.narrow_head(chunk.epoch, chunk.keep, chunk.wide, chunk.columns_bytes)
            yield FilePiece(file, ((0, chunk.wide.begin), (chunk.wide.end, chunk.columns_bytes)))
        else:
            yield dense.head(
                dense.SEGMENT, chunk.epoch, chunk.keep, chunk.columns_crc, chunk.columns_bytes
            )
            yield FilePiece(file, ((0, chunk.columns_bytes),))
        if envelope:
            file = chunk.open_posts()
            yield dense.head(
                dense.POSTS, chunk.epoch, chunk.keep, chunk.posts_crc, chunk.posts_bytes
            )
            yield FilePiece(file, ((0, chunk.posts_bytes),))
    yield dense.end()
