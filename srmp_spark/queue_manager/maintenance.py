"""What goes on beside the messages: the disk gate, sealing, retention, sweeping, and the end of an unused queue manager.

Each job is one bounded step at a time, in its own task, and gives way to messages: the steps that need the journal are small
transactions in its pipeline, the heavy work (decoding and writing segments) is done by the reader process at low priority.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from srmp_spark.queue_manager.acceptor import Gate
from srmp_spark.queue_manager.reader_link import Event, ReaderLink

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

DISK_FREE_MIN = 256 * 1_048_576
"""Bytes that stay free: below it messages are answered 503, before a write can fail."""
DISK_FREE_SHARE = 0.05
"""On a small volume this share of it is enough."""
DISK_LOOK_SECONDS = 0.5
"""At 100 MB a second this is 50 MB between two looks, a fifth of what stays free."""
UNUSED_LOOK_SECONDS = 1.0

log = logging.getLogger(__name__)


class Maintenance:
    """The background of one queue manager."""

    def __init__(self, manager: QueueManager, *, on_unused: Callable[[], object]) -> None:
        self._manager = manager
        self._on_unused = on_unused
        self._tasks: list[asyncio.Task[None]] = []
        self._used_at = manager.clock.monotonic()

    def start_reader(self) -> None:
        """Start the reader process, so that it loads while we go on."""
        manager = self._manager
        settings: dict[str, Any] = {
            "parent": os.getpid(),
            "data_dir": str(manager.directory.path),
            "queue_manager": manager.directory.queue_manager,
            "state": manager.config.state,
            "state_interval": manager.config.state_interval,
        }
        manager.reader = ReaderLink(settings, self._on_event)
        manager.reader.start()

    def start(self) -> None:
        """Begin."""
        self.look_at_disk()
        self._every(DISK_LOOK_SECONDS, self._disk)
        if self._manager.config.exit_when_unused is not None:
            self._every(UNUSED_LOOK_SECONDS, self._unused)

    async def stop(self) -> None:
        """End what goes on; a step under way is given up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _every(self, seconds: float, step: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    await step()
                except Exception:  # the next turn may go better; the service itself must go on
                    log.exception("maintenance.failed step=%s", getattr(step, "__name__", step))

        self._tasks.append(asyncio.get_running_loop().create_task(repeat()))

    # --- the disk -------------------------------------------------------------------------------------------------------------

    async def _disk(self) -> None:
        self.look_at_disk()

    def look_at_disk(self) -> None:
        """Open or close the gate."""
        found = os.statvfs(self._manager.directory.path)
        free = found.f_bavail * found.f_frsize
        least = min(DISK_FREE_MIN, int(found.f_blocks * found.f_frsize * DISK_FREE_SHARE))
        acceptor = self._manager.acceptor
        if free < least and acceptor.gate is None:
            acceptor.gate = Gate("disk-full", f"only {free} bytes are free below the data directory; {least} must stay free")
            log.error("disk.full free_bytes=%d least_bytes=%d", free, least)
        elif free >= least and acceptor.gate is not None:
            acceptor.gate = None
            log.info("disk.freed free_bytes=%d", free)

    # --- an embedded queue manager that nobody uses -------------------------------------------------------------------------

    async def _unused(self) -> None:
        manager = self._manager
        now = manager.clock.monotonic()
        if next(manager.held_leases(), None) is not None:
            self._used_at = now
        elif manager.config.exit_when_unused is not None and now - self._used_at > manager.config.exit_when_unused:
            log.info("process.unused seconds=%g", now - self._used_at)
            self._on_unused()

    # --- the reader ---------------------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        """What the reader tells unasked: how far the Delta state is."""
        lag = self._manager.state_lag
        if event.get("event") == "published":
            lag.position = event["position"]
            lag.as_of = event["as_of"]
        elif event.get("event") == "failed":
            with contextlib.suppress(KeyError):
                log.error('state.failed fatal=%s reason="%s"', event["fatal"], event["error"])
