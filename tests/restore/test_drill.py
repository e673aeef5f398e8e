"""The short version of ``make drill``."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.kit.drill.run import Drill, runs
from tests.long_samples import lengths

SECONDS = lengths("SRMP_SPARK_DRILL_SECONDS", short=8.0, long=12.0)
SEED = int(os.environ.get("SRMP_SPARK_DRILL_SEED", str(random.randrange(10**6))))


async def drill(directory: Path, seconds: float) -> Drill:
    made = Drill(directory, SEED, seconds)
    await made.run()
    return made


@pytest.mark.parametrize("seconds", SECONDS)
def test_a_lost_disk_under_traffic_costs_what_was_told_and_no_more(
    tmp_path: Path, seconds: float
) -> None:
    outcome = asyncio.run(drill(tmp_path, seconds)).outcome
    assert outcome.ok, f"SRMP_SPARK_DRILL_SEED={SEED}: {outcome.faults}"
    assert outcome.counts["acknowledged"] > 5 * seconds
    assert outcome.counts["landed"] > 5 * seconds
    assert all(each["told"] for each in outcome.lost)


def test_ranges() -> None:
    assert runs([3, 1, 2, 7]) == [(1, 3), (7, 7)]
