"""Stored pieces as the dense stream (rows/dense.py): segments and groups as they are, framed. Runs in the reader process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from srmp_spark.rows import dense
from srmp_spark.store.log import Chunk, GroupChunk


def dense_pieces(chunks: Iterable[Chunk], *, envelope: bool) -> Iterator[bytes]:
    """The bytes of the stream; nothing is decoded."""
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
