"""Create and remove subqueues that no client declared, as MSMQ does.

Such a subqueue exists while a client has it open or it has messages.

**Theory of operation.** A remote reader opens ``orders;retry`` to receive, to peek or to move
messages into it. That creates the subqueue of the existing queue ``orders`` ([MS-MQRR] 3.1.4.2,
3.1.4.11). It is a queue of the log like any other, so a message that is moved into it is stored as
everywhere. It is in no list and no glob. For a sender it does not exist, because messages are only
moved into it. It has the kind of its queue and is deleted with it.

It is removed when all of this is true: no remote reader has it open, no receiver holds a lease of
it, each of its consumers has received everything, it is not paused, and no row of it is being
stored. One lock serialises creating and removing, so no client opens a subqueue that is being
removed. The last check is in the same turn of the loop as the engine's refusal of further rows, so
no message can be moved into a subqueue that is being removed. A kill may leave an empty one, which
the next start removes.

A client that may open a subqueue may create it. One limit counts the subqueues of a queue, another
one all of them. A removed subqueue that ever had a message leaves an entry with its name on disk,
and otherwise nothing (:func:`srmp_spark.store.tables.queues.create_subqueue`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from srmp_spark.clock import Clock
from srmp_spark.queue_manager.log_once import LogOnce
from srmp_spark.queue_manager.queues.catalogue import Catalogue, Queue
from srmp_spark.queue_manager.queues.consumers import REMOTE_READERS

log = logging.getLogger(__name__)

SUBQUEUES_OF_A_QUEUE_MAX = 256
"""Most undeclared subqueues of one queue at once.

At the limit, opening a further one is refused (MQ_ERROR_INSUFFICIENT_RESOURCES).
"""
SUBQUEUES_MAX = 1_000
"""Most undeclared subqueues of all queues together. Opening a further one is refused.

It is a tenth of QUEUES_MAX, which counts declared queues alone.
"""


class Subqueues:
    """Decides when undeclared subqueues are created and removed, and counts their uses.

    The callbacks of the queue manager create and delete them.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        clock: Clock,
        make: Callable[[str], Awaitable[Queue]],
        remove: Callable[[Queue, Callable[[Queue], bool]], Awaitable[None]],
    ) -> None:
        """Prepare the decisions for the queues of ``catalogue``.

        ``make`` creates a subqueue. ``remove`` gets a queue and a function. It deletes the queue if
        the function returns True at the moment after which no other change can precede the
        deletion.
        """
        self._catalogue = catalogue
        self._clock = clock
        self._make = make
        self._delete = remove
        self._door = asyncio.Lock()
        self._uses: dict[int, int] = {}
        """Number of open handles of each subqueue, by the ``id()`` of the queue object.

        A subqueue that is created again is another object.
        """
        self._logged = LogOnce()

    def tell(self, event: str, name: str) -> None:
        """Log the event ``event`` of the subqueue ``name``, as often as :class:`.LogOnce` allows.

        The event states that the subqueue was created or deleted. A remote reader can create
        hundreds a second.
        """
        line = self._logged.line(f"{event} name={name}", self._clock.monotonic())
        if line is not None:
            log.info("%s name=%s", event, line.removeprefix(f"{event} name="))

    async def enter(self, name: str) -> Queue:
        """Return the subqueue ``name``, and count one use of it. Create it if it does not exist.

        Call :meth:`leave` once for each use. Raises :class:`ApiError`: 404 if its queue does not
        exist, 503 at a limit or while nothing can be stored.
        """
        async with self._door:
            queue = self._catalogue.get(name) or await self._make(name)
            self._uses[id(queue)] = self._uses.get(id(queue), 0) + 1
            return queue

    def is_used(self, queue: Queue) -> bool:
        """Return whether :meth:`enter` was called for this queue more often than :meth:`leave`."""
        return id(queue) in self._uses

    async def leave(self, queue: Queue) -> None:
        """Count one use less.

        After the last use, remove the subqueue if the module's rules allow it.
        """
        uses = self._uses.get(id(queue), 1) - 1
        if uses:
            self._uses[id(queue)] = uses
            return
        self._uses.pop(id(queue), None)
        await self._remove(queue)

    async def look(self) -> None:
        """Remove all undeclared subqueues that the rules of the module allow to be removed.

        Such subqueues exist after a lease has ended, an operator has purged, or a query has
        received the last row.
        """
        for queue in self._catalogue.undeclared:
            await self._remove(queue)

    async def _remove(self, queue: Queue) -> None:
        if not self._is_over(queue):  # Check without the lock first, because most are not over.
            return
        async with self._door:
            await self._delete(queue, self._is_over)

    def _is_over(self, queue: Queue) -> bool:
        now = self._clock.monotonic()
        return (
            self._catalogue.get(queue.name) is queue
            and not queue.state.declared
            and not queue.state.paused
            and not queue.paused_out
            and id(queue) not in self._uses
            and queue.state.end == queue.end  # Otherwise a row is being stored.
            and not queue.state.count
            # A lease of remote readers without a use was left by a kill.
            and not any(
                queue.waiting_for(each) or (each.holder != REMOTE_READERS and each.is_held(now))
                for each in queue.consumers.values()
            )
        )
