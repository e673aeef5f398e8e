"""Find the first row that arrived at or after a time.

This module loads Arrow and is for the reader process only.

``arrived_at`` is the wall clock, and clocks are set back: by an hour in autumn where a clock shows
local time, by a minute where it was wrong. So the times of a log do not ascend. The first matching
row may lie before millions of rows that do not match. Neither bisection nor the times of a
segment's first and last row find that row. So every time is read, but nothing else of a sealed
segment: that takes about a millisecond for some thousand rows.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.errors import StoreDamagedError
from srmp_spark.rows.segment import arrivals_of
from srmp_spark.store.stored_rows.log import GroupChunk, Log, SegmentChunk, TrimmedError, damaged

SEARCH_SECONDS = 2.0
"""Longest search of one call, in seconds.

After this time the call returns how far it has searched, and the caller goes on with another call.
A log of a billion rows takes two minutes.
"""


class FirstSince(NamedTuple):
    """Result of one call of :func:`first_since`: the row that was found, or how far it searched."""

    sequence: int | None
    """Sequence of the first row that arrived at or after the time; ``None`` if not found yet."""
    looked_to: int
    """Last sequence that was searched without a match.

    No row from the beginning of the search up to this sequence arrived at or after the time.
    """
    end: int
    """The last sequence of the epoch in this queue."""


def first_since(
    log: Log, queue: str, epoch: str, after: int, since: int, seconds: float = SEARCH_SECONDS
) -> FirstSince:
    """Search for the first row after ``after`` that arrived at ``since`` or later.

    ``since`` is in microseconds since 1970, UTC, and is compared with ``arrived_at``. The search
    stops after about ``seconds``; then the result has no sequence, and the caller calls again with
    :attr:`FirstSince.looked_to` as ``after``. Rows that retention deletes during the search are
    skipped.

    Raises :class:`QueueNotInLogError` and :class:`UnknownEpochError`. Raises
    :class:`StoreDamagedError` if rows cannot be read, because one of these rows may be the first.
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
