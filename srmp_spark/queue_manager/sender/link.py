"""The main process's side of the sender process, which owns all outgoing messages.

See ADR 0010. Ordering and numbering a batch of a million rows takes seconds, and sending occupies a
processor; neither may delay a 200. So a child process does this work.
:mod:`srmp_spark.queue_manager.child` describes how the child is started and asked. This side
notifies the child of new rows in this queue manager's order queue. This side also gives message
identifiers to the child, because the lineage belongs to the queue manager and receipts use the same
numbers. The last status of the outgoing queues is kept on this side, for times when the child
cannot be asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from srmp_spark.errors import ApiError, SrmpSparkError
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.queue_manager.child.link import ChildLink
from srmp_spark.queue_manager.sender.crossing import (
    SENDER_COMMANDS,
    SENDER_EVENTS,
    DeadLettersWait,
    ForwardArrived,
    ForwardHolding,
    ForwardingHeld,
    GetStatus,
    HoldForwarding,
    IdentifiersRefused,
    IdentifiersReserved,
    OutgoingEntry,
    ReceiptsArrived,
    ReceiptsNoted,
    ReleaseForwarding,
    ReserveIdentifiers,
    SenderCommand,
    SenderEvent,
    SenderNotice,
    SenderProcessSettings,
    SenderStatus,
    SendingAllowed,
)
from srmp_spark.store.database.sqlite_file import check_file, readable
from srmp_spark.store.outbox.limits import STAGES_DIRECTORY
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE, OUTBOX

if TYPE_CHECKING:
    from srmp_spark.queue_manager.core import Core

STATUS_SECONDS = 2.0
"""Longest wait for the child's status, in seconds. After it the previous status is shown."""
STATUS_KEPT_SECONDS = 0.2
"""Time for which a status is used again without asking the child, in seconds."""
COMMIT_SECONDS = 900.0
"""Longest wait for the child's answer to a commit, in seconds; then a 503 is raised.

A batch of the largest size takes a minute.
"""
STAGE_SECONDS = 300.0
"""Longest wait for the check of a stage, in seconds.

A stage is the file with the rows of one task of a batch.
"""
HOLD_ASKED_SECONDS = 10.0
"""Longest wait for the child to hold forwarding, in seconds.

During this time rows that are being made outgoing are finished. After it the purge continues, and a
warning is logged.
"""
TELL_AGAIN_SECONDS = 0.2
"""Pause before a notice to a child that was too busy is repeated, in seconds."""
TELL_TIMES = 50
"""Tries to answer a child that asked for identifiers, each after TELL_AGAIN_SECONDS.

All tries together take less time than the child waits.
"""

_Answer = TypeVar("_Answer")

log = logging.getLogger(__name__)


class SenderLink(ChildLink[SenderCommand, SenderEvent]):
    """Starts the sender process, keeps it running, and sends it commands (:mod:`.crossing`)."""

    module = "srmp_spark.queue_manager.sender.process"
    noun = "sender"
    commands = SENDER_COMMANDS
    events = SENDER_EVENTS


def check_outbox(data_dir: Path) -> None:
    """Raise :class:`StoreDamagedError` (exit code 6) if the outbox is of a newer version.

    Nothing is raised if there is no outbox yet. A queue manager must not accept messages while its
    outbox cannot be used.
    """
    path = data_dir / DATABASE_FILE
    if not path.exists():
        return
    with readable(path, OUTBOX.restore_hint):
        check_file(path, OUTBOX)


class _Seen(NamedTuple):
    until: float
    """Time up to which this status answers a question, in seconds of the monotonic clock."""
    at: int | None
    """Time of the question, in microseconds since 1970 (UTC).

    ``None`` before the first answer.
    """
    outgoing: list[OutgoingEntry]


_NOTHING_SEEN = _Seen(float("-inf"), None, [])


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingEvents:
    """The callbacks for events of the child."""

    forwarded: Callable[[str, int], Coroutine[Any, Any, None]]
    """Called with epoch and sequence of ``private$/forward$``: rows up to them are outgoing."""
    forward_holding: Callable[[dict[str, str], list[str], bool], object]
    """Called with changes of the destinations that hold forwarded messages.

    The first argument maps destinations that hold messages now to the senders. The second lists
    destinations that no longer hold messages. The third states whether the child has just begun to
    report.
    """
    order_queue_read: Callable[[int], object]
    """Called with :attr:`Outgoing.receipts_noted` when the child reported it."""


