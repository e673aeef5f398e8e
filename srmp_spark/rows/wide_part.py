"""The part of a segment's file of columns that a reader may not need (rows/segment.py). Loads no Arrow."""

from __future__ import annotations

from typing import NamedTuple


class WidePart(NamedTuple):
    """Where the columns that may be large stand in a file of columns."""

    begin: int
    end: int
    crc: int
    """Of what lies before and behind them."""
