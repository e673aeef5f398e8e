"""Give out message numbers that are never used twice.

[MC-MQSRM] 3.1.1.1.1 calls the number MessageIdOrdinal. Not even a process that was killed gives out
a number twice. A block is reserved in a commit before its first number is used, and a restart
begins above the last reserved block. So there is one sync for :data:`BLOCK` numbers.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from srmp_spark.errors import ApiError
from srmp_spark.interface import IDENTIFIERS_USED_UP
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.journal import Journal
from srmp_spark.store.tables import state

BLOCK = 1_000
"""Message numbers that are reserved at once. A restart skips at most this many."""
FEW = 1 << 28
"""Numbers left at which a warning is logged. They last a month at 100 messages a second."""

log = logging.getLogger(__name__)


def _reserve(transaction: Transaction, name: str, ceiling: int) -> None:
    state.raise_ceiling(transaction.connection, name, ceiling)


class Identifiers:
    """Gives out the message numbers of one counter, which is a row of the table ``ids``."""

    def __init__(self, journal: Journal, name: str, ceiling: int) -> None:
        """Continue the counter ``name`` above ``ceiling``.

        ``ceiling`` is the number that the store holds: every number up to it may have been used.
        """
        self._journal = journal
        self._name = name
        self._promised = ceiling
        """Every number up to this one may be in use."""
        self._next, self._last = 1, 0
        """Next and last number of the block from which :meth:`take` gives numbers out."""
        self._lock = asyncio.Lock()
        self._is_warned = False

    @property
    def left(self) -> int:
        """Return the number of message numbers, out of the 32 bits, that are not reserved yet."""
        return state.IDENTIFIER_MAX - self._promised

    async def reserve(self, count: int) -> int:
        """Reserve ``count`` consecutive message numbers for the caller, and return the first.

        The call waits until that is on stable storage. Logs a warning once when few numbers are
        left. Raises :class:`ApiError` (503) when the 32 bits of a message identifier are used up: a
        peer would take a number that is used again for a repeated message. Only another GUID, which
        is another queue manager, has other numbers. Raises the error of the journal if the commit
        fails.
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
        if self.left < FEW and not self._is_warned:
            self._is_warned = True
            log.warning(
                "identifiers.few left=%d: they end for good; plan a new data directory", self.left
            )
        await self._journal.transact(partial(_reserve, name=self._name, ceiling=first + count - 1))
        return first

    async def take(self) -> int:
        """Return the next message number, for a receipt or a message to a local queue.

        The call waits for a commit if the reserved block is used up. Raises as :meth:`reserve`.
        """
        while self._next > self._last:
            async with self._lock:
                if self._next > self._last:
                    count = min(BLOCK, max(self.left, 1))
                    first = await self.reserve(count)
                    self._next, self._last = first, first + count - 1
        number = self._next
        self._next += 1
        return number
