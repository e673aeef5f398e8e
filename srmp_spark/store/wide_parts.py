"""Which part of a segment's file of columns may stay behind, noted beside the segment (rows/segment.py)."""

from __future__ import annotations

import sqlite3

from srmp_spark.rows.wide_part import WidePart


def note_wide_part(db: sqlite3.Connection, key: int, columns_crc: int, wide: WidePart) -> None:
    """Store the wide part of the segment ``key``, whose file of columns has the checksum ``columns_crc``."""
    db.execute("INSERT OR REPLACE INTO wide_parts VALUES (?, ?, ?, ?, ?)", (key, columns_crc, *wide))
