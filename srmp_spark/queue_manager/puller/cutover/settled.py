"""Carry one cut-over through: hold the consumers, let the copies be decided, mark, release.

The theory is in :mod:`srmp_spark.queue_manager.puller.cutover`. Every step may be repeated: after a
kill, the next start begins at :meth:`Cutover.begin` again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from srmp_spark.queue_manager.configuration.subscriptions import Subscription
from srmp_spark.queue_manager.puller.cutover.copied_rows import read_copied_rows, read_rowless
from srmp_spark.queue_manager.puller.cutover.holding import Hold
from srmp_spark.queue_manager.puller.moving_and_copying.settling import Settling
from srmp_spark.store.tables import cutovers

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

log = logging.getLogger(__name__)


class Cutover:
    """One cut-over that is not settled: the subscription moves, and copies are not decided."""

    def __init__(
        self,
        manager: QueueManager,
        subscription: Subscription,
        consumers: Sequence[str],
        *,
        is_stored: bool,
    ) -> None:
        """Prepare the cut-over. ``is_stored`` states that an earlier process has begun it."""
        self._manager = manager
        self._subscription = subscription
        self._is_stored = is_stored
        self._is_begun = False
        self._hold = Hold(manager, subscription.to, consumers, _holder(subscription))

    @property
    def consumers(self) -> tuple[str, ...]:
        """Return the names of the consumers that the cut-over holds."""
        return self._hold.consumers

    async def hold(self) -> None:
        """Hold the consumers. Raises the errors of :meth:`.Hold.take`."""
        await self._hold.take()

    async def begin(self, settling: Settling) -> None:
        """Hold the consumers, and forget the copies whose rows do not exist any more.

        A call after the first one changes nothing. Raises the errors of :meth:`.Hold.take`, and
        :class:`StoreError` if the store cannot be read.
        """
        if self._is_begun:
            return
        await self._hold.take()
        name, manager = self._subscription.name, self._manager
        if not self._is_stored:
            now = manager.clock.utc()
            await manager.journal.transact(
                lambda each: cutovers.begin(each.connection, name, self.consumers, now)
            )
            self._is_stored = True
        holes = manager.catalogue.find(self._subscription.to).waiting.holes.copy()
        rowless = await read_rowless(manager.directory.path, name, holes) if holes else []
        if rowless:
            await manager.journal.transact(
                lambda each: cutovers.forget_rows(each.connection, name, rowless)
            )
            settling.forget(rowless)
        self._is_begun = True
        log.info(
            "cutover.begins name=%s consumers=%s undecided=%d without_row=%d",
            name,
            ",".join(self.consumers),
            len(settling),
            len(rowless),
        )

    async def finish(self) -> None:
        """Mark what was received there, store that the cut-over is settled, release the consumers.

        Call this when every copied message is decided. Raises the errors of :meth:`.Hold.take`,
        and :class:`StoreError` if the store cannot be read.
        """
        name = self._subscription.name
        rows = await read_copied_rows(self._manager.directory.path, name)
        await self._hold.take()
        await self._hold.mark(rows.received_there)
        now = self._manager.clock.utc()
        await self._manager.journal.transact(
            lambda each: cutovers.settle(each.connection, name, now)
        )
        await self._hold.release()
        log.info("cutover.settled name=%s received_there=%d", name, len(rows.received_there))

    async def give_up(self, *, rows_are_here: bool) -> None:
        """Decide what is not decided by the operator's word, and release the consumers.

        With ``rows_are_here``, the undecided rows belong to the readers here. Otherwise they are
        marked as received there. If the queue was deleted, there are no rows. Raises the errors of
        :meth:`finish`.
        """
        if self._manager.catalogue.get(self._subscription.to) is None:
            return
        await self._hold.take()
        rows = await read_copied_rows(self._manager.directory.path, self._subscription.name)
        await self._hold.mark(rows.received_there)
        if not rows_are_here:
            await self._hold.mark(rows.there)
        await self._hold.release()

    async def stop(self) -> None:
        """Renew the leases no longer, because the process or the subscription stops."""
        await self._hold.stop()


def _holder(subscription: Subscription) -> str:
    return (
        f"the cut-over of {subscription.queue} of {subscription.host.text} "
        "(srmp-spark subscribe cutover --check shows its progress)"
    )
