"""The simulator (T3): every loss repaired or told, the same run every time; and each planted bug is found."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from srmp_spark.pgm.receiving.receiver import PgmReceiver
from srmp_spark.pgm.sending.source import PgmSource
from tests.kit.pgm import simulation
from tests.kit.pgm.planted_bugs import PLANTED_RECEIVERS, PLANTED_SOURCES
from tests.kit.pgm.simulation import main, run, run_many
from tests.long_samples import shares

ROOT = Path(__file__).resolve().parents[2]
SEEDS = shares("SRMP_SPARK_PGM_SEEDS", 400, first=150)
"""``make sim-pgm`` runs more."""
SEEDS_MAX = 1_000

MARKS = {
    "apdu", "damaged packet refused", "end: close", "end: reset", "end: silence", "gentle", "joined late", "lost on the way",
    "lost: a limit of this receiver was exceeded", "lost: another part of its APDU is lost",
    "lost: its APDU began before we joined", "lost: no repair was received", "lost: the source's window moved on",
    "repairs heard", "source: nak", "source: nak for another",
    "source: nak outside the window", "source: ncf", "source: ncf held back", "source: odata", "source: passed over",
    "source: rdata", "source: spm", "storm", "stranger", "wrapped",
}  # fmt: skip
"""What must have happened somewhere: a branch that no run reaches is not tested by any."""
RARE = {"lost: the source aborted the session", "lost: the source became silent"}

FOUND_BY = {
    "SilentGap": (1, "was next"),
    "LossOneShort": (1, "was next"),
    "HalfAnApdu": (9, "was told, sent was"),
    "AnyOrder": (0, "was next"),
    "LateCopiesKept": (0, "held after the end"),
    "TrailTooFar": (3, "lost by the trail"),
    "NeverForgets": (0, "held after the end"),
    "GivesUpAtOnce": (0, "was given up after"),
    "NeverAsks": (3, "in a gentle run"),
    "AsksForWhatCame": (0, "a NAK for"),
    "ConfirmedIsReceived": (11, "long after the faults ended"),
    "NakFlood": (3, "NAK_RATE_MAX is passed"),
    "FinEndsAtOnce": (11, "as a part, and all of its APDU came"),
    "WrapForgotten": (66, "in a gentle run"),
    "AnySource": (7, "was told, sent was"),
    "PendingForgotten": (54, "a NAK is pending"),
    "WindowTooShort": (0, "was dropped after"),
    "LeadOneAhead": (0, "form no APDU"),
    "RepairsEachNak": (0, "nobody asked for"),
    "RepairsTheNext": (0, "nobody asked for"),
    "NoBucket": (0, "TXW_MAX_RTE is passed"),
    "NoSpms": (0, "s without an SPM"),
    "NakOfTheOtherHalf": (29, "a NAK is pending"),
    "FinWithoutDraining": (114, "in a gentle run"),
}
"""Bug → (a seed that is tried first, what the oracle says of it)."""


@pytest.mark.parametrize("seeds", SEEDS)
def test_no_seed_violates_anything_and_everything_happens(seeds: range) -> None:
    runs, marks, _, failed = run_many(seeds)
    assert failed == [], (
        f"{failed[0]}\nrepeat it: python -m tests.kit.pgm.simulation --seed "
        f"{failed[0].seed} --trace"
    )
    assert runs == len(seeds)
    assert {mark for mark in MARKS if not marks[mark]} == set()
    assert {mark for mark in marks if marks[mark]} <= MARKS | RARE, "a new mark belongs in the list"


def test_each_planted_bug_says_how_it_shows() -> None:
    assert set(FOUND_BY) == set(PLANTED_RECEIVERS) | set(PLANTED_SOURCES)


@pytest.mark.parametrize("name", FOUND_BY)
def test_each_planted_bug_is_found(name: str) -> None:
    receiver_class, source_class = (
        PLANTED_RECEIVERS.get(name, PgmReceiver),
        PLANTED_SOURCES.get(name, PgmSource),
    )
    first, word = FOUND_BY[name]
    for seed in chain((first,), range(SEEDS_MAX)):
        outcome = run(seed, receiver_class=receiver_class, source_class=source_class)
        if any(word in problem for problem in outcome.problems):
            assert run(seed).clean, "the seed is clean without the bug"
            return
    pytest.fail(f"{name} was not found within {SEEDS_MAX} seeds")


def test_a_seed_is_one_run_under_any_hash_seed() -> None:
    code = (
        "from tests.kit.pgm.simulation import run\n"
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
    faulty = PLANTED_RECEIVERS["SilentGap"]
    monkeypatch.setattr(simulation, "run", lambda seed: run(seed, receiver_class=faulty))
    assert main(["--seeds", "3"]) == 1
    assert (
        "repeat it: python -m tests.kit.pgm.simulation --seed 1 --trace" in capsys.readouterr().out
    )
