"""Run the background jobs of a queue manager.

These are: sealing (the rows of a queue are copied from the database to segment files,
:mod:`srmp_spark.store.stored_rows.sealing`), retention (old rows are deleted), sweeping (deleted
rows and files are removed in slices, :mod:`srmp_spark.store.database.sweeper`), the disk gate
(:mod:`.admission.disk_gate`), and the end of an unused queue manager. Each job does one bounded
step at a time and lets messages come first. A step that needs the journal is a small transaction in
its pipeline. The reader process does the heavy work (decoding and writing segments) at low
priority. Sealing stops while messages arrive at full speed, because then both would compete for the
same disk.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError, SrmpSparkError
from srmp_spark.queue_manager.admission.disk_gate import DISK_LOOK_SECONDS, SEAL_ROOM_BYTES
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.reader.crossing import (
    READER_COMMANDS,
    DueQueues,
    FindQueuesToSeal,
    FindQueuesToTrim,
    PlanTrim,
    SealAnswer,
    SealRows,
    TrimPlan,
)
from srmp_spark.queue_manager.reader.link import DAMAGED, INTERNAL
from srmp_spark.queue_manager.state_reports import STATE_COMPARE_SECONDS
from srmp_spark.store.database import sweeper
from srmp_spark.store.stored_rows import retention, sealing

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.catalogue import Queue
    from srmp_spark.queue_manager.service import QueueManager

SEAL_LOOK_SECONDS = 1.0
SEAL_BUSY_ROWS_PER_SECOND = 1_000
"""Rows committed per second above which sealing waits for a quieter time."""
SEAL_BACKLOG_ROWS_MAX = 500_000
"""Unsealed rows of a queue at which sealing does not wait, whatever arrives.

A second of catching up is better than a database that grows for hours.
"""
SEAL_SEGMENTS_WHILE_BUSY = 8
"""Most segments that one run of sealing writes for a queue with SEAL_BACKLOG_ROWS_MAX unsealed rows
while many messages arrive: some 65,000 rows a second, more than can arrive.
"""
SEAL_IDLE_SECONDS = 600.0
"""Seconds between two checks of all queues for rows that have become old enough to seal.

In between only queues that got rows are checked.
"""
QUEUE_RETRY_SECONDS = 60.0
"""Seconds for which a queue is left alone after its step failed, for example on a damaged row.

Its rows stay, and the other queues continue.
"""
RETENTION_LOOK_SECONDS = 30.0
RETENTION_FULL_SECONDS = 2.0
"""Longest time between two runs of retention while messages are refused because the disk is full,
in seconds. A publication of the Delta state causes a run too. The rows that retention may delete
are all the room there may ever be.
"""
RETENTION_PAUSE_SECONDS = 0.1
"""Least seconds between two runs of retention while the disk is full, whatever is published."""
DUE_SECONDS = 60.0
"""Longest time of a check of all queues by the reader process, in seconds.

With 10,000 queues it takes 20 ms on a machine that has nothing else to do.
"""
SUBQUEUES_LOOK_SECONDS = 5.0
"""Seconds between two checks of the subqueues that no client declared.

A subqueue that its last reader leaves empty is removed at once.
"""
SWEEP_PAUSE_SECONDS = 0.005
"""Seconds between two slices of deleting, so that messages come first."""
NOTE_SECONDS = 60.0
"""Seconds between two records of the commit number in a file alongside the database
(store/directory.py).
"""
CLOCK_LOOK_SECONDS = 5.0
CLOCK_JUMP_SECONDS = 300.0
"""Seconds that the wall clock must move against the monotonic clock to count as set.

A warning is logged then, and nothing expires early by it.
"""
UNUSED_LOOK_SECONDS = 0.5
FIRST_LOOK_SECONDS = 2.0
"""Longest wait of a job for its first step after the start, in seconds.

