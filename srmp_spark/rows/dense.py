"""The dense stream: stored pieces of the log, as they are, for a reader that decodes them.

Its media type is ``application/vnd.srmp-spark.log``. The queue manager sends a segment's file and
the packed groups after it without looking into them. The executors, where many cores are available,
decode them into rows. A frame is

    kind (1) · length of epoch (u8) · number of ranges (u16) · crc32 of the data (u32)
    · length of the data (u64) · epoch (UTF-8) · ranges × (first u64, last u64) · data
    (all numbers little-endian)

The kinds are ``S`` (the columns of a segment), ``N`` (the same without the wide part, for a reader
that does not need it), ``P`` (the posts of a segment), ``G`` (a group) and ``E`` (the end). ``P``
follows ``S`` directly, and only if the reader requests the envelope. A stream without ``E`` was cut
off. The ranges state which rows of the piece count: the requested rows, without the holes.

The data of a narrow segment are: offset of the wide part (u64) · length of the whole file (u64) ·
the bytes before the wide part · the bytes after it. The checksum covers the last two.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from srmp_spark.errors import ApiUnreachableError, StoreDamagedError
from srmp_spark.rows.columns import NAMES, WIDE
from srmp_spark.rows.group import Record, unpack_group
from srmp_spark.rows.wide_part import WidePart

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENT = b"S"
NARROW = b"N"
POSTS = b"P"
GROUP = b"G"
END = b"E"

FRAME_BYTES_MAX = 1 << 30
"""Largest length of a frame, in bytes.

No stored piece is nearly that long: a segment holds 8 MiB of posts and one more group, and a group
holds 8 MiB of posts or one large body. A longer frame means that the stream is broken, and raises
:class:`StoreDamagedError`.
"""
BATCH_ROWS = 8192
"""Largest number of rows in a batch that is made from groups, about as many as in a segment.

Spark pays per batch, and 2,000 rows are enough to hide that cost.
"""
BATCH_BYTES = 16 * 1024 * 1024
"""Bytes of posts at which a batch from groups ends, for large bodies."""

_HEAD = struct.Struct("<cBHIQ")
_RANGE = struct.Struct("<QQ")
_NARROW = struct.Struct("<QQ")
_CUT_OFF = "the stream of rows was cut off; it is read again after the last received row"

Range = tuple[int, int]


class DenseFrame(NamedTuple):
    """One piece of the log in a dense stream.

    ``kind`` is one of the kinds that the module lists, and ``keep`` has the closed ranges of the
    sequences that count.
    """

    kind: bytes
    epoch: str
    keep: tuple[Range, ...]
    data: Any
    """``bytes`` for a group, an Arrow buffer for any other kind."""
    size: int
    """Number of bytes of the data that were received.

    The number is smaller than the buffer of a narrow segment, which is as long as the segment's
    file.
    """


def head(kind: bytes, epoch: str, keep: tuple[Range, ...], crc: int, length: int) -> bytes:
    """Return the first bytes of a frame, which precede its ``length`` bytes of data.

    ``kind`` is one of the kinds that the module lists. ``keep`` holds the closed ranges of
    sequences that count. ``crc`` is the checksum (crc32) of the data.
    """
    name = epoch.encode()
    ranges = b"".join(_RANGE.pack(first, last) for first, last in keep)
    return _HEAD.pack(kind, len(name), len(keep), crc, length) + name + ranges


def end() -> bytes:
    """Return the frame that ends a stream."""
    return head(END, "", (), 0, 0)


def group_frame(epoch: str, keep: tuple[Range, ...], blob: bytes) -> bytes:
    """Return the whole frame for a packed group.

    ``keep`` holds the closed ranges of sequences that count.
    """
    return head(GROUP, epoch, keep, zlib.crc32(blob), len(blob)) + blob


def frames(stream: IO[bytes]) -> Iterator[DenseFrame]:
    """Read ``stream`` to its end, and yield its frames, without the end frame.

    Raises :class:`ApiUnreachableError` if the stream is cut off (the caller may try again), and
    :class:`StoreDamagedError` if a checksum, a length or a kind is wrong.
    """
    while True:
        kind, epoch_length, ranges, crc, length = _HEAD.unpack(_exactly(stream, _HEAD.size))
        if kind not in (SEGMENT, NARROW, POSTS, GROUP, END) or length > FRAME_BYTES_MAX:
            raise StoreDamagedError(
                f"{kind!r} is no frame of the dense stream: the queue manager has another version"
            )
        if kind == END:
            # No byte follows the end frame. A caller that has read up to here may use the
            # connection again.
            stream.read(1)
            return
        epoch = _exactly(stream, epoch_length).decode()
        keep = tuple(_RANGE.iter_unpack(_exactly(stream, ranges * _RANGE.size)))
        if kind == NARROW:
            data, found = _without_wide_part(stream, length)
        else:
            data = _exactly(stream, length) if kind == GROUP else _buffer(stream, length)
            found = zlib.crc32(data)
        if found != crc:
            raise StoreDamagedError(
                f"rows {keep[0][0]} to {keep[-1][1]} arrived with a checksum that differs "
                "from the stored one"
            )
        yield DenseFrame(kind, epoch, keep, data, length)


def batches(
    found: Iterable[DenseFrame],
    queue_manager: str,
    queue: str,
    after: int,
    to: int,
    envelope: bool = False,
    *,
    names: tuple[str, ...] = NAMES,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in (after, to] of the frames ``found``, in order, as batches.

    The batches have the columns ``names``, which must include ``sequence``; ``queue_manager`` and
    ``queue`` are the values of those columns. Raises the errors of :func:`frames`. Raises
    :class:`StoreDamagedError` if a row is damaged, or if a frame lacks bytes that the columns need.

    A batch of groups ends at :data:`BATCH_ROWS` rows or :data:`BATCH_BYTES` bytes, before a
    segment, and where the epoch changes. A segment becomes one batch for each of its ranges. With
    ``envelope`` each segment must be followed by its posts.
    """
    from srmp_spark.rows.decode import rows_of
    from srmp_spark.rows.segment import read_segment, rows_kept

    waiting: list[tuple[int, Record]] = []
    waiting_bytes = 0
    waiting_epoch = ""
    segment: DenseFrame | None = None

    def flush() -> Iterator[pa.RecordBatch]:
        nonlocal waiting_bytes
        if waiting:
            yield rows_of(queue_manager, waiting_epoch, queue, waiting, envelope, names=names)
            waiting.clear()
            waiting_bytes = 0

    def sealed(frame: DenseFrame, posts: bytes | None) -> Iterator[pa.RecordBatch]:
        batch = read_segment(frame.data, queue_manager, frame.epoch, queue, posts, names=names)
        return rows_kept(batch, _inside(frame.keep, after, to))

    for frame in found:
        if segment is not None:
            if frame.kind != POSTS:
                raise StoreDamagedError(
                    "a segment arrived without its posts, which the envelope is read from"
                )
            yield from sealed(segment, frame.data)
            segment = None
        elif frame.kind in (SEGMENT, NARROW):
            yield from flush()
            if frame.kind == NARROW and needs_wide_part(names, envelope=envelope):
                raise StoreDamagedError(
                    "a segment arrived without the part that has the bodies, which are needed"
                )
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


