"""The simulator (T1): no violation, the same run every time, and a run that meets what it should."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.planted_bugs import PLANTED
from tests.kit.simulation import STEPS_MAX, main, run, run_many

ROOT = Path(__file__).resolve().parents[2]
SEEDS = int(os.environ.get("SRMP_SPARK_SIM_SEEDS", "400"))
"""``make sim`` runs more, in CI too."""
DIGESTS = int(os.environ.get("SRMP_SPARK_SIM_DIGESTS", "60"))
"""Seeds that are run twice; ``make proof`` takes 1,000."""
PYTHONS = os.environ.get("SRMP_SPARK_PYTHONS", "").split()
"""Interpreters of other versions; they need nothing but the standard library."""

MARKS = {
    "accepted", "commit", "commitment-receipt-negative", "commitment-receipt-positive", "crash", "decided-queue_purged",
    "decided-received", "delivery-receipt", "expired-at-sender", "final-receipt-discarded", "final-receipt-held",
    "final_stream-receipt-negative", "final_stream-receipt-positive", "receipt-for-an-ended-stream", "refused-expired",
    "refused-quota", "refused-too-late", "repeated-expired", "repeated-gap", "repeated-identifier",
    "repeated-identifier-at-new-position", "repeated-position", "repeated-stale", "resend", "retransmission",
    "stream-given-up", "stream-receipt", "stream-receipt-failed",
    # the sending half
    "foreign-ignored-gap", "foreign-ignored-repeat", "foreign-ignored-stream", "foreign-reply-dropped", "foreign-wrong-receipt",
    "out-again", "out-bridge", "out-crash", "out-dead-dropped", "out-dead-expired", "out-dead-not-received",
    "out-dead-refused", "out-first", "out-known", "out-not-reached", "out-once-more", "out-pause", "out-receipt-another-stream",
    "out-receipt-beyond", "out-receipt-final", "out-receipt-old", "out-receipt-progress", "out-replanned", "out-reset",
    "out-retry",
}  # fmt: skip
"""What must have happened somewhere: a branch that no run reaches is not tested by any."""


def test_no_seed_violates_anything_and_everything_happens() -> None:
    runs, marks, steps, failed = run_many(range(SEEDS))
    assert failed == [], (
        f"{failed[0]}\nrepeat it: python -m tests.kit.simulation --seed {failed[0].seed} --trace"
    )
    assert runs == SEEDS
    assert steps / runs < STEPS_MAX / 20
    rare = {mark: marks[mark] for mark in MARKS if marks[mark] < SEEDS / 100}
    assert rare == {}, f"these hardly happened: {rare}"
    assert set(marks) == MARKS, "a new mark belongs in the list"


def digests(seeds: range, hash_seed: str, python: str = sys.executable) -> str:
    code = (
        "from tests.kit.simulation import run\n"
        f"print([run(seed, digest=True).digest for seed in range({seeds.start}, {seeds.stop})])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout


@pytest.mark.timeout(300 + DIGESTS // 10)
def test_a_seed_is_one_run_under_any_hash_seed_and_python() -> None:
    first = digests(range(DIGESTS), "0")
    assert first == digests(range(DIGESTS), "4711")
    for python in PYTHONS:
        assert first == digests(range(DIGESTS), "815", python), python
    assert len(set(first.strip("[]\n").split(", "))) == DIGESTS, (
        "different seeds are different runs"
    )


def test_to_watch_changes_nothing() -> None:
    for seed in range(30):
        watched, unwatched = run(seed, digest=True), run(seed)
        assert (watched.steps, watched.marks) == (unwatched.steps, unwatched.marks)


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "20", "--first", "100"]) == 0
    out = capsys.readouterr().out
    assert "0 violations in 20 seeds" in out
    assert "schedules/s" in out
    assert main(["--seed", "3", "--trace"]) == 0
    out = capsys.readouterr().out
    assert "landed" in out
    assert "seed 3: lost 0, unexpected 0, doubled 0, disordered 0" in out
    with pytest.raises(SystemExit):
        main(["--trace"])


def test_a_failing_seed_stops_the_run_and_names_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(seed: int) -> object:
        return run(seed, PLANTED["ReceiptBeyondGap"])

    monkeypatch.setattr("tests.kit.simulation.run", faulty)
    assert main(["--seeds", "1000"]) == 1
    out = capsys.readouterr().out
    assert "lost " in out
    assert "repeat it: python -m tests.kit.simulation --seed " in out


def test_several_processes_find_the_same() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.kit.simulation",
        "--seeds",
        "520",
        "--jobs",
        "2",
    ]  # two reports
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    marks: Counter[str] = Counter()
    for seed in range(520):
        marks.update(run(seed).marks)
    assert f"  {'accepted':42} {marks['accepted']}\n" in out
