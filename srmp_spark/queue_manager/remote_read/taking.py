"""Messages that remote readers have received or given back to nobody: marks of ``default``, stored together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from srmp_spark.errors import ApiError
from srmp_spark.srmp.decisions import Reason

if TYPE_CHECKING:
    from srmp_spark.queue_manager.catalogue import Queue
    from srmp_spark.queue_manager.consumers import Consumer
    from srmp_spark.queue_manager.service import QueueManager


class Part(NamedTuple):
    """Rows of one queue that leave it for one reason."""

    queue: Queue
    sequences: list[int]
    reason: Reason


async def take_together(manager: QueueManager, parts: list[Part], holder: str) -> None:
    """Mark all of them received, in one transaction; return when that is on stable storage.

    Raises a 409, and changes nothing, if ``holder`` does not have the lease of one of the queues, or if what was received of
    one would be too scattered. No other task runs before everything is marked.
    """
    for part in parts:
        manager.check_holder(part.queue.default, holder)
    before = [(part.queue.default, part.queue.default.marks()) for part in parts]
    changed: list[tuple[Queue, Consumer]] = []
    noted = []
    try:
        for part in parts:
            consumer = part.queue.default
            marks = consumer.marks()
            consumer.mark_each(part.sequences)
            noted.append((part, marks, consumer.marks()))
            changed.append((part.queue, consumer))
    except ApiError:
        for consumer, marks in before:
            consumer.received, consumer.ahead = marks.received, list(marks.ahead)
        raise
    now = manager.clock.monotonic()
    for part, old, new in noted:
        part.queue.deciding.marked(old, new, part.reason, manager.clock.utc())
        part.queue.close_up(part.queue.default)
        part.queue.default.renew(now=now, utc=manager.clock.utc())
        part.queue.marks_moved()
    await manager.saves.save_together(changed)