def needs_wide_part(names: Iterable[str], *, envelope: bool) -> bool:
    """Return whether ``names`` include a column of :data:`.WIDE`, or ``envelope`` is requested.

    Such a reader needs the wide part of a segment (:class:`.WidePart`).
    """
    return envelope or any(name in WIDE for name in names)


def narrow_head(epoch: str, keep: tuple[Range, ...], wide: WidePart, size: int) -> bytes:
    """Return the first bytes of the frame of a narrow segment, a file without its wide part.

    The caller sends after them the bytes of the file before ``wide``, and the bytes after ``wide``.
    ``size`` is the length of the whole file in bytes, and ``keep`` holds the closed ranges of
    sequences that count.
    """
    length = _NARROW.size + size - (wide.end - wide.begin)
    return head(NARROW, epoch, keep, wide.crc, length) + _NARROW.pack(wide.begin, size)


def _inside(keep: tuple[Range, ...], after: int, to: int) -> tuple[Range, ...]:
    return tuple(
        (max(first, after + 1), min(last, to))
        for first, last in keep
        if last > after and first <= to
    )


def _buffer(stream: IO[bytes], length: int) -> pa.Buffer:
    """Read ``length`` bytes into an Arrow buffer, and return the buffer.

    The columns that are read from the buffer point into it. Raises :class:`ApiUnreachableError` if
    the stream ends before.
    """
    import pyarrow as pa

    buffer = pa.allocate_buffer(length)
    _fill(stream, memoryview(buffer).cast("B"))
    return buffer


def _fill(stream: IO[bytes], left: memoryview) -> None:
    while left:
        # Raw and buffered streams have ``readinto``; the type IO[bytes] does not declare it.
        count = stream.readinto(left)  # type: ignore[attr-defined]
        if not count:
            raise ApiUnreachableError(_CUT_OFF)
        left = left[count:]


def _without_wide_part(stream: IO[bytes], length: int) -> tuple[pa.Buffer, int]:
    """Read a narrow segment, and return its buffer and the checksum of the received bytes.

    The buffer is as long as the segment's file. The bytes of its wide part are undefined, and no
    caller may read them. Raises :class:`StoreDamagedError` if the lengths contradict each other,
    and :class:`ApiUnreachableError` if the stream ends before.
    """
    import pyarrow as pa

    begin, size = _NARROW.unpack(_exactly(stream, min(length, _NARROW.size)))
    behind = length - _NARROW.size - begin
    if behind < 0 or not begin + behind <= size <= FRAME_BYTES_MAX:
        raise StoreDamagedError(
            f"a narrow segment of {length} bytes cannot be {begin} bytes and the end of {size}"
        )
    # Memory that is never written to costs nothing.
    buffer = pa.allocate_buffer(size)
    view = memoryview(buffer).cast("B")
    before, after = view[:begin], view[size - behind :]
    _fill(stream, before)
    _fill(stream, after)
    return buffer, zlib.crc32(after, zlib.crc32(before))


def _exactly(stream: IO[bytes], length: int) -> bytes:
    """Read and return exactly ``length`` bytes.

    Raises :class:`ApiUnreachableError` if the stream ends before.

    A socket's file may return fewer bytes at once, so the function reads several times.
    """
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
