"""Find messages after many unreadable ones with a cursor, and lock them one by one.

Theory of operation. A receive takes the first message of the queue. An unreadable message is held
until the batch is locked (:mod:`.locks`), because it would be returned again otherwise. At most
:data:`.locks.UNREADABLE_MAX` of them are held. If there are more, a cursor passes them without a
lock. A readable message is locked in its place, by its lookup identifier. The cursor belongs to the
connection and keeps its place from batch to batch. So a walk reads each message once.
"""

from __future__ import annotations

from srmp_spark.errors import LimitExceededError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.client.failures import refused
from srmp_spark.mqrr.client.queue_calls import HELD, NOTHING, REMOVED
from srmp_spark.mqrr.lookup_identifier import not_ascending
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side.answers import ReadableQueue, UnreadableMessage
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled
from srmp_spark.queue_manager.puller.moving_and_copying.locks import BATCH_BYTES, BATCH_MESSAGES

PASSED_AT_ONCE = 1_000
"""Most unreadable messages that are passed before a batch ends, even if few readable ones were
found. A stop waits no longer than this.
"""
UNREADABLE_WALKED_MAX = 10_000
"""Most unreadable messages of one walk.

Their places are not known, so only this limit detects a cursor that returns one of them again and
again. At the limit the walk ends with an error.
"""


class Passing:
    """One walk with a cursor from the first message to the end of a queue, over one connection.

    All methods raise :class:`RemoteLostError` if the connection is lost, and
    :class:`RemoteReadError` if the server refuses a call.
    """

    def __init__(self, queue: ReadableQueue) -> None:
        self._queue = queue
        self._cursor: int | None = None
        self._place = -1
        self.passed = 0
        """Number of unreadable messages that the walk has passed."""
        self.reason = ""
        """Reason why the last unreadable message cannot be read."""
        self.is_over = False
        """Whether the walk has reached the end of the queue."""

    async def lock(self, messages_max: int = BATCH_MESSAGES) -> list[Pulled]:
        """Continue the walk: lock the next readable messages, and return them in the queue's order.

        At most ``messages_max`` messages are locked. The batch ends early at BATCH_BYTES bytes,
        after PASSED_AT_ONCE unreadable messages, or at the end of the queue. Messages that another
        reader has locked or removed are left out. Raises :class:`RemoteProtocolError` if the cursor
        does not advance, and :class:`LimitExceededError` after UNREADABLE_WALKED_MAX unreadable
        messages.
        """
        locked: list[Pulled] = []
        size, passes_until = 0, self.passed + PASSED_AT_ONCE
        while len(locked) < messages_max and size < BATCH_BYTES and self.passed < passes_until:
            found = await self._next()
            if found is None:
                break
            if isinstance(found, UnreadableMessage):
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

    async def _next(self) -> Pulled | UnreadableMessage | None:
        """Peek at the next message and return it.

        Return None at the end of the queue, where the cursor is closed.
        """
        action = Action.PEEK_NEXT
        if self._cursor is None:
            self._cursor, action = await self._queue.cursor(), Action.PEEK_CURRENT
        found = await self._queue.read(action, cursor=self._cursor)
        if not isinstance(found, Status):
            return found
        if found not in NOTHING:
            raise refused(found, "R_StartReceive")
        self.is_over = True
        await self._queue.close_cursor(self._cursor)
        return None

    async def _locked(self, seen: Pulled) -> Pulled | None:
        """Lock the message ``seen``, which was peeked at, and return it.

        Return None if another reader has locked or removed it.
        """
        for lookup_id in seen.key.lookup_ids:
            found = await self._queue.read(Action.LOOKUP_RECEIVE_CURRENT, lookup_id=lookup_id)
            if isinstance(found, Pulled) and found.key == seen.key:
                return found
            if not isinstance(found, Status):
                await self._queue.end(found.request, keep=True)
            elif found not in REMOVED | HELD:
                raise refused(found, "R_StartReceive, MQ_LOOKUP_RECEIVE_CURRENT")
        return None
