"""The way out in virtual time: no destination waits for another's trouble, and each planted bug is found."""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest

from tests.kit.wayout.__main__ import JUDGED, RATIO_MAX, main
from tests.kit.wayout.day import Traffic, compare
from tests.kit.wayout.letters import LettersLife
from tests.kit.wayout.life import Life
from tests.kit.wayout.planted import PLANTED_IN_LETTERS, PLANTED_IN_LIFE
from tests.kit.wayout.virtual_loop import VirtualLoop, run_virtual

SEEDS = int(os.environ.get("SRMP_SPARK_WAY_OUT_SEEDS", "40"))
"""``make sim`` runs more, in CI too."""
SEEDS_MAX = 400
"""Within so many seeds each planted bug is found."""
MARKS = {
    f"{trouble}-{kind}" for trouble in ("good", "two", "line", "refused", "never", "silent", "503", "late")
    for kind in ("stream", "plain")
} | {"dead-refused", "dead-no-room", "dead-dropped", "drop", "more-than-records"}  # fmt: skip
LETTER_MARKS = {"stored", "held", "queue-shut", "main-killed", "sender-killed"}
FOUND_BY = {
    "withdrawn_is_trouble": "s to a good destination",
    "first_address_alone": "is nowhere: left 0 times, two",
    "time_counts_from_posting": "-large was committed and is nowhere",
    "nothing_is_forgotten": "no room for",
    "no_room_fails_the_batch": "was refused: there is no room",
    "drop_forgets_new_messages": "has messages",
    "a_held_queue_holds_all": "was late",
    "one_cursor_for_all": "lost",
    "handed_before_stored": "lost",
}
"""Bug → how it shows."""


def test_no_seed_violates_anything_and_everything_happens() -> None:
    marks: Counter[str] = Counter()
    for seed in range(SEEDS):
        life = Life(seed).run()
        assert life.problems == [], f"seed {seed}"
        marks += life.marks
    assert set(marks) == MARKS, "everything happens, and a new mark belongs in the list"


def test_dead_letters_of_one_queue_wait_for_no_other() -> None:
    marks: Counter[str] = Counter()
    for seed in range(SEEDS):
        life = LettersLife(seed).run()
        assert life.problems == [], f"seed {seed}"
        marks += life.marks
    assert set(marks) - {"handed-again"} == LETTER_MARKS


def test_each_bug_says_how_it_shows() -> None:
    assert set(FOUND_BY) == {*PLANTED_IN_LIFE, *PLANTED_IN_LETTERS}


@pytest.mark.parametrize("name", FOUND_BY)
def test_each_planted_bug_is_found(name: str) -> None:
    live = Life if name in PLANTED_IN_LIFE else LettersLife
    bug = {**PLANTED_IN_LIFE, **PLANTED_IN_LETTERS}[name]
    for seed in range(SEEDS_MAX):
        if any(FOUND_BY[name] in problem for problem in live(seed).run(bug()).problems):
            assert live(seed).run().problems == [], "the seed is clean without the bug"
            return
    pytest.fail(f"{name} was not found within {SEEDS_MAX} seeds")


def test_a_tenth_in_trouble_slows_the_others_by_a_tenth_at_most() -> None:
    """The short version of ``make day``: 200 destinations for ten minutes, each connection counts."""
    alone, together = compare(Traffic(destinations=200, seconds=600, connections=200))
    ratios = together.ratios(alone)
    assert alone.rows > 2_000
    assert {
        name: ratio for name, ratio in ratios.items() if name in JUDGED and ratio > RATIO_MAX
    } == {}


def test_a_seed_is_one_run() -> None:
    for seed in range(10):
        assert Life(seed).run().marks == Life(seed).run().marks


def test_what_nobody_catches_is_told() -> None:
    async def body(loop: VirtualLoop) -> float:
        loop.call_later(1.0, lambda: 1 / 0)
        await asyncio.sleep(3_600.0)
        return loop.time()

    found, bugs = run_virtual(None, body)  # type: ignore[arg-type]  # nothing connects
    assert found == pytest.approx(4_600.0)
    assert len(bugs) == 1
    assert "ZeroDivisionError" in bugs[0]
    with pytest.raises(RuntimeError, match="nothing will ever happen"):
        run_virtual(None, lambda loop: loop.create_future())  # type: ignore[arg-type]


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "4", "--first", "20"]) == 0
    assert "0 violations in 4 seeds" in capsys.readouterr().out
    assert main(["--day", "--hours", "0.05", "--destinations", "40", "--pause", "20"]) == 0
    assert "together / alone: mean 1.0" in capsys.readouterr().out
