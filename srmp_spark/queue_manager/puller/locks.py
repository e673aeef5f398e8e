"""R_StartReceive, again and again: a batch of messages locked, in the order of the queue.

Theory of operation. The first read waits for a message; once there is one, several reads are under way, where the other side
takes that: it looks for the next message while we read the last, and neither waits for the other. A server may carry them out
in any order, so two of them may have swapped their messages. The order of the queue is in the messages: the lookup identifier
is smaller the earlier a message is to be received (:mod:`srmp_spark.mqrr.lookup_identifier`).

A read that is under way may have locked something, so each is waited for, also when the batch is full or the queue empty.
After an error nobody knows what is locked: the connection ends, and the locks with it.
"""

from __future__ import annotations

import asyncio
from collections import deque

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.answers import NOTHING, ReadableQueue, RefusedError, Unreadable
from srmp_spark.queue_manager.puller.pulled import Pulled, PulledKey

BATCH_MESSAGES = 128
"""Messages of a batch: what a sync is shared by. Of a backlog two batches are locked at once, and a puller that is dead holds
them for at most five minutes. Batches of twice as many are no faster."""
BATCH_BYTES = 4 * 1024 * 1024
"""The same in bytes; one large message is a batch."""
READS_AT_ONCE = 16
"""Reads that are under way: one round trip, and one turn of the other side, for all of them."""
UNREADABLE_MAX = 100
"""Messages that cannot be read and are stepped over in one batch: each is locked meanwhile, and is read again the next time.
Where there are more, a cursor passes by all of them (:mod:`.passing`)."""

_Found = Pulled | Unreadable | Status


class Locks:
    """What one batch has locked. Errors of all methods: :class:`.answers.LostError`, :class:`RefusedError`."""

    def __init__(self, queue: ReadableQueue, messages_max: int | None = None) -> None:
        """``messages_max``: of the batch; None: a full one."""
        self._queue = queue
        self._messages_max = BATCH_MESSAGES if messages_max is None else messages_max
        self._width = min(queue.calls_at_once, READS_AT_ONCE)
        self._under_way: deque[asyncio.Task[_Found]] = deque()
        self._found: dict[PulledKey, Pulled] = {}
        self._reads = self._size = 0
        self.is_empty = False
        """A read found nothing: what came before it is here."""
        self.unreadable: list[Unreadable] = []
        """Held until the others are locked, else they would come again."""

    async def first(self, wait_s: float) -> Pulled | Unreadable | None:
        """Wait so long for a message."""
        return self._take(await self._queue.read(Action.RECEIVE, wait_s=wait_s))

    async def next(self) -> Pulled | Unreadable | None:
        """Another one that is there; ``None``: none, or the batch is full, and no read is under way any more."""
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
        """Whether as much is held that cannot be read as may be: what stands behind it was not looked at."""
        return len(self.unreadable) >= UNREADABLE_MAX

    def in_order(self) -> list[Pulled]:
        """What was locked, as it is to be received."""
        found = list(self._found.values())
        return found if self._width == 1 else sorted(found, key=lambda each: each.key.lookup_id)

    async def abandon(self) -> None:
        """Nothing more is read. What is still under way, after an error, ends with its connection."""
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

    def _take(self, found: _Found) -> Pulled | Unreadable | None:
        if isinstance(found, Status):
            if found not in NOTHING:
                raise RefusedError(found, "R_StartReceive")
            self.is_empty = True
            return None
        if isinstance(found, Unreadable):
            self.unreadable.append(found)
            return found
        self._reads += 1
        self._size += len(found.raw)
        # A lock may end meanwhile (the other side's cleanup timer), and its message comes once more: it is the same one, and
        # the lock that is younger holds it.
        if (again := self._found.get(found.key)) is not None:
            again.request = found.request
        else:
            self._found[found.key] = found
        return found
