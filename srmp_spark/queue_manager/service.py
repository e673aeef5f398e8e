"""Combine the parts of a queue manager into one object, which the API and the process use.

It connects engine, journal, catalogue, admission, receipts and the helper processes. The journal
makes each change durable before it is reported. Memory may run ahead of the disk, because a commit
that fails ends the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from srmp_spark.names import FORWARD_QUEUE, ORDER_QUEUE
from srmp_spark.queue_manager.activation import Activation, reader_settings
from srmp_spark.queue_manager.admission.acceptor import Acceptor, Effects
from srmp_spark.queue_manager.admission.admission import Admission
from srmp_spark.queue_manager.admission.disk_gate import DiskGate
from srmp_spark.queue_manager.admission.gate import Gate
from srmp_spark.queue_manager.admission.refusal_log import RefusalLog
from srmp_spark.queue_manager.admission.signatures import Signatures
from srmp_spark.queue_manager.core import Core, JournalEvents, load_core
from srmp_spark.queue_manager.metrics import Metrics
from srmp_spark.queue_manager.multicast.inbox import MulticastInbox
from srmp_spark.queue_manager.multicast.ports import MulticastPorts
from srmp_spark.queue_manager.posting.url_policy import UrlPolicy
from srmp_spark.queue_manager.queues.administration import QueueAdministration
from srmp_spark.queue_manager.queues.consumer_saves import ConsumerSaves
from srmp_spark.queue_manager.queues.leases import Leases
from srmp_spark.queue_manager.queues.own_order import OwnOrder
from srmp_spark.queue_manager.reader.link import ReaderLink
from srmp_spark.queue_manager.receipts.decision_receipts import DecisionReceipts
from srmp_spark.queue_manager.receipts.receipts_sender import ReceiptsSender
from srmp_spark.queue_manager.receipts.row_decisions import RowDecisions
from srmp_spark.queue_manager.sender.link import Outgoing, OutgoingEvents
from srmp_spark.queue_manager.slices import Slices
from srmp_spark.queue_manager.state_reports import StateReports
from srmp_spark.queue_manager.trust.signers import trusted_keys
from srmp_spark.queue_manager.trust.tls import ClientTls
from srmp_spark.queue_manager.trust.writers import Writers

if TYPE_CHECKING:
    from srmp_spark.clock import Clock
    from srmp_spark.errors import ProcessMustEndError
    from srmp_spark.names import LocalHosts
    from srmp_spark.queue_manager.configuration.serve_config import ServeConfig
    from srmp_spark.queue_manager.trust.tokens import Tokens
    from srmp_spark.store.directory import DataDirectory


class QueueManager:
    """Combines the parts of the main process. Create it in the running loop.

    It is complete when it is built. Only the helper processes, gateways and timers are not started:
    the process starts them (:mod:`.serve`).
    """

    def __init__(
        self,
        config: ServeConfig,
        directory: DataDirectory,
        hosts: LocalHosts,
        public_base: str,
        clock: Clock,
        *,
        on_fatal: Callable[[ProcessMustEndError], object],
        client_tls: ClientTls | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Load the state of the data directory, and build the parts without starting them.

        ``on_fatal`` is called when a write or sync failed, and must end the process. ``client_tls``
        is for receipts over HTTPS; without it the authorities of the system are trusted. ``stop``
        is set when the process must end in order.
        """
        self.config, self.directory, self.hosts = config, directory, hosts
        self.public_base, self.clock = public_base, clock
        self.stop = stop or asyncio.Event()
        self.metrics, self.slices, self.own_order = Metrics(), Slices(), OwnOrder()
        self.rows_committed = 0
        """Rows committed since the start. Sealing learns by it whether many messages arrive."""
        self.garbage = asyncio.Event()
        """Set when there are deleted rows or files to remove (store/database/sweeper.py)."""
        self.read_at = clock.monotonic()
        """Monotonic time of the last call for rows. A reader that only peeks has no lease."""
        events = JournalEvents(
            on_owed=lambda receipts: self.receipts.owe(receipts),
            on_commit=self._on_commit,
            on_fatal=on_fatal,
        )
        core = load_core(config, directory, hosts, public_base, clock, self.metrics, events)
        self.receiver, self.catalogue, self.journal = core.receiver, core.catalogue, core.journal
        self.identifiers, self.set_aside = core.identifiers, core.set_aside
        self.retention_clock = core.retention_clock
        self._owed_at_start = core.owed
        self.receipts = ReceiptsSender(core, UrlPolicy(config.allow_url), client_tls or ClientTls())
        self.decision_receipts = DecisionReceipts(core, self.receipts)
        self.decisions = RowDecisions(core, self.decision_receipts)
        self.saves = ConsumerSaves(core, self.decisions)
        self.leases = Leases(core, self.saves)
        self.outgoing = _outgoing(core, self.leases)
        self.gate = Gate()
        self.disk = DiskGate(self.gate, directory, self.journal, config.state)
        self.queues = QueueAdministration(
            core,
            self.saves,
            self.decisions,
            self.gate,
            self.garbage,
            lambda: self.outgoing.forward_came(),
        )
        self.tokens = config.all_tokens()
        refusal_log = RefusalLog()
        self.admission = _admission(core, self.gate, self.tokens, refusal_log)
        self.acceptor = Acceptor(core, self.gate, refusal_log, self._effects())
        self.multicast = _multicast(core, self.admission, self.acceptor)
        """The multicast groups, or ``None`` if multicast is off."""
        self.state = StateReports(core, self.gate, self.multicast, self.stop)
        self.reader = _reader(core, self.state)
        self.activation = Activation(
            core, self.outgoing, self.reader, self.state, self._send_receipts
        )

    def _effects(self) -> Effects:
        return Effects(
            arm_receipts=self.receipts.arm,
            stored=self._stored,
            moved=self.decisions.moved,
            discarded=self.decisions.discarded,
            measure_disk=self.disk.look_again,
        )

    @property
    def epoch(self) -> str:
        """Return the present epoch of the data directory."""
        return self.directory.epoch

    def start_sending(self) -> None:
        """Begin to send receipts, first those that the last run has left in the store.

        A copied data directory sends none until it is activated, which is logged.
        """
        self.activation.tell()
        if self.activation.held is None:
            self._send_receipts()

    def _send_receipts(self) -> None:
        self.receipts.allow()
        self.receipts.owe(self._owed_at_start, found=True)
        self._owed_at_start.clear()
        self.receipts.arm()
        self.decision_receipts.start()

    async def stop_sending(self) -> None:
        """Stop sending receipts. Receipts that were not sent stay in the store."""
        await self.decision_receipts.close()
        await self.receipts.close()

    def _stored(self, name: str, first: int, last: int, size: int, arrived_at: int) -> None:
        # The queue may have been deleted while the rows were being stored.
        if (queue := self.catalogue.get(name)) is not None:
            queue.stored(first, last, size, arrived_at)
        if name == ORDER_QUEUE:
            self.outgoing.receipts_came()
        elif name == FORWARD_QUEUE:
            self.outgoing.forward_came()

    def _on_commit(self, rows: int, seconds: float) -> None:
        self.metrics.sync_seconds.observe(seconds)
        self.rows_committed += rows


