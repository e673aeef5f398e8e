"""Keep the order and the pace of messages that this queue manager submits to itself.

:mod:`.own_messages` submits them, without a network connection.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

WAITING_MESSAGES_MAX = 200
"""Most messages of all callers together that are being stored; more wait for their turn.

One commit writes all of these, and the loop waits for it.
"""
WAITING_BYTES_MAX = 8 * 1_048_576
"""Most bytes of the messages of all callers together that are being stored, unless one message
alone has more. Further messages wait for their turn.
"""


class OwnOrder:
    """Keeps the order and the pace of messages that one queue manager submits to itself."""

    def __init__(self) -> None:
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._door = asyncio.Lock()
        self._written = asyncio.Event()
        self._messages = self._bytes = 0

    def order(self, queue: str) -> asyncio.Lock:
        """Return the lock of the stream in which this queue manager itself sends to ``queue``.

        A caller of :func:`.own_messages.own_positions` holds the lock from that call until the
        messages with these positions are submitted.
        """
        lock = self._orders.get(queue)
        if lock is None:
            lock = self._orders[queue] = asyncio.Lock()
        return lock

    async def room(self, messages: int, size: int) -> None:
        """Wait until ``messages`` more messages of ``size`` bytes may be submitted; take that room.

        Callers are served in the order of their calls. There is no time-out. Call :meth:`written`
        with the same numbers when the messages are stored or refused.
        """
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
        """Give back the room for ``messages`` messages of ``size`` bytes that :meth:`room` took.

        Call this when the messages are stored or refused. Callers that wait may get the room.
        """
        self._messages -= messages
        self._bytes -= size
        self._written.set()
