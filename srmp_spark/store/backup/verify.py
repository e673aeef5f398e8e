"""Verify a backup after it was written, by reading it from the disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from srmp_spark.errors import StoreDamagedError, StoreSyncError
from srmp_spark.store.backup.files import OnBytes, sums_of
from srmp_spark.store.backup.manifest import SavedFile
from srmp_spark.store.database import schema, sqlite_file
from srmp_spark.store.directory import DATABASE_FILE, SEGMENTS_DIRECTORY
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE as OUTBOX_FILE
from srmp_spark.store.outbox.tables.schema import OUTBOX
from srmp_spark.store.stored_rows.log import Chunk, GroupChunk, Log

DAMAGED_TOLD_MAX = 100
"""Most damaged pieces that are named. Further ones are only counted."""


def verify_files(folder: Path, files: Iterable[SavedFile], on_bytes: OnBytes) -> None:
    """Raise :class:`StoreSyncError` unless each file has the bytes that were written.

    ``on_bytes`` is called with the number of bytes that were read since its last call.
    """
    for file in files:
        found = sums_of(folder / file.name, on_bytes)
        if (found.bytes, found.sha256) != (file.bytes, file.sha256):
            raise StoreSyncError(
                f"{folder / file.name} is not what was written ({found.bytes} bytes of "
                f"{file.bytes}, or another checksum): the disk of the backup is not in order; "
                "name another one"
            )


def verify_databases(folder: Path) -> None:
    """Raise :class:`StoreDamagedError` unless SQLite finds both databases in order.

    The copies are those of a snapshot, page for page. So the source is damaged in the same way.
    """
    for name, database in ((DATABASE_FILE, schema.INBOX), (OUTBOX_FILE, OUTBOX)):
        if not (folder / name).exists():
            continue
        try:
            with closing(sqlite_file.connect_reader(folder / name, database)) as connection:
                found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)")]
        except sqlite3.DatabaseError as error:
            found = [str(error)]
        if found != ["ok"]:
            raise StoreDamagedError(
                f"{name} is damaged in the data directory itself ({'; '.join(found)}), so no "
                "backup was made. Put an older backup back, or see docs/troubleshooting.md, "
                "'Damaged rows'"
            )


def damaged_rows(folder: Path) -> Iterator[str]:
    """Read each row that the copied database names, and yield a sentence for each damaged piece.

    A piece is a segment or a group. After DAMAGED_TOLD_MAX sentences only a count follows.
    """
    untold = 0
    for told, sentence in enumerate(_damaged(folder)):
        if told < DAMAGED_TOLD_MAX:
            yield sentence
        else:
            untold += 1
    if untold:
        yield f"{untold} further pieces cannot be read"


def _damaged(folder: Path) -> Iterator[str]:
    with Log(folder / DATABASE_FILE, folder / SEGMENTS_DIRECTORY) as log:
        with log.snapshot() as db:
            names = [
                name
                for (name,) in db.execute("SELECT name FROM queues WHERE deleted_at IS NULL")
                if isinstance(name, str)
            ]
        for queue in names:
            for epoch in log.epochs(queue):
                yield from _damaged_of(log, queue, epoch)


def _damaged_of(log: Log, queue: str, epoch: str) -> Iterator[str]:
    bounds = log.bounds(queue, epoch)
    try:
        for chunk in log.chunks(queue, epoch, bounds.first - 1, bounds.end):
            if (sentence := _damage(chunk)) is not None:
                yield sentence
    except StoreDamagedError as error:
        # A row is in no piece. The pieces after it cannot be found.
        yield str(error)


def _damage(chunk: Chunk) -> str | None:
    """Read a piece whole. Return a sentence if it cannot be read, otherwise ``None``."""
    try:
        if isinstance(chunk, GroupChunk):
            for _ in chunk.records():
                pass
        else:
            chunk.read_columns()
            chunk.read_posts()
    except FileNotFoundError as error:
        rows = f"rows {chunk.first} to {chunk.last} of {chunk.queue}"
        return f"{rows} cannot be read: {error.filename} is gone"
    except StoreDamagedError as error:
        return str(error)
    return None
