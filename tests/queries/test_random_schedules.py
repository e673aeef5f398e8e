"""Random schedules of queues, consumers and queries: no promise is broken, and the planted bugs are found.

A failing seed is repeated and told by ``python -m tests.kit.queries --seed N``; the long form is ``make model``.
"""

from __future__ import annotations

import os

import pytest

from tests.kit.queries.planted import PLANTS, planted
from tests.kit.queries.run import find, run
from tests.kit.queries.schedule import schedule
from tests.kit.queries.world import Stores
from tests.long_samples import shares

ALL_PLANTS = int(os.environ.get("SRMP_SPARK_SCHEDULES", "0")) >= 10_000
SCHEDULES = shares("SRMP_SPARK_SCHEDULES", 1000, first=250)
PLANT_SCHEDULES_MAX = 1_000
LOOKED_FOR = list(PLANTS) if ALL_PLANTS else [
    "mark-covers-what-nobody-read", "unreceived-ignores-out-of-turn", "joined-queue-from-its-beginning",
    pytest.param("available-now-takes-any-name", marks=pytest.mark.long),
]  # fmt: skip
"""Every plant is met by a story too (``test_stories.py``)."""


HAPPENS = (
    "rows arrived", "rows were read", "rows were received by command", "rows were lost with a disk", "nothing was new",
    "a batch ran again", "the first batch ran again", "a queue joined", "a queue appeared", "a queue was purged",
    "a queue was deleted", "a queue manager was restarted", "a queue manager was restored",
    "a query ended with ConfigurationError", "a query ended with DataLossError", "a query ended with ApiUnreachableError",
)  # fmt: skip


@pytest.mark.parametrize("seeds", SCHEDULES)
def test_no_row_is_lost_and_none_counts_as_received_that_nobody_read(
    stores: Stores, seeds: range
) -> None:
    _, finding = find(stores, seeds)
    assert finding is None, f"{finding}"


def test_the_schedules_have_met_everything(stores: Stores) -> None:
    """Schedules that never meet a thing prove nothing about it."""
    assert not [each for each in HAPPENS if not stores.happened[each]]


@pytest.mark.parametrize("plant", LOOKED_FOR)
def test_a_repair_that_is_taken_out_is_found(stores: Stores, plant: str) -> None:
    with planted(plant):
        count, finding = find(stores, range(PLANT_SCHEDULES_MAX))
    assert finding is not None, f"{count} schedules did not find {plant}"
    assert run(stores, finding.steps) is None, "what it found is the planted bug"


def test_a_seed_is_the_same_schedule_and_ends_the_same_way(stores: Stores) -> None:
    for seed in range(20):
        assert schedule(seed) == schedule(seed)
        stories: list[list[str]] = [[], []]
        for story in stories:
            run(stores, schedule(seed), story.append)
        first, second = ([line for line in story if " ends: " not in line] for story in stories)
        assert first == second, "but for the words of errors, which name queue managers"
