"""Subqueues that nobody declared: they exist while somebody has them open or something is in them, as MSMQ has it.

Theory of operation. A remote reader that opens ``orders;retry``, to receive, to peek or to move messages there, makes the
subqueue of the existing queue ``orders`` ([MS-MQRR] 3.1.4.2, 3.1.4.11). It is a queue of the log like any other, so a message
that is moved there is stored as everywhere. It is in no list and no glob, and to a sender it does not exist: messages are
moved there. It has the kind of its queue and is deleted with it.

It goes when all of this is true: no handle of a remote reader stands for it, nobody holds a lease of it, each of its consumers
has received everything, and no row of it is on its way to the disk. Making and removing take turns at one door, so nobody
opens what is being removed; and the last look is in the same turn of the loop as the engine's refusal of further rows, so no
message can be moved into what goes. A kill leaves an empty one behind, which the next start removes.

Who may open may make: one limit counts the subqueues of a queue, one all of them. What stays on disk of one that is gone is an
entry with its name, if it ever had a message, and nothing otherwise (:func:`srmp_spark.store.queues.create_subqueue`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from srmp_spark.clock import Clock
from srmp_spark.queue_manager.catalogue import Catalogue, Queue
from srmp_spark.queue_manager.consumers import REMOTE_READERS
from srmp_spark.queue_manager.log_once import LogOnce

log = logging.getLogger(__name__)

SUBQUEUES_OF_A_QUEUE_MAX = 256
"""Of those that nobody declared, at once. Beyond, an open is refused (MQ_ERROR_INSUFFICIENT_RESOURCES)."""
SUBQUEUES_MAX = 1_000
"""Of all queues together: a tenth of QUEUES_MAX, which counts declared queues alone."""


class Subqueues:
    """Says when they are made and removed; the queue manager does it."""

    def __init__(
        self,
        catalogue: Catalogue,
        clock: Clock,
        make: Callable[[str], Awaitable[Queue]],
        remove: Callable[[Queue, Callable[[Queue], bool]], Awaitable[None]],
    ) -> None:
        """``remove`` deletes a queue if what it is given still says so when nothing can come between any more."""
        self._catalogue = catalogue
        self._clock = clock
        self._make = make
        self._delete = remove
        self._door = asyncio.Lock()
        self._uses: dict[int, int] = {}
        """How many handles stand for one, by the identity of the queue: one that is made again is another one."""
        self._logged = LogOnce()

    def tell(self, event: str, name: str) -> None:
        """Log that one was made or deleted, unless the log has enough of that: a remote reader makes hundreds a second."""
        line = self._logged.line(f"{event} name={name}", self._clock.monotonic())
        if line is not None:
            log.info("%s", line)

    async def enter(self, name: str) -> Queue:
        """Return the subqueue ``name``, made if it is not there, and count a use; :meth:`leave` follows for each.

        Raises an :class:`ApiError`: 404 if its queue is not there, 503 at a limit or while nothing can be stored.
        """
        async with self._door:
            queue = self._catalogue.get(name) or await self._make(name)
            self._uses[id(queue)] = self._uses.get(id(queue), 0) + 1
            return queue

    def is_used(self, queue: Queue) -> bool:
        """Whether :meth:`leave` is still to come for this one."""
        return id(queue) in self._uses

    async def leave(self, queue: Queue) -> None:
        """Count a use less; the last one removes what is empty."""
        uses = self._uses.get(id(queue), 1) - 1
        if uses:
            self._uses[id(queue)] = uses
            return
        self._uses.pop(id(queue), None)
        await self._remove(queue)

    async def look(self) -> None:
        """Remove those that are over: a lease ended, an operator purged, a query received the last row."""
        for queue in self._catalogue.undeclared:
            await self._remove(queue)

    async def _remove(self, queue: Queue) -> None:
        if not self._is_over(queue):  # without the door: most are not
            return
        async with self._door:
            await self._delete(queue, self._is_over)

    def _is_over(self, queue: Queue) -> bool:
        now = self._clock.monotonic()
        return (
            self._catalogue.get(queue.name) is queue
            and not queue.state.declared
            and not queue.state.paused
            and id(queue) not in self._uses
            and queue.state.end == queue.end  # else a row is on its way to the disk
            and not queue.state.count
            # A lease of remote readers without a use is one that a kill left behind.
            and not any(
                queue.waiting_for(each) or (each.holder != REMOTE_READERS and each.is_held(now))
                for each in queue.consumers.values()
            )
        )
