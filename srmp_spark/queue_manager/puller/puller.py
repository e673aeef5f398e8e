"""Run one subscription as a task: connect, move or copy, wait, connect again after a loss."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from srmp_spark.errors import RemoteLostError, SrmpSparkError
from srmp_spark.interface import DEFAULT_CONSUMER, SubscriptionEntry
from srmp_spark.mqrr.pulled_states import PulledState
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.configuration.subscriptions import Subscription
from srmp_spark.queue_manager.log_once import LogOnce
from srmp_spark.queue_manager.puller.added import subscription_file
from srmp_spark.queue_manager.puller.circles import Circles
from srmp_spark.queue_manager.puller.cutover.settled import Cutover
from srmp_spark.queue_manager.puller.gateway_side.answers import ReadableQueue
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, PulledKey
from srmp_spark.queue_manager.puller.gateway_side.remotes import Remotes
from srmp_spark.queue_manager.puller.moving_and_copying.copying import Copier
from srmp_spark.queue_manager.puller.moving_and_copying.moving import Mover
from srmp_spark.queue_manager.puller.moving_and_copying.publishing import publish
from srmp_spark.queue_manager.puller.moving_and_copying.sent_marks import SentMarks
from srmp_spark.queue_manager.puller.moving_and_copying.stored import (
    StoredPullerState,
    forget_pulled,
    keep_pulled,
)
from srmp_spark.store.tables import cutovers

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.store.database.transaction import Transaction

PAUSES_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Pauses between attempts to reach a machine, in seconds.

The last pause repeats. After a connection that worked, the first pause is used again.
"""
BREAKS_SECONDS = (0.1, 0.1, 0.2, 0.5, 1.0)
"""Pauses, in seconds, after a connection that was made and then broke.

They are short, because the machine is reachable, and on a line that breaks often each connection
moves a message or two. After a connection that completed a batch or moved a message, the first
pause is used again.
"""
WAIT_SECONDS = 5.0
"""Longest wait of one R_StartReceive for a message, in seconds.

Doubtful messages (:mod:`.moving`) are looked up between two waits.
"""
COPY_PAUSE_SECONDS = 2.0
"""Shortest pause between two walks of ``copy``, in seconds, because each walk reads every message.
"""
FULL_PAUSE_SECONDS = 1.0
"""Pause while the local queue accepts no rows, in seconds."""
UNREADABLE_PAUSE_SECONDS = 5.0
"""Pause when the remote queue has only unreadable messages, in seconds."""
EARLY_PAUSE_SECONDS = 0.1
"""Pause after a read that should have waited and returned at once without a message, in seconds.

So a server that does not wait gets at most ten reads a second.
"""
SETTLING_BATCHES = 8
"""Most batches without a look at the copied messages that a cut-over has not decided.

With eight of them the batches overlap, and the readers here wait a second at most for that look.
"""
SETTLE_PAUSE_SECONDS = 2.0
"""Pause between two look-ups of messages that are still locked in the remote queue, in seconds,
when no new message is taken.
"""
STOP_SECONDS = 5.0
"""Longest wait at the end for a batch in progress, in seconds.

In this time locked and stored messages are acknowledged, so that none is left in doubt.
"""

log = logging.getLogger(__name__)


