"""Yield stored segments and groups unchanged, framed as the dense stream (rows/dense.py).

A segment is a file of rows, a group is a blob of rows in the database. This runs in the reader
process. The bytes of a segment's file are sent from the page cache into the connection and are not
examined. The client that reads the stream checks the bytes against the checksum that precedes them.
If the two differ, the client asks for the other form, whose answer states the damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from srmp_spark.rows import dense
from srmp_spark.rows.columns import NAMES
from srmp_spark.store.stored_rows.log import Chunk, GroupChunk


class FilePiece(NamedTuple):
    """Spans of an open file that are to be sent. The receiver of the piece must close the file."""

    file: BinaryIO
    spans: tuple[tuple[int, int], ...]
    """Offsets at which each span begins (included) and ends (excluded)."""


def dense_pieces(
    chunks: Iterable[Chunk], *, envelope: bool, names: tuple[str, ...] = NAMES
) -> Iterator[bytes | FilePiece]:
    """Yield the pieces of the dense stream of ``chunks``, without decoding them.

    A piece is bytes or a :class:`FilePiece`, whose file the receiver must close. The part of a
    segment that no column of ``names`` needs is left out. ``envelope`` states whether the posts of
    each segment are included. Raises :class:`~srmp_spark.errors.StoreDamagedError` if the length of
    a file has changed since it was sealed, and the errors of ``chunks``.
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
