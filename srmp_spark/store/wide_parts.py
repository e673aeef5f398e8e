"""Which part of a segment's file of columns may stay behind, noted beside the segment (rows/segment.py)."""

from __future__ import annotations

import sqlite3

from srmp_spark.rows.wide_part import WidePart

DDL = """
CREATE TABLE IF NOT EXISTS wide_parts(
    id INTEGER PRIMARY KEY, columns_crc INTEGER NOT NULL, wide_begin INTEGER NOT NULL, wide_end INTEGER NOT NULL,
    narrow_crc INTEGER NOT NULL
)
"""
"""New in 0.2, made at every open: what the file of columns of a segment can be sent without, by the segment's id. The checksum
of the file says that it is that one: 0.1 deletes and makes segments and knows no such table."""


IS_WIDE_PART = """w.columns_crc = s.columns_crc AND typeof(w.narrow_crc) = 'integer'
    AND typeof(w.wide_begin) = 'integer' AND typeof(w.wide_end) = 'integer'
    AND 0 < w.wide_begin AND w.wide_begin < w.wide_end AND w.wide_end < s.columns_bytes"""
"""The condition under which row ``w`` of the table is about the file of segment ``s``. A row that says nonsense is passed over,
and the file is sent whole."""


def note_wide_part(db: sqlite3.Connection, key: int, columns_crc: int, wide: WidePart) -> None:
    """Store the wide part of the segment ``key``, whose file of columns has the checksum ``columns_crc``."""
    db.execute(
        "INSERT OR REPLACE INTO wide_parts VALUES (?, ?, ?, ?, ?)", (key, columns_crc, *wide)
    )
