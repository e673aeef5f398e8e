"""The wide part of a segment's file of columns, which some readers do not need (rows/segment.py).

This module does not load Arrow.
"""

from __future__ import annotations

from typing import NamedTuple


class WidePart(NamedTuple):
    """Byte offsets of the large columns in a segment's file of columns.

    The part goes from ``begin`` to before ``end``.
    """

    begin: int
    end: int
    crc: int
    """Checksum (crc32) of the bytes before and after the wide part."""
