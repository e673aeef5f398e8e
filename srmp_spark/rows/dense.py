"""The dense stream (``Accept: application/vnd.srmp-spark.log``): stored pieces as they are, decoded by who reads them.

The queue manager sends a segment's file and the packed groups behind it without looking into them; executors, where cores
are many, turn them into rows. A frame is

    kind (1) · length of epoch (u8) · number of ranges (u16) · crc32 of the data (u32) · length of the data (u64)
    · epoch (UTF-8) · ranges × (first u64, last u64) · data                                            little-endian

with kind ``S`` (a segment's columns), ``P`` (its posts, only when the envelope is asked for, right behind it), ``G`` (a group)
and ``E`` (the end: a stream without it was cut off). The ranges say which rows of the piece count: those asked for, without
the holes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from srmp_spark.errors import ApiUnreachableError, StoreDamagedError
from srmp_spark.rows.group import Record, unpack_group

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENT = b"S"
POSTS = b"P"
GROUP = b"G"
END = b"E"

FRAME_BYTES_MAX = 1 << 30
"""More than any piece has (a segment 32 MiB of posts and one body, a group 8 MiB and one body): longer is a broken stream."""
BATCH_ROWS = 8192
"""Rows of a batch that is made from groups: as a segment has. Spark pays per batch, and 2,000 are enough to hide that."""
BATCH_BYTES = 16 * 1024 * 1024
"""Bytes of posts in such a batch, for large bodies."""

_HEAD = struct.Struct("<cBHIQ")
_RANGE = struct.Struct("<QQ")
_CUT_OFF = "the stream of rows was cut off; it is read again from the last row that came"

Range = tuple[int, int]


class Frame(NamedTuple):
    """One piece of the log."""

    kind: bytes
    epoch: str
    keep: tuple[Range, ...]
    data: Any
    """``bytes`` of a group, else a buffer of Arrow."""


def head(kind: bytes, epoch: str, keep: tuple[Range, ...], crc: int, length: int) -> bytes:
    """What comes before the ``length`` bytes of data."""
    name = epoch.encode()
    ranges = b"".join(_RANGE.pack(first, last) for first, last in keep)
    return _HEAD.pack(kind, len(name), len(keep), crc, length) + name + ranges


def end() -> bytes:
    """The last frame."""
    return head(END, "", (), 0, 0)


def group_frame(epoch: str, keep: tuple[Range, ...], blob: bytes) -> bytes:
    """A whole frame for a packed group."""
    return head(GROUP, epoch, keep, zlib.crc32(blob), len(blob)) + blob


def frames(stream: IO[bytes]) -> Iterator[Frame]:
    """The frames of a stream.

    Raises :class:`ApiUnreachableError` when it is cut off (try again), :class:`StoreDamagedError` when a byte differs.
    """
    while True:
        kind, epoch_length, ranges, crc, length = _HEAD.unpack(_exactly(stream, _HEAD.size))
        if kind not in (SEGMENT, POSTS, GROUP, END) or length > FRAME_BYTES_MAX:
            raise StoreDamagedError(f"{kind!r} is no frame of the dense stream: the queue manager is of another version")
        if kind == END:
            stream.read(1)  # nothing comes behind it; who has seen that may use the connection again
            return
        epoch = _exactly(stream, epoch_length).decode()
        keep = tuple(_RANGE.iter_unpack(_exactly(stream, ranges * _RANGE.size)))
        data = _exactly(stream, length) if kind == GROUP else _buffer(stream, length)
        if zlib.crc32(data) != crc:
            raise StoreDamagedError(f"rows {keep[0][0]} to {keep[-1][1]} came with another checksum than they were stored with")
        yield Frame(kind, epoch, keep, data)


def batches(
    found: Iterable[Frame], queue_manager: str, queue: str, after: int, to: int, envelope: bool = False
) -> Iterator[pa.RecordBatch]:
    """The rows in (after, to] of a stream's frames, in order, all columns. Errors as :func:`frames`, and damage in a row."""
    from srmp_spark.rows.decode import rows_of
    from srmp_spark.rows.segment import read_segment, rows_kept

    waiting: list[tuple[int, Record]] = []
    waiting_bytes = 0
    waiting_epoch = ""
    segment: Frame | None = None

    def flush() -> Iterator[pa.RecordBatch]:
        nonlocal waiting_bytes
        if waiting:
            yield rows_of(queue_manager, waiting_epoch, queue, waiting, envelope)
            waiting.clear()
            waiting_bytes = 0

    def sealed(frame: Frame, posts: bytes | None) -> Iterator[pa.RecordBatch]:
        batch = read_segment(frame.data, queue_manager, frame.epoch, queue, posts)
        return rows_kept(batch, _inside(frame.keep, after, to))

    for frame in found:
        if segment is not None:
            if frame.kind != POSTS:
                raise StoreDamagedError("a segment came without its posts, which the envelope is read from")
            yield from sealed(segment, frame.data)
            segment = None
        elif frame.kind == SEGMENT:
            yield from flush()
            if envelope:
                segment = frame
            else:
                yield from sealed(frame, None)
        elif frame.kind == GROUP:
            if frame.epoch != waiting_epoch:
                yield from flush()
                waiting_epoch = frame.epoch
            keep = _inside(frame.keep, after, to)
            for sequence, record in unpack_group(frame.data):
                if any(first <= sequence <= last for first, last in keep):
                    waiting.append((sequence, record))
                    waiting_bytes += len(record.post)
                    if len(waiting) >= BATCH_ROWS or waiting_bytes >= BATCH_BYTES:
                        yield from flush()
    yield from flush()


def _inside(keep: tuple[Range, ...], after: int, to: int) -> tuple[Range, ...]:
    return tuple((max(first, after + 1), min(last, to)) for first, last in keep if last > after and first <= to)


def _buffer(stream: IO[bytes], length: int) -> pa.Buffer:
    """So many bytes in memory of Arrow's, which the columns then point into."""
    import pyarrow as pa

    buffer = pa.allocate_buffer(length)
    left = memoryview(buffer).cast("B")
    while left:
        count = stream.readinto(left)  # type: ignore[attr-defined]  # raw and buffered streams have it, IO[bytes] forgets it
        if not count:
            raise ApiUnreachableError(_CUT_OFF)
        left = left[count:]
    return buffer


def _exactly(stream: IO[bytes], length: int) -> bytes:
    """So many bytes; a socket's file may give fewer at once."""
    data = stream.read(length)
    if data is not None and len(data) == length:
        return data
    parts = [data or b""]
    missing = length - len(parts[0])
    while missing:
        more = stream.read(missing)
        if not more:
            raise ApiUnreachableError(_CUT_OFF)
        parts.append(more)
        missing -= len(more)
    return b"".join(parts)
