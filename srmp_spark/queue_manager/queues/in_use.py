"""Decide whether a queue is still in use, so that a careful deletion is refused.

A queue is in use while deleting it would lose something that somebody waits for: a row that a
consumer has not received, or a receiver that holds the queue. Receipts that are owed to senders are
no such thing, because they are sent after the deletion, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from srmp_spark.errors import ApiError
from srmp_spark.interface import DEFAULT_CONSUMER
from srmp_spark.queue_manager.queues.catalogue import Queue
from srmp_spark.queue_manager.queues.consumers import Consumer, holder_text

IN_USE = "queue-in-use"
"""Error code of a 409: a queue that is in use was to be deleted only if it is not."""
REASONS_TOLD_MAX = 5
"""Most reasons in the text of one refusal. The number of further ones is added."""


def counted_consumers(queue: Queue) -> Iterator[tuple[Queue, Consumer]]:
    """Yield the consumers whose marks say whether a row of ``queue`` is still needed.

    Each is yielded with its queue, which is ``queue`` or its journal. ``default`` of ``queue``
    always counts, and ``default`` of a journal, because a journal keeps rows until somebody
    receives them from it. Another consumer counts once it has marked a row or holds a lease.
    """
    for each in (queue, queue.journal):
        if each is None:
            continue
        yield each, each.default
        for consumer in each.consumers.values():
            if consumer.name != DEFAULT_CONSUMER and (
                consumer.received or consumer.ahead or consumer.holder is not None
            ):
                yield each, consumer


def why_in_use(queue: Queue, subqueues: Iterable[Queue], now: float) -> list[str]:
    """Return the reasons why a queue is in use, each as a part of a sentence.

    ``subqueues`` are those that are deleted with the queue. ``now`` is in seconds of the monotonic
    clock. The rows of a journal count only for consumers of the journal.
    """
    reasons = []
    for each in (queue, *subqueues):
        for of, consumer in counted_consumers(each):
            is_of_nobody = of is not each and not consumer.received and consumer.holder is None
            waiting = 0 if is_of_nobody else of.waiting_for(consumer)
            if waiting:
                reasons.append(
                    f"{waiting} rows of {of.name} are not received by consumer {consumer.name}"
                )
            if consumer.holder is not None and consumer.is_held(now):
                reasons.append(
                    f"consumer {consumer.name} of {of.name} is held by "
                    f"{holder_text(consumer.holder)}"
                )
    return reasons


def check_unused(queue: Queue, subqueues: Iterable[Queue], now: float) -> None:
    """Raise :class:`ApiError` (409) if :func:`why_in_use` finds a reason."""
    reasons = why_in_use(queue, subqueues, now)
    if not reasons:
        return
    more = len(reasons) - REASONS_TOLD_MAX
    told = [*reasons[:REASONS_TOLD_MAX], *([f"and {more} more"] if more > 0 else [])]
    name = shlex.quote(queue.name)
    raise ApiError(
        409,
        IN_USE,
        f"queue {queue.name} is in use: {'; '.join(told)}",
        f"keep senders out with `srmp-spark queue pause {name}`, let the readers finish, and "
        f"delete it then; `srmp-spark queue delete {name} --force` deletes it now, with its rows",
    )
