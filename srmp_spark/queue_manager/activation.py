"""Hold everything that acts outside while the data directory is a copy, until it is activated.

:mod:`srmp_spark.store.tables.held_copy` states the reason. What is held, and where:

- messages to others, new ones too: the sender process (:meth:`.Sender.hold_all`)
- stream, delivery and decision receipts: :class:`.ReceiptsSender`, :class:`.DecisionReceipts`
- the Delta state: the reader process starts no publisher
- subscriptions that move messages: :class:`.Pullers`

Messages are accepted and rows are read as always. Answers to a caller, such as the
acknowledgements of WS-ReliableMessaging, are not held: the caller chose this queue manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.reader.crossing import (
    PublishingStarted,
    ReaderSettings,
    StartPublishing,
)
from srmp_spark.queue_manager.state_reports import OLDER_COPY, STATE_COMPARE_SECONDS
from srmp_spark.store.tables import held_copy

if TYPE_CHECKING:
    from srmp_spark.queue_manager.core import Core
    from srmp_spark.queue_manager.queues.remote_queues import RemoteQueues
    from srmp_spark.queue_manager.reader.link import ReaderLink
    from srmp_spark.queue_manager.sender.link import Outgoing
    from srmp_spark.queue_manager.state_reports import StateReports
    from srmp_spark.store.tables.held_copy import HeldCopy

WHAT = (
    "this data directory is a copy, and its original may still run: messages and receipts are not "
    "sent, the Delta state is not published, and subscriptions that move take nothing"
)
"""What a held copy does not do, for an operator."""
DO = (
    "if this copy is to live, end the original for good and run `srmp-spark activate`; if it was "
    "started by mistake, stop it"
)
"""What an operator can do about a held copy."""

log = logging.getLogger(__name__)


def reader_settings(core: Core) -> ReaderSettings:
    """Return the settings of the reader process of a data directory that is not held."""
    return ReaderSettings(
        str(core.directory.path),
        core.directory.queue_manager,
        core.config.state,
        core.config.state_interval,
    )


class Activation:
    """Keeps whether the data directory is held, and ends the hold on an operator's command."""

    def __init__(
        self,
        core: Core,
        outgoing: Outgoing,
        reader: ReaderLink,
        reports: StateReports,
        on_activated: Callable[[], object],
    ) -> None:
        """Begin as the data directory states. ``on_activated`` is called to send receipts.

        ``reports`` gets the events of the reader process about the Delta state.
        """
        self.held: HeldCopy | None = core.directory.held
        """Why the data directory is held, or ``None`` if it is not."""
        self._journal = core.journal
        self._outgoing = outgoing
        self._reader = reader
        self._settings = reader_settings(core)
        self._reports = reports
        self._on_activated = on_activated
        self._turn = asyncio.Lock()

    def tell(self) -> None:
        """Log that the data directory is held, if it is."""
        if self.held is not None:
            log.warning('copy.held because="%s" what="%s" do="%s"', self.held.because, WHAT, DO)

    async def activate(self, remote_queues: RemoteQueues) -> HeldCopy | None:
        """End the hold for good. Return why the directory was held, or ``None`` if it was not.

        A call that is repeated does what is left to do. The Delta state is compared first, because
        it may be ahead of a copy, or belong to another directory since a restore. Then the
        subscriptions go on. If the process ends in the middle, the directory is still held, and the
        status says so. Raises :class:`ApiError`: 503 if the reader process does not answer, and 409
        if the Delta state refuses this directory. The process then ends, and stays held.
        """
        async with self._turn:
            held = self.held
            await self._publish()
            await remote_queues.resume_all()
            if held is not None:
                await self._journal.transact(lambda each: held_copy.release(each.connection))
                self.held = None
                log.warning('copy.activated because="%s"', held.because)
                self._on_activated()
            self._outgoing.activate()
            return held

    async def _publish(self) -> None:
        """Start to publish the Delta state, and wait until it was compared with the log.

        A state that cannot be read in STATE_COMPARE_SECONDS is compared later, as at a start.
        """
        if self._settings.state is None:
            return
        # A process that dies is started again with these settings.
        self._reader.use_settings(self._settings)
        await self._reader.ask(StartPublishing(self._settings.state), PublishingStarted)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._reports.compared.wait(), STATE_COMPARE_SECONDS)
        if self._reports.fatal is not None:
            raise ApiError(
                409,
                OLDER_COPY,
                str(self._reports.fatal),
                "this queue manager ends now; start the other data directory",
            )
