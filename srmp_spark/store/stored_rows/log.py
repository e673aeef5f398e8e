"""Read the log: the rows of a queue, the end of a batch, and the stored pieces themselves.

A piece is a *segment* (two files of sealed rows) or a *group* (the rows of one commit). Counted
*holes* lie between pieces. Every question is answered from one short snapshot of the database, and
the next piece is always looked up by its sequence. So a group may be sealed, and a segment trimmed,
between two pieces. A sealed group is found as part of its segment, because segments are asked
first. A trimmed segment raises :class:`TrimmedError`. A sequence that is in no piece and in no hole
is damage and raises an error: nothing is skipped silently.

A :class:`Log` has its own read-only connection and belongs to one thread. No module that this one
imports loads Arrow.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from srmp_spark.errors import StoreDamagedError, StoreError
from srmp_spark.rows.group import Record, post_lengths, unpack_group
from srmp_spark.rows.wide_part import WidePart
from srmp_spark.sequences.ranges import SEQUENCE_MAX, Range, gaps
from srmp_spark.store.database.schema import connect_reader, row_key
from srmp_spark.store.stored_rows.wide_parts import IS_WIDE_PART
from srmp_spark.store.tables import moves
from srmp_spark.store.tables.epochs import end_of
from srmp_spark.store.tables.moves import Moves

GROUPS_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of groups that one query fetches.

A reader holds that much at once besides the piece on which it works; the next query fetches the
rest.
"""
GROUPS_MAX = 512
"""Number of groups that one query fetches at most, for groups of one small message."""


class QueueNotInLogError(StoreError):
    """No queue has that name (404)."""


class UnknownEpochError(StoreError):
    """The log of this queue has no such epoch (409 ``unknown-epoch``)."""


class PastTheEndError(StoreError):
    """The sequence has not been issued in that epoch (409 ``past-the-end``)."""

    def __init__(self, queue: str, after: int, end: int) -> None:
        super().__init__(f"{queue} ends at sequence {end}; rows after {after} were requested")
        self.end = end


class TrimmedError(StoreError):
    """Retention has deleted the rows (410 ``trimmed``).

    ``first`` is the sequence of the oldest row that is left.
    """

    def __init__(self, queue: str, after: int, first: int) -> None:
        super().__init__(
            f"rows {after + 1} to {first - 1} of {queue} were deleted by retention; the "
            f"oldest left is {first}"
        )
        self.first = first


_SEGMENT = (
    "SELECT first, last, file, columns_bytes, s.columns_crc, posts_bytes, posts_crc, "  # noqa: S608  # no words of others
    "wide_begin, wide_end, narrow_crc "
    f"FROM segments s LEFT JOIN wide_parts w ON w.id = s.id AND {IS_WIDE_PART} "
    "WHERE s.id BETWEEN ? AND ? ORDER BY s.id LIMIT 1"
)


class Bounds(NamedTuple):
    """The first and the last row that the log holds of a queue in one epoch."""

    epoch: str
    first: int
    """The oldest sequence that was not trimmed; ``end`` + 1 if there is none."""
    end: int
    """The last sequence that was issued in this epoch and committed."""
    next_epoch: str | None
    """The epoch in which the queue continues; ``None`` for the present epoch."""


class GroupChunk(NamedTuple):
    """The rows of one commit, packed (rows/group.py)."""

    queue: str
    epoch: str
    first: int
    last: int
    keep: tuple[Range, ...]
    """Closed ranges of the group's sequences that were requested and are no holes."""
    blob: bytes

    def records(self) -> Iterator[tuple[int, Record]]:
        """Yield the (sequence, record) pairs of the requested rows.

        Raises :class:`StoreDamagedError`, which names queue and rows, if the group is damaged.
        """
        try:
            for sequence, record in unpack_group(self.blob):
                if any(first <= sequence <= last for first, last in self.keep):
                    yield sequence, record
        except StoreDamagedError as error:
            raise damaged(self.queue, self.first, self.last, str(error)) from error


