"""Move a remote queue (``mode = "move"``): each message becomes a local row, and is removed.

No crash of either side loses or doubles a message. Theory of operation:
:mod:`srmp_spark.mqrr.pulled_states`. "Kept" means: the message is stored in the table ``pulled``,
and is no row of a queue yet. Messages are moved in batches, so that they share a sync:

    R_StartReceive × n  →  one commit: kept  →  R_EndReceive × n  →  one commit: rows, not kept

On a network line that breaks, batches are smaller (:mod:`.line`). With a backlog three batches are
in progress (:meth:`Mover.batches`), if the server accepts as many calls. One becomes rows, the next
one is ended, and the one after it is locked and stored. So neither side, nor a disk, waits for the
others. Ends (calls of R_EndReceive) are sent in the order of the queue, so rows have that order,
too. If the lock of a message has ended, the message may arrive again with a later batch. Then the
result of its earlier End must be known first.

A message that arrives again while it is kept, because its End did not succeed, is the same message.
It is ended again, and nothing is stored twice. Doubtful messages (it is unknown whether their End
was carried out) are looked up as soon as there is a connection. Messages that another reader holds
are looked up every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from srmp_spark.errors import RemoteLostError, RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.client.failures import NotSentError, refused
from srmp_spark.mqrr.client.queue_calls import HELD, REMOVED, Ended
from srmp_spark.mqrr.pulled_states import DOUBTFUL, PulledEvent, PulledState
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side.answers import (
    ReadableQueue,
    UnreadableMessage,
    unreadable_text,
)
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, PulledKey
from srmp_spark.queue_manager.puller.moving_and_copying.line import NetworkLine
from srmp_spark.queue_manager.puller.moving_and_copying.locks import (
    READS_AT_ONCE,
    UNREADABLE_MAX,
    Locks,
)
from srmp_spark.queue_manager.puller.moving_and_copying.passing import Passing
from srmp_spark.queue_manager.puller.moving_and_copying.settling import DecisionStore, Settling

ENDS_AT_ONCE = 32
"""Most calls of R_EndReceive in flight, if the server accepts as many.

The server may need a sync for each and can share it. More would leave more messages in doubt when
the connection is lost.
"""

BATCHES_TOGETHER = 64
"""Most batches without a pause between them.

