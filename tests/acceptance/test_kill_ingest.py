"""kill -9 of ``serve`` and of ``jobs/ingest.py`` (Python, its workers and its JVM) at random moments, under the same senders.

What every acknowledged message comes to is a row of the Delta table, once and in order: ``make kill-ingest SECONDS=300``. Its
short version is ``make demo``, which does the same to 2,000 messages. SRMP_SPARK_KILL_SEED=… injects the same faults again.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest
from storm import DRAIN_TIMEOUT, SEED, TO_MAKE, Season, storm

from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.demo.query import Query
from tests.kit.foreign.ledger import Ledger
from tests.kit.foreign.verdict import judge

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        "SRMP_SPARK_KILL_SECONDS" not in os.environ,
        reason="minutes of JVMs: make kill-ingest; in CI, make demo",
    ),
]
SECONDS = float(os.environ.get("SRMP_SPARK_KILL_SECONDS", "60"))
JOB = Path(__file__).resolve().parents[2] / "jobs" / "ingest.py"
LANDING_TIMEOUT = 180.0
"""Seconds for the query to start once more and to land what is left, on a busy machine."""
BATCH_TIMEOUT = 90.0
"""Seconds until a started query has committed a batch: a JVM starts in ten, on a busy machine in sixty."""
POLL_S = 0.1


async def committed(query: Query, batches: int, timeout: float) -> None:
    """Wait until that many batches are committed."""
    end = time.monotonic() + timeout
    while query.batches() < batches:
        query.check()
        assert time.monotonic() < end, f"no batch in {timeout} s; see {query.log}"
        await asyncio.sleep(POLL_S)


async def kill_queries(query: Query, dice: random.Random, until: float) -> int:
    """Kill it in the middle of its batches, and sometimes while it starts; the last one lives."""
    kills = 0
    query.start()
    while True:
        if dice.random() < 0.8:
            await committed(query, query.batches() + 1, BATCH_TIMEOUT)
        await asyncio.sleep(dice.uniform(0.0, 3.0))
        if kills and time.monotonic() >= until:
            return kills
        await asyncio.to_thread(query.kill9)
        kills += 1
        query.start()


async def kill_queue_manager(
    running: RunningQueueManager, dice: random.Random, until: float
) -> int:
    """Kill and restart it until it is time."""
    kills = 0
    while time.monotonic() < until:
        await asyncio.sleep(dice.uniform(0.5, 6.0))
        await asyncio.to_thread(running.kill9)
        kills += 1
        await asyncio.sleep(dice.choice((0.0, 0.0, 1.0)))
        await asyncio.to_thread(running.restart)
    return kills


def landing(query: Query, acknowledged: int) -> None:
    """Wait until the table has as many rows as there are messages, or more."""
    end = time.monotonic() + LANDING_TIMEOUT
    while len(query.rows()) < acknowledged and time.monotonic() < end:
        query.check()
        time.sleep(1.0)


@pytest.mark.timeout(SECONDS + DRAIN_TIMEOUT + BATCH_TIMEOUT + LANDING_TIMEOUT + 60)
def test_everything_acknowledged_is_in_the_table_exactly_once_and_in_order_through_kill_9(
    tmp_path: Path,
) -> None:
    print(f"SRMP_SPARK_KILL_SEED={SEED}")
    ledger = Ledger(path=tmp_path / "ledger.jsonl")
    with RunningQueueManager(
        tmp_path / "data", queues=TO_MAKE, allow_url=["http://127.0.0.1:*"]
    ) as running:
        query = Query(JOB, tmp_path, running.api, "private$/*")

        async def kill(dice: random.Random, season: Season) -> tuple[int, int]:
            other, until = random.Random(f"{SEED}/query"), season.until
            return await asyncio.gather(
                kill_queue_manager(running, dice, until), kill_queries(query, other, until)
            )

        try:
            kills, _ = asyncio.run(storm(running, ledger, SECONDS, kill, patience=BATCH_TIMEOUT))
            landing(query, ledger.sent)
        finally:
            query.stop()
        rows = query.rows()
    ledger.close()
    verdict = judge(ledger, rows)
    print(
        f"{kills[0]} kills of the queue manager, {kills[1]} of the query, {query.batches()} batches"
    )
    print(f"{ledger.sent} sent, {len(rows)} landed; {dict(ledger.faults)}")
    assert verdict.ok, f"seed {SEED}\n{verdict.complaint()}"
    assert verdict.acknowledged == verdict.sent == verdict.landed
    assert min(kills) >= 1
