"""When a micro-batch has enough rows, how much of each log goes into it, and how it is cut into tasks: pure arithmetic.

Limits are split in proportion to what waits (as Spark's Kafka source does), exactly: the shares add up to the limit. Every
log with a backlog gets at least one row as long as the limit allows that; when it does not, a turn that moves with the
offsets decides, so that a small queue is never starved by a large one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from itertools import pairwise
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


class Delay:
    """Holds micro-batches back until they have enough rows, or long enough (``minOffsetsPerTrigger``, ``maxTriggerDelay``).

    As with Spark's Kafka source the first batch of a run is not held, though it may be empty, and the time counts
    from the batch before.
    """

    def __init__(self, rows_min: int | None, seconds_max: float) -> None:
        self._rows_min = rows_min
        self._seconds_max = seconds_max
        self._batch_at = -math.inf

    def holds(self, rows: int, now: float) -> bool:
        """Return whether ``rows`` that wait go on waiting; ``now`` is monotonic seconds. If not, they are a batch now."""
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
    """Split ``limit`` over ``backlogs``: no share above its backlog, the sum is ``min(limit, all)``.

    ``turn``: any number that changes from batch to batch; it says who goes first when there is less than one row each.
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
    for key in sorted(
        keys, key=lambda key: -result[key]
    ):  # the large pay for the ones that were rounded up to a row
        given = min(-left, result[key] - 1)
        result[key] -= given
        left += given
    return result


def split_range(after: int, to: int, pieces: int) -> list[tuple[int, int]]:
    """(after, to] in ``pieces`` contiguous ranges of nearly one length, ascending; fewer if there are fewer sequences."""
    size = to - after
    pieces = max(1, min(pieces, size))
    edges = [after + size * index // pieces for index in range(pieces + 1)]
    return list(pairwise(edges))


def pieces_of(
    sizes: Mapping[K, int], at_least: int | None, rows_max: int | None = None
) -> dict[K, int]:
    """Return how many tasks each range becomes: at least about ``at_least`` in all, each of at most ``rows_max`` rows."""
    total = sum(sizes.values())
    few = at_least is None or at_least <= len(sizes) or total == 0
    pieces = {
        key: 1 if few else max(1, -(-size * (at_least or 1) // total))
        for key, size in sizes.items()
    }
    if rows_max is None:
        return pieces
    return {key: max(count, -(-sizes[key] // rows_max)) for key, count in pieces.items()}
