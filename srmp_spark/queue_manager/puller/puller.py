"""One task for each subscription: connect, move or copy, wait, and begin anew when the connection is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from srmp_spark.errors import SrmpSparkError
from srmp_spark.mqrr.pulled_states import PulledState
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.log_once import LogOnce
from srmp_spark.queue_manager.puller.added import subscription_file
from srmp_spark.queue_manager.puller.answers import LostError, ReadableQueue
from srmp_spark.queue_manager.puller.circles import Circles
from srmp_spark.queue_manager.puller.copying import Copier
from srmp_spark.queue_manager.puller.moving import Mover
from srmp_spark.queue_manager.puller.publishing import publish
from srmp_spark.queue_manager.puller.pulled import Pulled, PulledKey
from srmp_spark.queue_manager.puller.remotes import Remotes
from srmp_spark.queue_manager.puller.sent_marks import SentMarks
from srmp_spark.queue_manager.puller.stored import (
    Left,
    forget_copied,
    forget_pulled,
    keep_pulled,
    note_copied,
)
from srmp_spark.queue_manager.puller.subscriptions import Subscription

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

PAUSES_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Between attempts to reach a machine; the last one repeats, and a connection that worked begins them anew."""
BREAKS_SECONDS = (0.1, 0.1, 0.2, 0.5, 1.0)
"""In their place after a connection that was made and then broke: the machine is there, and on a line that breaks again and
again each connection moves a message or two. One that moved something begins them anew."""
WAIT_SECONDS = 5.0
"""Longest wait of one R_StartReceive for a message: what is doubtful is looked up as often."""
COPY_PAUSE_SECONDS = 2.0
"""Between two walks of ``copy``, which asks for every message each time."""
FULL_PAUSE_SECONDS = 1.0
"""While the queue here takes nothing."""
UNREADABLE_PAUSE_SECONDS = 5.0
"""When nothing is there but what cannot be read."""
EARLY_PAUSE_SECONDS = 0.1
"""After a read that was to wait for a message and came back without one at once: a server that does not wait is asked no more
than ten times a second."""
SETTLE_PAUSE_SECONDS = 2.0
"""Between two looks at what is still locked there, when nothing more is taken."""
STOP_SECONDS = 5.0
"""What a batch under way gets at the end: what is locked and stored is acknowledged, and nothing is left in doubt."""

log = logging.getLogger(__name__)


class _Store:
    """What is kept, in the queue manager's own transactions."""

    def __init__(self, manager: QueueManager, subscription: Subscription, marks: SentMarks) -> None:
        self._manager = manager
        self._marks = marks
        self._name = subscription.name
        self._to = subscription.to
        self._peer = subscription.host.text

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
            lambda each, stored: note_copied(
                each.connection, self._name, [one.key for one in stored]
            ),
        )

    async def removed(self, keys: Collection[PulledKey]) -> None:
        await self._manager.journal.transact(
            lambda each: forget_copied(each.connection, self._name, keys)
        )

    def sending_end(self, keys: Collection[PulledKey]) -> None:
        self._marks.sending(keys)

    def nothing_is_kept(self) -> None:
        self._marks.nothing_is_kept()

    def refuses(self) -> str | None:
        gate = self._manager.acceptor.gate
        return None if gate is None else gate.message


