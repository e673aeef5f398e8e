"""``mode = "move"``: each message of a remote queue becomes one row here, and is removed there, whatever is killed in between.

Theory of operation: :mod:`srmp_spark.mqrr.pulled_states`. Messages are taken in batches, so that a sync is shared:

    R_StartReceive × n  →  one commit: kept  →  R_EndReceive × n  →  one commit: rows, and kept no more

How many messages a batch has, a line that breaks decides (:mod:`.line`). Of a backlog three batches
are under way (:meth:`Mover.batches`), where the other side takes so many calls: one becomes rows,
the next one is ended, and the one behind it is locked and kept; neither side, nor a disk, waits for
the others. Ends leave in the order of the queue, so rows come in that order, too. Should a message
of a batch before come again, because its lock had ended, then how its End went must be known first.

A message that comes again while it is kept, because its End did not come through, is the same one: it is ended again, and
nothing is stored twice. Doubtful ones are looked up as soon as there is a connection, and those that somebody holds every few
seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.pulled_states import DOUBTFUL, PulledEvent, PulledState
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.answers import (
    HELD,
    REMOVED,
    Ended,
    LostError,
    NotSentError,
    ReadableQueue,
    RefusedError,
    Unreadable,
    unreadable_text,
)
from srmp_spark.queue_manager.puller.line import Line
from srmp_spark.queue_manager.puller.locks import READS_AT_ONCE, UNREADABLE_MAX, Locks
from srmp_spark.queue_manager.puller.passing import Passing
from srmp_spark.queue_manager.puller.pulled import Pulled, PulledKey

ENDS_AT_ONCE = 32
"""Calls of R_EndReceive that wait at the same time, where the other side takes that: it may have a sync for each, and can share
it. No more, because all of them are in doubt when the connection is lost."""

BATCHES_TOGETHER = 64
"""Batches without a pause between them. Then what was said of Ends may be forgotten, if it became much, and the subscription is
looked at as a whole."""

_EVENTS = {
    Ended.CARRIED_OUT: PulledEvent.END_OK,
    Ended.NOT: PulledEvent.END_REFUSED,
    Ended.UNCLEAR: PulledEvent.END_UNCLEAR,
}


class Keeping(Protocol):
    """Where messages are stored; each call returns when that is on stable storage."""

    async def keep(self, messages: Sequence[Pulled]) -> None:
        """They are ours to end, and no rows yet."""
        ...

    async def drop(self, keys: Sequence[PulledKey]) -> None:
        """They were somebody else's."""
        ...

    async def publish(self, messages: Sequence[Pulled]) -> tuple[int, str | None]:
        """They are rows and kept no more: how many, and why not all."""
        ...

    async def removed(self, keys: Collection[PulledKey]) -> None:
        """They were rows already, copied, and now they are removed there."""
        ...

    def sending_end(self, keys: Collection[PulledKey]) -> None:
        """End of these leaves now: the next process must know, if this one is killed. Raises OSError."""
        ...

    def nothing_is_kept(self) -> None:
        """What was said of Ends so far may be forgotten."""
        ...

    def refuses(self) -> str | None:
        """Why nothing can be stored at present."""
        ...


class _Batch(NamedTuple):
    """Locked there, and stored here."""

    locked: int
    """With those that were rows already, and are removed by now."""
    messages: Sequence[Pulled]


