"""The ways of use that lost rows, told as schedules: each goes well, and breaks a promise with its bug planted."""

from __future__ import annotations

import pytest

from tests.kit.queries.planted import PLANTS, planted
from tests.kit.queries.query import Asked
from tests.kit.queries.run import run
from tests.kit.queries.steps import (
    Advance,
    Arrive,
    Crash,
    MakeQueue,
    Receive,
    Restore,
    Start,
    Step,
    Stop,
)
from tests.kit.queries.truth import Log
from tests.kit.queries.world import Stores

ORDERS, OLD = Log("A", "orders"), Log("A", "old")
UNRECEIVED = Asked(("A",), ("orders",))
LATEST = Asked(("A",), ("orders",), starting="latest")
TO_THE_END = 30
OLD_ROWS: list[Step] = [MakeQueue(ORDERS), Arrive(ORDERS, (3, 3, 3))]
NEW_ROWS: list[Step] = [Arrive(ORDERS, (3, 3))]


def go(name: str, asked: Asked, steps: int = TO_THE_END) -> list[Step]:
    return [Start(name, asked), Advance(name, steps)]


STORIES: dict[str, tuple[str, list[Step]]] = {
    "the checkpoint was a peek": ("mark-covers-what-nobody-read", [
        *OLD_ROWS, *go("q", Asked(("A",), ("orders",), starting="latest", read_mode="peek")), *NEW_ROWS, Advance("q", 3),
        *go("q", LATEST),
    ]),
    "another query of the consumer stopped half way": ("mark-covers-what-nobody-read", [
        *OLD_ROWS, *go("one", LATEST, 4), *NEW_ROWS, Advance("one", 3), Stop("one"),
        *go("two", Asked(("A",), ("orders",), max_rows=2), 4), Advance("two", 1), Stop("two"),
        *go("one", LATEST),
    ]),
    "a restore forgets what was planned": ("mark-covers-what-nobody-read", [
        *OLD_ROWS, *go("q", LATEST, 4), *NEW_ROWS, Advance("q", 3), Crash("q"), Restore("A", frozenset()), *go("q", LATEST),
    ]),
    "AvailableNow goes on with a misspelt queue": ("available-now-takes-any-name", [
        *OLD_ROWS, *go("q", UNRECEIVED), *go("q", Asked(("A",), ("ordres",), available_now=True)),
    ]),
    "a row was received by priority": ("unreceived-ignores-out-of-turn", [
        MakeQueue(ORDERS), Arrive(ORDERS, (3, 3, 6, 3)), Receive(ORDERS, "default", 1), *go("q", UNRECEIVED),
    ]),
    "a queue with history joins at a restart": ("joined-queue-from-its-beginning", [
        *OLD_ROWS, MakeQueue(OLD), Arrive(OLD, (3, 3)), Receive(OLD, "default", 2), *go("q", UNRECEIVED),
        *go("q", Asked(("A",), ("old", "orders"))),
    ]),
    "a query goes on as another consumer": ("mark-covers-what-was-left-out", [
        MakeQueue(ORDERS), Arrive(ORDERS, (3, 6, 3)), Receive(ORDERS, "default", 1), *go("q", UNRECEIVED),
        *go("q", Asked(("A",), ("orders",), consumer="audit")), Receive(ORDERS, "audit", 1),
    ]),
    "the first batch runs again": ("first-batch-again-from-a-new-beginning", [
        *OLD_ROWS, *go("q", LATEST, 1), *NEW_ROWS, Advance("q", 1), Crash("q"), *NEW_ROWS, *go("q", LATEST),
    ]),
    "a queue joins while the first batch runs again": ("queue-that-joins-with-the-first-batch-again", [
        *OLD_ROWS, MakeQueue(OLD), Arrive(OLD, (3, 3)), *go("q", LATEST, 2), Crash("q"),
        *go("q", Asked(("A",), ("old", "orders"), starting="latest")),
    ]),
}  # fmt: skip
"""What happens → the bug that it met, and the steps."""


@pytest.mark.parametrize("story", STORIES)
def test_a_story_goes_well_and_not_without_its_repair(stores: Stores, story: str) -> None:
    plant, steps = STORIES[story]
    assert run(stores, steps) is None
    with planted(plant):
        assert run(stores, steps) is not None


def test_every_plant_has_a_story() -> None:
    assert {plant for plant, _ in STORIES.values()} == PLANTS.keys()


def test_receive_goes_on_in_a_queue_that_has_begun_a_new_epoch(stores: Stores) -> None:
    """It asked the old epoch for rows behind its end, and was refused, for ever."""
    steps = [
        *OLD_ROWS,
        Restore("A", frozenset()),
        *NEW_ROWS,
        *(Receive(ORDERS, "default", 2) for _ in range(3)),
    ]
    lines: list[str] = []
    assert run(stores, steps, lines.append) is None
    found = [line for line in lines if " of orders of A" in line and line.startswith("  ")]
    assert [line.count(" of orders of A") for line in found] == [3, 2, 2, 2, 1], (
        "two arrivals, and all that they brought"
    )


def test_a_wrong_word_of_the_model_is_told(stores: Stores) -> None:
    """A model that never fails proves nothing: of a row that it does not know it says so."""
    from tests.kit.queries.truth import BrokenPromiseError, Row, Truth

    truth = Truth()
    truth.arrived(frozenset({Row(ORDERS, 1), Row(ORDERS, 2)}))
    with pytest.raises(BrokenPromiseError, match="nobody has read them for it: orders of A: 1"):
        truth.check_marks("default", frozenset({Row(ORDERS, 1)}))
    with pytest.raises(BrokenPromiseError, match="never met"):
        truth.read("q", 0, [Row(ORDERS, 1)])
