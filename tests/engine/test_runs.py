"""Runs: sorted, disjoint, closed ranges; the same set as Python's own, kept small."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srmp_spark.srmp.receiving import runs as runs_module
from srmp_spark.srmp.receiving.runs import BLOCK_RUNS_MAX, Run, Runs


@pytest.fixture(scope="module", autouse=True, params=[BLOCK_RUNS_MAX, 2, 3])
def _block(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything holds whether the runs are in one block or in many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs_module, "BLOCK_RUNS_MAX", request.param)
        yield


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
    assert runs.trim(25).firsts == [1, 8]
    assert list(runs) == [Run(5, 6, 30)]
    assert runs.trim(25).firsts == []


def test_trim_stops_at_its_limit_and_goes_on_from_there() -> None:
    runs = Runs(Run(number, number, number) for number in range(0, 40, 2))
    assert runs.trim(30, 4)[::2] == ([0, 2, 4, 6], False)
    assert runs.trim(30, 100)[::2] == (list(range(8, 30, 2)), True)
    assert runs.trim(30, 100)[::2] == ([], True)
    assert [run.first for run in runs] == list(range(30, 40, 2))
    assert runs.trim(100, 5)[::2] == (list(range(30, 40, 2)), True)
    assert len(runs) == 0
    with pytest.raises(ValueError, match="no number"):
        _ = runs.newest
    assert runs.add(7, 1) == (7, None)


def test_a_run_is_appended_only_behind_a_gap() -> None:
    runs = Runs([Run(1, 3, 1)])
    assert not runs.append_run(4, 5, 2)
    assert runs.append_run(5, 6, 2)
    assert list(runs) == [Run(1, 3, 1), Run(5, 6, 2)]
    with pytest.raises(ValueError, match="begins after its end"):
        runs.append_run(9, 8, 2)


@given(st.integers(0, 30), st.integers(0, 12), st.integers(1, 9))
def test_a_sample_is_every_so_many_th_run(count: int, begin: int, step: int) -> None:
    runs = Runs(Run(number * 2, number * 2, number) for number in range(count))
    assert runs.sample_ats(begin, step) == list(range(count))[begin::step]


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


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 60), st.integers(0, 80)),
        st.tuples(st.just("trim"), st.integers(0, 80), st.integers(1, 5)),
    ),
    max_size=80,
)


@given(STEPS)
def test_the_same_set_as_a_set(steps: list[tuple[str, int, int]]) -> None:
    runs = Runs()
    table: dict[int, Run] = {}  # what a table keyed by the first number would hold
    known: dict[int, int] = {}  # number: when it arrived last
    for what, number, other in steps:
        if what == "trim":
            old = sorted(run.first for run in table.values() if run.at < number)
            dropped, _, complete = runs.trim(number, other)
            assert dropped == old[:other], "the lowest first"
            assert not complete or len(old) <= other
            for first in dropped:
                gone = table.pop(first)
                for each in range(gone.first, gone.last + 1):
                    del known[each]
            continue
        first, vanished = runs.add(number, other)
        known[number] = max(other, known.get(number, 0))
        if vanished is not None:
            table.pop(vanished)
        run = runs.at_first(first)
        assert run is not None
        assert run.first <= number <= run.last
        assert run.at == max(known[each] for each in range(run.first, run.last + 1)), (
            "or it is forgotten too early"
        )
        table[first] = run
    assert numbers(runs) == set(known)
    assert list(runs) == sorted(table.values())
    assert len(runs) == len(table)
    assert not known or runs.newest == max(run.at for run in table.values())
    for before, after in zip(list(runs), list(runs)[1:], strict=False):
        assert before.last + 1 < after.first, "runs that touch are one run"
    for number in range(62):
        assert (number in runs) == (number in known)


def test_what_is_known_to_be_younger_is_not_looked_at() -> None:
    """Forgetting must not walk through millions, hour by hour."""
    limit = runs_module.BLOCK_RUNS_MAX
    runs = Runs(
        Run(number * 2, number * 2, number % 7 + number // limit) for number in range(limit * 9)
    )
    looks = []
    for _ in range(100):
        firsts, looked_at, complete = runs.trim(8, forget=limit, look_at=limit)
        looks.append(looked_at)
        assert len(firsts) <= limit
        if complete:
            break
    assert max(looks) <= 2 * limit
    assert all(run.at >= 8 for run in runs)
    assert runs.trim(8) == ([], 0, True)


def test_a_number_in_the_middle_of_many_moves_one_block() -> None:
    """A retry, a second stream of the same sender: not everything behind it may be moved."""
    runs = Runs()
    limit = runs_module.BLOCK_RUNS_MAX
    for number in range(0, limit * 40, 4):
        runs.add(number, 1)
    for number in range(2, limit * 40, 8):
        runs.add(number, 2)
    assert len(runs) == limit * 15
    assert all(len(block.firsts) <= limit for block in (*runs._before, runs))


def test_the_time_of_the_run_that_holds_a_number() -> None:
    runs = Runs([Run(1, 3, 1), Run(5, 9, 7), Run(20, 20, 2), Run(30, 31, 9)])
    assert [runs.at_of(number) for number in (0, 1, 3, 4, 5, 9, 10, 20, 30, 31, 32)] == [
        None, 1, 1, None, 7, 7, None, 2, 9, 9, None,
    ]  # fmt: skip
