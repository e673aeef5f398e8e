"""Seal old groups of a queue into a segment: two files that Spark reads at disk speed.

There are three steps, and a crash may follow each of them:

1. :func:`plan` (reader process): choose the groups.
2. :func:`write_segment` (reader process, at low priority): write and sync both files and their
   folder.
3. :func:`commit_segment` (the journal's transaction): enter the segment; from this commit on its
   groups no longer count.

A crash before step 3 leaves files that no row names; :func:`remove_orphans` deletes them at the
next start. After step 3 the groups are garbage, deleted in slices. So every row is readable from
exactly one place at every moment. Rows that are not sealed yet are equally safe and only slower to
read.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from srmp_spark.errors import StoreError
from srmp_spark.rows.group import Record
from srmp_spark.rows.wide_part import WidePart
from srmp_spark.sequences.ranges import SEQUENCE_MAX, covered
from srmp_spark.store.database import sweeper
from srmp_spark.store.database.disk_room import Volume
from srmp_spark.store.database.durable import make_directory, sync_directory, write_durably
from srmp_spark.store.database.schema import row_key
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.stored_rows.log import GroupChunk, Log
from srmp_spark.store.stored_rows.wide_parts import note_wide_part

SEAL_ROWS_MIN = 2048
"""Rows that are worth a pair of files.

Spark's batches of 2,000 rows and more hide the cost per batch (measured).
"""
SEAL_BYTES_MIN = 4 * 1024 * 1024
"""Bytes of posts that are worth a pair of files, for large bodies.

One checkpoint of the database copies as much.
"""
SEAL_AGE_S = 3600.0
"""Age in seconds at which rows are sealed, however few they are.

A queue with little traffic is sealed once an hour: 24 pairs of files a day.
"""
SEAL_ROWS_MAX = 8192
"""Largest number of rows in one segment: a batch that Spark takes whole.

The rest waits for the next segment.
"""
SEAL_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of posts in one segment, plus at most one group: 3,600 rows of 1 KB.

The reader process needs 50 MB while it writes that; 115 MB for 8,192 such rows.
"""
SEAL_SPAN_MAX = 65_536
"""Largest number of sequences from the first to the last row of one segment.

A segment stores four bytes for each sequence. A purged hole between two rows may be as long as the
queue was.
"""
SEAL_SPARE_BYTES = SEAL_BYTES_MAX
"""Bytes that must be free besides :attr:`.Volume.least` and the files of a segment.

Messages may take this many between the check before a segment is written and the next check of the
disk's room by the queue manager: a group, and the part of the WAL that is not copied yet.
"""
_FIRST = itemgetter(0)


class StaleSealError(StoreError):
    """The log has changed since the plan was made. The caller must plan again."""


class NoSealRoomError(StoreError):
    """The disk has no room for the files of a segment besides the room for commits.

    The caller tries later; the rows are equally safe where they are.
    """


class SealPlan(NamedTuple):
    """Groups to seal: the closed range of their sequences, in one epoch of one queue.

    ``position_first`` and ``position_last`` are the first and the last commit that stored the
    groups. ``arrived_first`` and ``arrived_last`` are arrival times of the first and the last row,
    in microseconds since 1970, UTC.
    """

    queue_id: int
    queue: str
    epoch_id: int
    epoch: str
    first: int
    last: int
    position_first: int
    position_last: int
    arrived_first: int
    arrived_last: int


class Sealed(NamedTuple):
    """A segment whose files are on the disk, and which is not in the database yet.

    The reader process sends it to the main process as JSON. ``file`` is the path of its files below
    the folder of segments, without their endings. The lengths of the files are in bytes, and their
    checksums are crc32.
    """

    plan: SealPlan
    rows: int
    posts_length: int
    """Bytes of the rows' posts as they were received."""
    file: str
    columns_bytes: int
    columns_crc: int
    posts_bytes: int
    posts_crc: int
    wide: WidePart | None
    sizes: bytes
    """Size of each post as u32, from ``plan.first`` to ``plan.last``; 0 for a hole."""

    def to_json(self) -> str:
        """Return the sealed segment as JSON text, about 20 KB long."""
        return json.dumps(
            [list(self.plan), *self[1:-1], b64encode(zlib.compress(self.sizes, 1)).decode()]
        )

    @classmethod
    def from_json(cls, text: str) -> Sealed:
        """Return the sealed segment that :meth:`to_json` encoded as ``text``."""
        (
            plan,
            rows,
            length,
            file,
            columns_bytes,
            columns_crc,
            posts_bytes,
            posts_crc,
            wide,
            sizes,
        ) = json.loads(text)
        return cls(
            SealPlan(*plan),
            rows,
            length,
            file,
            columns_bytes,
            columns_crc,
            posts_bytes,
            posts_crc,
            None if wide is None else WidePart(*wide),
            zlib.decompress(b64decode(sizes)),
        )


