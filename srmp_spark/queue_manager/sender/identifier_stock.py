"""Message identifiers that the main process gave us to use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from srmp_spark.errors import ApiError
from srmp_spark.interface import IDENTIFIERS_USED_UP

IDENTIFIERS_AT_ONCE = 1_000
"""Message identifiers that are asked for at least: one question for many small batches."""

Reserve = Callable[[int], Awaitable[int]]
"""Asks the main process for so many message identifiers; the first of them."""


class IdentifierStock:
    """What is left of them."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve
        self._next, self._end = 1, 0

    async def take(self, count: int) -> int:
        """The first of ``count`` message identifiers that follow each other."""
        if self._end - self._next + 1 < count:
            asked = max(count, IDENTIFIERS_AT_ONCE)
            try:
                begin = await self._reserve(asked)
            except ApiError as error:
                if asked == count or error.code != IDENTIFIERS_USED_UP:
                    raise
                asked = count  # the last of all are given out too
                begin = await self._reserve(asked)
            self._next, self._end = begin, begin + asked - 1
        first, self._next = self._next, self._next + count
        return first
