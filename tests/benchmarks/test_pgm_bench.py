"""The multicast benchmark: what it makes of its runs, and what it says where it cannot run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.common import NotHere, Plan
from benchmarks.pgm import RATES, Run, figure, has_openpgm
from benchmarks.pgm_flat import GROWTH_MAX, is_flat


def test_a_figure_is_the_ratio_of_runs_beside_each_other() -> None:
    found = {"ours": [Run(60, 9, 10), Run(30, 9, 12)], "openpgm": [Run(100, 6, 3), Run(50, 6, 5)]}
    made = figure("pgm_1k", json.loads(json.dumps(found)))
    assert (made.ratio, made.ok, made.target) == (0.6, True, "ratio >= 0.5")
    assert (
        made.note
        == "CPU a packet of new data, sending and receiving: 9.0 and 11.0 us; OpenPGM 6.0 "
        "and 4.0 us"
    )


def test_no_round_in_which_everything_came_is_a_failure() -> None:
    assert figure("pgm_1k", {"ours": [], "openpgm": []}).ok is False


def test_rates_go_down() -> None:
    assert list(RATES) == sorted(RATES, reverse=True)


@pytest.mark.parametrize(
    ("last", "flat"),
    [(100, True), (int(100 * GROWTH_MAX), True), (int(100 * GROWTH_MAX) + 1, False)],
)
def test_memory_is_flat_if_the_second_half_stays_at_the_height_of_the_first(
    last: int, flat: bool
) -> None:
    assert is_flat([90, 100, 90, 95, last, 90]) is flat
    assert not is_flat([]), "nothing was seen"


def test_without_openpgm_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.pgm.need", lambda tool: tool)
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = Plan().peer("OpenPGM", has_openpgm)
    assert isinstance(missing, NotHere)
    assert str(missing).startswith("OpenPGM is missing: apt-get install libpgm-dev")
    found = figure("pgm_1k", {"ours": [Run(60, 9, 10)], "openpgm": missing})
    assert (found.value, found.ratio, found.ok) == (60, None, None)
    assert str(missing) in found.note
