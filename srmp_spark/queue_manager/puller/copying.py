"""``mode = "copy"``: each message of a remote queue becomes one row here, and stays there.

Theory of operation. A cursor walks the queue from its head, again and again, and what was not seen becomes a row together with
the note that it was. "Greater than the last one" would not do: a message of higher priority that comes later stands before it,
and one that was locked while we passed comes back to its old place. What was seen and did not show up in a whole walk may be
locked: only when a peek says that it is gone is its note dropped. A note has both identifiers, as what is moved has: a queue
manager that was set up anew gives lookup identifiers out from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from srmp_spark.errors import LimitExceededError, SrmpSparkError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.by_number import ByNumber, Place, Tells
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.answers import (
    HELD,
    NOTHING,
    REMOVED,
    LostError,
    ReadableQueue,
    RefusedError,
    Unreadable,
    unreadable_text,
)
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


@dataclass(slots=True)
class _Walk:
    """One walk through the queue, over one connection or several."""

    by_number: ByNumber = field(default_factory=ByNumber)
    there: set[PulledKey] = field(default_factory=set)
    """What it came to."""
    unreadable: int = 0
    reason: str = ""
    """Why the last of them cannot be read."""
    not_copied: int = 0


class _ByCursor:
    """Walks from the head to the end over one connection."""

    def __init__(self, queue: ReadableQueue, walk: _Walk) -> None:
        self._queue = queue
        self._walk = walk
        self._cursor: int | None = None

    async def next(self) -> Pulled | Unreadable | None:
        """Return the next message; ``None``: the end. Errors as :meth:`Copier.walk`."""
        action = Action.PEEK_NEXT
        if self._cursor is None:
            self._walk.by_number.begin_at_head()
            self._walk.unreadable = self._walk.not_copied = 0
            self._cursor, action = await self._queue.cursor(), Action.PEEK_CURRENT
        found = await self._queue.read(action, cursor=self._cursor)
        if isinstance(found, Status):
            if found not in NOTHING:
                raise RefusedError(found, "R_StartReceive")
            await self._queue.close_cursor(self._cursor)
            return None
        if isinstance(found, Pulled):
            self._walk.by_number.has(
                Place(*found.key)
            )  # identifiers ascend as messages stand in the queue
        return found


class _ByNumber:
    """Walks on behind what the walk has, over a new connection; where that cannot be, by a cursor."""

    def __init__(self, queue: ReadableQueue, walk: _Walk) -> None:
        self._queue = queue
        self._walk = walk
        self._instead: _ByCursor | None = None
        walk.by_number.connected()

    async def next(self) -> Pulled | Unreadable | None:
        """Do as :meth:`_ByCursor.next` does."""
        tells = Tells.AGAIN
        while self._instead is None:
            action, lookup_id = self._walk.by_number.call()
            found = await self._queue.read(action, lookup_id=lookup_id)
            if isinstance(found, Pulled):
                tells = self._walk.by_number.found(Place(*found.key))
            elif isinstance(found, Unreadable):
                tells = Tells.NOWHERE  # it tells no number, and would be shown again and again
            elif found in NOTHING | REMOVED | HELD:
                tells = self._walk.by_number.nothing(held=found in HELD)
            else:
                raise RefusedError(found, "R_StartReceive")
            if tells is Tells.MESSAGE:
                assert isinstance(found, Pulled), "nothing else is one"
                return found
            if tells is Tells.OVER:
                return None
            if tells is Tells.NOWHERE:
                self._instead = _ByCursor(self._queue, self._walk)
        return await self._instead.next()


class Copier:
    """One subscription. Lives as long as the process; connections come and go."""

    def __init__(
        self, noting: Noting, seen: Collection[PulledKey], *, told: Callable[[str], None]
    ) -> None:
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
        self._walk: _Walk | None = None
        """The walk that is under way; ``None``: the next one begins."""

    @property
    def is_under_way(self) -> bool:
        """Whether a walk broke with its connection, and the next one goes on with it."""
        return self._walk is not None

    async def walk(self, queue: ReadableQueue) -> int:
        """Walk once through the queue, or on behind what the walk had when its connection broke; how many were new.

        Raises :class:`LostError`, :class:`RefusedError`, :class:`RemoteProtocolError` for a cursor that does not go on: what it
        showed before is copied.
        """
        before = self.moved
        walk = self._walk
        if walk is None:
            walk = self._walk = _Walk()
            steps: _ByCursor | _ByNumber = _ByCursor(queue, walk)
        else:
            steps = _ByNumber(queue, walk)
        self.is_full = None
        try:
            await self._through(walk, steps)
        except LostError:
            raise  # the next connection goes on
        except BaseException:
            self._walk = None
            raise
        self._walk = None
        if walk.unreadable:
            self._told(unreadable_text(walk.unreadable, walk.reason))
        if walk.not_copied:
            self._told(not_copied_text(walk.not_copied))
        if self.is_full is None:
            await self._forget(queue, self.seen - walk.there)
        return self.moved - before

    async def _through(self, walk: _Walk, steps: _ByCursor | _ByNumber) -> None:
        """Copy what the steps come to; when they end with an error, also what is not copied yet."""
        waiting: dict[PulledKey, Pulled] = {}
        size = 0
        try:
            while self.is_full is None and (found := await steps.next()) is not None:
                if isinstance(found, Unreadable):
                    walk.unreadable += 1
                    walk.reason = found.reason
                    if walk.unreadable > UNREADABLE_WALKED_MAX:
                        raise LimitExceededError(
                            "UNREADABLE_WALKED_MAX", UNREADABLE_WALKED_MAX, walk.unreadable
                        )
                    continue
                if found.key not in self.seen:
                    if len(self.seen) + len(waiting) >= COPIED_MAX:
                        walk.not_copied += 1
                        continue
                    waiting[found.key] = found
                    size += len(found.raw)
                walk.there.add(found.key)
                if len(waiting) >= BATCH_MESSAGES or size >= BATCH_BYTES:
                    await self._copy(tuple(waiting.values()))
                    waiting, size = {}, 0
        except SrmpSparkError:
            await self._copy(tuple(waiting.values()))
            if self.is_full is not None:  # something that the walk came to is no row: begin it anew
                self._walk = None
            raise
        finally:
            self.unreadable, self.not_copied = walk.unreadable, walk.not_copied
        await self._copy(tuple(waiting.values()))

    async def _copy(self, messages: Sequence[Pulled]) -> None:
        if messages:
            count, self.is_full = await self._noting.copied(messages)
            self.seen |= {each.key for each in messages[:count]}
            self.moved += count

    async def _forget(self, queue: ReadableQueue, missed: set[PulledKey]) -> None:
        gone: set[PulledKey] = set()
        try:
            for key in missed:
                if await _is_gone(queue, key):
                    gone.add(key)
        except (
            SrmpSparkError
        ):  # what a broken line let us ask counts: the next walk asks for the rest
            await self._forget_these(gone)
            raise
        await self._forget_these(gone)

    async def _forget_these(self, gone: set[PulledKey]) -> None:
        if gone:
            await self._noting.removed(gone)
            self.seen -= gone


def not_copied_text(count: int) -> str:
    """Return what ``last_error`` says of messages beyond COPIED_MAX."""
    return (
        f"{count} messages are not copied: a copy knows at most {COPIED_MAX} messages of "
        "the remote queue (COPIED_MAX); "
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