class Mover:
    """One subscription. Lives as long as the process; connections come and go."""

    def __init__(
        self,
        keeping: Keeping,
        kept: Sequence[Pulled],
        *,
        told: Callable[[str], None],
        copied: Collection[PulledKey] = (),
        takes: bool = True,
    ) -> None:
        """``kept``: what the last process left. ``told``: what an operator should hear.

        ``copied``: what is a row already, from when the subscription had ``mode = "copy"``: it is removed there and nothing
        else. ``takes``: whether messages are taken; else :meth:`look_up` finds out what became of ``kept``, and leaves what is
        there.
        """
        self._keeping = keeping
        self._told = told
        self._copied = set(copied)
        self._takes = takes
        self.kept: dict[PulledKey, Pulled] = {each.key: each for each in kept}
        """Stored, and no rows yet."""
        self.moved = 0
        """Rows since the start."""
        self.ended = 0
        """Messages removed there since the start."""
        self.in_doubt_taken = 0
        """Of them those that were gone when they were looked up, after an End without an answer: another may have them, too."""
        self.unreadable = 0
        """Messages that the last batch stepped over, or the walk behind them so far."""
        self.is_empty = False
        """Whether the last batch left nothing there that it could have taken."""
        self.is_busy = False
        """Whether something is locked: a good moment to stop is when nothing is."""
        self._full: str | None = None
        self._line = Line()
        self._is_blocked = False
        """At the head stands more that cannot be read than may be held: it is passed by."""
        self._passing: Passing | None = None
        """The walk behind that, over the connection that there is."""

    @property
    def is_full(self) -> str | None:
        """Why rows are not taken here; then nothing more is taken there."""
        return self._full

    # --- with a connection ------------------------------------------------------------------------

    async def batch(self, queue: ReadableQueue, wait_s: float) -> int:
        """Move what is there, at most a batch; wait for the first message so long. How many were locked.

        Raises :class:`LostError`, :class:`RefusedError`; :meth:`lost` must follow.
        """
        return await self.batches(queue, wait_s, goes_on=lambda: False)

    async def batches(
        self, queue: ReadableQueue, wait_s: float, *, goes_on: Callable[[], bool]
    ) -> int:
        """The same, and batch after batch while there is a backlog and nothing else to do: at most :data:`BATCHES_TOGETHER`.

        ``goes_on``: whether another one is begun.
        """
        self.is_empty = False
        await self._settle()
        if not self.kept:
            self._keeping.nothing_is_kept()
        if self._full is None:
            self._full = self._keeping.refuses()
        if self._full is not None:
            return 0
        count = 0
        self._line.tries()
        try:
            batch = await self._keep(queue, await self._lock(queue, wait_s))
            for left in reversed(range(BATCHES_TOGETHER)):
                count += batch.locked
                if not (batch.locked and left and self._may_overlap(queue) and goes_on()):
                    break
                batch = await self._settle_end_and_take(queue, batch)
            await self._end(queue, batch.messages)
            await self._settle()
            self._line.carried(count)
        finally:
            self.is_busy = False
        return count

    def _may_overlap(self, queue: ReadableQueue) -> bool:
        """Whether there is a backlog, and nothing that must be looked after first."""
        return (
            queue.calls_at_once >= ENDS_AT_ONCE + READS_AT_ONCE
            and not self.is_empty
            and not self.unreadable
            and not self.doubtful
            and self._line.is_good
            and self._full is None
            and self._keeping.refuses() is None
        )

    async def _settle_end_and_take(self, queue: ReadableQueue, batch: _Batch) -> _Batch:
        """Rows of what was ended before, Ends of this batch, and the batch behind it, which is returned. Each comes to its end
        whatever becomes of the others: a commit that is under way is not left alone."""
        before = (
            asyncio.ensure_future(self._settle()),
            asyncio.ensure_future(self._end(queue, batch.messages)),
        )
        done = await asyncio.gather(
            *before, self._take_behind(queue, before), return_exceptions=True
        )
        for each in done:
            if isinstance(each, BaseException):
                raise each
        taken = done[-1]
        assert isinstance(taken, _Batch)
        return taken

    async def _take_behind(
        self, queue: ReadableQueue, before: Collection[asyncio.Future[None]]
    ) -> _Batch:
        locked = await self._lock(queue, 0.0)
        if any(each.key in self.kept for each in locked):
            await asyncio.wait(before)
            if any(
                each.exception() is not None for each in before
            ):  # it ends here: these are not stored
                return _Batch(0, ())
        return await self._keep(queue, locked)

    async def _lock(self, queue: ReadableQueue, wait_s: float) -> list[Pulled]:
        """What is there, at most a batch. What cannot be read is held until the others are locked, else it would come again.

        A lock may end meanwhile (the other side's cleanup timer), and its message comes once more: it is the same one, and the
        lock that is younger holds it.
        """
        if self._is_blocked:
            return await self._pass_by(queue)
        locks = Locks(queue, self._line.messages_max)
        found = await locks.first(wait_s)
        try:
            while found is not None:
                self.is_busy = True
                found = await locks.next()
        finally:
            await locks.abandon()
        self.unreadable = len(locks.unreadable)
        self.is_empty = locks.is_empty
        self._is_blocked = locks.is_blocked
        if self.unreadable:
            self._told(unreadable_text(self.unreadable, locks.unreadable[-1].reason))
        for each in locks.unreadable:
            await queue.end(each.request, keep=True)
        return locks.in_order()

    async def _pass_by(self, queue: ReadableQueue) -> list[Pulled]:
        """The same behind more messages than may be held that cannot be read. At the end of the queue it begins anew."""
        if self._passing is None:
            self._passing = Passing(queue)
        passing = self._passing
        self.is_busy = True
        locked = await passing.lock(self._line.messages_max)
        self.unreadable = passing.passed
        if passing.is_over:
            self._passing = None
            self._is_blocked = passing.passed >= UNREADABLE_MAX
            self.is_empty = True
        if passing.passed:
            self._told(unreadable_text(passing.passed, passing.reason))
        return locked

    async def _remove_copied(self, queue: ReadableQueue, messages: Sequence[Pulled]) -> None:
        """They are rows: whether an End comes through or the message comes again, nothing is lost or doubled."""
        for each in messages:
            if await queue.end(each.request) is Ended.CARRIED_OUT:
                self._copied.discard(each.key)
        removed = {each.key for each in messages} - self._copied
        if removed:
            await self._keeping.removed(removed)

    def _same(self, found: Pulled) -> Pulled:
        """The message that was kept under this key, locked again; or a new one."""
        kept = self.kept.get(found.key)
        if kept is None:
            return found
        if kept.state is not PulledState.KEPT:
            kept.move(PulledEvent.LOCKED_AGAIN)
        kept.request = found.request
        return kept

    async def _keep(self, queue: ReadableQueue, locked: Sequence[Pulled]) -> _Batch:
        """Store what is new. What was copied before is removed at once."""
        handed = [self._same(each) for each in locked]
        messages = [each for each in handed if each.key not in self._copied]
        await self._remove_copied(queue, [each for each in handed if each.key in self._copied])
        new = [each for each in messages if each.state is PulledState.HANDED]
        if new:
            await self._keeping.keep(new)
        for each in new:
            each.move(PulledEvent.STORED)
            self.kept[each.key] = each
        return _Batch(len(locked), messages)

    async def _end(self, queue: ReadableQueue, messages: Sequence[Pulled]) -> None:
        """Several at a time; of each it is written down first."""
        waiting = [each for each in messages if each.state is PulledState.KEPT]
        lost = False
        width = min(queue.calls_at_once, ENDS_AT_ONCE)
        for at in range(0, len(waiting), width):
            together = waiting[at : at + width]
            self._keeping.sending_end([each.key for each in together])
            for each in together:
                each.move(PulledEvent.END_SENT)
            ends = [queue.end(each.request) for each in together]
            for each, done in zip(
                together, await asyncio.gather(*ends, return_exceptions=True), strict=True
            ):
                if isinstance(done, NotSentError):
                    each.move(PulledEvent.END_REFUSED)
                    lost = True
                    continue
                if isinstance(done, RefusedError):  # a fault, from below the method or from within
                    each.move(
                        PulledEvent.END_UNCLEAR if done.perhaps_done else PulledEvent.END_REFUSED
                    )
                elif isinstance(done, Ended):
                    each.move(_EVENTS[done])
                    self.ended += done is Ended.CARRIED_OUT
                elif isinstance(done, LostError):
                    lost = True
                else:
                    raise done
            if lost:
                raise LostError("the connection ended before every message was acknowledged")

    async def _settle(self) -> None:
        """Forget what is nobody's here, make rows of what is ours. What the queue does not take now stays ours."""
        nobodys = [key for key, each in self.kept.items() if each.state is PulledState.DROPPED]
        if nobodys:
            await self._keeping.drop(nobodys)
            for key in nobodys:
                del self.kept[key]
        ours = [each for each in self.kept.values() if each.state is PulledState.OURS]
        if not ours:
            self._full = None
            return
        count, self._full = await self._keeping.publish(ours)
        for each in ours[:count]:
            each.move(PulledEvent.PUBLISHED)
            del self.kept[each.key]
        self.moved += count

    # --- what was in between ----------------------------------------------------------------------

    def lost(self) -> None:
        """The connection is gone, and every lock and cursor with it."""
        self._passing = None
        self._line.broke()
        for each in self.kept.values():
            if each.state in (PulledState.KEPT, PulledState.ENDING):
                each.move(PulledEvent.LOST)

    @property
    def doubtful(self) -> list[Pulled]:
        """What must be looked up."""
        return [each for each in self.kept.values() if each.state in DOUBTFUL]

    async def look_up(self, queue: ReadableQueue) -> None:
        """Find out what became of the doubtful ones. Errors as :meth:`batch`."""
        try:
            for each in self.doubtful:
                event = await self._ask(queue, each)
                if event is PulledEvent.GONE and each.state is PulledState.UNANSWERED:
                    self.in_doubt_taken += 1
                each.move(event)
                if each.state is PulledState.KEPT:
                    await self._end(queue, [each])
        finally:
            self.is_busy = False
        await self._settle()

    async def _ask(self, queue: ReadableQueue, message: Pulled) -> PulledEvent:
        """Only a peek tells locked from gone."""
        for lookup_id in message.key.lookup_ids:
            found = await queue.read(Action.LOOKUP_PEEK_CURRENT, lookup_id=lookup_id)
            if isinstance(found, Status):
                if found in REMOVED:
                    continue
                if found not in HELD:
                    raise RefusedError(found, "R_StartReceive, MQ_LOOKUP_PEEK_CURRENT")
                return PulledEvent.HELD_BY_ANOTHER
            if isinstance(
                found, Unreadable
            ):  # something is there, and what cannot be said: ask again
                self._told(f"a message cannot be read: {found.reason}")
                return PulledEvent.HELD_BY_ANOTHER
            if found.key.message_id != message.key.message_id:
                continue
            return (
                await self._lock_again(queue, message, lookup_id)
                if self._takes
                else PulledEvent.LEFT_THERE
            )
        return PulledEvent.GONE

    async def _lock_again(
        self, queue: ReadableQueue, message: Pulled, lookup_id: int
    ) -> PulledEvent:
        found = await queue.read(Action.LOOKUP_RECEIVE_CURRENT, lookup_id=lookup_id)
        if isinstance(found, Status):
            if found not in REMOVED | HELD:
                raise RefusedError(found, "R_StartReceive, MQ_LOOKUP_RECEIVE_CURRENT")
            return PulledEvent.HELD_BY_ANOTHER  # it was there a moment ago: ask again
        self.is_busy = True
        if isinstance(found, Unreadable) or found.key.message_id != message.key.message_id:
            await queue.end(found.request, keep=True)
            return PulledEvent.HELD_BY_ANOTHER
        message.request = found.request
        return PulledEvent.LOCKED_AGAIN
