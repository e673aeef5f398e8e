"""Message identifiers that the main process reserved for the sender process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from srmp_spark.errors import ApiError
from srmp_spark.interface import IDENTIFIERS_USED_UP

IDENTIFIERS_AT_ONCE = 1_000
"""Least number of message identifiers that one call reserves.

So one call serves many small batches.
"""

Reserve = Callable[[int], Awaitable[int]]
"""Asks the main process for a number of message identifiers, and returns the first of them."""


class IdentifierStock:
    """Hands out reserved message identifiers, and reserves more when they are used up."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve
        self._next, self._end = 1, 0

    async def take(self, count: int) -> int:
        """Return the first of ``count`` consecutive message identifiers.

        Reserve at least IDENTIFIERS_AT_ONCE more if too few are left; the few that are left are not
        used then. Raises :class:`ApiError` if the main process cannot reserve enough.
        """
        if self._end - self._next + 1 < count:
            asked = max(count, IDENTIFIERS_AT_ONCE)
            try:
                begin = await self._reserve(asked)
            except ApiError as error:
                if asked == count or error.code != IDENTIFIERS_USED_UP:
                    raise
                # Near the end of the numbers, ask for only as many as are needed.
                asked = count
                begin = await self._reserve(asked)
            self._next, self._end = begin, begin + asked - 1
        first, self._next = self._next, self._next + count
        return first
