"""Decide when a micro-batch has enough rows, how much of each log it has, and its tasks.

This module is pure arithmetic. Limits are split in proportion to the waiting rows, as in Spark's
Kafka source, and the shares add up exactly to the limit. Every log (the rows of one queue of one
queue manager) with waiting rows gets at least one row, if the limit allows that. If the limit does
not allow that, a turn that changes with the offsets decides which logs get a row. So a large queue
never starves a small queue.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from itertools import pairwise
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


class Delay:
    """Holds micro-batches back until they have enough rows, or until a time has passed.

    The options are ``minOffsetsPerTrigger`` and ``maxTriggerDelay``. As with Spark's Kafka source,
    the first batch of a run is not held, even if it is empty. The time counts from the batch
    before.
    """

    def __init__(self, rows_min: int | None, seconds_max: float) -> None:
        self._rows_min = rows_min
        self._seconds_max = seconds_max
        self._batch_at = -math.inf

    def holds(self, rows: int, now: float) -> bool:
        """Return whether ``rows`` waiting rows must wait longer.

        ``now`` is the monotonic clock in seconds. If the result is False and there are rows, they
        are a batch now, and ``now`` is noted as the time of the batch. Without
        ``minOffsetsPerTrigger`` the result is always False.
        """
        if self._rows_min is None:
            return False
        is_first = self._batch_at == -math.inf
        if not is_first and (
            rows == 0 or (rows < self._rows_min and now - self._batch_at < self._seconds_max)
        ):
            return rows > 0
        self._batch_at = now
        return False


def shares(limit: int, backlogs: Mapping[K, int], turn: int = 0) -> dict[K, int]:
    """Split ``limit`` over ``backlogs``, and return the share of each log that gets one.

    No share exceeds its backlog, and the sum is the smaller one of ``limit`` and all backlogs.
    ``turn`` is any number that changes from batch to batch. ``turn`` decides which logs get a row
    if the limit is less than one row for each.
    """
    waiting = {key: count for key, count in backlogs.items() if count > 0}
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    keys = list(waiting)
    if limit < len(keys):
        start = turn % len(keys)
        return dict.fromkeys([*keys[start:], *keys[:start]][:limit], 1)
    result = {key: max(1, limit * count // total) for key, count in waiting.items()}
    left = limit - sum(result.values())
    if left >= 0:
        rounded_down = [key for key in keys if result[key] * total < limit * waiting[key]]
        for key in sorted(rounded_down, key=lambda key: -(limit * waiting[key] % total))[:left]:
            result[key] += 1
        return result
    # Large shares are reduced to pay for the shares that were rounded up to one row.
    for key in sorted(keys, key=lambda key: -result[key]):
        given = min(-left, result[key] - 1)
        result[key] -= given
        left += given
    return result


def split_range(after: int, to: int, pieces: int) -> list[tuple[int, int]]:
    """Split (after, to] into contiguous ranges (after, to] of nearly the same length, ascending.

    The result has ``pieces`` ranges, or fewer if the range has fewer sequences.
    """
    size = to - after
    pieces = max(1, min(pieces, size))
    edges = [after + size * index // pieces for index in range(pieces + 1)]
    return list(pairwise(edges))


def pieces_of(
    sizes: Mapping[K, int], at_least: int | None, rows_max: int | None = None
) -> dict[K, int]:
    """Return the number of tasks that each range becomes, by its key.

    ``sizes`` has the rows of each range. All ranges together become at least about ``at_least``
    tasks. Each task has at most ``rows_max`` rows. ``None`` means no such rule.
    """
    total = sum(sizes.values())
    few = at_least is None or at_least <= len(sizes) or total == 0
    pieces = {
        key: 1 if few else max(1, -(-size * (at_least or 1) // total))
        for key, size in sizes.items()
    }
    if rows_max is None:
        return pieces
    return {key: max(count, -(-sizes[key] // rows_max)) for key, count in pieces.items()}
