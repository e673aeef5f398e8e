"""Two small types of the sending engine: a heap of deadlines, and a set of serials kept as runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark import timers as module
from srmp_spark.srmp.sending.serial_runs import SerialRuns
from srmp_spark.timers import Timers


def test_the_earliest_is_due_first() -> None:
    timers: Timers[str] = Timers()
    timers.set("late", 3.0)
    timers.set("early", 1.0)
    timers.set("middle", 2.0)
    assert timers.next() == 1.0
    assert timers.due(2.5) == ["early", "middle"]
    assert timers.due(2.5) == []
    assert timers.next() == 3.0
    assert len(timers) == 1


def test_a_deadline_can_be_moved_both_ways_and_taken_back() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 5.0)
    timers.set("a", 1.0)
    assert timers.next() == 1.0
    timers.set("a", 9.0)
    assert timers.due(5.0) == []
    assert timers.next() == 9.0
    timers.set("a", None)
    assert timers.next() is None
    timers.set("a", 2.0)
    assert timers.due(2.0) == ["a"]
    assert repr(timers) == "<Timers 0 next=None>"


def test_what_is_left_of_removed_deadlines_is_not_kept_behind_one_that_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest deadline stays; those of thousands of others that were removed stand behind it."""
    monkeypatch.setattr(module, "LEFTOVERS_MAX", 16)
    timers: Timers[int] = Timers()
    timers.set(0, 1.0)
    for key in range(1, 200):
        timers.set(key, 2.0 + key)
        timers.set(key, None)
        assert len(timers._heap) <= 16 + 3
    timers.set(7, 1.5)
    assert timers.due(300.0) == [0, 7]


SETS = st.lists(
    st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 20))), max_size=40
)


@given(SETS, st.integers(0, 20))
@settings(max_examples=100, deadline=None)
@pytest.mark.parametrize("leftovers_max", [0, module.LEFTOVERS_MAX])
def test_timers_are_a_dictionary_of_deadlines(
    leftovers_max: int, sets: list[tuple[str, int | None]], now: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LEFTOVERS_MAX", leftovers_max)
        are_a_dictionary(sets, now)


def are_a_dictionary(sets: list[tuple[str, int | None]], now: int) -> None:
    timers: Timers[str] = Timers()
    model: dict[str, int] = {}
    for key, when in sets:
        timers.set(key, when)
        if when is None:
            model.pop(key, None)
        else:
            model[key] = when
        assert timers.next() == min(model.values(), default=None)
    assert sorted(timers.due(now)) == sorted(key for key, when in model.items() if when <= now)


def test_runs_grow_at_their_end() -> None:
    runs = SerialRuns([(1, 3)])
    runs.append(4, 4)
    runs.append(7, 9)
    assert (list(runs), len(runs)) == ([(1, 4), (7, 9)], 7)
    for first, last in ((9, 12), (5, 4), (1, 1)):
        with pytest.raises(ValueError, match="does not lie above"):
            runs.append(first, last)
    assert repr(runs) == "SerialRuns([(1, 4), (7, 9)])"


@given(
    st.sets(st.integers(1, 40)),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)), max_size=8),
    st.integers(1, 40),
    st.integers(0, 40),
)
@settings(max_examples=150, deadline=None)
def test_runs_are_a_set(
    numbers: set[int], removed: list[tuple[int, int]], first: int, length: int
) -> None:
    runs = SerialRuns((number, number) for number in sorted(numbers))
    for begin, more in removed:
        if more == 0:
            assert runs.discard(begin) is (begin in numbers)
        else:
            runs.remove(begin, begin + more)
        numbers -= set(range(begin, begin + more + 1))
    last = first + length
    assert len(runs) == len(numbers)
    assert {number for begin, end in runs for number in range(begin, end + 1)} == numbers
    assert all(number in runs for number in numbers)
    inside = {number for begin, end in runs.inside(first, last) for number in range(begin, end + 1)}
    outside = {
        number for begin, end in runs.outside(first, last) for number in range(begin, end + 1)
    }
    assert inside == numbers & set(range(first, last + 1))
    assert outside == set(range(first, last + 1)) - numbers
