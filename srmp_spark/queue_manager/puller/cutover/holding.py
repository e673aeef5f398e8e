"""Hold consumers of a local queue while it is not decided which of its rows they may be given.

Theory of operation. The cut-over is a receiver like any other: it registers as the holder of each
consumer, renews the leases, and marks rows. So a query, a command or a remote reader that wants the
consumer waits, and is refused with an error that names the cut-over. The leases are stored. After a
restart they hold for 30 seconds (:data:`.consumers.LEASE_SECONDS_AFTER_START`), in which the
subscription takes them again, before any other receiver can.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError, SrmpSparkError
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.queues.consumers import SEQUENCES_OF_A_COMMIT
from srmp_spark.sequences.sequence_set import SequenceSet

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

RENEW_SECONDS = 10.0
"""Seconds between two renewals of the leases. Other receivers renew as often."""

log = logging.getLogger(__name__)


class HeldElsewhereError(SrmpSparkError):
    """Raised when another receiver holds a consumer that the cut-over needs."""


class Hold:
    """Holds some consumers of one local queue for the cut-over of one subscription."""

    def __init__(
        self, manager: QueueManager, queue: str, consumers: Sequence[str], holder: str
    ) -> None:
        """Prepare the hold. ``holder`` is the text that names the cut-over to other receivers."""
        self._manager = manager
        self._queue = queue
        self.consumers = tuple(consumers)
        self._holder = holder
        self._renewing: asyncio.Task[None] | None = None
        self._door = asyncio.Lock()

    @property
    def is_taken(self) -> bool:
        """Return whether the consumers are held."""
        return self._renewing is not None

    async def take(self) -> None:
        """Take the lease of each consumer, and keep it until :meth:`release` or :meth:`stop`.

        Waits while another receiver has a lease. Raises :class:`HeldElsewhereError` as soon as that
        receiver renews it, and :class:`ApiError` if the queue does not exist.
        """
        async with self._door:
            if self.is_taken:
                return
            try:
                await self._register()
            except ApiError as error:
                if error.status != 409:
                    raise
                raise HeldElsewhereError(
                    f"the cut-over waits, because {error.message}: stop that receiver; it could "
                    "be given rows whose messages are still received there"
                ) from None
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _register(self) -> None:
        queue = self._manager.catalogue.find(self._queue)
        for name in self.consumers:
            await self._manager.leases.register(
                queue, name, self._holder, None, asyncio.Event(), ranged=True
            )

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                await self._register()
            except SrmpSparkError as error:
                log.warning(
                    'cutover.not_held queue=%s reason="%s"', self._queue, ascii(str(error))[1:-1]
                )

    async def mark(self, sequences: SequenceSet) -> None:
        """Mark rows as received for each consumer, and wait until the marks are stored.

        The leases must be taken. Raises :class:`ApiError` if queue or consumer were deleted.
        """
        queue = self._manager.catalogue.find(self._queue)
        span = queue.span(None)
        for name in self.consumers:
            each = _each(sequences)
            while page := [one for one in islice(each, SEQUENCES_OF_A_COMMIT) if one <= span.end]:
                await self._manager.leases.received(queue, span, name, self._holder, None, page)

    async def release(self) -> None:
        """Release the leases durably."""
        await self.stop()
        queue = self._manager.catalogue.find(self._queue)
        for name in self.consumers:
            await self._manager.leases.release(queue, name, self._holder)

    async def stop(self) -> None:
        """Renew the leases no longer. They end by themselves, unless they are taken again."""
        await end((self._renewing,))
        self._renewing = None


def _each(sequences: SequenceSet) -> Iterator[int]:
    runs: Iterable[tuple[int, int]] = sequences.runs(1)
    return (sequence for first, last in runs for sequence in range(first, last + 1))
