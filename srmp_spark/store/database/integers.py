"""Store unsigned 64-bit numbers in a database that has only signed ones."""

from __future__ import annotations

UNSIGNED = (1 << 64) - 1
"""Mask that makes a stored number unsigned again: ``stored & UNSIGNED``."""


def signed(number: int) -> int:
    """Return an unsigned 64-bit number as SQLite and the JVM hold it: in two's complement."""
    return number if number < 1 << 63 else number - (1 << 64)
