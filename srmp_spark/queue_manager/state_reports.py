"""Keep what the publishers of the Delta state report, and refuse an older data directory.

The publishers run in the reader process, whose events arrive here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from srmp_spark.errors import StoreDamagedError
from srmp_spark.queue_manager.reader.crossing import PositionsSynced, ReaderEvent
from srmp_spark.queue_manager.state_lag import ROWS_GONE_MAX, StateFailure, StateLag
from srmp_spark.store.delta.tables.events import (
    PublisherFailed,
    PublisherRecovered,
    RowsGone,
    StateCompared,
    StatePublished,
)

if TYPE_CHECKING:
    from srmp_spark.queue_manager.admission.gate import Gate
    from srmp_spark.queue_manager.core import Core
    from srmp_spark.queue_manager.multicast.ports import MulticastPorts

OLDER_COPY = "older-copy"
"""Reason of the closed gate when the data directory is an older copy."""
STATE_COMPARE_SECONDS = 15.0
"""Longest wait for the comparison with the Delta state, in seconds.

After that messages are accepted without it. The comparison loads deltalake and reads three logs. A
store that is away for longer must not keep messages out; the comparison is then made as soon as the
store is back.
"""

log = logging.getLogger(__name__)


class StateReports:
    """Handles the events of the reader process about the Delta state."""

    def __init__(
        self, core: Core, gate: Gate, multicast: MulticastPorts | None, stop: asyncio.Event
    ) -> None:
        """Prepare to handle events. ``stop`` is set when the process must end."""
        self._catalogue = core.catalogue
        self._clock = core.clock
        self._gate = gate
        self._multicast = multicast
        self._stop = stop
        # Nothing can have waited longer than since the start.
        self.lag = StateLag(core.config.state, as_of=core.clock.utc() / 1e6)
        self.published = asyncio.Event()
        """Set when the Delta state has got more rows, so that retention may delete them from the
        log.
        """
        self.synced: dict[str, int] = {}
        """For each queue the sequence of the last row that the Delta state holds durably."""
        self.compared = asyncio.Event()
        """Set when the Delta state was compared with the log, or cannot be compared."""
        self.fatal: StoreDamagedError | None = None
        """The error with which the process must end, or ``None``: the data directory is older than
        the Delta state.
        """
        self._state_failure = ""
        """The last error of a publisher that was logged, so that each is logged once."""
        self._unpublished: set[str] = set()
        """Names of the queues that the publisher called damaged since its last report."""
        self._unpublished_before: set[str] = set()
        """Names of the queues that the publisher called damaged before its last report."""

    def on_event(self, event: ReaderEvent) -> None:
        """Handle an event of the reader process.

        Events report which rows the Delta state holds, and failures and recoveries of its
        publishers.
        """
        lag = self.lag
        if isinstance(event, StateCompared):
            self.compared.set()
        elif isinstance(event, PositionsSynced):
            self._note_synced(event.sequences)
        elif isinstance(event, StatePublished):  # This is the last packet of a report.
            self._note_synced(event.sequences)
            self._forget_unpublished()
            lag.position = event.position
            lag.as_of = event.as_of
            if self._multicast is not None:
                self._multicast.losses.published(event.position)
        elif isinstance(event, RowsGone):
            names = ("epoch", "queue", "first", "last")
            found = [dict(zip(names, each, strict=True)) for each in event.ranges]
            lag.rows_gone = [*lag.rows_gone, *found][:ROWS_GONE_MAX]
            ranges = [list(each) for each in event.ranges]
            log.error("state.rows_gone ranges=%s further=%d", ranges, event.further)
        elif isinstance(event, PublisherRecovered):
            if lag.failures.pop(event.of, None) is not None:
                self._state_failure = ""
                log.info("state.recovered of=%s", event.of)
        else:
            self._on_failed(event)

    def _note_synced(self, sequences: dict[str, dict[str, int]]) -> None:
        for queues in sequences.values():
            for name, last in queues.items():
                if last > self.synced.get(name, 0):
                    self.synced[name] = last
                    self.published.set()

    def _on_failed(self, event: PublisherFailed) -> None:
        if event.queue is None:
            self._note_failure(event)
        elif (damaged := self._catalogue.get(event.queue)) is not None:
            damaged.damage["publish"] = event.error
            self._unpublished.add(damaged.name)
        if event.error != self._state_failure:
            log.error(
                'state.failed fatal=%s reason="%s" remedy="%s"',
                event.fatal,
                event.error,
                event.remedy,
            )
            self._state_failure = event.error
        if event.fatal:
            self.compared.set()  # No better answer will arrive.
        if event.older_copy:
            self._refuse_older_copy(event.error)

    def _note_failure(self, event: PublisherFailed) -> None:
        """Keep the failure of a publisher of the Delta state for ``status``.

        A failure that continues keeps the time at which it began.
        """
        failures, of = self.lag.failures, event.of
        since = failures[of].since if of in failures else self._clock.utc()
        failures[of] = StateFailure(event.error, event.remedy, event.fatal, since)

    def _forget_unpublished(self) -> None:
        """Clear the damage of queues that the publisher did not call damaged since its last report.

        Called at each report. The damage of a queue is cleared at the report after the one in which
        it was last named.
        """
        for name in self._unpublished_before - self._unpublished:
            if (queue := self._catalogue.get(name)) is not None:
                queue.damage.pop("publish", None)
        self._unpublished_before, self._unpublished = self._unpublished, set()

    def _refuse_older_copy(self, reason: str) -> None:
        """Close the gate for good, and end the process: the data directory is an older copy.

        Every row that is accepted from now on would get a sequence that another message has in
        Delta.
        """
        self.fatal = StoreDamagedError(reason)
        self._gate.close(
            OLDER_COPY, "the data directory is an older copy of what the Delta state holds"
        )
        self.compared.set()
        self._stop.set()
