"""kill -9 of ``serve`` at random moments, while five senders repeat, reorder and lose replies.

Short in CI; ``make kill SECONDS=300`` is the long version. A failure prints the seed: SRMP_SPARK_KILL_SEED=… injects the
same faults again (the moments of the kills depend on the machine and are only similar).
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from harness import landed, peek, stderr_of
from storm import DRAIN_TIMEOUT, QUEUES, SEED, TO_MAKE, Season, storm

from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.ledger import Ledger
from tests.kit.foreign.verdict import judge
from tests.long_samples import lengths

SECONDS = lengths("SRMP_SPARK_KILL_SECONDS", short=10.0, long=20.0)
LONGEST = float(os.environ.get("SRMP_SPARK_KILL_SECONDS", "20"))
KILLS_MIN = 3
"""Fewer would prove little."""
FAULTS = ("lost reply", "duplicate", "reorder", "ghost")
"""What must have happened, and a second stream of a sender too: a slow machine takes longer than :data:`SECONDS` for it."""


class Snapshots:
    """Which message had which sequence, seen after each restart: what was seen once must stay (no sequence twice)."""

    def __init__(self, queue_manager: RunningQueueManager) -> None:
        self.queue_manager = queue_manager
        self.seen: dict[tuple[str, str, int], tuple[str, int]] = {}
        self.last = dict.fromkeys(QUEUES, 0)
        self.changed: list[str] = []

    def take(self, queue: str) -> None:
        for row in peek(
            queue, api=self.queue_manager.api, after=max(0, self.last[queue] - 50), body="none"
        ):
            place, message = (
                (row["epoch"], queue, row["sequence"]),
                (row["lineage"], row["uniquifier"]),
            )
            if self.seen.setdefault(place, message) != message:
                self.changed.append(f"{place}: {self.seen[place]} became {message}")
            self.last[queue] = max(self.last[queue], row["sequence"])


async def killer(
    queue_manager: RunningQueueManager,
    ledger: Ledger,
    snapshots: Snapshots,
    dice: random.Random,
    season: Season,
) -> int:
    """Kill and restart until it is time; returns how often."""
    kills = 0

    def owes() -> bool:
        again = max(sender.streams_started for sender in season.streams) > 1
        return kills < KILLS_MIN or not again or not all(ledger.faults[fault] for fault in FAULTS)

    season.owes = owes
    while not season.is_over():
        await asyncio.sleep(dice.choice((0.02, 0.3, 1.0, 1.0)) * dice.uniform(0.5, 1.5))
        await asyncio.to_thread(queue_manager.kill9)
        kills += 1
        await asyncio.sleep(dice.choice((0.0, 0.0, 0.5)))
        await asyncio.to_thread(queue_manager.restart)
        if kills % 2:
            await asyncio.to_thread(snapshots.take, QUEUES[kills // 2 % len(QUEUES)])
    return kills


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.timeout(LONGEST + DRAIN_TIMEOUT + 60)
def test_everything_acknowledged_landed_exactly_once_and_in_order_through_kill_9(
    tmp_path: Path, seconds: float
) -> None:
    print(f"SRMP_SPARK_KILL_SEED={SEED}")
    ledger = Ledger(path=tmp_path / "ledger.jsonl")
    with RunningQueueManager(
        tmp_path / "data", queues=TO_MAKE, allow_url=["http://127.0.0.1:*"]
    ) as queue_manager:
        snapshots = Snapshots(queue_manager)

        async def kill(dice: random.Random, season: Season) -> int:
            return await killer(queue_manager, ledger, snapshots, dice, season)

        kills, streams = asyncio.run(storm(queue_manager, ledger, seconds, kill))
        for queue in QUEUES:
            snapshots.take(queue)
        rows = [row for queue in QUEUES for row in landed(peek(queue, api=queue_manager.api))]
        log = stderr_of(Path(queue_manager.log))
    ledger.close()
    verdict = judge(ledger, rows)
    print(
        f"{kills} kills, {ledger.sent} sent, {len(rows)} landed, {ledger.stream_receipts} "
        "stream receipts"
    )
    print(dict(ledger.faults))
    assert verdict.ok, f"seed {SEED}\n{verdict.complaint()}"
    assert snapshots.changed == [], "a sequence was used twice"
    assert verdict.acknowledged == verdict.sent == verdict.landed
    assert ledger.count("receipted_at", "stream") == sum(1 for _ in ledger.of_kind("stream"))
    for queue in QUEUES:
        sequences = sorted(row.sequence for row in rows if row.queue == queue)
        assert sequences == list(range(1, len(sequences) + 1)), (
            f"{queue}: sequences count from 1 without holes"
        )
    assert len({row.epoch for row in rows}) == 1, "a restart from its own directory is no new epoch"
    assert kills >= KILLS_MIN
    assert max(sender.streams_started for sender in streams) > 1
    assert ledger.answers["none"] > ledger.faults["lost reply"], "the kills cut requests off"
    assert "Traceback" not in log, log[max(0, log.find("Traceback") - 500) :][:3000]
