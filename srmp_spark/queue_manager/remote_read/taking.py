"""Mark messages that remote readers received, purged or moved, in one commit.

The marks are those of the consumer ``default``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from srmp_spark.errors import ApiError, ProcessMustEndError
from srmp_spark.interface import UNKNOWN_QUEUE
from srmp_spark.queue_manager.admission.requester import Unawaited
from srmp_spark.store.tables import decisions
from srmp_spark.store.tables import moves as counts

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.catalogue import Queue
    from srmp_spark.queue_manager.queues.consumers import Consumer
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.rows.group import Record
    from srmp_spark.srmp.receiving.decisions import Reason
    from srmp_spark.store.database.transaction import Transaction


class LeavingRows(NamedTuple):
    """Rows of one queue that leave the queue for the same reason."""

    queue: Queue
    sequences: list[int]
    reason: Reason | None
    """The reason that is decided about the rows (their senders may get receipts).

    ``None``: the rows continue in another queue, and no decision is made about them.
    """


class Move(NamedTuple):
    """A row that moves to another queue. It is also in one of the :class:`LeavingRows` objects."""

    queue: Queue
    sequence: int
    record: Record
    to: Queue


async def take_together(
    manager: QueueManager, parts: list[LeavingRows], holder: str, moves: Sequence[Move] = ()
) -> None:
    """Mark the rows of all parts as received, and move rows to their queues, in one commit.

    Wait until the commit is on stable storage. Also renews the leases of ``holder`` on the queues.
    Raises :class:`ApiError` and changes nothing: 409 if ``holder`` does not have the lease of one
    of the queues, 404 if a target queue was deleted, 503 if it is paused or no messages are
    accepted. No other task runs until everything is marked. Raises the error of the journal if the
    commit fails.
    """
    for part in parts:
        manager.leases.check_holder(part.queue.default, holder)
    for move in moves:
        _check_takes(manager, move.to)
    now, utc = manager.clock.monotonic(), manager.clock.utc()
    changed: dict[int, tuple[Queue, Consumer]] = {}
    for part in parts:
        consumer = part.queue.default
        marked = consumer.mark_each(part.sequences)
        if part.reason is not None:
            part.queue.deciding.marked(marked.runs, part.reason, utc)
        changed[id(part.queue)] = (part.queue, consumer)
    for queue, consumer in changed.values():
        queue.close_up(consumer)
        consumer.renew(now=now, utc=utc)
        queue.marks_moved()
    if moves:
        _put(manager, moves)
    await manager.saves.save_together(list(changed.values()))


def _check_takes(manager: QueueManager, queue: Queue) -> None:
    # A queue that is being deleted accepts no rows, even before its deletion is in a commit.
    if manager.catalogue.get(queue.name) is not queue or queue.name not in manager.receiver.queues:
        raise ApiError(404, UNKNOWN_QUEUE, f"{queue.name} was deleted", "move it to another queue")
    if queue.state.paused:
        raise ApiError(
            503,
            "paused",
            f"queue {queue.name} is paused",
            f"srmp-spark queue resume '{queue.name}'",
        )
    manager.gate.check()


def _put(manager: QueueManager, moves: Sequence[Move]) -> None:
    """Add the moved rows to the transaction that the journal collects next.

    The caller adds the marks to the same transaction.
    """
    moved = [
        decisions.MovedRowTarget(
            each.queue.id,
            each.queue.name,
            each.sequence,
            each.to.id,
            manager.acceptor.move_in(each.to.name, each.record, Unawaited()),
        )
        for each in moves
    ]

    def done(result: None, error: BaseException | None) -> None:
        assert error is None or isinstance(error, ProcessMustEndError), (
            "an UPDATE of rows that may not be there"
        )

    now = manager.clock.utc()

    def go_along(transaction: Transaction) -> None:
        decisions.go_along(transaction, moved)
        counts.count(transaction, moved, now)

    manager.journal.call(go_along, done)
