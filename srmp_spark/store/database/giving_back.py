"""Give the free pages of a database back to the file system, in short slices.

A slice is too short to delay anything. SQLite cuts free pages off the end of the file, and moves
the last used page into a free one when necessary (``auto_vacuum=INCREMENTAL``). Pages are given
back only while the volume is tight: a file that keeps its pages need not be extended for the next
messages, and its commits need no sync of its length. A database of version 0.1 cannot give pages
back: its free pages count as room (:mod:`.disk_room`) and stay.
"""

from __future__ import annotations

import sqlite3

GIVE_BACK_BYTES = 1024 * 1024
"""Bytes of pages in one slice.

A slice takes 3 ms if each page must be moved, and much less at the end of the file.
"""

_INCREMENTAL = 2


def can_give_back(connection: sqlite3.Connection) -> bool:
    """Return whether the database was created so that its free pages can be given back."""
    return bool(connection.execute("PRAGMA auto_vacuum").fetchone()[0] == _INCREMENTAL)


def give_back(
    connection: sqlite3.Connection, keep_bytes: int, slice_bytes: int = GIVE_BACK_BYTES
) -> int:
    """Give one slice of the free pages beyond ``keep_bytes`` back to the file system.

    The function runs in the open transaction of ``connection``. Return the number of bytes that are
    left to give back after the slice; 0 if there are none. The file becomes shorter with the
    checkpoint that follows.
    """
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    pages = min(slice_bytes // page, free - keep_bytes // page)
    if pages <= 0:
        return 0
    # Python's sqlite3 takes one step of a statement without columns, and each step frees one page.
    # So each page needs its own call.
    for _ in range(pages):
        connection.execute("PRAGMA incremental_vacuum(1)")
    return int(max(0, (free - pages) * page - keep_bytes))