class Puller:
    """One subscription."""

    def __init__(
        self,
        manager: QueueManager,
        subscription: Subscription,
        left: Left,
        circles: Circles,
        remotes: Remotes,
        *,
        configured: bool = True,
        removing: bool = False,
        held: str | None = None,
    ) -> None:
        """``left``: what an earlier one of the same name has stored. ``remotes`` makes the connections.

        ``configured``: it stands in the configuration file. ``removing``: nothing is taken any more, and what is pending is
        settled. ``held``: why it is on hold (:mod:`srmp_spark.store.held_subscriptions`).
        """
        self._manager = manager
        self._circles = circles
        self._remotes = remotes
        self.subscription = subscription
        self.configured = configured
        self.removing = removing
        self._held = held
        self.settled: Callable[[], object] = lambda: None
        """Called once, when ``removing`` has nothing left to do."""
        self._error: str | None = None
        self._logged = LogOnce()
        self._complete_at: float | None = None
        """What was in the remote queue then is here; ``None``: it was never seen whole."""
        self._failed_at: float | None = None
        """When the last attempt to read failed; ``None``: it is read, or the first attempt is under way."""
        self._is_drained = False
        """Nothing was left there that could be taken: only then is a message waited for."""
        self._is_new = not left.kept and not left.copied
        self._stopping = asyncio.Event()
        self._worked = False
        self._broke = False
        """Whether the last connection was made and then lost."""
        self._marks = SentMarks.open(
            subscription_file(manager.directory.path, subscription.name, "sent"),
            [each.key for each in left.kept],
            unchanged=manager.directory.changed is None,
        )
        for each in left.kept:
            if not self._marks.was_sent(each.key):
                each.state = PulledState.UNSENT
        store = _Store(manager, subscription, self._marks)
        takes = subscription.mode == "move" and not removing
        self._mover = Mover(store, left.kept, told=self._tell, copied=left.copied, takes=takes)
        """Without ``takes`` it finds out what became of what was taken while the subscription was another one."""
        self._walk_began = 0.0
        """When the present walk of ``copy`` began, perhaps some connections ago."""
        self._copier: Copier | None = None
        if subscription.mode == "copy" and not removing:
            self._copier = Copier(store, left.copied, told=self._tell)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, unless it is on hold."""
        if self._held is not None:
            self._failed_at = self._manager.clock.monotonic()
            self._error = _held_text(self.subscription, self._held)
            log.warning(
                'subscription.held name=%s reason="%s"', self.subscription.name, self._error
            )
            return
        self._task = asyncio.get_running_loop().create_task(self._run())

    def resume(self) -> None:
        """Begin one that was on hold."""
        self._held = self._failed_at = self._error = None
        self.start()

    async def stop(self) -> None:
        """End. What is locked and stored is acknowledged first; after :data:`STOP_SECONDS` it is left in doubt."""
        self._stopping.set()
        if self._task is not None and self._mover.is_busy:
            await asyncio.wait((self._task,), timeout=STOP_SECONDS)
        await end((self._task,))
        self._circles.leave(self.subscription)
        self._marks.close()

    @property
    def is_held(self) -> bool:
        """Return whether the subscription is on hold."""
        return self._held is not None

    @property
    def pending(self) -> int:
        """Messages that are stored and no rows yet."""
        return len(self._mover.kept)

    @property
    def pulled(self) -> int:
        """Rows since this process began."""
        return self._mover.moved + (0 if self._copier is None else self._copier.moved)

    @property
    def taken_in_doubt(self) -> int:
        """Of them those that were gone when they were looked up: another reader may have them too."""
        return self._mover.in_doubt_taken

    @property
    def lag_seconds(self) -> float | None:
        """How long ago everything that was in the remote queue was here; ``None``: that never was, since this process began."""
        return self._since(self._complete_at)

    @property
    def is_unused(self) -> bool:
        """It never read anything, and nothing is pending: it may go as if it had never been."""
        return (
            self._is_new
            and self._complete_at is None
            and not (self.pulled or self.pending or self._mover.ended)
        )

    def _since(self, moment: float | None) -> float | None:
        return None if moment is None else self._manager.clock.monotonic() - moment

    def status(self) -> dict[str, Any]:
        """For ``status.subscriptions``."""
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
        }

    def _tell(self, what: str) -> None:
        line = self._logged.line(what, self._manager.clock.monotonic())
        if line is not None:
            log.warning('subscription.trouble name=%s reason="%s"', self.subscription.name, line)
        self._error = what

    async def _run(self) -> None:
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
            except Exception as error:  # a bug of ours must not end the subscription in silence
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
                self._mover.lost()
            if self._stopping.is_set():
                return
            before, did = did, self._mover.ended + self.pulled
            has_worked = self._worked or did > before
            breaks = 0 if has_worked else breaks + self._broke
            failures = 0 if has_worked or self._broke else failures + 1
            pauses, number = (BREAKS_SECONDS, breaks) if self._broke else (PAUSES_SECONDS, failures)
            await asyncio.sleep(pauses[min(number, len(pauses) - 1)])

    async def _connected(self) -> None:
        """One connection, until it is gone. Raises :class:`LostError`, :class:`RefusedError`."""
        self._worked = self._is_drained = self._broke = False
        given = self.subscription
        connection = await self._remotes.connect(given.host, given.credentials)
        try:
            if not self.removing:
                self._circles.enter(given, connection.address)
            queue = await connection.open(
                given.format, receive=given.mode == "move" and not self.removing
            )
            await self._go_on(queue)
        except LostError:
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
        asked_at = self._manager.clock.monotonic()
        count = await mover.batches(queue, wait_s, goes_on=lambda: not self._stopping.is_set())
        self._is_drained = mover.is_empty
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
            self._complete_at = self._walk_began  # what came behind the cursor is for the next walk
        await asyncio.sleep(
            max(COPY_PAUSE_SECONDS, now - began)
        )  # of a long queue no more than half the time

    async def _settle(self, queue: ReadableQueue) -> bool:
        """Find out what became of what was taken; whether something is left."""
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


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