def plan(log: Log, queue: str, now: int) -> SealPlan | None:
    """Choose the groups of the next segment of ``queue``, or return ``None``.

    ``None`` means that there is not enough to seal, or that the queue does not exist. ``now`` is in
    microseconds since 1970, UTC. Nothing is written.
    """
    with log.snapshot() as db:
        row = db.execute(
            "SELECT id, trimmed_to FROM queues WHERE name = ? AND deleted_at IS NULL", (queue,)
        ).fetchone()
        if row is None:
            return None
        queue_id, trimmed_to = row
        sealed = _last_sealed(db, queue_id)
        # A group that lies wholly in holes is garbage, whether its rows were purged or given up,
        # and in how many pieces. A group that lies partly in holes is kept, and sealed without
        # those rows.
        begin = max(sealed, trimmed_to) + 1
        known = db.execute(
            "SELECT first, last FROM holes WHERE queue_id = ? AND last >= ? ORDER BY first",
            (queue_id, begin),
        )
        empty = list(covered(known))
        found = db.execute(
            "SELECT first, last, position, bytes, arrived_first, arrived_last, epoch_id "
            "FROM groups "
            "WHERE id BETWEEN ? AND ? ORDER BY id",
            (row_key(queue_id, begin), row_key(queue_id, SEQUENCE_MAX)),
        )
        chosen: list[tuple[int, ...]] = []
        rows = size = 0
        full = False
        for each in found:
            first, last, _, length, _, _, epoch_id = each
            at = bisect_right(empty, first, key=_FIRST) - 1
            if at >= 0 and last <= empty[at][1]:
                continue
            rows, size = rows + last - first + 1, size + length
            if chosen and (
                epoch_id != chosen[0][6]
                or rows > SEAL_ROWS_MAX
                or size > SEAL_BYTES_MAX
                or last - chosen[0][0] >= SEAL_SPAN_MAX
            ):
                full = True
                break
            chosen.append(each)
        if not chosen:
            return None
        old = chosen[0][4] < now - int(SEAL_AGE_S * 1_000_000)
        if not (full or old or rows >= SEAL_ROWS_MIN or size >= SEAL_BYTES_MIN):
            return None
        (epoch,) = db.execute("SELECT epoch FROM epochs WHERE id = ?", (chosen[0][6],)).fetchone()
        return SealPlan(
            queue_id,
            queue,
            chosen[0][6],
            epoch,
            chosen[0][0],
            chosen[-1][1],
            min(each[2] for each in chosen),
            max(each[2] for each in chosen),
            chosen[0][4],
            chosen[-1][5],
        )


def write_segment(log: Log, plan: SealPlan, segments: Path) -> Sealed:
    """Read the planned rows, write and sync both files, and return the segment.

    The database is not changed. The function loads Arrow, so it is for the reader process only.
    Raises :class:`StoreDamagedError` if a row is damaged (its group then stays unchanged),
    :class:`NoSealRoomError` if the disk has no room, :class:`OSError` if it cannot be written, and
    :class:`StaleSealError` or :class:`TrimmedError` if the rows were sealed, purged or trimmed
    meanwhile.
    """
    from srmp_spark.rows.decode import decode
    from srmp_spark.rows.segment import encode_segment

    decoded = decode(plan.queue, _rows(log, plan))
    if not decoded.sequences:
        raise StaleSealError(
            f"{plan.queue} {plan.first} to {plan.last}: every row is a hole by now"
        )
    encoded = encode_segment(decoded)
    sizes = [0] * (plan.last - plan.first + 1)
    for sequence, size in zip(decoded.sequences, encoded.sizes, strict=True):
        sizes[sequence - plan.first] = size
    file = f"{plan.queue_id}/{plan.first}-{plan.last}"
    folder = segments / str(plan.queue_id)
    make_directory(folder)
    parts = tuple(zip(sweeper.SEGMENT_ENDINGS, (encoded.columns, encoded.posts), strict=True))
    if Volume.look(folder).spare < sum(len(data) for _, data in parts) + SEAL_SPARE_BYTES:
        raise NoSealRoomError(
            f"{plan.queue} {plan.first} to {plan.last}: messages have used the room "
            "meanwhile; sealing is tried again later"
        )
    try:
        for ending, data in parts:
            write_durably(segments / (file + ending), data, sync_folder=False)
    except OSError:
        # The next start deletes what is left.
        with suppress(OSError):
            sweeper.unlink(segments, [file])
        raise
    sync_directory(folder)
    return Sealed(
        plan,
        len(decoded.sequences),
        sum(encoded.sizes),
        file,
        len(encoded.columns),
        zlib.crc32(encoded.columns),
        len(encoded.posts),
        zlib.crc32(encoded.posts),
        encoded.wide,
        struct.pack(f"<{len(sizes)}I", *sizes),
    )


