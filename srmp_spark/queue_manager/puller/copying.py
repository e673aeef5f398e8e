"""``mode = "copy"``: each message of a remote queue becomes one row here, and stays there.

Theory of operation. A cursor walks the queue from its head, again and again, and what was not seen becomes a row together with
the note that it was. "Greater than the last one" would not do: a message of higher priority that comes later stands before it,
and one that was locked while we passed comes back to its old place. What was seen and did not show up in a whole walk may be
locked: only when a peek says that it is gone is its note dropped. A note has both identifiers, as what is moved has: a queue
manager that was set up anew gives lookup identifiers out from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from srmp_spark.errors import LimitExceededError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import not_ascending
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.answers import NOTHING, REMOVED, ReadableQueue, RefusedError, Unreadable, unreadable_text
from srmp_spark.queue_manager.puller.locks import BATCH_BYTES, BATCH_MESSAGES
from srmp_spark.queue_manager.puller.passing import UNREADABLE_WALKED_MAX
from srmp_spark.queue_manager.puller.pulled import Pulled, PulledKey

COPIED_MAX = 500_000
"""Messages of one remote queue whose keys a copy keeps, about 470 bytes of memory each. Beyond, what is new there is counted
and not copied, and ``last_error`` says so, until messages are removed there."""


class Noting(Protocol):
    """Where copies are stored; each call returns when that is on stable storage."""

    async def copied(self, messages: Sequence[Pulled]) -> tuple[int, str | None]:
        """They are rows, and noted: how many, and why not all."""
        ...

    async def removed(self, keys: Collection[PulledKey]) -> None:
        """They are in the remote queue no more."""
        ...


class Copier:
    """One subscription. Lives as long as the process; connections come and go."""

    def __init__(self, noting: Noting, seen: Collection[PulledKey], *, told: Callable[[str], None]) -> None:
        """``seen``: what are rows, from the last process. ``told``: what an operator should hear."""
        self._noting = noting
        self._told = told
        self.seen = set(seen)
        self.moved = 0
        """Rows since the start."""
        self.unreadable = 0
        """Messages that the last walk passed over; the next one reads them again."""
        self.not_copied = 0
        """Messages beyond COPIED_MAX that the last walk found."""
        self.is_full: str | None = None

    async def walk(self, queue: ReadableQueue) -> int:
        """Once through the queue; how many were new.

        Raises :class:`LostError`, :class:`RefusedError`, :class:`RemoteProtocolError` for a cursor that does not go on: what it
        showed before is copied.
        """
        cursor = await queue.cursor()
        there: set[PulledKey] = set()
        waiting: dict[PulledKey, Pulled] = {}
        before, size = self.moved, 0
        place, reason = -1, ""
        action = Action.PEEK_CURRENT
        self.is_full, self.unreadable, self.not_copied = None, 0, 0
        while self.is_full is None:
            found = await queue.read(action, cursor=cursor)
            action = Action.PEEK_NEXT
            if isinstance(found, Status):
                if found not in NOTHING:
                    raise RefusedError(found, "R_StartReceive")
                break
            if isinstance(found, Unreadable):
                self.unreadable += 1
                reason = found.reason
                if self.unreadable > UNREADABLE_WALKED_MAX:
                    await self._copy(tuple(waiting.values()))
                    raise LimitExceededError("UNREADABLE_WALKED_MAX", UNREADABLE_WALKED_MAX, self.unreadable)
                continue
            if found.key.lookup_id <= place:  # identifiers ascend as messages stand in the queue
                await self._copy(tuple(waiting.values()))
                raise not_ascending(f"{found.key.lookup_id:#x}", f"{place:#x}")
            place = found.key.lookup_id
            if found.key not in self.seen:
                if len(self.seen) + len(waiting) >= COPIED_MAX:
                    self.not_copied += 1
                    continue
                waiting[found.key] = found
                size += len(found.raw)
            there.add(found.key)
            if len(waiting) >= BATCH_MESSAGES or size >= BATCH_BYTES:
                await self._copy(tuple(waiting.values()))
                waiting, size = {}, 0
        await self._copy(tuple(waiting.values()))
        await queue.close_cursor(cursor)
        if self.unreadable:
            self._told(unreadable_text(self.unreadable, reason))
        if self.not_copied:
            self._told(not_copied_text(self.not_copied))
        if self.is_full is None:
            await self._forget(queue, self.seen - there)
        return self.moved - before

    async def _copy(self, messages: Sequence[Pulled]) -> None:
        if messages:
            count, self.is_full = await self._noting.copied(messages)
            self.seen |= {each.key for each in messages[:count]}
            self.moved += count

    async def _forget(self, queue: ReadableQueue, missed: set[PulledKey]) -> None:
        gone = {key for key in missed if await _is_gone(queue, key)}
        if gone:
            await self._noting.removed(gone)
            self.seen -= gone


def not_copied_text(count: int) -> str:
    """Return what ``last_error`` says of messages beyond COPIED_MAX."""
    return (
        f"{count} messages are not copied: a copy knows at most {COPIED_MAX} messages of the remote queue (COPIED_MAX); "
        'receive or purge messages there, or subscribe with mode = "move"'
    )


async def _is_gone(queue: ReadableQueue, key: PulledKey) -> bool:
    """Whether a message is gone under every number that it may have; one that is locked is not."""
    for lookup_id in key.lookup_ids:
        found = await queue.read(Action.LOOKUP_PEEK_CURRENT, lookup_id=lookup_id)
        if isinstance(found, Pulled):
            if found.key.message_id == key.message_id:
                return False
        elif isinstance(found, Unreadable) or found not in REMOVED:
            return False
    return True
