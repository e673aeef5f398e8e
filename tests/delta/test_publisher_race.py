"""T14 of the reliability report: two publishers of one queue manager, a reader process that lingers beside its successor.

Both see each new row and commit at the same moment. ``SRMP_SPARK_RACES=1000`` is the long version (``make proof``).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from delta_state_kit import MemoryLog, State

from srmp_spark.store.delta.publisher import Publisher
from srmp_spark.store.delta.tables.state_table import PublishConflictError

RACES = int(os.environ.get("SRMP_SPARK_RACES", "25"))


@pytest.mark.timeout(60 + RACES)
def test_of_two_that_commit_at_once_one_wins_each_position(state: State, log: MemoryLog) -> None:
    publishers = [state.publisher(log), state.publisher(log)]
    for publisher in publishers:
        publisher.publish_once()
    barrier = Barrier(2)
    outcomes: Counter[str] = Counter()

    def publish(publisher: Publisher) -> str:
        barrier.wait(30)
        try:
            publisher.publish_once()
        except PublishConflictError:
            return "refused"
        return "done"

    with ThreadPoolExecutor(2) as pool:
        for _ in range(RACES):
            log.put("private$/orders", 2)
            outcomes.update(pool.map(publish, publishers))
    for publisher in publishers:
        publisher.publish_once()
    print(f"{RACES} races: {dict(outcomes)}")
    assert state.landed() == log.expected()
    taken = Counter(
        (action["txn"]["appId"], action["txn"]["version"])
        for commit in state.commits()
        for action in map(json.loads, commit.read_text().splitlines())
        if "txn" in action
        and not action["txn"]["appId"].endswith(
            ":counted"
        )  # rows counted again beneath the other's commit
    )
    assert len(taken) == 2 * RACES, "each position was taken, and each number of an append"
    assert set(taken.values()) == {1}, "and by one commit"
    assert outcomes["done"] >= RACES