class _Store:
    """Stores the messages of one subscription in the transactions of the queue manager."""

    def __init__(self, manager: QueueManager, subscription: Subscription, marks: SentMarks) -> None:
        self._manager = manager
        self._marks = marks
        self._name = subscription.name
        self._to = subscription.to
        self._peer = subscription.host.text
        self._trimmed_to = 0
        """Value of the local queue's ``trimmed_to`` when notes of trimmed rows were deleted last.
        """

    async def keep(self, messages: Sequence[Pulled]) -> None:
        now = self._manager.clock.utc()
        await self._manager.journal.transact(
            lambda each: keep_pulled(each.connection, self._name, messages, now)
        )

    async def drop(self, keys: Sequence[PulledKey]) -> None:
        await self._manager.journal.transact(
            lambda each: forget_pulled(each.connection, self._name, keys)
        )

    async def publish(self, messages: Sequence[Pulled]) -> tuple[int, str | None]:
        return await publish(
            self._manager,
            self._to,
            self._peer,
            messages,
            lambda each, stored: forget_pulled(
                each.connection, self._name, [one.key for one in stored]
            ),
        )

    async def copied(self, messages: Sequence[Pulled]) -> tuple[int, str | None]:
        return await publish(
            self._manager,
            self._to,
            self._peer,
            messages,
            lambda each, stored: cutovers.note_copied(each.connection, self._name, stored),
        )

    async def sending_copied_ends(self, keys: Collection[PulledKey]) -> None:
        await self._manager.journal.transact(
            lambda each: cutovers.note_ends(each.connection, self._name, keys)
        )

    async def copied_ends_answered(
        self, moved: Collection[PulledKey], not_removed: Collection[PulledKey]
    ) -> None:
        await self._manager.journal.transact(
            lambda each: cutovers.note_answers(each.connection, self._name, moved, not_removed)
        )

    async def received_there(self, keys: Collection[PulledKey]) -> None:
        now = self._manager.clock.utc()
        queue = self._manager.catalogue.get(self._to)
        trimmed_to = 0 if queue is None else queue.trimmed_to

        def note(transaction: Transaction) -> None:
            cutovers.note_gone(transaction.connection, self._name, keys, now)
            if trimmed_to > self._trimmed_to:
                cutovers.forget_trimmed(transaction.connection, self._name, trimmed_to)

        await self._manager.journal.transact(note)
        self._trimmed_to = trimmed_to

    async def taken_back(self, keys: Collection[PulledKey]) -> set[PulledKey]:
        back = await self._manager.journal.transact(
            lambda each: cutovers.take_back(each.connection, self._name, keys)
        )
        return {PulledKey(*each) for each in back}

    def sending_end(self, keys: Collection[PulledKey]) -> None:
        self._marks.sending(keys)

    def nothing_is_kept(self) -> None:
        self._marks.nothing_is_kept()

    def refuses(self) -> str | None:
        gate = self._manager.gate.closed
        return None if gate is None else gate.message


