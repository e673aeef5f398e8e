"""Runs: sorted, disjoint, closed ranges; the same set as Python's own, kept small."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srmp_spark.srmp.runs import Run, Runs


def numbers(runs: Runs) -> set[int]:
    return {number for run in runs for number in range(run.first, run.last + 1)}


def test_add_to_nothing() -> None:
    runs = Runs()
    assert runs.add(5, 1) == (5, None)
    assert list(runs) == [Run(5, 5, 1)]


def test_add_at_the_end_extends_the_last_run() -> None:
    runs = Runs([Run(1, 3, 1)])
    assert runs.add(4, 2) == (1, None)
    assert list(runs) == [Run(1, 4, 2)]


def test_add_beyond_the_end_begins_a_run() -> None:
    runs = Runs([Run(1, 3, 1)])
    assert runs.add(5, 2) == (5, None)
    assert list(runs) == [Run(1, 3, 1), Run(5, 5, 2)]


def test_add_into_a_gap_of_one_merges_and_names_the_run_that_vanished() -> None:
    runs = Runs([Run(1, 3, 1), Run(5, 9, 7)])
    assert runs.add(4, 2) == (1, 5)
    assert list(runs) == [Run(1, 9, 7)]


def test_add_before_a_run_moves_its_first() -> None:
    runs = Runs([Run(5, 9, 1)])
    assert runs.add(4, 2) == (4, 5)
    assert list(runs) == [Run(4, 9, 2)]


def test_add_after_a_run_in_the_middle() -> None:
    runs = Runs([Run(1, 3, 1), Run(9, 9, 1)])
    assert runs.add(4, 2) == (1, None)
    assert list(runs) == [Run(1, 4, 2), Run(9, 9, 1)]


def test_add_alone_in_the_middle() -> None:
    runs = Runs([Run(1, 3, 1), Run(9, 9, 1)])
    assert runs.add(6, 2) == (6, None)
    assert list(runs) == [Run(1, 3, 1), Run(6, 6, 2), Run(9, 9, 1)]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_add_what_is_there_refreshes_its_time(number: int) -> None:
    runs = Runs([Run(1, 3, 1), Run(9, 9, 1)])
    assert runs.add(number, 5) == (1, None)
    assert list(runs) == [Run(1, 3, 5), Run(9, 9, 1)]


def test_trim_forgets_old_runs_and_names_them() -> None:
    runs = Runs([Run(1, 3, 10), Run(5, 6, 30), Run(8, 8, 20)])
    assert runs.trim(25) == [1, 8]
    assert list(runs) == [Run(5, 6, 30)]
    assert runs.trim(25) == []


def test_runs_that_touch_become_one_when_they_are_loaded() -> None:
    assert list(Runs([Run(4, 6, 2), Run(1, 3, 1), Run(5, 9, 0)])) == [Run(1, 9, 2)]
    with pytest.raises(ValueError, match="begins after its end"):
        Runs([Run(2, 1, 0)])


def test_the_largest_number() -> None:
    runs = Runs()
    largest = 2**64 - 1
    runs.add(largest, 1)
    assert largest in runs
    assert largest - 1 not in runs


def test_bool_is_refused_because_it_reads_two_ways() -> None:
    with pytest.raises(TypeError, match="compare len"):
        bool(Runs())


def test_repr_is_for_people() -> None:
    assert repr(Runs([Run(1, 3, 0), Run(5, 5, 0)])) == "Runs([1-3, 5-5])"


@given(st.lists(st.integers(0, 60), max_size=80))
def test_the_same_set_as_a_set(added: list[int]) -> None:
    runs = Runs()
    table: dict[int, Run] = {}  # what a table keyed by the first number would hold
    for at, number in enumerate(added):
        first, vanished = runs.add(number, at)
        if vanished is not None:
            table.pop(vanished)
        run = runs.at_first(first)
        assert run is not None
        assert run.first <= number <= run.last
        table[first] = run
    assert numbers(runs) == set(added)
    assert list(runs) == sorted(table.values())
    for before, after in zip(list(runs), list(runs)[1:], strict=False):
        assert before.last + 1 < after.first, "runs that touch are one run"
    for number in range(62):
        assert (number in runs) == (number in set(added))
