"""kill -9 of ``serve`` at random moments, while five senders repeat, reorder and lose replies.

Short in CI; ``make kill SECONDS=300`` is the long version. A failure prints the seed: SRMP_SPARK_KILL_SEED=… injects the
same faults again (the moments of the kills depend on the machine and are only similar).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import landed, peek, stderr_of

from srmp_spark.testing.foreign.http import ReceiptsServer
from srmp_spark.testing.foreign.ledger import Ledger
from srmp_spark.testing.foreign.messages import Dialect, ForeignReceipt
from srmp_spark.testing.foreign.senders import Faults, ForeignQueueManager, MessageSender
from srmp_spark.testing.foreign.stream_sender import StreamSender
from srmp_spark.testing.foreign.verdict import judge
from srmp_spark.testing.service import RunningQueueManager

SECONDS = float(os.environ.get("SRMP_SPARK_KILL_SECONDS", "30"))
SEED = int(os.environ.get("SRMP_SPARK_KILL_SEED", str(random.randrange(10**6))))
QUEUES = ("private$/orders", "private$/payments", "private$/shipments")
FAULTS = Faults(lost_reply=0.03, duplicate=0.05, reorder=0.02, ghost=0.05, expire=0.02)
RATE = 40.0
"""Regular and durable messages a second and sender."""
DRAIN_TIMEOUT = 90.0
"""Seconds for the senders to get rid of what is left after the last kill."""
KILLS_MIN = 3
"""Fewer would prove little; a quiet machine comes to one in three seconds."""


class Snapshots:
    """Which message had which sequence, seen after each restart: what was seen once must stay (no sequence twice)."""

    def __init__(self, queue_manager: RunningQueueManager) -> None:
        self.queue_manager = queue_manager
        self.seen: dict[tuple[str, str, int], tuple[str, int]] = {}
        self.last = dict.fromkeys(QUEUES, 0)
        self.changed: list[str] = []

    def take(self, queue: str) -> None:
        for row in peek(queue, api=self.queue_manager.api, after=max(0, self.last[queue] - 50), body="none"):
            place, message = (row["epoch"], queue, row["sequence"]), (row["lineage"], row["uniquifier"])
            if self.seen.setdefault(place, message) != message:
                self.changed.append(f"{place}: {self.seen[place]} became {message}")
            self.last[queue] = max(self.last[queue], row["sequence"])


async def killer(queue_manager: RunningQueueManager, snapshots: Snapshots, dice: random.Random, until: float) -> int:
    """Kill and restart until it is time; returns how often."""
    kills = 0
    while time.monotonic() < until:
        await asyncio.sleep(dice.choice((0.02, 0.3, 1.0, 1.0)) * dice.uniform(0.5, 1.5))
        await asyncio.to_thread(queue_manager.kill9)
        kills += 1
        await asyncio.sleep(dice.choice((0.0, 0.0, 0.5)))
        await asyncio.to_thread(queue_manager.restart)
        if kills % 2:
            await asyncio.to_thread(snapshots.take, QUEUES[kills // 2 % len(QUEUES)])
    return kills


async def application(sender: StreamSender, dice: random.Random, until: float) -> None:
    """Bursts of stream messages with pauses, some long enough for a new stream to begin."""
    numbers = itertools.count(1)
    while time.monotonic() < until:
        for _ in range(dice.randrange(1, 15)):
            sender.enqueue(f"{sender.queue} {sender.manager.guid} {next(numbers)}".encode())
        await asyncio.sleep(dice.uniform(0.1, 2.0))
    sender.close()


def orders(manager: ForeignQueueManager, until: float) -> Iterator[tuple[bytes, bool]]:
    for number in itertools.count(1):
        if time.monotonic() >= until:
            return
        yield f"order {manager.guid} {number} ".encode() * (1 + number % 40), number % 2 == 0


async def storm(queue_manager: RunningQueueManager, ledger: Ledger, snapshots: Snapshots) -> tuple[int, list[StreamSender]]:
    dice = random.Random(SEED)
    until = time.monotonic() + SECONDS
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
        messages = [
            MessageSender(first, "private$/orders", faults=FAULTS, delivery_receipts=0.05),
            MessageSender(second, "private$/orders", faults=FAULTS, dialect=Dialect.PRINTED),
        ]
        work = asyncio.gather(
            killer(queue_manager, snapshots, dice, until),
            *(sender.run(orders(sender.manager, until), rate=RATE) for sender in messages),
            *(application(sender, random.Random(f"{SEED}/{n}"), until) for n, sender in enumerate(streams)),
            *(sender.run() for sender in streams),
        )
        results = await asyncio.wait_for(work, SECONDS + DRAIN_TIMEOUT)
        assert receipts.faults == []
        return results[0], streams


@pytest.mark.timeout(SECONDS + DRAIN_TIMEOUT + 60)
def test_everything_acknowledged_landed_exactly_once_and_in_order_through_kill_9(tmp_path: Path) -> None:
    print(f"SRMP_SPARK_KILL_SEED={SEED}")
    ledger = Ledger(path=tmp_path / "ledger.jsonl")
    queues = ["private$/orders", "private$/payments:transactional", "private$/shipments:transactional"]
    with RunningQueueManager(tmp_path / "data", queues=queues, allow_url=["http://127.0.0.1:*"]) as queue_manager:
        snapshots = Snapshots(queue_manager)
        kills, streams = asyncio.run(storm(queue_manager, ledger, snapshots))
        for queue in QUEUES:
            snapshots.take(queue)
        rows = [row for queue in QUEUES for row in landed(peek(queue, api=queue_manager.api))]
        log = stderr_of(Path(queue_manager.log))
    ledger.close()
    verdict = judge(ledger, rows)
    print(f"{kills} kills, {ledger.sent} sent, {len(rows)} landed, {ledger.stream_receipts} stream receipts")
    print(dict(ledger.faults))
    assert verdict.ok, f"seed {SEED}\n{verdict.complaint()}"
    assert snapshots.changed == [], "a sequence was used twice"
    assert verdict.acknowledged == verdict.sent == verdict.landed
    assert ledger.count("receipted_at", "stream") == sum(1 for _ in ledger.of_kind("stream"))
    for queue in QUEUES:
        sequences = sorted(row.sequence for row in rows if row.queue == queue)
        assert sequences == list(range(1, len(sequences) + 1)), f"{queue}: sequences count from 1 without holes"
    assert len({row.epoch for row in rows}) == 1, "a restart from its own directory is no new epoch"
    assert kills >= KILLS_MIN
    assert max(sender.streams_started for sender in streams) > 1
    for fault in ("lost reply", "duplicate", "reorder", "ghost"):
        assert ledger.faults[fault] > 0, fault
    assert ledger.answers["none"] > ledger.faults["lost reply"], "the kills cut requests off"
    assert "Traceback" not in log, log[max(0, log.find("Traceback") - 500) :][:3000]
