"""Five senders that repeat, reorder and lose replies at a queue manager that others kill meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from srmp_spark.testing.foreign.messages import Dialect, ForeignReceipt
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.http import ReceiptsServer
from tests.kit.foreign.ledger import Ledger
from tests.kit.foreign.senders import Faults, ForeignQueueManager, MessageSender
from tests.kit.foreign.stream_sender import StreamSender

SEED = int(os.environ.get("SRMP_SPARK_KILL_SEED", str(random.randrange(10**6))))
QUEUES = ("private$/orders", "private$/payments", "private$/shipments")
TO_MAKE = ("private$/orders", "private$/payments:transactional", "private$/shipments:transactional")
"""The same for ``--queue``."""
FAULTS = Faults(lost_reply=0.03, duplicate=0.05, reorder=0.02, ghost=0.05, expire=0.02)
RATE = 40.0
"""Regular and durable messages a second and sender."""
DRAIN_TIMEOUT = 240.0
"""Seconds for the kills that are owed, and for the senders to get rid of what is left after the last one, on a busy machine."""

T = TypeVar("T")


class Season:
    """How long the senders have new messages: some seconds, and on until the killer owes nothing more."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        """``time.monotonic()``."""
        self.owes: Callable[[], bool] = lambda: False
        """Whether something has not happened yet that must; the killer sets it."""
        self.streams: list[StreamSender] = []
        """Those that take part."""

    def is_over(self) -> bool:
        return time.monotonic() >= self.until and not self.owes()


async def application(sender: StreamSender, dice: random.Random, season: Season) -> None:
    """Bursts of stream messages with pauses, some long enough for a new stream to begin."""
    numbers = itertools.count(1)
    while not season.is_over():
        for _ in range(dice.randrange(1, 15)):
            sender.enqueue(f"{sender.queue} {sender.manager.guid} {next(numbers)}".encode())
        await asyncio.sleep(dice.uniform(0.1, 2.0))
    sender.close()


def orders(manager: ForeignQueueManager, season: Season) -> Iterator[tuple[bytes, bool]]:
    for number in itertools.count(1):
        if season.is_over():
            return
        yield f"order {manager.guid} {number} ".encode() * (1 + number % 40), number % 2 == 0


async def storm(
    queue_manager: RunningQueueManager,
    ledger: Ledger,
    seconds: float,
    killer: Callable[[random.Random, Season], Awaitable[T]],
    *,
    patience: float = 0.0,
) -> tuple[T, list[StreamSender]]:
    """All of it, until every message is acknowledged and every stream receipted; what the killer says, and the streams.

    The killer gets dice and the season, at whose end it has to be done; ``patience``: seconds that it may take longer.
    """
    season = Season(seconds)
    async with ReceiptsServer() as receipts:
        managers = [
            ForeignQueueManager(
                endpoint=lambda: queue_manager.endpoint,
                ledger=ledger,
                receipts_url=receipts.url(),
                seed=SEED + number,
                reply_timeout=5.0,
            )
            for number in range(2)
        ]

        def everybody(receipt: ForeignReceipt) -> None:
            for manager in managers:
                manager.on_receipt(receipt)

        receipts.on_receipt = everybody
        first, second = managers
        streams = [
            StreamSender(first, "private$/payments", faults=FAULTS, dialect=Dialect.EXAMPLES),
            StreamSender(second, "private$/payments", faults=FAULTS, dialect=Dialect.TEXT),
            StreamSender(first, "private$/shipments", faults=FAULTS, dialect=Dialect.PRINTED),
        ]
        season.streams = streams
        messages = [
            MessageSender(first, "private$/orders", faults=FAULTS, delivery_receipts=0.05),
            MessageSender(second, "private$/orders", faults=FAULTS, dialect=Dialect.PRINTED),
        ]
        work = asyncio.gather(
            killer(random.Random(SEED), season),
            *(sender.run(orders(sender.manager, season), rate=RATE) for sender in messages),
            *(
                application(sender, random.Random(f"{SEED}/{n}"), season)
                for n, sender in enumerate(streams)
            ),
            *(sender.run() for sender in streams),
        )
        results = await asyncio.wait_for(work, seconds + max(patience, DRAIN_TIMEOUT))
        assert receipts.faults == []
        return results[0], streams
