"""Make the fixture of many queues and streams through the store's own code."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

from benchmarks.scale.messages import HEAD, lineage, post
from srmp_spark.message import Arrival
from srmp_spark.rows.group import Record
from srmp_spark.srmp.receiving.effects import Changes
from srmp_spark.srmp.receiving.history import HistoryChanges, HistoryRun
from srmp_spark.srmp.receiving.stream_effects import IncomingStreamRow
from srmp_spark.srmp.receiving.stream_name import StreamName
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.journal import Insert, Journal
from srmp_spark.store.tables import queues

QUEUES_PER_COMMIT = 500
ROWS_OF_A_QUEUE = 3
STREAMS_OF_A_QUEUE = 10
FIRST_NUMBER = 1_000_000
"""Number of the first message of each sender."""


def queue_name(number: int) -> str:
    """Return the name of queue ``number``."""
    return f"private$/many-{number:05d}"


def fill(folder: Path, queue_count: int) -> None:
    """Make a data directory with ``queue_count`` queues and many streams.

    The number of streams is STREAMS_OF_A_QUEUE times that of queues. Two of the queues are not made
    here: the order queue, which the queue manager makes at its first start, and the queue that the
    benchmarks create by a flag. The others have ROWS_OF_A_QUEUE rows each.
    """
    asyncio.run(_fill(folder, queue_count - 2, queue_count * STREAMS_OF_A_QUEUE))


async def _fill(folder: Path, queue_count: int, stream_count: int) -> None:
    now = time.time_ns() // 1000
    directory = DataDirectory.open(folder, now=now)
    try:
        changes: list[Changes] = []
        nothing = Changes([], HistoryChanges([], []), [], 0)
        journal = Journal(
            directory,
            asyncio.get_running_loop(),
            changes=lambda: changes.pop() if changes else nothing,
        )
        try:
            for first in range(0, queue_count, QUEUES_PER_COMMIT):
                numbers = range(first, min(queue_count, first + QUEUES_PER_COMMIT))
                await journal.transact(partial(_create, numbers))
                arrival = Arrival(now, "http", "192.0.2.1:4711", None)
                for number in numbers:
                    for sequence in range(1, ROWS_OF_A_QUEUE + 1):
                        content = post(lineage(number).encode(), FIRST_NUMBER + sequence)
                        journal.submit(
                            Insert(
                                queue_name(number), sequence, Record(arrival, content, len(HEAD))
                            ),
                            None,
                        )
                runs = [
                    HistoryRun(lineage(each), FIRST_NUMBER + 1, FIRST_NUMBER + ROWS_OF_A_QUEUE, now)
                    for each in numbers
                ]
                of_these = (
                    each for number in numbers for each in range(number, stream_count, queue_count)
                )
                streams = [_stream(each, each % queue_count, now) for each in of_these]
                changes.append(Changes(streams, HistoryChanges(runs, []), [], 0))
                await journal.transact(lambda transaction: None)
        finally:
            await journal.drain()
            journal.close()
    finally:
        directory.close()


def _create(numbers: range, transaction: Transaction) -> None:
    for number in numbers:
        queues.create(transaction, queue_name(number), transactional=False)


def _stream(number: int, queue: int, now: int) -> IncomingStreamRow:
    """Return stream ``number``, from a sender of its own, with everything acknowledged."""
    guid = lineage(number)
    peer = f"192.0.{number % 200}.{number // 200 % 250 + 1}"
    return IncomingStreamRow(
        StreamName(queue_name(queue)),
        guid,
        4711,
        12,
        12,
        f"http://{peer}/msmq/private$/order_queue$",
        f"{peer}:4711",
        guid,
        0,
        now,
        now,
        None,
    )
