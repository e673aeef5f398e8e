"""One task for each subscription: connect, move or copy, wait, and begin anew when the connection is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from srmp_spark.errors import SrmpSparkError
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.puller.connection import RpcClient, find_port
from srmp_spark.queue_manager.puller.copying import Copier
from srmp_spark.queue_manager.puller.moving import Mover
from srmp_spark.queue_manager.puller.publishing import publish
from srmp_spark.queue_manager.puller.pulled import (
    Pulled,
    PulledKey,
    forget_copied,
    forget_pulled,
    keep_pulled,
    load_copied,
    load_pulled,
    note_copied,
)
from srmp_spark.queue_manager.puller.remote import RemoteQueue
from srmp_spark.queue_manager.puller.subscriptions import Subscription

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

PAUSES_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Between attempts to reach a machine; the last one repeats, and a connection that worked begins them anew."""
WAIT_SECONDS = 5.0
"""Longest wait of one R_StartReceive for a message: what is doubtful is looked up as often."""
COPY_PAUSE_SECONDS = 2.0
"""Between two walks of ``copy``, which asks for every message each time."""
FULL_PAUSE_SECONDS = 1.0
"""While the queue here takes nothing."""

log = logging.getLogger(__name__)


class _Store:
    """What is kept, in the queue manager's own transactions."""

    def __init__(self, manager: QueueManager, subscription: Subscription) -> None:
        self._manager = manager
        self._name = subscription.name
        self._to = subscription.to
        self._peer = subscription.host.text

    async def keep(self, messages: Sequence[Pulled]) -> None:
        now = self._manager.clock.utc()
        await self._manager.journal.transact(lambda each: keep_pulled(each.connection, self._name, messages, now))

    async def drop(self, keys: Sequence[PulledKey]) -> None:
        await self._manager.journal.transact(lambda each: forget_pulled(each.connection, self._name, keys))

    async def publish(self, messages: Sequence[Pulled]) -> tuple[int, str | None]:
        return await publish(
            self._manager, self._to, self._peer, messages,
            lambda each, stored: forget_pulled(each.connection, self._name, [one.key for one in stored]),
        )  # fmt: skip

    async def copied(self, messages: Sequence[Pulled]) -> tuple[int, str | None]:
        return await publish(
            self._manager, self._to, self._peer, messages,
            lambda each, stored: note_copied(each.connection, self._name, [one.key.lookup_id for one in stored]),
        )  # fmt: skip

    async def gone(self, lookup_ids: Collection[int]) -> None:
        await self._manager.journal.transact(lambda each: forget_copied(each.connection, self._name, lookup_ids))


class Puller:
    """One subscription."""

    def __init__(self, manager: QueueManager, subscription: Subscription) -> None:
        self._manager = manager
        self.subscription = subscription
        self._error: str | None = None
        self._empty_at = manager.clock.monotonic()
        """When the remote queue was last seen empty, or all of it copied."""
        store, database = _Store(manager, subscription), manager.directory.writer
        self._mover: Mover | None = None
        self._copier: Copier | None = None
        if subscription.mode == "move":
            self._mover = Mover(store, load_pulled(database, subscription.name), told=self._tell)
        else:
            self._copier = Copier(store, load_copied(database, subscription.name), told=self._tell)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End; what is locked is unlocked with the connection."""
        await end((self._task,))

    def status(self) -> dict[str, Any]:
        """For ``status.subscriptions``."""
        given = self.subscription
        pulled = (self._mover or self._copier or _NOTHING).moved
        return {
            "host": given.host.text,
            "queue": given.queue,
            "mode": given.mode,
            "to": given.to,
            "pulled": pulled,
            "pending": 0 if self._mover is None else len(self._mover.kept),
            "doubtful": 0 if self._mover is None else len(self._mover.doubtful),
            "lag_seconds": round(self._manager.clock.monotonic() - self._empty_at, 1),
            "last_error": self._error,
        }

    def _tell(self, what: str) -> None:
        if what != self._error:  # once, and not every few seconds
            log.warning('subscription.trouble name=%s reason="%s"', self.subscription.name, ascii(what)[1:-1])
        self._error = what

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._connected()
            except (SrmpSparkError, OSError) as error:
                self._tell(str(error))
            except Exception as error:  # a bug of ours must not end the subscription in silence
                log.exception("subscription.failed name=%s", self.subscription.name)
                self._error = f"{type(error).__name__}: see the log"
            finally:
                if self._mover is not None:
                    self._mover.lost()
            failures = 0 if self._worked else failures + 1
            await asyncio.sleep(PAUSES_SECONDS[min(failures, len(PAUSES_SECONDS) - 1)])

    async def _connected(self) -> None:
        """One connection, until it is gone. Raises :class:`LostError`, :class:`RefusedError`."""
        self._worked = False
        given = self.subscription
        host = given.host
        port = host.port if host.port is not None else await find_port(host.name)
        client = await RpcClient.connect(host.name, port, given.credentials.settings(host))
        try:
            queue = await RemoteQueue.open(client, given.format, receive=given.mode == "move")
            while True:
                await self._once(queue)
                self._worked = True
        finally:
            client.close()

    async def _once(self, queue: RemoteQueue) -> None:
        full: str | None
        if self._mover is not None:
            await self._mover.look_up(queue)
            count = await self._mover.batch(queue, WAIT_SECONDS)
            full = self._mover.is_full
        else:
            assert self._copier is not None
            count = await self._copier.walk(queue)
            full = self._copier.is_full
        if full is not None:
            self._tell(f"{self.subscription.to} takes no rows: {full}")
            await asyncio.sleep(FULL_PAUSE_SECONDS)
            return
        self._error = None
        if not count or self._copier is not None:
            self._empty_at = self._manager.clock.monotonic()
        if self._copier is not None:
            await asyncio.sleep(COPY_PAUSE_SECONDS)

    _worked = False


class _Nothing:
    moved = 0


_NOTHING = _Nothing()


class Pullers:
    """All subscriptions of the configuration."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self.pullers: list[Puller] = []

    async def start(self, subscriptions: Sequence[Subscription]) -> None:
        """Make the queues of ours that are missing, and begin. Raises an :class:`ApiError` for one of the wrong kind."""
        for each in subscriptions:
            await self._manager.create_queue(each.to, transactional=False)
        self.pullers = [Puller(self._manager, each) for each in subscriptions]
        self._manager.subscriptions = lambda: [each.status() for each in self.pullers]
        for puller in self.pullers:
            puller.start()

    async def stop(self) -> None:
        """End all."""
        for puller in self.pullers:
            await puller.stop()