A queue manager that is restarted often must get to its retention too.
"""

_FULL = (errno.ENOSPC, errno.EDQUOT)

log = logging.getLogger(__name__)


class Maintenance:
    """Runs the background jobs of one queue manager."""

    def __init__(self, manager: QueueManager) -> None:
        """Prepare the background jobs without starting them."""
        self._manager = manager
        self._tasks: list[asyncio.Task[None]] = []
        clock = manager.clock
        self._used_at = clock.monotonic()
        self._begin = clock.monotonic()
        self._begin_utc = clock.utc()
        self._jump = 0
        self._rows_seen = 0
        self._sealed: dict[str, int] = {}
        """For each queue the last sequence up to which nothing more was to seal, when that was
        checked.
        """
        self._to_seal: set[str] = set()
        """Names of the queues in which sealing may find rows, until the reader process has found
        none.
        """
        self._old_rows_at = -SEAL_IDLE_SECONDS
        """Time of the last check of all queues for old rows, in seconds since :attr:`_begin`."""
        self.disk = manager.disk
        self._retaining = asyncio.Lock()
        self._failed: dict[tuple[str, str], tuple[float, str]] = {}
        """For each (step, queue name) that failed the time, in seconds of the monotonic clock, and
        the reason.
        """

    def start_reader(self) -> None:
        """Remove the files that a crash left behind, then start the reader process.

        Segments that are missing are logged as errors. The reader process loads while this process
        continues.
        """
        manager = self._manager
        directory = manager.directory
        orphans, missing = sealing.remove_orphans(directory.writer, directory.segments)
        if orphans:
            log.info("segment.orphans_removed files=%d", len(orphans))
        for path in missing:
            log.error(
                "segment.missing file=%s: its rows cannot be read; put it back from a backup", path
            )
        manager.reader.start()

    async def compare_state(self) -> None:
        """Wait until the Delta state was compared with the log, for at most STATE_COMPARE_SECONDS.

        Without ``--state``, or while the directory is a held copy, nothing is compared. If the
        Delta state cannot be read in that time, log a warning and return. Raises
        :class:`StoreDamagedError` (exit code 6) if the data directory is an older copy, so that
        the Delta state is ahead of it.
        """
        if self._manager.config.state is None or self._manager.activation.held is not None:
            return
        try:
            await asyncio.wait_for(self._manager.state.compared.wait(), STATE_COMPARE_SECONDS)
        except asyncio.TimeoutError:
            log.warning(
                "state.not_compared seconds=%.0f: messages are accepted without the comparison",
                STATE_COMPARE_SECONDS,
            )
        if (fatal := self._manager.state.fatal) is not None:
            raise fatal

    def start(self) -> None:
        """Start the background jobs of the queue manager, each as a task that repeats.

        Raises :class:`OSError` if the free space of the volume cannot be measured.
        """
        self.disk.look()
        self._every(DISK_LOOK_SECONDS, self._disk)
        self._every(SEAL_LOOK_SECONDS, self._seal)
        self._every(RETENTION_LOOK_SECONDS, self._retain)
        self._every(RETENTION_PAUSE_SECONDS, self._retain_when_full)
        self._every(CLOCK_LOOK_SECONDS, self._clock)
        self._every(NOTE_SECONDS, self._note)
        self._every(SUBQUEUES_LOOK_SECONDS, self._manager.queues.subqueues.look)
        self._every(SWEEP_PAUSE_SECONDS, self._sweep)
        self._manager.garbage.set()  # A crash may have left garbage.
        if self._manager.config.exit_when_unused is not None:
            self._every(UNUSED_LOOK_SECONDS, self._unused)

    async def stop(self) -> None:
        """Cancel the background jobs, and wait until they have ended.

        A step in progress is abandoned.
        """
        await end(self._tasks)

    def _every(self, seconds: float, step: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            await asyncio.sleep(min(seconds, FIRST_LOOK_SECONDS))
            while True:
                try:
                    await step()
                except ApiError as error:
                    # The reader is being restarted, or refuses. The next turn may succeed.
                    log.warning('maintenance.postponed step=%s reason="%s"', step.__name__, error)
                except Exception as error:  # The service itself must continue.
                    if isinstance(error, OSError) and error.errno in _FULL:
                        # Another program filled the volume. The traceback adds nothing.
                        told = 'maintenance.postponed step=%s reason="%s"'
                        log.warning(told, step.__name__, error)
                    else:
                        log.exception("maintenance.failed step=%s", step.__name__)
                await asyncio.sleep(seconds)

        self._tasks.append(asyncio.get_running_loop().create_task(repeat()))

    # --- the disk ---------------------------------------------------------------------------------

    async def _disk(self) -> None:
        self.disk.look()
        if self.disk.gives_back:
            self._manager.garbage.set()
        await self.disk.cut()
        await self.disk.cut_log()
        self.disk.keep_reserve()

    # --- sealing and deleting ---------------------------------------------------------------------

    async def _queues_due(self, command: FindQueuesToSeal | FindQueuesToTrim) -> list[str]:
        """Return the names of the queues for which ``command`` finds work in the reader process.

        If the reader process answers that stored rows are damaged or that it failed, return the
        names of all queues, so that each queue is then asked separately. Raises :class:`ApiError`
        for other refusals, and if the reader process does not answer.
        """
        manager = self._manager
        try:
            found = await manager.reader.ask_long(command, DueQueues, seconds=DUE_SECONDS)
        except ApiError as error:
            if error.code not in (DAMAGED, INTERNAL):
                raise
            name = READER_COMMANDS.name_of(command)
            log.warning('maintenance.each_queue_asked op=%s reason="%s"', name, error)
            return [queue.name for queue in manager.catalogue]
        return found.queues

    async def _each_queue(
        self, step: str, names: Iterable[str], job: Callable[[Queue], Awaitable[None]]
    ) -> None:
        """Do ``job`` for the queues ``names``, and for those whose last ``step`` failed.

        A failure is logged, but the same reason only once. The failed queue is left alone for
        QUEUE_RETRY_SECONDS, and no other queue is affected. ``step`` names the work ("seal" or
        "retain"). Raises :class:`ApiError` (503) if the reader process is being restarted.
        """
        manager = self._manager
        for name in sorted(
            {*names, *(name for failed_step, name in self._failed if failed_step == step)}
        ):
            key = step, name
            queue = manager.catalogue.get(name)
            failed_at, reason = self._failed.get(key, (0.0, ""))
            if queue is None:
                self._failed.pop(key, None)
                continue
            if reason and manager.clock.monotonic() - failed_at < QUEUE_RETRY_SECONDS:
                continue
            # This is no failure of this queue. A failure of the queue before is noted already.
            if not manager.reader.is_up:
                raise ApiError(503, "reader-unavailable", "the reader process is being restarted")
            try:
                await job(queue)
            except Exception as error:  # Any error here is one of this queue.
                if str(error) != reason:
                    bug = None if isinstance(error, SrmpSparkError) else error
                    told = 'maintenance.queue_failed step=%s queue=%s reason="%s"'
                    log.error(told, step, queue.name, error, exc_info=bug)  # noqa: TRY400  # a traceback for bugs only
                self._failed[key] = manager.clock.monotonic(), str(error)
                if isinstance(error, ApiError) and error.code == DAMAGED:
                    queue.damage[step] = error.message
            else:
                queue.damage.pop(step, None)
                if self._failed.pop(key, None) is not None:
                    log.info("maintenance.queue_recovered step=%s queue=%s", step, queue.name)

    async def _seal(self) -> None:
        manager = self._manager
        # Unsealed rows are as safe as sealed ones, and only slower to read.
        if self.disk.spare < SEAL_ROOM_BYTES:
            return
        came = manager.rows_committed - self._rows_seen
        self._rows_seen = manager.rows_committed
        busy = came > SEAL_BUSY_ROWS_PER_SECOND * SEAL_LOOK_SECONDS
        grown = manager.catalogue.grown
        for name in tuple(grown):
            grown.discard(name)
            if (queue := manager.catalogue.get(name)) is not None and self._has_segment(queue):
                self._to_seal.add(name)
        since_begin = manager.clock.monotonic() - self._begin
        if since_begin - self._old_rows_at >= SEAL_IDLE_SECONDS:
            self._to_seal.update(await self._queues_due(FindQueuesToSeal(manager.clock.utc())))
            self._old_rows_at = since_begin

        async def look(queue: Queue) -> None:
            backlog = queue.end - self._sealed.get(queue.name, 0)
            if (busy and backlog < SEAL_BACKLOG_ROWS_MAX) or queue.name not in self._to_seal:
                return
            await self._seal_queue(queue, SEAL_SEGMENTS_WHILE_BUSY if busy else sys.maxsize)

        await self._each_queue("seal", self._to_seal, look)
        self._to_seal = {name for name in self._to_seal if manager.catalogue.get(name) is not None}

    def _has_segment(self, queue: Queue) -> bool:
        """Return whether the queue has enough unsealed rows or bytes for a segment."""
        backlog = queue.end - self._sealed.get(queue.name, 0)
        return backlog >= sealing.SEAL_ROWS_MIN or self._is_heavy(queue)

    @staticmethod
    def _is_heavy(queue: Queue) -> bool:
        return queue.unsealed_bytes >= sealing.SEAL_BYTES_MIN

    async def _seal_queue(self, queue: Queue, segments_max: int) -> None:
        """Seal segments of a queue until nothing is left to seal or ``segments_max`` are sealed.

        Stop early if the disk has no room for a segment. Raises :class:`ApiError` if the reader
        process refuses or does not answer.
        """
        manager = self._manager
        while manager.catalogue.get(queue.name) is queue and segments_max > 0:
            if self.disk.spare < SEAL_ROOM_BYTES:
                return
            segments_max -= 1
            end, held = queue.end, queue.unsealed_bytes
            answer = await manager.reader.ask(SealRows(queue.name, manager.clock.utc()), SealAnswer)
            # There is no room for the files of the segment. The queue is due again when it has
            # grown, or when all queues are looked at for old rows.
            if answer.later:
                self._to_seal.discard(queue.name)
                return
            if answer.sealed is None:
                self._sealed[queue.name] = end
                self._to_seal.discard(queue.name)
                queue.unsealed_bytes -= held
                return
            sealed = sealing.Sealed.from_json(answer.sealed)
            await manager.journal.transact(
                partial(sealing.commit_segment, sealed=sealed, segments=manager.directory.segments)
            )
            manager.garbage.set()
            self._sealed[queue.name] = sealed.plan.last
            self.disk.look()

    async def _sweep(self) -> None:
        manager = self._manager
        await manager.garbage.wait()
        if not await manager.journal.transact(sweeper.sweep) and not await self.disk.give_back():
            manager.garbage.clear()

    async def _retain_when_full(self) -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._manager.state.published.wait(), RETENTION_FULL_SECONDS)
        self._manager.state.published.clear()
        if self.disk.is_closed:
            await self._retain()

    async def _retain(self) -> None:
        async with self._retaining:
            await self._trim_each()

    async def _trim_each(self) -> None:
        manager = self._manager
        before = self._trusted_utc() - int(manager.config.retention_hours * 3_600_000_000)

        async def look(queue: Queue) -> None:
            if queue.trimmed_to >= queue.end:
                return
            command = PlanTrim(queue.name, self._limits_of(queue, before))
            to = (await manager.reader.ask(command, TrimPlan)).to
            if to is None or manager.catalogue.get(queue.name) is not queue:
                return
            trim = partial(
                retention.trim, queue=queue.name, to=to, segments=manager.directory.segments
            )
            first = await manager.journal.transact(trim)
            log.info("queue.trimmed name=%s first=%d", queue.name, first)
            self._count_left_out(queue, first - 1)
            queue.trimmed(first - 1)
            manager.garbage.set()

        due = await self._queues_due(FindQueuesToTrim(None if self.disk.is_tight else before))
        await self._each_queue("retain", {*due, *retention.RECEIVED_BY_NOBODY}, look)

    def _limits_of(self, queue: Queue, before: int) -> retention.RetentionLimits:
        """Return the limits of retention for ``queue``; ``before`` is the limit of the age.

        :class:`.retention.RetentionLimits` explains them.
        """
        synced = self._manager.state.synced.get(queue.name, 0)
        bytes_max = 0 if self.disk.is_tight else None
        if queue.name not in retention.RECEIVED_BY_NOBODY:
            return retention.RetentionLimits(before, bytes_max, synced)
        if self._manager.config.state is None:  # There is no Delta state.
            synced = queue.end
        return retention.RetentionLimits(
            before,
            retention.ORDER_QUEUE_BYTES_MAX if bytes_max is None else bytes_max,
            synced,
            self._manager.outgoing.receipts_noted,
            retention.ORDER_QUEUE_UNPUBLISHED_MAX,
        )

    def _count_left_out(self, queue: Queue, to: int) -> None:
        """Count and log receipts that were deleted before the Delta state had them.

        The rows of the order queue (``private$/order_queue$``) up to ``to`` (included) have just
        been deleted, and ``queue`` does not know that yet. For other queues, and without a Delta
        state, nothing is done.
        """
        lag = self._manager.state.lag
        if queue.name not in retention.RECEIVED_BY_NOBODY or lag.uri is None:
            return
        count = to - max(queue.trimmed_to, self._manager.state.synced.get(queue.name, 0))
        if count > 0:
            log.warning(
                "state.receipts_left_out rows=%d to=%d: the store of --state has been "
                "away for long; the receipts were read, and only their rows of inbox are "
                "missing",
                count,
                to,
            )
            lag.receipts_left_out += count

    def _trusted_utc(self) -> int:
        """Return the time for retention, which neither ``date`` nor a wrong clock can push forward.

        It is the earliest of three clocks: the wall clock; the time of the start, moved on by the
        monotonic clock; and the clock that began at the newest message. It is in microseconds since
        1970, UTC.
        """
        clock, now = self._manager.clock, self._manager.clock.monotonic()
        wall = clock.utc()
        begun = self._begin_utc + int((now - self._begin) * 1_000_000)
        return min(wall, begun, self._manager.retention_clock.read(wall, now))

    async def _clock(self) -> None:
        clock = self._manager.clock
        off = clock.utc() - self._begin_utc - int((clock.monotonic() - self._begin) * 1_000_000)
        if abs(off - self._jump) > CLOCK_JUMP_SECONDS * 1_000_000:
            log.warning(
                "clock.jumped seconds=%.0f: timers and retention ignore the jump; if the "
                "clock was set ahead, no message expires for an hour. Correct the clock "
                "if it is wrong",
                (off - self._jump) / 1e6,
            )
            self._jump = off

    async def _note(self) -> None:
        manager = self._manager
        await asyncio.get_running_loop().run_in_executor(
            None, manager.directory.note_position, manager.journal.position
        )

    # --- an embedded queue manager that nobody uses -----------------------------------------------

    async def _unused(self) -> None:
        manager = self._manager
        now = manager.clock.monotonic()
        self._used_at = max(self._used_at, manager.read_at)
        if next(manager.catalogue.held_leases(now), None) is not None:
            self._used_at = now
        elif (
            manager.config.exit_when_unused is not None
            and now - self._used_at > manager.config.exit_when_unused
        ):
            log.info("process.unused seconds=%.0f", now - self._used_at)
            self._manager.stop.set()
