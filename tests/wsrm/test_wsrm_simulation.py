"""The simulator: each message a row, once and in order, never more on its way than allowed; and each planted bug is found."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from srmp_spark.wsrm.receiving.destination import RmDestination
from srmp_spark.wsrm.sending.source import RmSource
from tests.kit.wsrm import simulation
from tests.kit.wsrm.planted_bugs import PLANTED_DESTINATIONS, PLANTED_SOURCES
from tests.kit.wsrm.simulation import main, run, run_many
from tests.long_samples import shares

ROOT = Path(__file__).resolve().parents[2]
SEEDS = shares("SRMP_SPARK_WSRM_SEEDS", 250, first=100)
"""``make sim-wsrm`` runs more."""
SEEDS_MAX = 400

MARKS = {
    "BufferRemaining 0", "addressable", "anonymous", "destination died", "died while it wrote", "doubled",
    "dropped by a full queue", "lost", "old acknowledgement", "polled", "sent again", "sent to an address", "source died",
    "source died while it polled", "version V1_0", "version V1_1",
}  # fmt: skip
"""What must have happened somewhere: a branch that no run reaches is not tested by any."""

FOUND_BY = {
    "NoQuota": (0, "on their way"),
    "OneTooMany": (0, "on their way"),
    "SendsWhilePolling": (0, "leaves while the destination says 0"),
    "NeverPolls": (0, "nobody asked for"),
    "PollsOnce": (0, "nobody asked for"),
    "PollsOn": (4, "polls, and the destination never said 0"),
    "MissingIsZero": (6, "polls, and the destination never said 0"),
    "OldAcknowledgementCounts": (3, "on their way"),
    "NewestBelieved": (3, "nobody asked for"),
    "NeverSendsAgain": (0, "ended as ENDING"),
    "PollingForgotten": (2, "leaves while the destination says 0"),
    "EndsEarly": (1, "ended, and was not told of all"),
    "NumbersUsedTwice": (2, "leaves after"),
    "AcknowledgesWhatItDecided": (0, "is acknowledged"),
    "AcknowledgesWhatItHolds": (0, "ours hold 1 to n"),
    "AnyOrder": (0, "sent were 1 to"),
    "DeliversTwice": (9, "sent were 1 to"),
    "GapsAccepted": (0, "is acknowledged, 0 is stored"),
    "NoBufferRemaining": (0, "without BufferRemaining"),
    "RoomOfYesterday": (0, "room for 0"),
    "CopiesLowerTheValue": (0, "no end"),
    "NeverTellsOfRoom": (0, "room returned"),
    "CreatesTwice": (0, "2 sequences for"),
    "RestartForgets": (1, "sent were 1 to"),
    "SilentToAddresses": (0, "no end"),
}
"""Bug → (a seed that is tried first, what the oracle says of it)."""


@pytest.mark.parametrize("seeds", SEEDS)
def test_no_seed_violates_anything_and_everything_happens(seeds: range) -> None:
    runs, marks, _, failed = run_many(seeds)
    assert failed == [], (
        f"{failed[0]}\nrepeat it: python -m tests.kit.wsrm.simulation --seed "
        f"{failed[0].seed} --trace"
    )
    assert runs == len(seeds)
    assert {mark for mark in MARKS if not marks[mark]} == set()
    assert set(marks) <= MARKS, "a new mark belongs in the list"


def test_each_planted_bug_says_how_it_shows() -> None:
    assert set(FOUND_BY) == set(PLANTED_SOURCES) | set(PLANTED_DESTINATIONS)


@pytest.mark.parametrize("name", FOUND_BY)
def test_each_planted_bug_is_found(name: str) -> None:
    source_class, destination_class = (
        PLANTED_SOURCES.get(name, RmSource),
        PLANTED_DESTINATIONS.get(name, RmDestination),
    )
    first, word = FOUND_BY[name]
    for seed in chain((first,), range(SEEDS_MAX)):
        outcome = run(seed, source_class=source_class, destination_class=destination_class)
        if any(word in problem for problem in outcome.problems):
            assert run(seed).clean, "the seed is clean without the bug"
            return
    pytest.fail(f"{name} was not found within {SEEDS_MAX} seeds")


def test_a_seed_is_one_run_under_any_hash_seed() -> None:
    code = (
        "from tests.kit.wsrm.simulation import run\n"
        "print([run(seed, digest=True).digest for seed in range(12)])"
    )  # fmt: skip
    digests = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                       env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}).stdout
        for hash_seed in ("0", "4711")
    }  # fmt: skip
    assert len(digests) == 1
    assert len(set(digests.pop().strip("[]\n").split(", "))) == 12, (
        "different seeds are different runs"
    )


def test_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--seed", "3", "--trace"]) == 0
    out = capsys.readouterr().out
    assert "the faults end" in out
    assert "seed 3: 0 problems" in out
    assert main(["--seeds", "3", "--first", "100"]) == 0
    assert "0 violations in 3 seeds" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--trace"])
    faulty = PLANTED_SOURCES["NoQuota"]
    monkeypatch.setattr(simulation, "run", lambda seed: run(seed, source_class=faulty))
    assert main(["--seeds", "3"]) == 1
    assert (
        "repeat it: python -m tests.kit.wsrm.simulation --seed 0 --trace" in capsys.readouterr().out
    )