def _admission(core: Core, gate: Gate, tokens: Tokens, refusal_log: RefusalLog) -> Admission:
    """Build the judge of all messages, with the writers and signers of the configuration."""
    config = core.config
    return Admission(
        gate,
        core.receiver,
        core.catalogue,
        Signatures(trusted_keys(config.signer), core.metrics),
        Writers(config.writer, tokens) if config.writer else None,
        refusal_log,
    )


def _outgoing(core: Core, leases: Leases) -> Outgoing:
    """Build the link to the sender process."""
    forward = core.catalogue.get(FORWARD_QUEUE)
    events = OutgoingEvents(
        forwarded=leases.forwarded,
        forward_holding=lambda holding, empty, begins: core.receiver.forward_room.update(
            holding, empty, begins=begins
        ),
        order_queue_read=lambda to: core.catalogue.find(ORDER_QUEUE).was_read(to),
    )
    return Outgoing(
        core,
        events,
        forward_end=0 if forward is None else forward.end,
        forward_waiting=0 if forward is None else forward.state.count,
    )


def _multicast(core: Core, admission: Admission, acceptor: Acceptor) -> MulticastPorts | None:
    """Build the ports of multicast, or return ``None`` if multicast is off."""
    settings = core.config.multicast
    if settings is None:
        return None
    return MulticastPorts(
        settings,
        {spec.name: spec.multicast for spec in core.config.queue if spec.multicast is not None},
        MulticastInbox(admission, acceptor, core.clock.utc),
        core.journal,
        core.metrics,
        core.clock.utc,
    )


def _reader(core: Core, reports: StateReports) -> ReaderLink:
    """Build the link to the reader process, which publishes nothing of a held copy."""
    settings = reader_settings(core)
    if core.directory.held is not None:
        settings = replace(settings, state=None)
    return ReaderLink(settings, reports.on_event)
