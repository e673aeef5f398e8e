"""The short version of ``make failover``: a data directory moves from node to node under traffic."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.kit.failover.run import Handover, Pause, Round, SparkQuery, Times, medians

SEED = int(os.environ.get("SRMP_SPARK_FAILOVER_SEED", str(random.randrange(10**6))))
SECONDS = 2.0
PAUSE_MAX = 60.0
"""Seconds, of a handover that takes one or two on a quiet machine."""


@pytest.mark.spark
def test_a_node_that_takes_over_goes_on_and_nothing_is_lost_or_doubled(
    tmp_path: Path, jvm: dict[str, str]
) -> None:
    """By kill -9, after a node that hung, and after a clean end; the query never ends."""
    made = Round(tmp_path, SEED, SECONDS, SparkQuery(tmp_path, jvm))
    outcome = asyncio.run(made.run())
    assert outcome.ok, f"SRMP_SPARK_FAILOVER_SEED={SEED}: {outcome.faults}"
    assert outcome.sent == outcome.landed > 100
    assert [each.handover for each in outcome.times] == list(Handover)
    assert "in use by process" in outcome.refusal, "what the page shows of a second node"
    for each in outcome.times:
        assert max(each.started, each.accepted, each.read, each.spark or 0.0) < PAUSE_MAX, each


def test_a_pause_is_the_longest_one_that_touches_the_handover() -> None:
    pause = Pause(10.0, 12.0)
    assert pause.around([1.0, 9.9, 10.1, 12.5, 20.0]) == pytest.approx(2.4)
    assert pause.around([9.0, 13.0]) == 4.0
    one, two, three = (
        Times(handover=Handover.KILLED, started=n, accepted=n, read=n, spark=None)
        for n in (1.0, 5.0, 2.0)
    )
    assert medians([one, two, three]) == {"killed": {"started": 2.0, "accepted": 2.0, "read": 2.0}}