def commit_segment(transaction: Transaction, sealed: Sealed, segments: Path) -> bool:
    """Insert the segment into the database, so that its groups no longer count.

    Return ``True`` then. The function is for :meth:`Journal.transact`. Return ``False`` and insert
    nothing if the rows were purged, trimmed or sealed meanwhile, or if a file is missing or has
    another length than was written. The files are then deleted after the commit, unless they belong
    to a segment that was inserted before.
    """
    db, plan = transaction.connection, sealed.plan
    if not _may_enter(db, sealed, segments):
        if db.execute("SELECT 1 FROM segments WHERE file = ?", (sealed.file,)).fetchone() is None:
            transaction.after_commit.append(partial(sweeper.unlink, segments, [sealed.file]))
        return False
    db.execute(
        "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row_key(plan.queue_id, plan.last),
            plan.queue_id,
            plan.epoch_id,
            plan.first,
            plan.last,
            plan.position_first,
            plan.position_last,
            sealed.posts_length,
            sealed.rows,
            plan.arrived_first,
            plan.arrived_last,
            sealed.file,
            sealed.columns_bytes,
            sealed.columns_crc,
            sealed.posts_bytes,
            sealed.posts_crc,
            sealed.sizes,
        ),
    )
    if sealed.wide is not None:
        note_wide_part(db, row_key(plan.queue_id, plan.last), sealed.columns_crc, sealed.wide)
    sweeper.discard(transaction, plan.queue_id, plan.first, plan.last)
    return True


def _may_enter(db: sqlite3.Connection, sealed: Sealed, segments: Path) -> bool:
    plan = sealed.plan
    row = db.execute(
        "SELECT trimmed_to FROM queues WHERE id = ? AND deleted_at IS NULL", (plan.queue_id,)
    ).fetchone()
    if row is None or row[0] >= plan.first or _last_sealed(db, plan.queue_id) >= plan.first:
        return False
    if (
        db.execute(
            "SELECT 1 FROM groups WHERE id = ?", (row_key(plan.queue_id, plan.last),)
        ).fetchone()
        is None
    ):
        return False
    sizes = (sealed.columns_bytes, sealed.posts_bytes)
    paths = [segments / (sealed.file + ending) for ending in sweeper.SEGMENT_ENDINGS]
    return all(
        path.exists() and path.stat().st_size == size
        for path, size in zip(paths, sizes, strict=True)
    )


def remove_orphans(connection: sqlite3.Connection, segments: Path) -> tuple[list[Path], list[Path]]:
    """Delete files that no segment names, at start, before the reader process runs.

    Return two sorted lists: the deleted files, and the missing ones, which a segment names but
    which do not exist. The rows in missing files cannot be read, which the caller should report
    clearly. New messages are accepted nevertheless. Raises :class:`OSError` if a file cannot be
    deleted.
    """
    named = {
        segments / (file + ending)
        for (file,) in connection.execute("SELECT file FROM segments")
        for ending in sweeper.SEGMENT_ENDINGS
    }
    present = {path for path in segments.glob("*/*") if path.is_file()}
    orphans = sorted(present - named)
    for path in orphans:
        path.unlink()
    return orphans, sorted(named - present)


def _last_sealed(db: sqlite3.Connection, queue_id: int) -> int:
    low, high = row_key(queue_id, 0), row_key(queue_id, SEQUENCE_MAX)
    (last,) = db.execute(
        "SELECT max(id) FROM segments WHERE id BETWEEN ? AND ?", (low, high)
    ).fetchone()
    return 0 if last is None else int(last) - low


def _rows(log: Log, plan: SealPlan) -> Iterator[tuple[int, Record]]:
    for chunk in log.chunks(plan.queue, plan.epoch, plan.first - 1, plan.last):
        if not isinstance(chunk, GroupChunk):
            raise StaleSealError(f"{plan.queue} {plan.first} to {plan.last} is sealed by now")
        yield from chunk.records()
