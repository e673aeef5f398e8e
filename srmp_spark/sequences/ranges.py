"""Calculate with closed ranges of sequences (row numbers of a queue)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

SEQUENCE_BITS = 44
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1
"""Highest sequence of a queue. 17 million million rows last a century at 5,000 rows a second."""

Range = tuple[int, int]
"""A closed range of sequences: the first and the last one."""


def runs_of(numbers: Iterable[int]) -> list[Range]:
    """Return the runs of consecutive numbers in ``numbers``, as closed ranges.

    ``numbers`` may be in any order. The runs are ascending, disjoint and not adjacent.
    """
    found: list[Range] = []
    first = last = None
    for number in sorted(numbers):
        if first is None or last is None:
            first = number
        elif number > last + 1:
            found.append((first, last))
            first = number
        last = number
    if first is not None and last is not None:
        found.append((first, last))
    return found


def covered(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yield the runs that the ascending closed ``ranges`` cover together.

    Ranges that touch or overlap are joined to one run.
    """
    first = last = -2
    for low, high in ranges:
        if low <= last + 1:
            last = max(last, high)
            continue
        if last >= 0:
            yield first, last
        first, last = low, high
    if last >= 0:
        yield first, last


def gaps(first: int, last: int, taken: Iterable[Range]) -> tuple[Range, ...]:
    """Return the parts of the range ``first`` to ``last`` that no range in ``taken`` covers.

    ``first`` and ``last`` are included. The parts are closed ranges in ascending order. The closed
    ranges in ``taken`` may be in any order, and may overlap.
    """
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


def subtract(ranges: Iterable[Range], taken: Sequence[Range]) -> Iterator[Range]:
    """Yield the parts of ``ranges`` that no range in ``taken`` covers, as closed ranges.

    The closed ranges in ``ranges`` and in ``taken`` must be ascending and disjoint. The function
    makes one pass over both, however many ranges there are.
    """
    at = 0
    for first, last in ranges:
        while at < len(taken) and taken[at][1] < first:
            at += 1
        n = at
        while n < len(taken) and taken[n][0] <= last:
            if taken[n][0] > first:
                yield first, taken[n][0] - 1
            first = taken[n][1] + 1
            n += 1
        if first <= last:
            yield first, last


def overlaps(ranges: Iterable[Range], others: Sequence[Range]) -> Iterator[int]:
    """Yield, for each range of ``ranges``, how many of its sequences are in ``others``.

    The closed ranges in ``ranges`` and in ``others`` must be ascending and disjoint. The function
    makes one pass over both.
    """
    at = 0
    for first, last in ranges:
        while at < len(others) and others[at][1] < first:
            at += 1
        n, inside = at, 0
        while n < len(others) and others[n][0] <= last:
            inside += min(last, others[n][1]) - max(first, others[n][0]) + 1
            n += 1
        yield inside
