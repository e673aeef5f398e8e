"""Giving the free pages of a database back to the file system, in slices that nobody waits for.

SQLite cuts free pages off the end of the file, and moves the last page in use into a free one when it must
(``auto_vacuum=INCREMENTAL``). It is done while the volume is tight alone: a file that keeps its pages is not extended
anew by the next messages, and its commits need no sync of its length. A database of version 0.1 has no such pages: its
free ones count as room (:mod:`.disk_room`), and stay.
"""

from __future__ import annotations

import sqlite3

GIVE_BACK_BYTES = 1024 * 1024
"""Of pages in one slice: 3 ms if each has to be moved, much less at the end of the file."""

_INCREMENTAL = 2


def can_give_back(connection: sqlite3.Connection) -> bool:
    """Return whether the database was made so that its pages can be given back."""
    return bool(connection.execute("PRAGMA auto_vacuum").fetchone()[0] == _INCREMENTAL)


def give_back(
    connection: sqlite3.Connection, keep_bytes: int, slice_bytes: int = GIVE_BACK_BYTES
) -> int:
    """Give a slice of the free pages beyond ``keep_bytes`` back, in the open transaction. Return the bytes that are left.

    The file becomes shorter with the checkpoint that follows.
    """
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    pages = min(slice_bytes // page, free - keep_bytes // page)
    if pages <= 0:
        return 0
    for _ in range(
        pages
    ):  # Python's sqlite3 takes one step of a statement without columns, and each step is one page
        connection.execute("PRAGMA incremental_vacuum(1)")
    return int(max(0, (free - pages) * page - keep_bytes))
