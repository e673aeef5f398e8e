"""Messages behind many that cannot be read: found by a cursor, and locked one by one by their lookup identifiers.

Theory of operation. A receive takes the head of the queue. What cannot be read there is held until the batch is locked
(:mod:`.locks`), because it would come again otherwise, and not more of that is held than :data:`.locks.UNREADABLE_MAX`. Where
there is more, a cursor passes by without locking anything, and what can be read is locked where it stands. The cursor belongs
to the connection, and stays where it is from batch to batch, so each message is looked at once in a walk.
"""

from __future__ import annotations

from srmp_spark.errors import LimitExceededError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import not_ascending
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.answers import (
    HELD,
    NOTHING,
    REMOVED,
    ReadableQueue,
    RefusedError,
    Unreadable,
)
from srmp_spark.queue_manager.puller.locks import BATCH_BYTES, BATCH_MESSAGES
from srmp_spark.queue_manager.puller.pulled import Pulled

PASSED_AT_ONCE = 1_000
"""Messages that cannot be read and are passed by before a batch ends, however little was found: a stop waits for no more."""
UNREADABLE_WALKED_MAX = 10_000
"""Messages that cannot be read in one walk. Their places are not known, so a cursor that shows one of them again and again is
known by this alone: the walk ends with an error."""


class Passing:
    """One walk over one connection. Errors of all methods: :class:`.answers.LostError`, :class:`RefusedError`, and
    :class:`RemoteProtocolError` for a cursor that does not go on."""

    def __init__(self, queue: ReadableQueue) -> None:
        self._queue = queue
        self._cursor: int | None = None
        self._place = -1
        self.passed = 0
        """Messages that cannot be read, since the walk began."""
        self.reason = ""
        """Why the last of them cannot be read."""
        self.is_over = False
        """The end of the queue was seen."""

    async def lock(self, messages_max: int = BATCH_MESSAGES) -> list[Pulled]:
        """Lock the next messages that can be read, at most so many, in the order of the queue."""
        locked: list[Pulled] = []
        size, passes_until = 0, self.passed + PASSED_AT_ONCE
        while len(locked) < messages_max and size < BATCH_BYTES and self.passed < passes_until:
            found = await self._next()
            if found is None:
                break
            if isinstance(found, Unreadable):
                self.passed += 1
                self.reason = found.reason
                if self.passed > UNREADABLE_WALKED_MAX:
                    raise LimitExceededError(
                        "UNREADABLE_WALKED_MAX", UNREADABLE_WALKED_MAX, self.passed
                    )
                continue
            if found.key.lookup_id <= self._place:
                raise not_ascending(f"{found.key.lookup_id:#x}", f"{self._place:#x}")
            self._place = found.key.lookup_id
            ours = await self._locked(found)
            if ours is not None:
                locked.append(ours)
                size += len(ours.raw)
        return locked

    async def _next(self) -> Pulled | Unreadable | None:
        """Look at the next message. Return None at the end of the queue."""
        action = Action.PEEK_NEXT
        if self._cursor is None:
            self._cursor, action = await self._queue.cursor(), Action.PEEK_CURRENT
        found = await self._queue.read(action, cursor=self._cursor)
        if not isinstance(found, Status):
            return found
        if found not in NOTHING:
            raise RefusedError(found, "R_StartReceive")
        self.is_over = True
        await self._queue.close_cursor(self._cursor)
        return None

    async def _locked(self, seen: Pulled) -> Pulled | None:
        """Lock a message that was seen. Return None if another reader was faster."""
        for lookup_id in seen.key.lookup_ids:
            found = await self._queue.read(Action.LOOKUP_RECEIVE_CURRENT, lookup_id=lookup_id)
            if isinstance(found, Pulled) and found.key == seen.key:
                return found
            if not isinstance(found, Status):
                await self._queue.end(found.request, keep=True)
            elif found not in REMOVED | HELD:
                raise RefusedError(found, "R_StartReceive, MQ_LOOKUP_RECEIVE_CURRENT")
        return None
