"""The multicast benchmark: what it makes of its runs, and what it says where it cannot run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.pgm import NAMES, RATES, Run, figure
from benchmarks.pgm_flat import GROWTH_MAX, is_flat

ROOT = Path(__file__).resolve().parents[2]


def test_a_figure_is_the_ratio_of_runs_beside_each_other() -> None:
    found = {"ours": [Run(60, 9, 10), Run(30, 9, 12)], "openpgm": [Run(100, 6, 3), Run(50, 6, 5)]}
    made = figure("pgm_1k", json.loads(json.dumps(found)))
    assert (made.ratio, made.ok, made.target) == (0.6, True, "ratio >= 0.5")
    assert made.note == "CPU a packet of new data, sending and receiving: 9.0 and 11.0 us; OpenPGM 6.0 and 4.0 us"


def test_no_round_in_which_everything_came_is_a_failure() -> None:
    assert figure("pgm_1k", {"ours": [], "openpgm": []}).ok is False


def test_rates_go_down() -> None:
    assert list(RATES) == sorted(RATES, reverse=True)


@pytest.mark.parametrize(("last", "flat"), [(100, True), (int(100 * GROWTH_MAX), True), (int(100 * GROWTH_MAX) + 1, False)])
def test_memory_is_flat_if_the_second_half_stays_at_the_height_of_the_first(last: int, flat: bool) -> None:
    assert is_flat([90, 100, 90, 95, last, 90]) is flat
    assert not is_flat([]), "nothing was seen"


def test_where_it_cannot_run_it_says_what_is_missing_and_is_no_failure(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "pgm", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PATH": str(tmp_path)})
    figures = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0
    assert set(figures) == set(NAMES)
    assert all(each["ok"] is None and each["note"] for each in figures.values())
