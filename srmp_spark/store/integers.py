"""Numbers of unsigned 64 bit in a database that knows signed ones only."""

from __future__ import annotations

UNSIGNED = (1 << 64) - 1
"""``stored & UNSIGNED`` is the number again."""


def signed(number: int) -> int:
    """A number of unsigned 64 bit as SQLite (and the JVM) can hold it: two's complement."""
    return number if number < 1 << 63 else number - (1 << 64)
