"""Lock a batch of messages of a remote queue, in the order of the queue.

Theory of operation. Each message is locked with R_StartReceive. The first read waits for a message.
Then several reads are in flight, if the server accepts that, so that neither side waits for the
other. A server may carry out the reads in any order, so two reads may have swapped their messages.
The messages themselves state the order of the queue: a message that is to be received earlier has a
smaller lookup identifier (:mod:`srmp_spark.mqrr.lookup_identifier`).

A read in flight may have locked a message. So each read is waited for, also when the batch is full
or the queue is empty. After an error it is unknown which messages are locked. Then the connection
is ended, and its locks end with it.
"""

from __future__ import annotations

import asyncio
from collections import deque

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.client.failures import refused
from srmp_spark.mqrr.client.queue_calls import NOTHING
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side.answers import ReadableQueue, UnreadableMessage
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, PulledKey

BATCH_MESSAGES = 128
"""Messages of a full batch, which share one sync.

Two batches of a backlog are locked at once, and a dead puller holds them for at most five minutes.
Batches of twice as many are no faster.
"""
BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of a batch above which no further message is locked.

One larger message is a batch of its own.
"""
READS_AT_ONCE = 16
"""Most reads in flight, which share one round trip and one turn of the other side."""
UNREADABLE_MAX = 100
"""Most unreadable messages that one batch skips.

Each of them is locked meanwhile, and is read again with the next batch. If there are more, a cursor
passes all of them (:mod:`.passing`).
"""

_Found = Pulled | UnreadableMessage | Status


class Locks:
    """Locks the messages of one batch in the remote queue.

    :meth:`first` and :meth:`next` raise :class:`RemoteLostError`, and :class:`RemoteReadError` if
    the server refuses a call.
    """

    def __init__(self, queue: ReadableQueue, messages_max: int | None = None) -> None:
        """Begin a batch of at most ``messages_max`` messages; None means a full batch."""
        self._queue = queue
        self._messages_max = BATCH_MESSAGES if messages_max is None else messages_max
        self._width = min(queue.calls_at_once, READS_AT_ONCE)
        self._under_way: deque[asyncio.Task[_Found]] = deque()
        self._found: dict[PulledKey, Pulled] = {}
        self._reads = self._size = 0
        self.is_empty = False
        """Whether a read found no message: all messages of the queue are in this batch or before
        it.
        """
        self.unreadable: list[UnreadableMessage] = []
        """The unreadable messages that were locked.

        They stay locked until the others are locked, because they would be returned again.
        """

    async def first(self, wait_s: float) -> Pulled | UnreadableMessage | None:
        """Lock and return the first message. Wait for it at most ``wait_s`` seconds.

        Return None if no message arrived.
        """
        return self._take(await self._queue.read(Action.RECEIVE, wait_s=wait_s))

    async def next(self) -> Pulled | UnreadableMessage | None:
        """Lock and return another message, readable or not.

        Several reads are in flight at once. Return None when the batch is full or the queue is
        empty, and no read is in flight.
        """
        while True:
            while len(self._under_way) < self._width and self._has_room():
                self._under_way.append(asyncio.ensure_future(self._queue.read(Action.RECEIVE)))
            if not self._under_way:
                return None
            found = self._take(await self._under_way.popleft())
            if found is not None:
                return found

    @property
    def is_blocked(self) -> bool:
        """Return whether UNREADABLE_MAX unreadable messages are locked.

        The messages after them were not read.
        """
        return len(self.unreadable) >= UNREADABLE_MAX

    def in_order(self) -> list[Pulled]:
        """Return the locked, readable messages in the order in which they are to be received."""
        found = list(self._found.values())
        return found if self._width == 1 else sorted(found, key=lambda each: each.key.lookup_id)

    async def abandon(self) -> None:
        """Cancel the reads that are still in flight, after an error, and wait for their end.

        Messages that they have locked are unlocked when the connection ends.
        """
        for each in self._under_way:
            each.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _has_room(self) -> bool:
        under_way = len(self._under_way)
        expected = self._size + under_way * (self._size // self._reads if self._reads else 0)
        return (
            not self.is_empty
            and self._reads + under_way < self._messages_max
            and expected < BATCH_BYTES
            and len(self.unreadable) + under_way < UNREADABLE_MAX
        )

    def _take(self, found: _Found) -> Pulled | UnreadableMessage | None:
        if isinstance(found, Status):
            if found not in NOTHING:
                raise refused(found, "R_StartReceive")
            self.is_empty = True
            return None
        if isinstance(found, UnreadableMessage):
            self.unreadable.append(found)
            return found
        self._reads += 1
        self._size += len(found.raw)
        # A lock may end meanwhile (the server's cleanup timer), and its message is returned again.
        # It is the same message, and the newer lock holds it.
        if (again := self._found.get(found.key)) is not None:
            again.request = found.request
        else:
            self._found[found.key] = found
        return found
