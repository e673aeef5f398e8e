"""The fuzzer of the running process: what it found stays repaired, its walks repeat, and its planted bugs can be planted."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tests.kit.attack.battle import replayed
from tests.kit.attack.findings import load, save
from tests.kit.attack.judge import Finding
from tests.kit.attack.minimise import minimised
from tests.kit.attack.planted.bugs import BUGS
from tests.kit.attack.planted.faults import FAULTS
from tests.kit.attack.steps import Step, Walk
from tests.kit.attack.walkers.every import WALKERS

FOUND = sorted(Path(__file__).with_name("findings").glob("*.json"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_before_stays_repaired(path: Path, tmp_path: Path) -> None:
    assert asyncio.run(replayed(load(path), tmp_path)) is None


@pytest.mark.parametrize("port", WALKERS)
def test_a_seed_gives_the_same_walk_again(port: str) -> None:
    walks = [Walk(port, "s", tuple(WALKERS[port].plan(Random("s")))) for _ in range(2)]
    assert walks[0].as_json() == walks[1].as_json()
    assert len({str(WALKERS[port].plan(Random(str(seed)))) for seed in range(20)}) > 15


@pytest.mark.parametrize("port", WALKERS)
def test_a_walk_survives_its_file(port: str, tmp_path: Path) -> None:
    walks = [Walk(port, str(seed), tuple(WALKERS[port].plan(Random(seed)))) for seed in range(5)]
    path = save(tmp_path, Finding("late", "x"), walks)
    assert [walk.as_json() for walk in load(path)] == [walk.as_json() for walk in walks]
    assert [[step.kind for step in walk.steps] for walk in load(path)] == [
        [step.kind for step in walk.steps] for walk in walks
    ]


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_has_its_place(bug: str) -> None:
    """What it breaks may be renamed: a bug that breaks nothing would prove nothing."""
    planting = f"from tests.kit.attack.planted.bugs import plant; plant({bug!r})"
    subprocess.run([sys.executable, "-c", planting], check=True, timeout=60)


def test_every_fault_of_the_reviews_has_a_planted_bug() -> None:
    """A fault that no planted bug breaks again is one that the attack is not shown to find."""
    assert set(FAULTS) == {*range(1, 10), *range(15, 22)}
    planted = {fault for bug in BUGS.values() for fault in bug.faults}
    assert planted == set(FAULTS)


PATIENT = """
import sys
from tests.kit.attack import __main__ as attack, witness
witness.HEALTHZ_MAX = witness.HONEST_MAX = witness.OPTIONAL_MAX = 60.0
sys.exit(attack.main(sys.argv[1:]))
"""
"""The attack on a machine that is busy with other tests: nothing is found because it is late."""


def test_a_bug_that_is_planted_is_found(tmp_path: Path) -> None:
    """One of them in CI, which shows in the log, whatever the machine does; all: make attack-planted."""
    plant = "stage-reader"
    assert BUGS[plant].kinds == {"log"}
    done = subprocess.run(
        [sys.executable, "-c", PATIENT, "--minutes", "4", "--seed", "1", "--plant", plant, "--save", str(tmp_path)],
        capture_output=True, text=True, timeout=290, env=os.environ.copy(),
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "\nlog: " in done.stdout
    assert "findings 1\n" in done.stdout


def test_a_finding_is_made_short() -> None:
    """Of three walks and nine steps two steps of one walk are needed."""

    async def replay(some: Sequence[Walk]) -> Finding | None:
        kinds = [step.kind for walk in some for step in walk.steps]
        return Finding("late", "") if "b1" in kinds and "b2" in kinds else Finding("other", "")

    walks = [Walk("api", name, tuple(Step(f"{name}{n}") for n in range(3))) for name in "abc"]
    short = asyncio.run(minimised(walks, "late", replay, time.monotonic() + 60))
    assert short is not None
    assert [[step.kind for step in walk.steps] for walk in short] == [["b1", "b2"]]


def test_what_cannot_be_seen_again_is_not_made_short() -> None:
    async def replay(_: Sequence[Walk]) -> Finding | None:
        return None

    walks = [Walk("api", "a", (Step("a"),))]
    assert asyncio.run(minimised(walks, "late", replay, time.monotonic() + 60)) is None