def _settings(core: Core, forward_end: int, forward_waiting: int) -> SenderProcessSettings:
    """Return the settings of the child process. The last two are those of :class:`Outgoing`."""
    config, directory = core.config, core.directory
    files = (config.ca_file, config.client_cert, config.client_key)
    ca_file, client_cert, client_key = (str(path) if path else None for path in files)
    return SenderProcessSettings(
        data_dir=str(directory.path),
        queue_manager=directory.queue_manager,
        epoch=directory.epoch,
        receipts_url=f"{core.public_base}/msmq/{ORDER_QUEUE}",
        receipts_key=directory.receipts_key,
        resend_table=tuple(config.resend_table),
        retransmission_timeout=config.retransmission_timeout,
        multicast=config.multicast,
        wsrm_poll_interval=config.wsrm_poll_interval,
        live=config.state is not None,
        redirect_in=config.redirect.inbound,
        redirect_out=config.redirect.outbound,
        receipt_urls=config.receipt_url,
        hosts=core.hosts,
        is_held=directory.held is not None,
        forward_end=forward_end,
        forward_waiting=forward_waiting,
        tls=(ca_file, client_cert, client_key),
    )


class Outgoing:
    """The sending half of the queue manager, as the rest of the main process uses it."""

    def __init__(
        self, core: Core, events: OutgoingEvents, *, forward_end: int, forward_waiting: int
    ) -> None:
        """Prepare the settings of the child process; :meth:`start` starts it.

        ``forward_end`` is the sequence of the last row of ``private$/forward$`` that was accepted
        before this start. ``forward_waiting`` is the number of rows of that queue that no consumer
        has received.
        """
        self._identifiers = core.identifiers
        self._events = events
        self.dead_came = asyncio.Event()
        """Set when the child has new dead letters, which may be for a local queue."""
        self.receipts_noted = 0
        """Sequence up to which the child no longer needs the rows of the order queue.

        The child reports this number at each start.
        """
        self.folder = core.directory.path / STAGES_DIRECTORY
        self._settings = _settings(core, forward_end, forward_waiting)
        self.link = SenderLink(self._settings, self._on_event)
        self.set_aside: list[dict[str, str]] = []
        """Entries for rows of the outbox that cannot be read, from the child's last status."""
        self.dead_letters: dict[str, int] = {}
        """Number of dead letters by reason, since the outbox was created, as of the last status."""
        self._seen = _NOTHING_SEEN
        self._changes = 0
        """Number of changes after which an earlier answer to ``status`` is no longer used."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._untold: dict[SenderNotice, None] = {}

    def start(self) -> None:
        """Start the sender process and its link, without waiting until the process is up."""
        self.link.start()

    async def stop(self) -> None:
        """End the sender process, which stores all it knows first.

        A process that still runs after STOP_SECONDS is killed; it continues from the stored state
        after the next start.
        """
        if self._again is not None:
            self._again.cancel()
        await self.link.stop()

    def activate(self) -> None:
        """Let the child send, because the data directory was activated.

        A child that is started later sends, too.
        """
        self._settings = replace(self._settings, is_held=False)
        self.link.use_settings(self._settings)
        self._tell(SendingAllowed())

    def receipts_came(self) -> None:
        """Notify the child that there are new rows in this queue manager's order queue."""
        self._tell(ReceiptsArrived())

    def forward_came(self) -> None:
        """Notify the child that there are new rows in ``private$/forward$``."""
        self._tell(ForwardArrived())

    def _tell(self, notice: SenderNotice) -> None:
        """Send ``notice`` to the child, or repeat it later if the child is too busy.

        A child that is not up is not notified: it reads the rows when it starts.
        """
        if not self.link.tell(notice) and self.link.is_up:
            self._untold[notice] = None
            if self._again is None:
                self._again = asyncio.get_running_loop().call_later(
                    TELL_AGAIN_SECONDS, self._tell_again
                )

    def _tell_again(self) -> None:
        self._again = None
        untold, self._untold = self._untold, {}
        for notice in untold:
            self._tell(notice)

    def _on_event(self, event: SenderEvent) -> None:
        if isinstance(event, ReserveIdentifiers):
            self._do(self._reserve(event.number, event.count))
        elif isinstance(event, DeadLettersWait):
            self.dead_came.set()
        elif isinstance(event, ReceiptsNoted):
            self.receipts_noted = event.to
            self._events.order_queue_read(event.to)
        elif isinstance(event, ForwardHolding):
            self._events.forward_holding(event.holding, event.empty, event.begins)
        else:
            # These rows are about to leave the queue ``private$/forward$``. A caller that finds
            # them neither in the queue nor in the status would believe that they were sent.
            self._changed()
            self._do(self._events.forwarded(event.epoch, event.to))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reserve(self, number: int, count: int) -> None:
        try:
            first = await self._identifiers.reserve(count)
        except Exception as error:
            # Answer after any error, because a commit waits.
            if not isinstance(error, SrmpSparkError):
                log.exception("outgoing.reserve_failed")
            text = str(error) or type(error).__name__
            refused = error if isinstance(error, ApiError) else ApiError(503, "store", text)
            answer: IdentifiersReserved | IdentifiersRefused = IdentifiersRefused(
                number, refused.status, refused.code, refused.message, refused.hint
            )
        else:
            answer = IdentifiersReserved(number, first)
        for _ in range(TELL_TIMES):
            if self.link.tell(answer) or not self.link.is_up:
                return
            await asyncio.sleep(TELL_AGAIN_SECONDS)

    # --- what the API asks ------------------------------------------------------------------------

    async def ask(
        self, command: SenderCommand, kind: type[_Answer], *, seconds: float | None = None
    ) -> _Answer:
        """Send a command to the child and return its answer, which is of the type ``kind``.

        ``seconds`` is the longest wait, by default ANSWER_SECONDS. Raises :class:`ApiError`: the
        child's refusal, or 503 if the child is not up or does not answer in time.
        """
        try:
            return await self.link.ask(command, kind, seconds=seconds)
        finally:
            # The caller may have changed something, and expects the next status to show it.
            self._changed()

    @contextlib.asynccontextmanager
    async def forwarding_held(self) -> AsyncIterator[None]:
        """Hold forwarding in the context, for a purge of waiting rows.

        No row becomes outgoing meanwhile, and all outgoing rows count as received. A purge may be
        the remedy for a sender process that ends again and again. So the purge is not refused if
        the child does not answer: then a warning is logged, and forwarding is not held. The child
        resumes by itself after :data:`.forwarder.HOLD_SECONDS`.
        """
        try:
            held = await self.link.ask(HoldForwarding(), ForwardingHeld, seconds=HOLD_ASKED_SECONDS)
        except ApiError as error:
            log.warning(
                'purge.uncertain reason="%s": some of the purged rows may already be outgoing, '
                "and will be sent",
                error.message,
            )
        else:
            if held.forwarded is not None:
                await self._events.forwarded(*held.forwarded)
        try:
            yield
        finally:
            self._tell(ReleaseForwarding())

    async def ask_long(self, command: SenderCommand, kind: type[_Answer]) -> _Answer:
        """Send a command and return its answer, of the type ``kind``, which may have any length.

        The longest wait is COMMIT_SECONDS. Raises :class:`ApiError` as :meth:`ask`, and
        :class:`ConnectionResetError` if the answer is cut off.
        """
        try:
            return await self.link.ask_long(command, kind, seconds=COMMIT_SECONDS)
        finally:
            self._changed()

    async def ask_for_text(self, command: SenderCommand) -> bytes:
        """Send a command and return its answer as JSON text, which this process does not parse.

        The longest wait is COMMIT_SECONDS. Raises the errors of :meth:`ask_long`.
        """
        try:
            return await self.link.ask_for_text(command, seconds=COMMIT_SECONDS)
        finally:
            self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self._seen = self._seen._replace(until=float("-inf"))

    async def status(self) -> list[OutgoingEntry]:
        """Return the entries of ``status.outgoing``, as the child reports or last reported them.

        The last report is returned if it is at most STATUS_KEPT_SECONDS old and nothing has changed
        since, or if the child does not answer within STATUS_SECONDS. :attr:`seen_at` is the time of
        the report. No error is raised if the child does not answer. Raises
        :class:`ConnectionResetError` if an answer is cut off.
        """
        now, at, changes = time.monotonic(), time.time_ns() // 1000, self._changes
        if now > self._seen.until:
            try:
                found = await self.link.ask_long(GetStatus(), SenderStatus, seconds=STATUS_SECONDS)
            except ApiError as error:
                log.info('outgoing.status_is_old reason="%s"', error)
            else:
                kept = now + STATUS_KEPT_SECONDS if changes == self._changes else float("-inf")
                self._seen = _Seen(kept, at, found.outgoing)
                self.set_aside = found.set_aside
                self.dead_letters = found.dead_letters
        return self._seen.outgoing

    @property
    def seen_at(self) -> int | None:
        """Return the time of the child's last status, in microseconds since 1970 (UTC).

        Return ``None`` before the first report.
        """
        return self._seen.at

    @property
    def last_seen(self) -> list[OutgoingEntry]:
        """Return the entries of ``status.outgoing`` of the child's last report.

        The child is not asked.
        """
        return self._seen.outgoing
