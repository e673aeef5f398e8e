"""Does the simulator bite (T2)? Every planted bug is caught, by the oracle or because a sender never finishes."""

from __future__ import annotations

import pytest

from srmp_spark.testing.planted_bugs import PLANTED
from srmp_spark.testing.simulation import run

SEEDS_MAX = 10_000

FOUND_BY = {
    "AckBeforeSync": "lost",
    "IdBeforeBody": "lost",
    "IdNeverSaved": "doubled",
    "PositionBeforeRow": "lost",
    "RepeatOvertakesOriginal": "lost",
    "OverloadIs400": "problems",
    "OwedReceiptsForgotten": "problems",
    "PreviousOffByOne": "lost",
    "ReceiptBeyondCommitted": "lost",
    "ReceiptBeyondGap": "lost",
    "StaleStartAccepted": "doubled",
    "RepeatArmsNoReceipt": "problems",
    "RefusedPositionLeavesTrace": "lost",
    "QuotaAfterIdentifier": "lost",
    "HistoryByWallClock": "doubled",
}
"""Bug → what a customer would have called it; ``problems``: a sender that never finishes, or a message refused for good."""


def test_at_least_twelve_bugs_are_planted() -> None:
    assert set(FOUND_BY) == set(PLANTED)
    assert len(PLANTED) >= 12


@pytest.mark.parametrize("name", PLANTED)
def test_each_is_caught(name: str) -> None:
    for seed in range(SEEDS_MAX):
        outcome = run(seed, PLANTED[name])
        found = {word: getattr(outcome.verdict, word) for word in ("lost", "doubled")} | {"problems": outcome.problems}
        if found[FOUND_BY[name]]:
            assert run(seed).clean, "the seed is clean without the bug"
            return
    pytest.fail(f"{name} was not caught within {SEEDS_MAX} seeds")
