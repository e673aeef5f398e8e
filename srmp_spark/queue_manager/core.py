"""Load the parts of the main process on which all other parts stand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srmp_spark.queue_manager.metrics import Metrics
from srmp_spark.queue_manager.queues.identifiers import Identifiers
from srmp_spark.queue_manager.queues.opening import open_queues
from srmp_spark.srmp.receiving.history import MessageIdHistory
from srmp_spark.srmp.receiving.history_clock import HistoryClock
from srmp_spark.srmp.receiving.incoming_streams import IncomingStreams
from srmp_spark.srmp.receiving.receiver import Receiver, ReceiverSettings
from srmp_spark.store.database.set_aside import SetAside, tell_set_aside
from srmp_spark.store.journal import Journal
from srmp_spark.store.stored_rows import retention
from srmp_spark.store.tables import state

if TYPE_CHECKING:
    from srmp_spark.clock import Clock
    from srmp_spark.errors import ProcessMustEndError
    from srmp_spark.names import LocalHosts
    from srmp_spark.queue_manager.configuration.serve_config import ServeConfig
    from srmp_spark.queue_manager.queues.catalogue import Catalogue
    from srmp_spark.store.directory import DataDirectory
    from srmp_spark.store.tables.state import StoredReceipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The engine with its log, and what nearly every other part of the main process needs."""

    config: ServeConfig
    directory: DataDirectory
    hosts: LocalHosts
    public_base: str
    """The URL by which peers reach this queue manager."""
    clock: Clock
    metrics: Metrics
    receiver: Receiver
    catalogue: Catalogue
    journal: Journal
    identifiers: Identifiers
    retention_clock: HistoryClock
    """The clock of retention. A start under a wrong wall clock must not delete everything."""
    owed: list[StoredReceipt]
    """The receipts that the last run has left in the store."""
    set_aside: list[SetAside]
    """Database rows that were unreadable at the start, for ``status`` and ``doctor``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEvents:
    """The callbacks of the journal."""

    on_owed: Callable[[list[StoredReceipt]], object]
    """Called after a commit with the receipts that it has added to the store."""
    on_commit: Callable[[int, float], object]
    """Called after a commit with the number of its rows, and the seconds that it took."""
    on_fatal: Callable[[ProcessMustEndError], object]
    """Called when a write or sync failed. It must end the process."""


def load_core(
    config: ServeConfig,
    directory: DataDirectory,
    hosts: LocalHosts,
    public_base: str,
    clock: Clock,
    metrics: Metrics,
    events: JournalEvents,
) -> Core:
    """Load the state of the data directory. Call it in the running loop."""
    stored = state.load(directory.writer)
    unreadable = list(stored.unreadable)
    history = MessageIdHistory.load(
        state.load_history(directory.writer, unreadable), state.undivided_until(directory.writer)
    )
    newest = (
        history.newest if history.newest is not None else retention.newest_arrival(directory.writer)
    )
    retention_clock = HistoryClock(newest)
    retention_clock.read(clock.utc(), clock.monotonic())
    receiver = Receiver(
        directory.queue_manager,
        hosts,
        history,
        IncomingStreams.load(stored.streams, stored.accepted_gaps),
        ReceiverSettings(
            unknown_queue=config.unknown_queue,
            invalid_signature=config.invalid_signature,
            expired=config.expired,
            queue_quota_bytes=config.queue_quota_bytes,
            machine_quota_bytes=config.machine_quota_bytes,
            retransmission_timeout=config.retransmission_timeout,
            forwarding=config.forwarding,
        ),
    )
    journal = Journal(
        directory,
        asyncio.get_running_loop(),
        changes=receiver.changes,
        on_owed=events.on_owed,
        on_fatal=events.on_fatal,
        on_commit=events.on_commit,
    )
    ceiling = stored.ceilings.get(state.MESSAGE_IDENTIFIERS, 0)
    return Core(
        config=config,
        directory=directory,
        hosts=hosts,
        public_base=public_base,
        clock=clock,
        metrics=metrics,
        receiver=receiver,
        catalogue=open_queues(
            receiver, directory, stored.queues, stored.consumers, clock.monotonic()
        ),
        journal=journal,
        identifiers=Identifiers(journal, state.MESSAGE_IDENTIFIERS, ceiling),
        retention_clock=retention_clock,
        owed=stored.owed,
        set_aside=[*tell_set_aside(unreadable)],
    )
