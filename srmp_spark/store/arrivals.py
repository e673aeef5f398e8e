"""The first row that arrived at or after a time. Loads Arrow: for the reader process only.

``arrived_at`` is the wall clock, and a clock is set back: by an hour in autumn where it shows local time, by a minute where it
was wrong. So the times of a log do not ascend. The first matching row may lie before millions that do not match, and neither
bisection nor the times of a segment's first and last row find it. Every time is looked at, but of a sealed segment nothing
else is read: about a millisecond for some thousand rows.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.errors import StoreDamagedError
from srmp_spark.rows.segment import arrivals_of
from srmp_spark.store.log import GroupChunk, Log, SegmentChunk, TrimmedError, damaged

SEARCH_SECONDS = 2.0
"""One call looks for so long. The caller goes on with another one: a log of a billion rows takes two minutes."""


class FirstSince(NamedTuple):
    """What one call has found."""

    sequence: int | None
    """The first row that arrived at or after the time."""
    looked_to: int
    """No row up to here did."""
    end: int
    """The last sequence of the epoch."""


def first_since(
    log: Log, queue: str, epoch: str, after: int, since: int, seconds: float = SEARCH_SECONDS
) -> FirstSince:
    """Look behind ``after`` for the first row with ``arrived_at`` of at least ``since``, in microseconds since 1970, UTC.

    Rows that retention deletes meanwhile are passed. Raises :class:`UnknownQueueError`, :class:`UnknownEpochError`, and
    :class:`StoreDamagedError` for rows that cannot be read: one of them may be the first.
    """
    until = time.monotonic() + seconds
    while True:
        bounds = log.bounds(queue, epoch)
        after = min(max(after, bounds.first - 1), bounds.end)
        try:
            for chunk in log.chunks(queue, epoch, after, bounds.end):
                found = (
                    _first_of_group(chunk, since)
                    if isinstance(chunk, GroupChunk)
                    else _first_of_segment(chunk, since)
                )
                if found is not None:
                    return FirstSince(found, found - 1, bounds.end)
                after = chunk.keep[-1][1] if chunk.keep else after
                if time.monotonic() > until and after < bounds.end:
                    return FirstSince(None, after, bounds.end)
        except (TrimmedError, FileNotFoundError):
            if log.bounds(queue, epoch).first - 1 <= after:
                raise
            continue
        return FirstSince(None, bounds.end, bounds.end)


def _first_of_group(chunk: GroupChunk, since: int) -> int | None:
    return next(
        (sequence for sequence, record in chunk.records() if record.arrival.at >= since), None
    )


def _first_of_segment(chunk: SegmentChunk, since: int) -> int | None:
    try:
        sequences, arrived = arrivals_of(str(chunk.columns))
    except StoreDamagedError as error:
        raise damaged(chunk.queue, chunk.first, chunk.last, str(error)) from error
    matching = sequences.filter(pc.greater_equal(arrived, pa.scalar(since, pa.int64())))
    for low, high in chunk.keep:
        kept = matching.filter(
            pc.and_(pc.greater_equal(matching, low), pc.less_equal(matching, high))
        )
        if len(kept):
            return int(kept[0].as_py())
    return None
