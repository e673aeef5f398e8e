"""Delete old rows of a queue when an operator asks for it, and give their room back at once.

Theory of operation. Retention deletes received rows when they are old. An operator with a full disk
cannot wait for that. So a trim deletes whole segments and groups as retention does, oldest first,
but only rows that no consumer needs any longer, and that the Delta state has if there is one. An
operator may force it to delete other rows too. The deletion itself only marks rows; then the marked
groups are swept, free pages of the database are given back to the volume, and the disk gate is
measured again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from srmp_spark.errors import ApiError
from srmp_spark.names import OWN_QUEUES
from srmp_spark.queue_manager.queues.catalogue import NOTHING, NoSuchQueueError, Queue
from srmp_spark.queue_manager.queues.in_use import counted_consumers
from srmp_spark.queue_manager.reader.crossing import PlanTrim, TrimPlan
from srmp_spark.sequences.sequence_set import count_in_either
from srmp_spark.store.database import sweeper
from srmp_spark.store.stored_rows.retention import RetentionLimits

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.consumers import Consumer
    from srmp_spark.queue_manager.service import QueueManager

FREE_SECONDS = 20.0
"""Longest time that one trim spends on giving room back, in seconds.

Then it answers, and the background jobs continue. A gigabyte takes about ten seconds.
"""
ANY_TIME = 2**63 - 1
"""A time after every row, in microseconds since 1970."""
STATE_KEEPS = "the Delta state (--state)"
"""How an answer names the Delta state as what still needs rows."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrimRequest:
    """The rows that an operator wants to delete: those that meet every condition."""

    before: int | None = None
    """Only rows with a lower sequence; ``None``: any."""
    before_time: int | None = None
    """Only rows that arrived before this time, in microseconds since 1970; ``None``: any."""
    forced: bool = False
    """Whether rows are deleted too that a consumer or the Delta state still needs."""


class Keeper(NamedTuple):
    """A consumer, or the Delta state, that still needs rows after its mark ``received``."""

    name: str
    received: int


class TrimResult(NamedTuple):
    """The result of a trim."""

    rows: int
    """Number of rows that were deleted. Holes are not counted."""
    first: int
    """The oldest sequence that is left."""
    lost: dict[str, int]
    """For each consumer, or the Delta state, how many of the rows it had not received."""
    kept_for: Keeper | None
    """The keeper whose mark is lowest, if there are rows that were kept for it."""


class Trimming:
    """Trims queues of one queue manager."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager

    async def trim(self, name: str, asked: TrimRequest) -> TrimResult:
        """Delete the rows that ``asked`` describes, and give their room back to the volume.

        Raises :class:`ApiError`: 404 if there is no such queue, 400 for a journal and for a queue
        of this queue manager's own, and the errors of the reader process.
        """
        manager = self._manager
        queue = manager.catalogue.find_base(name)
        if queue.name in OWN_QUEUES:
            raise ApiError(
                400,
                "reserved-queue",
                f"no application receives from {queue.name}: retention alone empties it",
                "trim the queues of applications",
            )
        manager.disk.use_reserve()
        keepers = [] if asked.forced else self._keepers(queue)
        lowest = min(keepers, key=lambda each: each.received, default=None)
        wanted = queue.end if asked.before is None else min(queue.end, asked.before - 1)
        to_max = wanted if lowest is None else min(wanted, lowest.received)
        limits = RetentionLimits(
            ANY_TIME if asked.before_time is None else asked.before_time,
            to_max=to_max,
            forced=asked.forced,
        )
        rows, lost, begun = 0, dict[str, int](), queue.trimmed_to
        while queue.trimmed_to < to_max:
            to = (await manager.reader.ask(PlanTrim(queue.name, limits), TrimPlan)).to
            if manager.catalogue.get(queue.name) is not queue:
                raise NoSuchQueueError(queue.name)
            if to is None or to <= queue.trimmed_to:
                break
            rows += _count(queue, queue.trimmed_to + 1, to)
            if asked.forced:
                self._count_lost(queue, to, lost)
            await manager.queues.trim(queue, to, forced=asked.forced)
        if queue.trimmed_to > begun:
            log.info(
                "queue.trimmed name=%s first=%d rows=%d by=operator forced=%s",
                queue.name,
                queue.trimmed_to + 1,
                rows,
                asked.forced,
            )
            await self._free()
        kept = lowest is not None and lowest.received < wanted
        return TrimResult(rows, queue.trimmed_to + 1, lost, lowest if kept else None)

    def _keepers(self, queue: Queue) -> list[Keeper]:
        """Return whoever may still need rows of the queue, with marks on stable storage."""
        keepers = [
            Keeper(_name(queue, of, consumer), consumer.stored_received)
            for of, consumer in counted_consumers(queue)
        ]
        if (synced := self._synced(queue)) is not None:
            keepers.append(Keeper(STATE_KEEPS, synced))
        return keepers

    def _synced(self, queue: Queue) -> int | None:
        """Return the last sequence that the Delta state has; ``None`` if there is no such state."""
        if self._manager.config.state is None:
            return None
        return self._manager.state.synced.get(queue.name, 0)

    def _count_lost(self, queue: Queue, to: int, lost: dict[str, int]) -> None:
        """Add to ``lost`` who has not received how many of the rows up to ``to``."""
        first = queue.trimmed_to + 1
        for of, consumer in counted_consumers(queue):
            low = max(first, consumer.received + 1)
            left = max(0, to + 1 - low) - count_in_either(
                low, to, consumer.ahead, queue.waiting.holes
            )
            if left > 0:
                name = _name(queue, of, consumer)
                lost[name] = lost.get(name, 0) + left
        synced = self._synced(queue)
        if synced is not None and synced < to:
            lost[STATE_KEEPS] = lost.get(STATE_KEEPS, 0) + _count(queue, max(first, synced + 1), to)

    async def _free(self) -> None:
        """Sweep deleted rows and give free pages back to the volume, for FREE_SECONDS at most."""
        manager = self._manager
        deadline = manager.clock.monotonic() + FREE_SECONDS
        manager.disk.ask()
        manager.garbage.set()  # The background jobs continue after the deadline.
        while manager.clock.monotonic() < deadline:
            await asyncio.sleep(0)
            if await manager.journal.transact(sweeper.sweep) or await manager.disk.give_back():
                continue
            await manager.disk.cut()
            manager.disk.look()
            # On a volume without a free byte the log of the database is the first room.
            if not await manager.disk.cut_log():
                break


def _count(queue: Queue, first: int, to: int) -> int:
    """Return the number of existing rows ``first`` to ``to``, both included."""
    return max(0, to + 1 - first) - count_in_either(first, to, queue.waiting.holes, NOTHING)


def _name(queue: Queue, of: Queue, consumer: Consumer) -> str:
    """Return the name of a consumer, which names the journal if the consumer is one of it."""
    return f"consumer {consumer.name}" + ("" if of is queue else f" of {of.name}")