class SegmentChunk(NamedTuple):
    """The rows of one segment, sealed in two files (rows/segment.py).

    ``keep`` has the closed ranges of the segment's sequences that were requested and are no holes.
    ``columns`` and ``posts`` are the paths of the files, with the length in bytes and the crc32 of
    each.
    """

    queue: str
    epoch: str
    first: int
    last: int
    keep: tuple[Range, ...]
    columns: Path
    columns_bytes: int
    columns_crc: int
    posts: Path
    posts_bytes: int
    posts_crc: int
    wide: WidePart | None = None
    """Part of the file of columns that may be left out when the file is sent.

    ``None`` means that the whole file is sent.
    """

    def read_columns(self) -> bytes:
        """Return the content of the file of columns.

        Raises :class:`StoreDamagedError` if its length or checksum is wrong, and
        :class:`FileNotFoundError` if the segment was trimmed.
        """
        return self._read(self.columns, self.columns_bytes, self.columns_crc)

    def read_posts(self) -> bytes:
        """Return the content of the file of posts, with the errors of :meth:`read_columns`."""
        return self._read(self.posts, self.posts_bytes, self.posts_crc)

    def open_columns(self) -> BinaryIO:
        """Open the file of columns for reading, after a check of its length only.

        Raises :class:`StoreDamagedError` if the length is wrong, and :class:`FileNotFoundError` if
        the segment was trimmed.
        """
        return self._open(self.columns, self.columns_bytes)

    def open_posts(self) -> BinaryIO:
        """Open the file of posts for reading, with the check and errors of :meth:`open_columns`."""
        return self._open(self.posts, self.posts_bytes)

    def _read(self, path: Path, size: int, crc: int) -> bytes:
        data = path.read_bytes()
        if len(data) != size or zlib.crc32(data) != crc:
            raise self._other(path, len(data), size)
        return data

    def _open(self, path: Path, size: int) -> BinaryIO:
        file = path.open("rb", buffering=0)
        found = os.fstat(file.fileno()).st_size
        if found != size:
            file.close()
            raise self._other(path, found, size)
        return file

    def _other(self, path: Path, found: int, size: int) -> StoreDamagedError:
        return damaged(
            self.queue,
            self.first,
            self.last,
            f"{path} is not what was sealed ({found} bytes of {size})",
        )


Chunk = GroupChunk | SegmentChunk


def damaged(queue: str, first: int, last: int, what: str) -> StoreDamagedError:
    """Return the error for rows ``first`` to ``last``, which cannot be read because of ``what``."""
    return StoreDamagedError(
        f"rows {first} to {last} of {queue} cannot be read: {what}. Put the files back "
        "from a backup; "
        f"or give them up: srmp-spark give-up --queue '{queue}' --first {first} --last {last} "
        "(docs/troubleshooting.md, 'Damaged rows')"
    )


