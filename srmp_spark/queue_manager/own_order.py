"""The order and the pace of messages that are submitted without a wire (:mod:`.own_messages`)."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

WAITING_MESSAGES_MAX = 200
"""Messages that all callers together have on the way to the disk. One commit writes all of these, and the loop waits for that;
more wait their turn."""
WAITING_BYTES_MAX = 8 * 1_048_576
"""Bytes of these messages, unless one alone has more."""


class OwnOrder:
    """The order and the pace of what is submitted without a wire: one for a queue manager."""

    def __init__(self) -> None:
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._door = asyncio.Lock()
        self._written = asyncio.Event()
        self._messages = self._bytes = 0

    def order(self, queue: str) -> asyncio.Lock:
        """Return the lock of our stream to ``queue``: who asks for ``own_positions`` holds it until they are submitted."""
        lock = self._orders.get(queue)
        if lock is None:
            lock = self._orders[queue] = asyncio.Lock()
        return lock

    async def room(self, messages: int, size: int) -> None:
        """Wait until that many more may be submitted, first come, first served."""
        async with self._door:
            while self._messages and (
                self._messages + messages > WAITING_MESSAGES_MAX
                or self._bytes + size > WAITING_BYTES_MAX
            ):
                self._written.clear()
                await self._written.wait()
            self._messages += messages
            self._bytes += size

    def written(self, messages: int, size: int) -> None:
        """Give the room back: they are stored, or refused."""
        self._messages -= messages
        self._bytes -= size
        self._written.set()
