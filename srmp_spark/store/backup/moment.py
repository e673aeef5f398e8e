"""Read both databases of a data directory as they were at one moment.

**Why one moment.** Messages move from the inbox (``store.db``) to the outbox (``outbox.db``) when
they are forwarded, and back when a dead letter becomes a row of a local queue. Each move is stored
in the database that it enters first, and only then in the one that it leaves. A copy of the inbox
of 12:00 and of the outbox of 12:01 would lack a dead letter that moved in between. The opposite
order would lack a forwarded message. So no order of the two copies is right. Both snapshots must
show the same moment. Then the pair is a state that a power loss could have left, too, and every
start handles such a state.

**How.** Two databases have no common transaction. So a third connection asks for the
``data_version`` of the inbox before the first snapshot begins and after the second one has begun.
If no commit lies between, the snapshot of the inbox shows the state of that whole time, in which
the snapshot of the outbox began. Else both begin anew. The window is about 0.1 ms long, and a
commit needs a sync, so a few attempts suffice.

A snapshot keeps the WAL from starting again at its beginning: the WAL of a database grows by what
is committed while the databases are copied. It shrinks again afterwards.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from srmp_spark.errors import StoreError
from srmp_spark.private_files import create_private
from srmp_spark.store.database import schema, sqlite_file
from srmp_spark.store.database.durable import sync_file
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE as OUTBOX_FILE
from srmp_spark.store.outbox.tables.schema import OUTBOX

MOMENTS_MAX = 1_000
"""Attempts to begin both snapshots between two commits.

With a commit every millisecond nine of ten attempts succeed. After the last attempt the backup ends
with an error.
"""
COPY_PAGES = 256
"""Pages that one step of the copy of a database reads: 2 MB of the inbox, 4 MB of the outbox.

The progress is reported between two steps.
"""


class Moment(NamedTuple):
    """Connections to both databases, each with a snapshot. ``None`` if there is no outbox yet."""

    inbox: sqlite3.Connection
    outbox: sqlite3.Connection | None


@contextmanager
def at_one_moment(data_dir: Path) -> Iterator[Moment]:
    """Yield both databases of ``data_dir`` as they were at one moment, for a ``with`` statement.

    The queue manager may run or not. Raises :class:`StoreDamagedError` if a database is missing, or
    of a newer version, and :class:`StoreError` if commits follow one another without a pause.
    """
    with ExitStack() as opened:
        inbox, watch = (
            opened.enter_context(closing(schema.connect_reader(data_dir / DATABASE_FILE)))
            for _ in range(2)
        )
        outbox = None
        if (data_dir / OUTBOX_FILE).exists():
            outbox = opened.enter_context(
                closing(sqlite_file.connect_reader(data_dir / OUTBOX_FILE, OUTBOX))
            )
        moment = Moment(inbox, outbox)
        for _ in range(MOMENTS_MAX):
            before = sqlite_file.pragma(watch, "data_version")
            _begin(moment)
            if sqlite_file.pragma(watch, "data_version") == before:
                break
            _end(moment)
        else:
            raise StoreError(
                f"{data_dir} is written without a pause: no moment between two commits was found "
                f"in {MOMENTS_MAX} attempts; run the backup again at a quieter time"
            )
        try:
            yield moment
        finally:
            _end(moment)


def _begin(moment: Moment) -> None:
    for connection in filter(None, moment):
        connection.execute("BEGIN")
        # The first read begins the snapshot.
        connection.execute("SELECT position FROM head").fetchone()


def _end(moment: Moment) -> None:
    for connection in filter(None, moment):
        connection.execute("ROLLBACK")


def bytes_of(connection: sqlite3.Connection) -> int:
    """Return the length of the database of ``connection`` in bytes."""
    pages, size = (sqlite_file.pragma(connection, each) for each in ("page_count", "page_size"))
    assert isinstance(pages, int)
    assert isinstance(size, int)
    return pages * size


def copy_database(
    connection: sqlite3.Connection, target: Path, on_bytes: Callable[[int], object]
) -> None:
    """Copy the snapshot of ``connection`` into the new file ``target``, and sync the file.

    ``on_bytes`` is called with the number of bytes that were copied since its last call. Raises
    :class:`FileExistsError`, :class:`OSError` or SQLite's errors if the file cannot be written.
    """
    size = sqlite_file.pragma(connection, "page_size")
    assert isinstance(size, int)
    os.close(create_private(target))
    done = 0

    def on_step(_: int, left: int, pages: int) -> None:
        nonlocal done
        on_bytes((pages - left - done) * size)
        done = pages - left

    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        # The file counts only when it is complete and synced, so a journal protects nothing.
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        connection.backup(copy, pages=COPY_PAGES, progress=on_step)
    sync_file(target)
