"""Closed ranges of sequences."""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]
"""A closed range of sequences."""


def gaps(first: int, last: int, taken: Iterable[Range]) -> tuple[Range, ...]:
    """What of the closed range remains outside the closed ranges ``taken``, in order."""
    left = []
    for start, stop in sorted(taken):
        if start > first:
            left.append((first, min(start - 1, last)))
        first = max(first, stop + 1)
        if first > last:
            break
    if first <= last:
        left.append((first, last))
    return tuple(left)