class Puller:
    """Pulls one remote queue into a local one: one subscription.

    Its times are in seconds of the monotonic clock.
    """

    def __init__(
        self,
        manager: QueueManager,
        subscription: Subscription,
        left: StoredPullerState,
        circles: Circles,
        remotes: Remotes,
        *,
        configured: bool = True,
        removing: bool = False,
        held: str | None = None,
    ) -> None:
        """Prepare the subscription; :meth:`start` begins it.

        ``left`` is the stored state of an earlier puller of the same name. ``remotes`` makes the
        connections. ``configured`` is set if the subscription is in the configuration file. With
        ``removing``, no message is taken, and pending messages are settled. ``held`` states why the
        subscription is on hold (:mod:`srmp_spark.store.tables.held_subscriptions`). Raises
        :class:`OSError` if the marks of sent Ends (:mod:`.sent_marks`) cannot be read or written.
        """
        self._manager = manager
        self._circles = circles
        self._remotes = remotes
        self.subscription = subscription
        self.configured = configured
        self.removing = removing
        self._held = held
        self.settled: Callable[[], object] = lambda: None
        """Callback, called when ``removing`` has nothing left to do."""
        self._error: str | None = None
        self._logged = LogOnce()
        self._complete_at: float | None = None
        """Latest time at which every message of the remote queue was a local row.

        ``None``: that was never so since the start.
        """
        self._failed_at: float | None = None
        """Time at which the last attempt to read failed, in seconds of the monotonic clock.

        ``None``: reading works, or the first attempt is in progress.
        """
        self._is_drained = False
        """Whether no message was left that could be taken.

        Only then does a read wait for a message.
        """
        self._is_new = not (left.kept or left.copied or left.gone)
        self._stopping = asyncio.Event()
        self._worked = False
        self._broke = False
        """Whether the last connection was made and then lost."""
        moves = subscription.mode == "move" and not removing
        self._marks = SentMarks.open(
            subscription_file(manager.directory.path, subscription.name, "sent"),
            [each.key for each in left.kept],
            unchanged=manager.directory.changed is None,
        )
        for each in left.kept:
            if not self._marks.was_sent(each.key):
                each.state = PulledState.UNSENT
        store = _Store(manager, subscription, self._marks)
        self._mover = Mover(
            store,
            left.kept,
            told=self._tell,
            copied=left.copied if moves else (),
            copied_ends=_copied_ends(left, is_changed=manager.directory.changed is not None),
            takes=moves,
        )
        """Moves messages.

        Without ``takes``, it only settles the messages that were taken before the subscription
        changed.
        """
        self._walk_began = 0.0
        """Time at which the present walk of ``copy`` began, perhaps several connections ago."""
        self._copier: Copier | None = None
        if subscription.mode == "copy" and not removing:
            self._copier = Copier(store, left.copied, told=self._tell, gone=left.gone)
        self._gone = left.gone
        self.last_cutover = left.cutover
        """The cut-over as it was stored when the puller was built."""
        self._cutover = _cutover_of(manager, subscription, left) if moves else None
        self._next_look_up = 0.0
        """Time before which undecided copies are not looked up again."""
        self._walk_wanted = asyncio.Event()
        self._walked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to pull in a task. If the subscription is on hold, log the reason instead."""
        if self._held is not None:
            self._failed_at = self._manager.clock.monotonic()
            self._error = _held_text(self.subscription, self._held)
            log.warning(
                'subscription.held name=%s reason="%s"', self.subscription.name, self._error
            )
            if self._cutover is not None:
                self._task = asyncio.get_running_loop().create_task(self._only_hold(self._cutover))
            return
        self._task = asyncio.get_running_loop().create_task(self._run())

    def resume(self) -> None:
        """Take the subscription off hold in memory, and begin to pull."""
        self._held = self._failed_at = self._error = None
        self.start()

    async def stop(self) -> None:
        """Stop pulling, and wait until the task has ended.

        Locked and stored messages are acknowledged first. If that takes longer than
        :data:`STOP_SECONDS`, these messages are left in doubt.
        """
        self._stopping.set()
        if self._task is not None and self._mover.is_busy:
            await asyncio.wait((self._task,), timeout=STOP_SECONDS)
        await end((self._task,))
        if self._cutover is not None:
            await self._cutover.stop()
        self._circles.leave(self.subscription)
        self._marks.close()

    @property
    def is_held(self) -> bool:
        """Return whether the subscription is on hold, so that it pulls nothing."""
        return self._held is not None

    @property
    def cutover(self) -> Cutover | None:
        """Return the cut-over that is not settled, or None if there is none."""
        return self._cutover

    @property
    def copier(self) -> Copier | None:
        """Return the copier, or None if the subscription moves or is being removed."""
        return self._copier

    @property
    def undecided(self) -> int:
        """Return the number of copied messages of which it is not decided who received them."""
        return len(self._mover.settling) if self._copier is None else len(self._copier.seen)

    @property
    def received_there(self) -> int:
        """Return the number of copied messages that other readers received in the remote queue."""
        if self._copier is not None:
            return self._copier.received_there
        return self._gone + self._mover.settling.received_there

    @property
    def in_doubt(self) -> int:
        """Return the number of copied messages that were gone after an End without an answer."""
        return self._mover.settling.in_doubt

    @property
    def trouble(self) -> str | None:
        """Return the reason why the remote queue is not read at present, or None if it is read."""
        is_full = self._copier is not None and self._copier.is_full is not None
        return self._error if self._failed_at is not None or is_full else None

    @property
    def pending(self) -> int:
        """Return the number of messages that are stored and are no rows of a queue yet."""
        return len(self._mover.kept)

    @property
    def pulled(self) -> int:
        """Return the number of rows that were made since the start of the process."""
        return self._mover.rows_made + (0 if self._copier is None else self._copier.rows_made)

    @property
    def taken_in_doubt(self) -> int:
        """Return the number of messages that were gone at their look-up after an unanswered End.

        These messages are local rows. Another reader may have them, too.
        """
        return self._mover.in_doubt_taken

    @property
    def lag_seconds(self) -> float | None:
        """Return how many seconds ago every message of the remote queue was last a local row.

        Return None if that never was so since the start of the process.
        """
        return self._since(self._complete_at)

    @property
    def is_unused(self) -> bool:
        """Return whether the subscription has never read from its queue and nothing is pending.

        Such a subscription can be removed as if it had never existed.
        """
        return (
            self._is_new
            and self._complete_at is None
            and not (self.pulled or self.pending or self._mover.ended)
        )

    def _since(self, moment: float | None) -> float | None:
        return None if moment is None else self._manager.clock.monotonic() - moment

    def status(self) -> SubscriptionEntry:
        """Return the entry of ``status.subscriptions`` for this subscription."""
        given = self.subscription
        return {
            "host": given.host.text,
            "queue": given.queue,
            "mode": given.mode,
            "to": given.to,
            "pulled": self.pulled,
            "pending": self.pending,
            "doubtful": len(self._mover.doubtful),
            "taken_in_doubt": self.taken_in_doubt,
            "unreadable": self._mover.unreadable
            if self._copier is None
            else self._copier.unreadable,
            "lag_seconds": _rounded(self.lag_seconds),
            "last_error": self._error,
            "failed_seconds": _rounded(self._since(self._failed_at)),
            "configured": self.configured,
            "removing": self.removing,
            "held": self.is_held,
            "received_there": self.received_there,
            "undecided": 0 if self._cutover is None else self.undecided,
        }

    def _tell(self, what: str) -> None:
        line = self._logged.line(what, self._manager.clock.monotonic())
        if line is not None:
            log.warning('subscription.trouble name=%s reason="%s"', self.subscription.name, line)
        self._error = what

    async def _only_hold(self, cutover: Cutover) -> None:
        """Hold the consumers of a cut-over while the subscription itself is on hold."""
        while self._held is not None and not await self._holds(cutover):
            await asyncio.sleep(FULL_PAUSE_SECONDS)

    async def _holds(self, cutover: Cutover) -> bool:
        try:
            await cutover.hold()
        except SrmpSparkError as error:
            self._tell(str(error))
            return False
        return True

    async def _run(self) -> None:
        if self._copier is not None and self.last_cutover is not None:
            # The subscription copies again, so another cut-over may follow.
            await self._manager.journal.transact(
                lambda each: cutovers.forget(each.connection, self.subscription.name)
            )
            self.last_cutover = None
        failures = breaks = did = 0
        while not self._stopping.is_set():
            if self.removing and not self._mover.kept:
                self.settled()
                return
            try:
                await self._connected()
            except (SrmpSparkError, OSError) as error:
                self._tell(str(error))
                self._failed_at = self._manager.clock.monotonic()
            except Exception as error:
                # An internal error must not end the subscription silently.
                if (
                    self._logged.line(
                        f"{type(error).__name__}: {error}", self._manager.clock.monotonic()
                    )
                    is not None
                ):
                    log.exception("subscription.failed name=%s", self.subscription.name)
                self._error = f"{type(error).__name__}: see the log"
                self._failed_at = self._manager.clock.monotonic()
            finally:
                self._mover.on_connection_lost()
                self._walked.set()
            if self._stopping.is_set():
                return
            before, did = did, self._mover.ended + self.pulled
            has_worked = self._worked or did > before
            breaks = 0 if has_worked else breaks + self._broke
            failures = 0 if has_worked or self._broke else failures + 1
            pauses, number = (BREAKS_SECONDS, breaks) if self._broke else (PAUSES_SECONDS, failures)
            await asyncio.sleep(pauses[min(number, len(pauses) - 1)])

    async def _connected(self) -> None:
        """Connect to the remote queue manager, and pull over this connection until it is lost.

        Return without an error if the puller stops or has settled all. Raises
        :class:`RemoteLostError`, :class:`RemoteReadError`, :class:`CircleError`, and the other
        errors of :meth:`Mover.batches` and :meth:`Copier.walk`.
        """
        self._worked = self._is_drained = self._broke = False
        given = self.subscription
        if self._cutover is not None:
            await self._cutover.begin(self._mover.settling)
        connection = await self._remotes.connect(given.host, given.credentials)
        try:
            if not self.removing:
                self._circles.enter(given, connection.address)
            queue = await connection.open(
                given.format, receive=given.mode == "move" and not self.removing
            )
            await self._go_on(queue)
        except RemoteLostError:
            self._broke = True
            raise
        finally:
            connection.close()

    async def _go_on(self, queue: ReadableQueue) -> None:
        while not self._stopping.is_set():
            if self.removing:
                if not await self._settle(queue):
                    return
            elif self._copier is not None:
                await self._copy(queue, self._copier)
            else:
                await self._move(queue)
            self._worked, self._failed_at = True, None

    async def _move(self, queue: ReadableQueue) -> None:
        mover = self._mover
        await mover.look_up(queue)
        wait_s = WAIT_SECONDS if self._is_drained else 0.0
        asked_at, moved_before = self._manager.clock.monotonic(), mover.settling.moved
        count = await mover.batches(queue, wait_s, goes_on=self._goes_on())
        self._is_drained = mover.is_empty
        if self._cutover is not None:
            await self._settle_copies(queue, self._cutover, met=mover.settling.moved > moved_before)
        if mover.is_full is not None:
            await self._pause_full(mover.is_full)
        elif mover.unreadable and not count and mover.is_empty:
            await asyncio.sleep(UNREADABLE_PAUSE_SECONDS)
        elif not mover.unreadable:
            self._error = None
            now = self._manager.clock.monotonic()
            if mover.is_empty and not mover.kept:
                self._complete_at = now
            if wait_s and not count and now - asked_at < EARLY_PAUSE_SECONDS:
                await asyncio.sleep(EARLY_PAUSE_SECONDS)

    def _goes_on(self) -> Callable[[], bool]:
        """Return a function that returns whether another batch may begin."""
        begun = itertools.count(1)
        return lambda: (
            not self._stopping.is_set()
            and (self._cutover is None or next(begun) < SETTLING_BATCHES)
        )

    async def _settle_copies(self, queue: ReadableQueue, cutover: Cutover, *, met: bool) -> None:
        """Look the undecided copies up if the batches do not meet them, and finish the cut-over.

        ``met`` states that the last batches met copied messages, so that others may follow. Senders
        that are faster than the batches must not delay the look-ups for ever. So the queue need not
        be empty for them. They take at most half of the time.
        """
        clock, mover = self._manager.clock, self._mover
        began = clock.monotonic()
        if mover.settling and (mover.is_empty or not met) and began >= self._next_look_up:
            await mover.settling.look_up(queue)
            self._next_look_up = 2 * clock.monotonic() - began
        if not mover.settling:
            await cutover.finish()
            self._cutover = None

    async def _copy(self, queue: ReadableQueue, copier: Copier) -> None:
        began = self._manager.clock.monotonic()
        if not copier.is_under_way:
            self._walk_began = began
        if self._mover.kept:
            await self._settle(queue)
        await copier.walk(queue)
        if copier.is_full is not None:
            await self._pause_full(copier.is_full)
            return
        now = self._manager.clock.monotonic()
        if not (copier.unreadable or copier.not_copied or self._mover.kept):
            self._error = None
            # The next walk finds the messages that arrived before the cursor's place.
            self._complete_at = self._walk_began
        self._walked.set()
        # Walks of a long queue take at most half of the time, unless an operator waits for one.
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._walk_wanted.wait(), max(COPY_PAUSE_SECONDS, now - began))
        self._walk_wanted.clear()

    def want_walk(self, copier: Copier) -> int:
        """Let a walk begin soon, and return the number of the next walk that begins."""
        self._walk_wanted.set()
        return copier.walks_begun + 1

    async def wait_for_walk(self, copier: Copier, number: int, seconds: float) -> bool:
        """Wait for the end of the walk ``number`` or a later one; return whether it has ended.

        The call waits ``seconds`` at most, and returns earlier if the remote queue cannot be read.
        """
        clock = self._manager.clock
        deadline = clock.monotonic() + seconds
        while copier.last_walk is None or copier.last_walk.number < number:
            left = deadline - clock.monotonic()
            if left <= 0 or self.trouble is not None:
                return False
            self._walked.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._walked.wait(), left)
        return True

    async def open_alone(self) -> None:
        """Open the remote queue to receive, with no other reader that may receive, and close it.

        Raises :class:`RemoteReadError` if the server refuses that, :class:`RemoteLostError` if it
        cannot be reached, and the errors of :meth:`.Remotes.connect`.
        """
        given = self.subscription
        connection = await self._remotes.connect(given.host, given.credentials)
        try:
            await connection.open(given.format, receive=True, exclusive=True)
        finally:
            connection.close()

    async def _settle(self, queue: ReadableQueue) -> bool:
        """Look up the doubtful messages, and return whether kept messages are left.

        While some are left, the call pauses, and the reason is in ``status``.
        """
        mover = self._mover
        await mover.look_up(queue)
        if mover.is_full is not None:
            await self._pause_full(mover.is_full)
        elif mover.kept:
            self._tell(
                f"{len(mover.kept)} messages are locked there: whether they are there or "
                "gone is asked again"
            )
            if self.removing:
                await asyncio.sleep(SETTLE_PAUSE_SECONDS)
        return bool(mover.kept)

    async def _pause_full(self, why: str) -> None:
        self._tell(f"{self.subscription.to} takes no rows: {why}")
        await asyncio.sleep(FULL_PAUSE_SECONDS)


def _held_text(subscription: Subscription, because: str) -> str:
    return (
        f"on hold, because this data directory is a copy ({because}): its original may go "
        "on moving these messages, and each "
        "would go to one of the two. When the original reads this queue no more: "
        "srmp-spark subscribe resume "
        f"--host {subscription.host.text} --queue '{subscription.queue}'"
    )


def _cutover_of(
    manager: QueueManager, subscription: Subscription, left: StoredPullerState
) -> Cutover | None:
    """Return the cut-over of a subscription that moves, or None if all copies are decided.

    A subscription that copied and now moves is cut over, however its mode was changed.
    """
    stored = left.cutover
    if stored is not None and stored.settled_at is None:
        return Cutover(manager, subscription, stored.consumers, is_stored=True)
    if left.copied or (left.gone and stored is None):
        return Cutover(manager, subscription, (DEFAULT_CONSUMER,), is_stored=False)
    return None


def _copied_ends(left: StoredPullerState, *, is_changed: bool) -> Collection[PulledKey]:
    """Return the copied messages for which an End may have been sent.

    In a data directory that is a copy, or a backup that was put back (``is_changed``), these are
    all undecided messages of a cut-over in progress: the original may have removed them since.
    """
    is_in_progress = left.cutover is not None and left.cutover.settled_at is None
    return left.copied if is_changed and is_in_progress else left.ends


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
