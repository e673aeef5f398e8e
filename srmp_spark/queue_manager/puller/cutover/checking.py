"""Compare a remote queue with its copy, for ``srmp-spark subscribe cutover --check``.

The comparison itself is a walk of the copier (:mod:`..moving_and_copying.copying`). It meets every
message of the remote queue, identified by its message identifier and its lookup identifier, and
looks up each copied message that it did not meet. This module waits for a walk that began after the
question, adds what is known of the rows here, and has the numbers judged (:mod:`.findings`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from srmp_spark.errors import RemoteReadError, SrmpSparkError
from srmp_spark.interface import CutoverEntry
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.api.port_side.times import rfc3339
from srmp_spark.queue_manager.puller.cutover.copied_rows import (
    CopiedRows,
    read_copied_rows,
    read_cutover,
)
from srmp_spark.queue_manager.puller.cutover.findings import CutoverNumbers, Phase, findings_of
from srmp_spark.queue_manager.queues.catalogue import Queue
from srmp_spark.queue_manager.queues.consumers import Consumer
from srmp_spark.queue_manager.queues.remote_queues import CutoverQuestion
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.tables.cutovers import CutoverRow

if TYPE_CHECKING:
    from srmp_spark.queue_manager.puller.puller import Puller
    from srmp_spark.queue_manager.service import QueueManager

OPEN_SECONDS = 10.0
"""Longest wait for the answer to the open that shows whether readers are there, in seconds.

After that the remote queue counts as not read.
"""


async def check(manager: QueueManager, puller: Puller, asked: CutoverQuestion) -> CutoverEntry:
    """Answer one question about the subscription of ``puller``; change nothing.

    Raises :class:`StoreError` if the store cannot be read.
    """
    stored = await read_cutover(manager.directory.path, puller.subscription.name)
    copier, walk = puller.copier, asked.walk or 0
    if copier is None:
        numbers = _of_a_move(puller, stored)
    else:
        if asked.walk is None:
            walk = puller.want_walk(copier)
        is_compared = await puller.wait_for_walk(copier, walk, asked.wait_s)
        numbers = await _of_a_copy(manager, puller, asked, is_compared=is_compared)
    findings = findings_of(numbers, puller.subscription, accepts_received=asked.accepts_received)
    given = puller.subscription
    return {
        "host": given.host.text,
        "queue": given.queue,
        "to": given.to,
        "phase": numbers.phase.value,
        "consumers": list(numbers.consumers),
        "safe": not any(each["blocks"] for each in findings),
        "still_there": numbers.still_there,
        "received_there": numbers.received_there,
        "moved": numbers.moved,
        "not_here": numbers.not_here,
        "locked_there": numbers.locked_there,
        "received_here": numbers.received_here + numbers.received_twice,
        "in_doubt": numbers.in_doubt,
        "compared": numbers.is_compared,
        "walk": walk,
        "settled_at": None if stored is None else rfc3339(stored.settled_at),
        "findings": findings,
    }


def _of_a_move(puller: Puller, stored: CutoverRow | None) -> CutoverNumbers:
    phase = Phase.MOVING if stored is None else Phase.MOVED
    if puller.cutover is not None:
        phase = Phase.SETTLING
    return CutoverNumbers(
        phase,
        puller.cutover.consumers if puller.cutover is not None else _consumers(stored),
        still_there=puller.undecided,
        received_there=puller.received_there,
        moved=0 if stored is None else stored.moved,
        in_doubt=puller.in_doubt,
        trouble=puller.trouble if phase is Phase.SETTLING else None,
    )


def _consumers(stored: CutoverRow | None) -> tuple[str, ...]:
    return () if stored is None else stored.consumers


async def _of_a_copy(
    manager: QueueManager, puller: Puller, asked: CutoverQuestion, *, is_compared: bool
) -> CutoverNumbers:
    numbers = CutoverNumbers(
        Phase.COPYING,
        asked.consumers,
        still_there=puller.undecided,
        received_there=puller.received_there,
        is_compared=is_compared,
        trouble=None if is_compared else puller.trouble,
    )
    copier = puller.copier
    if not is_compared or copier is None or copier.last_walk is None:
        return numbers
    done = copier.last_walk
    numbers = replace(
        numbers, not_here=done.not_copied, locked_there=done.locked, unreadable=done.unreadable
    )
    numbers = await _with_open(puller, numbers)
    rows = await read_copied_rows(manager.directory.path, puller.subscription.name)
    queue = manager.catalogue.find(puller.subscription.to)
    return _with_rows(queue, rows, numbers, manager.clock.monotonic())


async def _with_open(puller: Puller, numbers: CutoverNumbers) -> CutoverNumbers:
    """Open the remote queue alone, and add what the answer shows."""
    try:
        await asyncio.wait_for(puller.open_alone(), OPEN_SECONDS)
    except RemoteReadError as error:
        if error.status == Status.MQ_ERROR_SHARING_VIOLATION:
            return replace(numbers, reader_there=True)
        return replace(numbers, may_not_receive=str(error))
    except asyncio.TimeoutError:
        return replace(numbers, trouble=f"no answer within {OPEN_SECONDS:g} seconds")
    except (SrmpSparkError, OSError) as error:
        return replace(numbers, trouble=str(error))
    return numbers


def _with_rows(
    queue: Queue, rows: CopiedRows, numbers: CutoverNumbers, now: float
) -> CutoverNumbers:
    """Add what is known of the rows here: which of them are gone, or were received already."""
    holes = queue.waiting.holes
    consumers = [queue.consumers[name] for name in numbers.consumers if name in queue.consumers]
    held = next((each for each in consumers if each.is_held(now)), None)
    return replace(
        numbers,
        rowless=rows.there.count_in_both(1, queue.end, holes),
        received_here=_most_received(queue, consumers, rows.there),
        received_twice=_most_received(queue, consumers, rows.received_there),
        unplaced=rows.unplaced,
        held_here=None if held is None else held.refusal().message,
    )


def _most_received(queue: Queue, consumers: Sequence[Consumer], rows: SequenceSet) -> int:
    """Return how many of ``rows`` that exist were received, by the consumer with the most."""
    return max((_received(queue, each, rows) for each in consumers), default=0)


def _received(queue: Queue, consumer: Consumer, rows: SequenceSet) -> int:
    mark = consumer.received
    purged = rows.count_in_both(1, mark, queue.waiting.holes)
    return rows.count(1, mark) - purged + rows.count_in_both(mark + 1, queue.end, consumer.ahead)