After them the marks of sent Ends may be discarded, if they are many, and the subscription's other
work is done.
"""

_EVENTS = {
    Ended.CARRIED_OUT: PulledEvent.END_OK,
    Ended.NOT: PulledEvent.END_REFUSED,
    Ended.UNCLEAR: PulledEvent.END_UNCLEAR,
}


class Keeping(DecisionStore, Protocol):
    """Stores messages, and decisions about copied ones.

    Each asynchronous call waits until its result is on stable storage.
    """

    async def keep(self, messages: Sequence[Pulled]) -> None:
        """Store these messages in the table of kept messages.

        They are locked in the remote queue and are no rows of a queue yet.
        """
        ...

    async def drop(self, keys: Sequence[PulledKey]) -> None:
        """Delete these kept messages, because another reader has received them."""
        ...

    async def publish(self, messages: Sequence[Pulled]) -> tuple[int, str | None]:
        """Make rows of these kept messages, and delete their stored copies in the same commit.

        Return the number of messages that became rows, from the first on, and the reason why the
        next one did not, or ``None``.
        """
        ...

    def sending_end(self, keys: Collection[PulledKey]) -> None:
        """Record that R_EndReceive is about to be sent for these messages.

        The next process needs the record if this one is killed. Raises :class:`OSError` if the
        record cannot be written, and then R_EndReceive must not be sent.
        """
        ...

    def nothing_is_kept(self) -> None:
        """State that no message is kept, so the records of :meth:`sending_end` may be discarded.

        Raises :class:`OSError` if they cannot be discarded.
        """
        ...

    def refuses(self) -> str | None:
        """Return the reason why no message can be stored at present, or None if one can."""
        ...


class _Batch(NamedTuple):
    """A batch of messages that are locked in the remote queue and kept in the local store."""

    locked: int
    """Number of messages that were locked.

    Messages that were rows from an earlier copy count too. They are removed by now.
    """
    messages: Sequence[Pulled]


class Mover:
    """Moves the messages of one subscription.

    A mover lives as long as the process. Its connections may change meanwhile.
    """

    def __init__(
        self,
        keeping: Keeping,
        kept: Sequence[Pulled],
        *,
        told: Callable[[str], None],
        copied: Collection[PulledKey] = (),
        copied_ends: Collection[PulledKey] = (),
        takes: bool = True,
    ) -> None:
        """Begin with ``kept``, the messages that the last process stored and did not publish.

        ``told`` is called with texts about unreadable messages, which the operator sees in
        ``status``. ``copied`` are messages that are rows already, from when the subscription had
        ``mode = "copy"``. They make no second row (:mod:`.settling`). For those in
        ``copied_ends`` an earlier process may have sent End. If ``takes`` is False, no message is
        taken from the remote queue. Then :meth:`look_up` finds out what happened to the
        messages in ``kept``, and leaves their originals in the remote queue.
        """
        self._keeping = keeping
        self._on_trouble = told
        self.settling = Settling(keeping, copied, copied_ends)
        """The copied messages that are not decided yet."""
        self._takes = takes
        self.kept: dict[PulledKey, Pulled] = {each.key: each for each in kept}
        """Messages that are stored and are no rows of a queue yet, by key."""
        self.rows_made = 0
        """Number of rows that were made since the start of the process."""
        self.ended = 0
        """Number of messages that were removed from the remote queue since the process started."""
        self.in_doubt_taken = 0
        """Number of messages that were gone at their look-up after an End without an answer.

        Another reader may have these messages, too.
        """
        self.unreadable = 0
        """Number of unreadable messages that the last batch skipped, or that the present walk after
        them has passed.
        """
        self.is_empty = False
        """Whether the remote queue had no further message for the last batch."""
        self.is_busy = False
        """Whether messages are locked. A process should be stopped only while this is false."""
        self._full: str | None = None
        self._line = NetworkLine()
        self._is_blocked = False
        """Whether the queue begins with more unreadable messages than one batch may lock.

        A walk (:class:`.Passing`) then passes these messages.
        """
        self._passing: Passing | None = None
        """The walk past the unreadable messages, over the present connection, or ``None``."""

    @property
    def is_full(self) -> str | None:
        """Return the reason why the local queue accepts no rows, or None if it accepts rows.

        While there is a reason, no message is taken from the remote queue.
        """
        return self._full

    # --- with a connection ------------------------------------------------------------------------

    async def batch(self, queue: ReadableQueue, wait_s: float) -> int:
        """Move at most one batch, and return the number of messages that were locked.

        The result is 0 if no message arrived within ``wait_s`` seconds, or if the local queue
        accepts no rows (:attr:`is_full`). Of the locked messages some may not be rows yet; later
        calls continue with them. Raises :class:`RemoteLostError`, :class:`RemoteReadError`,
        :class:`OSError` if an End cannot be recorded, and the errors of the store; then
        :meth:`on_connection_lost` must follow.
        """
        return await self.batches(queue, wait_s, goes_on=lambda: False)

    async def batches(
        self, queue: ReadableQueue, wait_s: float, *, goes_on: Callable[[], bool]
    ) -> int:
        """Move batches while there is a backlog; return the number of messages that were locked.

        The first message is waited for at most ``wait_s`` seconds. ``goes_on`` returns whether
        another batch may begin. At most :data:`BATCHES_TOGETHER` batches are moved. Raises as
        :meth:`batch`.
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
        """Return whether the next batch may be locked while the earlier ones are not finished.

        It may if there is a backlog, the line is good, and no other work must be done first.
        """
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
        """Settle earlier batches, end this batch, and lock and store the next batch, concurrently.

        Return the next batch. Each of the three actions is completed even if another one fails,
        because a commit in progress must not be left alone. Then the first error is raised.
        """
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
            # After an error the connection ends, so these messages are not stored.
            if any(each.exception() is not None for each in before):
                return _Batch(0, ())
        return await self._keep(queue, locked)

    async def _lock(self, queue: ReadableQueue, wait_s: float) -> list[Pulled]:
        """Lock the next messages, at most a batch, and return them in the order of the queue.

        The first message is waited for at most ``wait_s`` seconds. Unreadable messages stay locked
        until the other messages are locked, because they would be returned again. Then they are
        unlocked. A lock may end meanwhile (the server's cleanup timer), and its message is returned
        again. That is the same message, and the newer lock holds it.
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
            self._on_trouble(unreadable_text(self.unreadable, locks.unreadable[-1].reason))
        for each in locks.unreadable:
            await queue.end(each.request, keep=True)
        return locks.in_order()

    async def _pass_by(self, queue: ReadableQueue) -> list[Pulled]:
        """Lock the next readable messages with a cursor (:class:`.Passing`), and return them.

        Used for a queue with more unreadable messages than a batch may lock; the cursor passes
        these. At the end of the queue, the next call begins a new walk. Raises the errors of
        :meth:`.Passing.lock`.
        """
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
            self._on_trouble(unreadable_text(passing.passed, passing.reason))
        return locked

    def _same(self, found: Pulled) -> Pulled:
        """Return the kept message with the key of ``found``, or ``found`` if none is kept.

        The kept message gets the lock of ``found``. Unless it is in state KEPT, its state changes
        by LOCKED_AGAIN.
        """
        kept = self.kept.get(found.key)
        if kept is None:
            return found
        if kept.state is not PulledState.KEPT:
            kept.move(PulledEvent.LOCKED_AGAIN)
        kept.request = found.request
        return kept

    async def _keep(self, queue: ReadableQueue, locked: Sequence[Pulled]) -> _Batch:
        """Store the messages of a batch that are not kept yet, and return the batch.

        Messages that are rows from an earlier copy are removed from the remote queue at once, and
        are not in the batch.
        """
        handed = [self._same(each) for each in locked]
        messages = [each for each in handed if each.key not in self.settling]
        copied = [each for each in handed if each.key in self.settling]
        if copied:
            await self.settling.remove(queue, copied, min(queue.calls_at_once, ENDS_AT_ONCE))
        new = [each for each in messages if each.state is PulledState.HANDED]
        if new:
            await self._keeping.keep(new)
        for each in new:
            each.move(PulledEvent.STORED)
            self.kept[each.key] = each
        return _Batch(len(locked), messages)

    async def _end(self, queue: ReadableQueue, messages: Sequence[Pulled]) -> None:
        """Send R_EndReceive for those ``messages`` that are in state KEPT, several at a time.

        Each End is recorded before it is sent. Each message's state changes by its answer, for
        which the call waits. Raises :class:`RemoteLostError` if the connection ends before every
        message is answered, and :class:`OSError` if the record cannot be written.
        """
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
                if isinstance(done, RemoteReadError):
                    # The RPC runtime or the method itself raised a fault.
                    each.move(
                        PulledEvent.END_UNCLEAR if done.perhaps_done else PulledEvent.END_REFUSED
                    )
                elif isinstance(done, Ended):
                    each.move(_EVENTS[done])
                    self.ended += done is Ended.CARRIED_OUT
                elif isinstance(done, RemoteLostError):
                    lost = True
                else:
                    raise done
            if lost:
                raise RemoteLostError("the connection ended before every message was acknowledged")

    async def _settle(self) -> None:
        """Delete kept messages that another reader has, and make rows of those that were ended.

        Wait until that is on stable storage. Messages that the local queue does not accept now stay
        kept, and :attr:`is_full` has the reason.
        """
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
        self.rows_made += count

    # --- what was in between ----------------------------------------------------------------------

    def on_connection_lost(self) -> None:
        """Record that the connection is gone, with its locks and cursors.

        Messages that were locked become doubtful. If a batch was in progress, the next one is
        smaller (:meth:`.NetworkLine.broke`).
        """
        self._passing = None
        self._line.broke()
        self.settling.on_connection_lost()
        for each in self.kept.values():
            if each.state in (PulledState.KEPT, PulledState.ENDING):
                each.move(PulledEvent.LOST)

    @property
    def doubtful(self) -> list[Pulled]:
        """Return the kept messages whose originals in the remote queue must be looked up."""
        return [each for each in self.kept.values() if each.state in DOUBTFUL]

    async def look_up(self, queue: ReadableQueue) -> None:
        """Find out what happened to the doubtful messages in the remote queue.

        One that is still in the queue is locked and ended again, unless no messages are taken. One
        that is gone becomes a row if its End may have been carried out, otherwise it is dropped.
        Raises as :meth:`batch`.
        """
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
        """Look up the original of a message, and return the event that the answer means.

        The first call is a peek, because only a peek distinguishes locked from gone. If the
        original is in the remote queue, it is locked again, unless no messages are taken. Raises
        :class:`RemoteLostError` and :class:`RemoteReadError`.
        """
        for lookup_id in message.key.lookup_ids:
            found = await queue.read(Action.LOOKUP_PEEK_CURRENT, lookup_id=lookup_id)
            if isinstance(found, Status):
                if found in REMOVED:
                    continue
                if found not in HELD:
                    raise refused(found, "R_StartReceive, MQ_LOOKUP_PEEK_CURRENT")
                return PulledEvent.HELD_BY_ANOTHER
            if isinstance(found, UnreadableMessage):
                # A message is there that cannot be identified, so it is looked up again later.
                self._on_trouble(f"a message cannot be read: {found.reason}")
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
                raise refused(found, "R_StartReceive, MQ_LOOKUP_RECEIVE_CURRENT")
            # The peek found it a moment ago, so it is looked up again later.
            return PulledEvent.HELD_BY_ANOTHER
        self.is_busy = True
        if isinstance(found, UnreadableMessage) or found.key.message_id != message.key.message_id:
            await queue.end(found.request, keep=True)
            return PulledEvent.HELD_BY_ANOTHER
        message.request = found.request
        return PulledEvent.LOCKED_AGAIN