class Log:
    """Reads the rows of all queues from the database and the segments of a data directory.

    An instance belongs to one thread. SQLite's errors are raised as they are.
    """

    def __init__(self, database: Path, segments: Path) -> None:
        self._connection = connect_reader(database)
        self._segments = segments

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the database."""
        self._connection.close()

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection with one consistent view of the database, for a ``with`` statement.

        Keep the block short: an open snapshot keeps the WAL from starting again at its beginning.
        """
        self._connection.execute("BEGIN")
        try:
            yield self._connection
        finally:
            self._connection.execute("COMMIT")

    def epochs(self, queue: str) -> list[str]:
        """Return the epochs of ``queue`` as texts, oldest first; new rows get the last one.

        Raises :class:`QueueNotInLogError`.
        """
        with self.snapshot() as db:
            queue_id, _ = self._queue(queue)
            return [epoch for epoch, _ in _epochs(db, queue_id)]

    def holes(self, queue: str, after: int, to: int) -> list[Range]:
        """Return the holes in (after, to] as closed ranges, cut to these bounds, in order.

        The rows of a hole were purged, given up or lost. Adjacent holes with different reasons are
        separate ranges. Raises :class:`QueueNotInLogError`.
        """
        with self.snapshot() as db:
            queue_id, _ = self._queue(queue)
            found = db.execute(
                "SELECT max(first, ?), min(last, ?) FROM holes WHERE queue_id = ? AND "
                "last > ? AND first <= ? ORDER BY first",
                (after + 1, to, queue_id, after, to),
            )
            return found.fetchall()

    def moves(self, queue: str, after: int, to: int) -> dict[int, Moves]:
        """Return move count and time of the last move of each moved row in (after, to].

        The result maps a sequence to :class:`.Moves`. Raises :class:`QueueNotInLogError`.
        """
        with self.snapshot() as db:
            queue_id, _ = self._queue(queue)
            return moves.load(db, queue_id, after, to)

    def bounds(self, queue: str, epoch: str | None = None) -> Bounds:
        """Return the bounds of the rows of ``queue`` in ``epoch`` (default: the present epoch).

        Raises :class:`QueueNotInLogError` and :class:`UnknownEpochError`.
        """
        with self.snapshot():
            return self._bounds(queue, epoch)[2]

    def end_for(
        self,
        queue: str,
        epoch: str | None,
        after: int,
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> int:
        """Return the last sequence of a batch of rows after ``after``, within both limits.

        ``max_rows`` limits the sequences, including holes, and ``max_bytes`` the bytes of posts;
        ``None`` means no limit. A batch has at least one row, however large the row is. Return
        ``after`` if no row follows. Raises the errors of :meth:`bounds`. Raises
        :class:`TrimmedError` if the next row was trimmed, and :class:`PastTheEndError` if ``after``
        was not issued.
        """
        with self.snapshot() as db:
            queue_id, _, bounds = self._bounds(queue, epoch)
            self._check(queue, bounds, after)
            end = bounds.end if max_rows is None else min(bounds.end, after + max(1, max_rows))
            if max_bytes is None or end <= after:
                return end
            return self._byte_end(db, queue_id, after, end, max_bytes)

    def chunks(
        self,
        queue: str,
        epoch: str | None,
        after: int,
        to: int,
        fetch_bytes: int = GROUPS_BYTES_MAX,
    ) -> Iterator[Chunk]:
        """Yield the segments and groups that hold the rows in (after, to], in order.

        ``fetch_bytes`` is the number of bytes of groups that one query fetches, for callers that
        may stop early. No snapshot is open between two pieces. Raises the errors of
        :meth:`end_for`, :class:`PastTheEndError` also for ``to``, and :class:`StoreDamagedError` if
        a row is missing.
        """
        with self.snapshot():
            queue_id, _, bounds = self._bounds(queue, epoch)
        self._check(queue, bounds, after)
        if to > bounds.end:
            raise PastTheEndError(queue, to, bounds.end)
        at = after + 1
        while at <= to:
            pieces, at = self._next(queue, queue_id, bounds.epoch, at, to, fetch_bytes)
            yield from pieces

    # Steps that use one snapshot each

    def _queue(self, queue: str) -> tuple[int, int]:
        row = self._connection.execute(
            "SELECT id, trimmed_to FROM queues WHERE name = ? AND deleted_at IS NULL", (queue,)
        ).fetchone()
        if row is None:
            raise QueueNotInLogError(f"there is no queue {queue}")
        return int(row[0]), int(row[1])

    def _bounds(self, queue: str, epoch: str | None) -> tuple[int, int, Bounds]:
        queue_id, trimmed_to = self._queue(queue)
        known = _epochs(self._connection, queue_id)
        at = (
            len(known) - 1
            if epoch is None
            else next((n for n, (name, _) in enumerate(known) if name == epoch), -1)
        )
        if at < 0:
            names = ", ".join(name for name, _ in known)
            raise UnknownEpochError(f"the log of {queue} knows no epoch {epoch}; it knows {names}")
        name, first = known[at]
        following = known[at + 1] if at + 1 < len(known) else None
        end = following[1] - 1 if following else end_of(self._connection, queue_id)
        oldest = min(max(first, trimmed_to + 1), end + 1)
        return queue_id, trimmed_to, Bounds(name, oldest, end, following[0] if following else None)

    @staticmethod
    def _check(queue: str, bounds: Bounds, after: int) -> None:
        if after > bounds.end:
            raise PastTheEndError(queue, after, bounds.end)
        if after < bounds.first - 1:
            raise TrimmedError(queue, after, bounds.first)

    def _byte_end(
        self, db: sqlite3.Connection, queue_id: int, after: int, end: int, max_bytes: int
    ) -> int:
        left, at, begun = max_bytes, after, False
        holes = db.execute(
            "SELECT first, last FROM holes WHERE queue_id = ? AND last > ? AND first <= ? "
            "ORDER BY first",
            (queue_id, after, end),
        ).fetchall()
        for table, data in (("segments", "sizes"), ("groups", "data")):
            found = db.execute(
                f"SELECT id, first, last, bytes FROM {table} WHERE id BETWEEN ? AND ? ORDER BY id",  # noqa: S608  # our own names
                (row_key(queue_id, at + 1), row_key(queue_id, SEQUENCE_MAX)),
            )
            for key, first, last, size in found:
                if last <= at:
                    continue
                if first > end:
                    return end
                kept = gaps(max(first, at + 1), min(last, end), holes)
                if kept == ((first, last),) and size <= left:
                    left, at, begun = left - size, last, True
                    continue
                (blob,) = db.execute(f"SELECT {data} FROM {table} WHERE id = ?", (key,)).fetchone()  # noqa: S608  # our own names
                lengths = (
                    struct.unpack(f"<{len(blob) // 4}I", blob)
                    if table == "segments"
                    else post_lengths(blob)
                )
                for low, high in kept:
                    sums = list(accumulate(lengths[low - first : high - first + 1]))
                    fitting = bisect_right(sums, left)
                    if fitting < len(sums):
                        # A batch has at least one row.
                        return low + fitting - 1 if fitting or begun else low
                    left, begun = left - sums[-1], True
                at = min(last, end)
        return end

    def _next(
        self, queue: str, queue_id: int, epoch: str, at: int, to: int, fetch_bytes: int
    ) -> tuple[list[Chunk], int]:
        """Return the next pieces of rows ``at`` to ``to``, and the sequence at which to continue.

        Both bounds are included. The pieces are one segment, or groups until ``fetch_bytes`` are
        reached. The list is empty if ``at`` is in a hole. Raises :class:`TrimmedError` if retention
        has deleted ``at``, and :class:`StoreDamagedError` if the row is missing.
        """
        with self.snapshot() as db:
            _, trimmed_to = self._queue(queue)
            if at <= trimmed_to:
                raise TrimmedError(queue, at - 1, trimmed_to + 1)
            holes = db.execute(
                "SELECT first, last FROM holes WHERE queue_id = ? AND last >= ? AND first "
                "<= ? ORDER BY first",
                (queue_id, at, to),
            ).fetchall()
            if holes and holes[0][0] <= at:
                return [], holes[0][1] + 1
            segment = self._segment(db, queue_id, at)
            if segment is not None:
                first, last, file, columns_bytes, columns_crc, posts_bytes, posts_crc, *wide = (
                    segment
                )
                base = self._segments / file
                chunk = SegmentChunk(
                    queue,
                    epoch,
                    first,
                    last,
                    gaps(max(at, first), min(last, to), holes),
                    base.with_name(base.name + ".columns.arrow"),
                    columns_bytes,
                    columns_crc,
                    base.with_name(base.name + ".posts.arrow"),
                    posts_bytes,
                    posts_crc,
                    None if wide[0] is None else WidePart(*wide),
                )
                if not chunk.columns.exists():
                    # The segment was trimmed after the snapshot began, or its file is lost.
                    return self._after_loss(queue, chunk, at)
                return [chunk], last + 1
            return self._groups(db, queue, queue_id, epoch, at, to, holes, fetch_bytes)

    @staticmethod
    def _segment(db: sqlite3.Connection, queue_id: int, at: int) -> tuple[Any, ...] | None:
        span = row_key(queue_id, at), row_key(queue_id, SEQUENCE_MAX)
        row: tuple[Any, ...] | None = db.execute(_SEGMENT, span).fetchone()
        return row if row is not None and row[0] <= at else None

    def _after_loss(self, queue: str, chunk: SegmentChunk, at: int) -> tuple[list[Chunk], int]:
        with Log(
            Path(self._connection.execute("PRAGMA database_list").fetchone()[2]), self._segments
        ) as fresh:
            bounds = fresh.bounds(queue, chunk.epoch)
        if at < bounds.first:
            raise TrimmedError(queue, at - 1, bounds.first)
        raise damaged(queue, chunk.first, chunk.last, f"{chunk.columns} is gone")

    @staticmethod
    def _groups(
        db: sqlite3.Connection,
        queue: str,
        queue_id: int,
        epoch: str,
        at: int,
        to: int,
        holes: list[Range],
        fetch_bytes: int,
    ) -> tuple[list[Chunk], int]:
        found: list[Chunk] = []
        began, size = at, 0
        rows = db.execute(
            "SELECT first, last, data FROM groups WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
            (row_key(queue_id, at), row_key(queue_id, SEQUENCE_MAX), GROUPS_MAX),
        )
        for first, last, blob in rows:
            if first > at or first > to:
                # This is a hole or damage: the next call finds out.
                break
            kept = gaps(at, min(last, to), holes)
            # Rows in a hole are not read: they may be in a hole because they are damaged.
            if kept:
                found.append(GroupChunk(queue, epoch, first, last, kept, blob))
            at, size = last + 1, size + len(blob)
            if size >= fetch_bytes:
                break
        if at == began:
            raise damaged(queue, at, at, "they are in no group, no segment and no hole")
        return found, at


def _epochs(db: sqlite3.Connection, queue_id: int) -> list[tuple[str, int]]:
    return db.execute(
        "SELECT epoch, first FROM queue_epochs JOIN epochs ON id = epoch_id WHERE "
        "queue_id = ? ORDER BY epoch_id",
        (queue_id,),
    ).fetchall()
