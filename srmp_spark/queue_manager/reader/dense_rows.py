"""Stored pieces as the dense stream (rows/dense.py): segments and groups as they are, framed. Runs in the reader process.

A segment's file goes from the page cache into the connection; its bytes are not looked at here. Who reads the stream checks
them against the checksum that stands before them, and asks for the other form if they differ: that one says what is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from srmp_spark.rows import dense
from srmp_spark.store.log import Chunk, GroupChunk


class FilePiece(NamedTuple):
    """A whole file. Who takes it closes it."""

    file: BinaryIO
    size: int


def dense_pieces(chunks: Iterable[Chunk], *, envelope: bool) -> Iterator[bytes | FilePiece]:
    """The pieces of the stream; nothing is decoded.

    Raises :class:`~srmp_spark.errors.StoreDamagedError` for a file of another length than it was sealed with.
    """
    for chunk in chunks:
        if isinstance(chunk, GroupChunk):
            yield dense.group_frame(chunk.epoch, chunk.keep, chunk.blob)
            continue
        file = chunk.open_columns()
        yield dense.head(dense.SEGMENT, chunk.epoch, chunk.keep, chunk.columns_crc, chunk.columns_bytes)
        yield FilePiece(file, chunk.columns_bytes)
        if envelope:
            file = chunk.open_posts()
            yield dense.head(dense.POSTS, chunk.epoch, chunk.keep, chunk.posts_crc, chunk.posts_bytes)
            yield FilePiece(file, chunk.posts_bytes)
    yield dense.end()
