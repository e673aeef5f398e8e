"""The main process's side of the sender process, which owns whatever goes out (ADR 0010).

Ordering and numbering a batch of a million rows takes seconds, and sending costs a processor; neither may delay a 200. So a
child does it, started and asked as :mod:`srmp_spark.queue_manager.child` says. This side tells it of new rows in our
order queue, gives it message identifiers (the lineage is ours, and receipts use the same numbers), and keeps what it last said
of its queues, for the time in which it cannot be asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.errors import ApiError, SrmpSparkError
from srmp_spark.names import ORDER_QUEUE, LocalHosts
from srmp_spark.queue_manager.child.link import ChildLink, Event
from srmp_spark.queue_manager.child.packets import LongList
from srmp_spark.queue_manager.config import ServeConfig
from srmp_spark.queue_manager.identifiers import Identifiers
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.outbox.limits import STAGES_DIRECTORY
from srmp_spark.store.outbox.schema import DATABASE_FILE, OUTBOX
from srmp_spark.store.sqlite_file import check_file, readable

STATUS_SECONDS = 2.0
"""What the child gets to say how its queues are; else what it said before is shown."""
STATUS_KEPT_SECONDS = 0.2
"""A second question within this time gets the same answer."""
COMMIT_SECONDS = 900.0
"""Longest wait for a commit: a batch of the largest size takes a minute."""
STAGE_SECONDS = 300.0
"""Longest wait for the check of a stage."""
HOLD_ASKED_SECONDS = 10.0
"""Rows that are being made outgoing are waited for so long."""
TELL_AGAIN_SECONDS = 0.2
"""Until a child that had too much to do is told once more."""
TELL_TIMES = 50
"""How often: less than the child waits."""

log = logging.getLogger(__name__)


class SenderLink(ChildLink):
    """Starts the sender, keeps it running, and talks to it. :mod:`.process` says which settings it takes."""

    module = "srmp_spark.queue_manager.sender.process"
    noun = "sender"


def check_outbox(data_dir: Path) -> None:
    """Raise :class:`StoreDamagedError` (exit code 6) for an outbox of a newer version: nothing is accepted beside it."""
    path = data_dir / DATABASE_FILE
    if not path.exists():
        return
    with readable(path, OUTBOX.restore_hint):
        check_file(path, OUTBOX)


class _Seen(NamedTuple):
    until: float
    """Good enough for a question up to this moment, on the monotonic clock."""
    at: int | None
    """When the child was asked; microseconds since 1970, UTC. ``None``: it never said anything."""
    outgoing: list[dict[str, Any]]


_NOTHING_SEEN = _Seen(float("-inf"), None, [])


class Outgoing:
    """The sending half, as the rest of the main process knows it."""

    def __init__(
        self,
        config: ServeConfig,
        directory: DataDirectory,
        identifiers: Identifiers,
        public_base: str,
        hosts: LocalHosts,
        *,
        forward_end: int,
        forward_waiting: int,
    ) -> None:
        """``forward_end``: the last row of ``private$/forward$`` that was accepted before this start;
        ``forward_waiting``: how many of its rows nobody has received."""
        self._identifiers = identifiers
        self.forwarded: Callable[[str, int], Coroutine[Any, Any, None]] | None = None
        """Called with epoch and sequence: rows of ``private$/forward$`` up to there are outgoing. The process sets it."""
        self.forward_holding: Callable[[dict[str, str], list[str], bool], object] = (
            lambda holding, empty, begins: None
        )
        """Called with the destinations that hold forwarded messages now, by sender, and those that do no longer; whether the
        child has just begun to tell. The process sets it."""
        self.dead_came: Callable[[], object] = lambda: None
        """Called when there may be dead letters for a queue of ours. The process sets it."""
        self.receipts_noted = 0
        """Rows of our order queue up to this one were read by the child, for good. It says so at each start."""
        self.order_queue_read: Callable[[int], object] = lambda to: None
        """Called with :attr:`receipts_noted` when it was told. The process sets it."""
        self.folder = directory.path / STAGES_DIRECTORY
        settings = {
            "data_dir": str(directory.path),
            "queue_manager": directory.queue_manager,
            "epoch": directory.epoch,
            "receipts_url": f"{public_base}/msmq/{ORDER_QUEUE}",
            "receipts_key": directory.receipts_key,
            "resend_table": list(config.resend_table),
            "retransmission_timeout": config.retransmission_timeout,
            "multicast": None if (multicast := config.multicast) is None else multicast.dump(),
            "wsrm_poll_interval": config.wsrm_poll_interval,
            "live": config.state is not None,  # only the Delta state asks
            "redirect_in": config.redirect.inbound.dump(),
            "redirect_out": config.redirect.outbound.dump(),
            "receipt_urls": config.receipt_url.dump(),
            "hosts": sorted(hosts.names),
            "ports": sorted(hosts.ports),
            "forward_end": forward_end,
            "forward_waiting": forward_waiting,
            "tls": [
                str(path) if path else None
                for path in (config.ca_file, config.client_cert, config.client_key)
            ],
        }
        self.link = SenderLink(settings, self._on_event)
        self.set_aside: list[dict[str, str]] = []
        """Rows of the outbox that cannot be read, as :meth:`status` was last told."""
        self.dead_letters: dict[str, int] = {}
        """Rows that became dead letters since the outbox was made, by reason, as :meth:`status` was last told."""
        self._seen = _NOTHING_SEEN
        self._changes = 0
        """How often something changed that ``status`` must show from then on."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._untold: dict[str, None] = {}

    def start(self) -> None:
        """Start the child."""
        self.link.start()

    async def stop(self) -> None:
        """End it; it writes down what it knows."""
        if self._again is not None:
            self._again.cancel()
        await self.link.stop()

    def receipts_came(self) -> None:
        """There are new rows in our order queue."""
        self._tell("receipts")

    def forward_came(self) -> None:
        """There are new rows in the queue of what is forwarded."""
        self._tell("forward")

    def _tell(self, what: str) -> None:
        """A child that cannot be told reads them when it starts."""
        if not self.link.tell({"op": what}) and self.link.is_up:
            self._untold[what] = None
            if self._again is None:
                self._again = asyncio.get_running_loop().call_later(
                    TELL_AGAIN_SECONDS, self._tell_again
                )

    def _tell_again(self) -> None:
        self._again = None
        untold, self._untold = self._untold, {}
        for what in untold:
            self._tell(what)

    def _on_event(self, event: Event) -> None:
        if event["event"] == "reserve":
            self._do(self._reserve(event["number"], event["count"]))
        elif event["event"] == "dead":
            self.dead_came()
        elif event["event"] == "receipts-noted":
            self.receipts_noted = event["to"]
            self.order_queue_read(event["to"])
        elif event["event"] == "forward-holding":
            self.forward_holding(event["holding"], event["empty"], event["begins"])
        elif event["event"] == "forwarded" and self.forwarded is not None:
            # These rows are about to leave the queue of what is forwarded: who finds them in neither place thinks all is sent.
            self._changed()
            self._do(self.forwarded(event["epoch"], event["to"]))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reserve(self, number: int, count: int) -> None:
        try:
            first = await self._identifiers.reserve(count)
        except Exception as error:  # whatever it is, a commit waits
            if not isinstance(error, SrmpSparkError):
                log.exception("outgoing.reserve_failed")
            answer: dict[str, Any] = {"error": str(error) or type(error).__name__}
            if isinstance(error, ApiError):
                answer = {
                    "error": error.message,
                    "status": error.status,
                    "code": error.code,
                    "hint": error.hint,
                }
        else:
            answer = {"first": first}
        for _ in range(TELL_TIMES):
            if (
                self.link.tell({"op": "reserved", "number": number, **answer})
                or not self.link.is_up
            ):
                return
            await asyncio.sleep(TELL_AGAIN_SECONDS)

    # --- what the API asks ----------------------------------------------------------------------------------------------------

    async def ask(self, command: dict[str, Any], *, seconds: float | None = None) -> dict[str, Any]:
        """A command and its answer. Raises :class:`ApiError`: 503 while the child is away."""
        try:
            return await self.link.ask(command, seconds=seconds)
        finally:
            self._changed()  # who has changed something wants to see it

    @contextlib.asynccontextmanager
    async def forwarding_held(self) -> AsyncIterator[None]:
        """Nothing becomes outgoing meanwhile, and what is outgoing counts as received: for a purge of what waits.

        A purge may be what a sender process that ends again and again needs, so it is not refused when nobody answers.
        """
        try:
            held = await self.link.ask({"op": "hold-forwarding"}, seconds=HOLD_ASKED_SECONDS)
        except ApiError as error:
            log.warning(
                'purge.uncertain reason="%s": rows that are counted may be outgoing '
                "already, and leave",
                error.message,
            )
        else:
            if held["forwarded"] is not None and self.forwarded is not None:
                await self.forwarded(*held["forwarded"])
        try:
            yield
        finally:
            self._tell("release-forwarding")

    async def ask_long(self, command: dict[str, Any]) -> dict[str, Any]:
        """The same for answers of any length."""
        try:
            return await self.link.ask_long(command, seconds=COMMIT_SECONDS)
        finally:
            self._changed()

    async def ask_for_list(self, command: dict[str, Any], extra: LongList) -> bytes:
        """Send a command with a long list; return the list of the same name that answers it, as JSON."""
        try:
            return await self.link.ask_for_list(command, extra, seconds=COMMIT_SECONDS)
        finally:
            self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self._seen = self._seen._replace(until=float("-inf"))

    async def status(self) -> list[dict[str, Any]]:
        """The outgoing queues, as they are or were last seen (:attr:`seen_at`)."""
        now, at, changes = time.monotonic(), time.time_ns() // 1000, self._changes
        if now > self._seen.until:
            try:
                found = await self.link.ask_long({"op": "status"}, seconds=STATUS_SECONDS)
            except ApiError as error:
                log.info('outgoing.status_is_old reason="%s"', error)
            else:
                kept = now + STATUS_KEPT_SECONDS if changes == self._changes else float("-inf")
                self._seen = _Seen(kept, at, found["outgoing"])
                self.set_aside = found["set_aside"]
                self.dead_letters = found["dead_letters"]
        return self._seen.outgoing

    @property
    def seen_at(self) -> int | None:
        """When :meth:`status` was last told by the child; microseconds since 1970, UTC. ``None``: it has not been yet."""
        return self._seen.at

    @property
    def last_seen(self) -> list[dict[str, Any]]:
        """The same without asking."""
        return self._seen.outgoing
