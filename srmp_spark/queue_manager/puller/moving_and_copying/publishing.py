"""Make rows of messages from remote queues; change their stored state in the same commit.

For the engine (:mod:`srmp_spark.srmp.receiving`) each is a message without identity for a local
queue. The puller ensures that a message becomes a row only once, by its place in the remote queue.
The remote queue manager has already sent the receipts that the message's sender requested.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from srmp_spark.message import Arrival
from srmp_spark.names import NULL_GUID
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, PulledKey
from srmp_spark.rows.group import Form
from srmp_spark.srmp.receiving.effects import Accepted, Refused
from srmp_spark.store.database.transaction import Transaction

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.srmp.receiving.effects import Ok, Pending

LOOKUP_ID = Struct("<Q")
"""The form of the lookup identifier, which is stored in place of an HTTP head."""


class Published(NamedTuple):
    """A message that became a row."""

    key: PulledKey
    sequence: int | None
    """Sequence of the row, or ``None`` if a redirection led the row to another queue."""


class _Row:
    """Takes the place of a message's sender for the engine: waits until the message is stored."""

    __slots__ = ("done", "read_at")

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.read_at = time.perf_counter()

    def acknowledge(self, ok: Ok) -> None:
        del ok
        if not self.done.done():
            self.done.set_result(None)

    def refuse(
        self, status: int, reason: str, section: str, retry_after: int | None = None
    ) -> None:
        """Ignore the refusal, because :func:`publish` gets it as the engine's result."""


async def publish(
    manager: QueueManager,
    queue: str,
    peer: str,
    messages: Sequence[Pulled],
    note: Callable[[Transaction, Sequence[Published]], None],
) -> tuple[int, str | None]:
    """Make rows of ``messages`` in this order, and wait until they are on stable storage.

    ``note`` is called in the same commit with the messages that became rows, and their sequences.
    ``peer`` names the remote host. Return the number of messages that became rows, from the first
    on, and the reason why the next one did not (the queue is paused, full or gone, or no messages
    are accepted), or ``None``. The rest may be tried again. Raises the error of the journal if the
    commit fails.
    """
    gate = manager.gate.closed
    if gate is not None:
        return 0, gate.message
    destination = f"{manager.public_base}/msmq/{quote(queue, safe='/$')}"
    waiting: list[asyncio.Future[None]] = []
    stored: list[Published] = []
    why = None
    for each in messages:
        message = each.message._replace(
            destination=destination,
            lineage=NULL_GUID,
            uniquifier=1,
            stream=None,
            expires_at=None,
            time_to_reach_queue=None,
            delivery_receipt_to=None,
            commitment_receipt_to=None,
            dead_letter=False,
            signature="none",
        )
        row = _Row()
        post = LOOKUP_ID.pack(each.key.lookup_id) + each.raw
        arrival = Arrival(manager.clock.utc(), "mqrr", peer)
        outcome = manager.acceptor.take(
            message, arrival, post, LOOKUP_ID.size, row, form=Form.PACKET
        )
        if isinstance(outcome, Refused):
            why = outcome.message
            break
        waiting.append(row.done)
        stored.append(Published(each.key, _sequence_in(queue, outcome)))
    if waiting:
        noted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(result: None, error: BaseException | None) -> None:
            del result
            if not noted.done():
                noted.set_result(None) if error is None else noted.set_exception(error)

        # There is no task and no await since the first row, so the journal has all of this in one
        # transaction.
        manager.journal.call(lambda transaction: note(transaction, stored), done)
        await asyncio.gather(*waiting, noted)
    return len(waiting), why


def _sequence_in(queue: str, outcome: Pending) -> int | None:
    return outcome.sequence if isinstance(outcome, Accepted) and outcome.queue == queue else None
