"""Each distinct message of a sink is sent once or refused in words: random schedules on a real outbox, and planted bugs."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.kit.planted_sink_bugs import PLANTED_SINK
from tests.kit.sink_simulation import Simulation
from tests.long_samples import shares

SEEDS = shares("SRMP_SPARK_SINK_SEEDS", 1000, first=150)
LARGE_SEEDS = shares("SRMP_SPARK_SINK_LARGE_SEEDS", 200, first=40)
SEEDS_MAX = 400
"""Within so many seeds each planted bug is found."""
EVERYTHING = {
    "new", "known", "conflicts", "gone", "conflicts: ignore", "conflicts: dead-letter", "key-conflict", "position-conflict",
    "needs-key",
}  # fmt: skip


@pytest.mark.parametrize("seeds", SEEDS)
def test_no_schedule_loses_or_doubles_a_message_or_leaves_one_out_unsaid(seeds: range) -> None:
    marks: Counter[str] = Counter()
    with Simulation() as simulation:
        for seed in seeds:
            schedule = simulation.run(seed)
            assert schedule.problems == [], f"seed {seed}"
            marks += schedule.marks
    assert marks.keys() == EVERYTHING, "everything happens"


@pytest.mark.parametrize("seeds", LARGE_SEEDS)
def test_no_schedule_of_large_batches_does(seeds: range) -> None:
    """With limits so small that each batch has several shares, parts, files and transactions."""
    marks: Counter[str] = Counter()
    with Simulation(large=True) as simulation:
        for seed in seeds:
            schedule = simulation.run(seed)
            assert schedule.problems == [], f"seed {seed}"
            marks += schedule.marks
    assert marks.keys() == EVERYTHING, "everything happens"


@pytest.mark.parametrize("name", PLANTED_SINK)
def test_each_planted_bug_is_found(name: str) -> None:
    with Simulation(PLANTED_SINK[name]) as simulation:
        found = next((seed for seed in range(SEEDS_MAX) if simulation.run(seed).problems), None)
    assert found is not None, f"{name} was not found within {SEEDS_MAX} seeds"
    with Simulation() as simulation:
        assert simulation.run(found).problems == [], "the seed is clean without the bug"
