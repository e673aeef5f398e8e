"""Store which part of a segment's file of columns may be left out (rows/segment.py)."""

from __future__ import annotations

import sqlite3

from srmp_spark.rows.wide_part import WidePart

DDL = """
CREATE TABLE IF NOT EXISTS wide_parts(
    id INTEGER PRIMARY KEY, columns_crc INTEGER NOT NULL, wide_begin INTEGER NOT NULL, \
wide_end INTEGER NOT NULL,
    narrow_crc INTEGER NOT NULL
)
"""
"""Table that is new in 0.2, created at every open.

The table holds the wide part of a segment's file of columns, by the segment's id. The checksum of
the file proves that the row belongs to that file, because 0.1 deletes and makes segments and does
not know this table.
"""


IS_WIDE_PART = """w.columns_crc = s.columns_crc AND typeof(w.narrow_crc) = 'integer'
    AND typeof(w.wide_begin) = 'integer' AND typeof(w.wide_end) = 'integer'
    AND 0 < w.wide_begin AND w.wide_begin < w.wide_end AND w.wide_end < s.columns_bytes"""
"""SQL condition under which row ``w`` of the table belongs to the file of segment ``s``.

A row with impossible values is ignored, and the file is sent whole.
"""


def note_wide_part(db: sqlite3.Connection, key: int, columns_crc: int, wide: WidePart) -> None:
    """Store where the wide part of the segment with the rowid ``key`` lies (:class:`.WidePart`).

    ``columns_crc`` is the checksum (crc32) of the segment's file of columns. The function runs in
    the caller's transaction.
    """
    db.execute(
        "INSERT OR REPLACE INTO wide_parts VALUES (?, ?, ?, ?, ?)", (key, columns_crc, *wide)
    )
