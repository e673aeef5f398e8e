"""INTERFACE.md section 6, ``bench``: a table, then one JSON object; what a machine cannot run says so and is no failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.common import NotHere, Plan, beside

ROOT = Path(__file__).resolve().parents[2]
KEYS = {"value", "unit", "reference", "ratio", "target", "ok"}


def bench(*arguments: str, **environment: str) -> tuple[int, list[str], str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_the_last_line_is_one_json_object_and_progress_goes_to_stderr() -> None:
    code, lines, progress = bench("--only", "decode", "--quick")
    figures = json.loads(lines[-1])
    assert set(figures) == {"decode_windows", "decode_other"}
    for figure in figures.values():
        assert set(figure) == KEYS
        assert figure["ratio"] > 0
        assert figure["ok"] is None, "a quick run judges nothing"
    assert code == 0
    assert "round 1" in progress
    assert "round 1" not in "\n".join(lines)


def test_what_cannot_run_here_says_what_is_missing_and_is_no_failure(tmp_path: Path) -> None:
    code, lines, _ = bench(
        "--only", "ack", "--quick", PATH=str(tmp_path), SRMP_PEERS_CACHE=str(tmp_path)
    )
    assert json.loads(lines[-1])["ack_p50_1"]["ok"] is None
    assert "benchmarks/peers/setup.sh" in json.loads(lines[-1])["ack_p50_1"]["note"]
    assert code == 0


def test_the_ratio_is_taken_inside_each_round() -> None:
    """The machine was busy in some rounds, for both sides alike; the ratio of the medians would be 2."""
    figure = beside("x", "rows/s", [100, 10, 60], [100, 20, 30], "the other", at_least=1.0)
    assert (figure.value, figure.reference, figure.ratio, figure.ok) == (60, 30, 1.0, True)
    assert beside("x", "us", [3, 3], [2, 2], "the other", at_most=1.0).ok is False


def test_without_its_peer_a_figure_has_our_value_and_is_not_judged() -> None:
    figure = beside(
        "x",
        "rows/s",
        [100, 10, 60],
        NotHere("Kafka is missing"),
        "Kafka source",
        at_least=1.0,
        note="two cores",
    )
    assert (figure.value, figure.reference, figure.ratio, figure.ok) == (60, None, None, None)
    assert (figure.reference_name, figure.target) == ("Kafka source", "ratio >= 1")
    assert figure.note == "two cores; Kafka is missing"


def test_a_peer_is_what_was_started_or_why_it_is_not_here() -> None:
    def missing() -> str:
        raise NotHere("it is missing")

    assert Plan().peer("it", lambda: "started") == "started"
    assert str(Plan().peer("it", missing)) == "it is missing"
    assert (
        str(Plan(with_peers=False).peer("it", lambda: "started")) == "it is left out (--no-peers)"
    )
