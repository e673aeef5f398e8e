"""Numbers that are never given out twice, not even by a process that was killed ([MC-MQSRM] 3.1.1.1.1, MessageIdOrdinal).

A block is reserved in a commit before its first number is used; a restart begins above the last reserved block. So a sync
is paid once in :data:`BLOCK` numbers.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from srmp_spark.errors import ApiError
from srmp_spark.interface import IDENTIFIERS_USED_UP
from srmp_spark.store import state
from srmp_spark.store.journal import Journal
from srmp_spark.store.transaction import Transaction

BLOCK = 1_000
"""Numbers reserved at once; a restart skips at most this many."""
FEW = 1 << 28
"""Numbers left when it is time to say so: a month of 100 messages a second."""

log = logging.getLogger(__name__)


def _reserve(transaction: Transaction, name: str, ceiling: int) -> None:
    state.raise_ceiling(transaction.connection, name, ceiling)


class Identifiers:
    """The numbers of one name in the table ``ids``."""

    def __init__(self, journal: Journal, name: str, ceiling: int) -> None:
        """``ceiling`` is what the store holds: everything up to it may have been used."""
        self._journal = journal
        self._name = name
        self._promised = ceiling
        """Everything up to here may be somebody's."""
        self._next, self._last = 1, 0
        """Of the block that :meth:`take` gives out."""
        self._lock = asyncio.Lock()
        self._told = False

    @property
    def left(self) -> int:
        """Numbers that nobody has yet."""
        return state.IDENTIFIER_MAX - self._promised

    async def reserve(self, count: int) -> int:
        """The first of ``count`` numbers that follow each other, for somebody who gives them out by himself.

        Raises :class:`ApiError` when the 32 bits of a message identifier are used up: a number that comes again would be taken
        for a repeat by whoever knows it, and only another GUID, which is another queue manager, has other numbers.
        """
        first = self._promised + 1
        if first + count - 1 > state.IDENTIFIER_MAX:
            hint = (
                "begin a new data directory: its queue manager has a GUID, and "
                "identifiers, of its own"
            )
            raise ApiError(
                503, IDENTIFIERS_USED_UP, f"message identifiers end at {state.IDENTIFIER_MAX}", hint
            )
        self._promised += count
        if self.left < FEW and not self._told:
            self._told = True
            log.warning(
                "identifiers.few left=%d: they end for good; plan a new data directory", self.left
            )
        await self._journal.transact(partial(_reserve, name=self._name, ceiling=first + count - 1))
        return first

    async def take(self) -> int:
        """The next number, for a receipt or a message to a queue of ours. Errors as for :meth:`reserve`."""
        while self._next > self._last:
            async with self._lock:
                if self._next > self._last:
                    count = min(BLOCK, max(self.left, 1))
                    first = await self.reserve(count)
                    self._next, self._last = first, first + count - 1
        number = self._next
        self._next += 1
        return number
