"""Admission control: limits are split exactly, in proportion, and nobody starves."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.spark.reading.admission import pieces_of, shares, split_range

BACKLOGS = st.dictionaries(st.text(max_size=3), st.integers(0, 10**9), max_size=8)


@settings(max_examples=300)
@given(st.integers(1, 10**6), BACKLOGS, st.integers(0, 10**9))
def test_shares_add_up_to_the_limit(limit: int, backlogs: dict[str, int], turn: int) -> None:
    found = shares(limit, backlogs, turn)
    assert sum(found.values()) == min(limit, sum(backlogs.values()))
    assert all(0 < rows <= backlogs[key] for key, rows in found.items())


@settings(max_examples=300)
@given(st.integers(8, 10**6), BACKLOGS)
def test_who_waits_gets_something_when_there_is_enough_for_each(
    limit: int, backlogs: dict[str, int]
) -> None:
    assert set(shares(limit, backlogs)) == {key for key, rows in backlogs.items() if rows}


@settings(max_examples=200)
@given(st.integers(100, 10**6), st.integers(1, 10**6), st.integers(1, 10**6))
def test_shares_are_proportional(limit: int, one: int, other: int) -> None:
    found = shares(limit, {"one": one, "other": other})
    if one + other > limit:
        assert abs(found["one"] - limit * one / (one + other)) <= 2


def test_turns_reach_everybody_when_there_is_less_than_a_row_each() -> None:
    backlogs = {"big": 10**6, "small": 1, "other": 5}
    assert {key for turn in range(3) for key in shares(1, backlogs, turn)} == set(backlogs)


@settings(max_examples=300)
@given(st.integers(0, 10**12), st.integers(1, 10**6), st.integers(1, 64))
def test_a_range_is_cut_into_contiguous_ascending_pieces(
    after: int, size: int, pieces: int
) -> None:
    cut = split_range(after, after + size, pieces)
    assert len(cut) == min(pieces, size)
    assert cut[0][0] == after
    assert cut[-1][1] == after + size
    assert all(low[1] == high[0] for low, high in pairwise(cut))
    lengths = [to - begin for begin, to in cut]
    assert max(lengths) - min(lengths) <= 1
    assert min(lengths) > 0


@settings(max_examples=200)
@given(
    st.dictionaries(st.text(max_size=3), st.integers(1, 10**9), min_size=1, max_size=8),
    st.integers(1, 64),
)
def test_min_partitions_is_reached(sizes: dict[str, int], at_least: int) -> None:
    pieces = pieces_of(sizes, at_least)
    assert sum(pieces.values()) >= at_least
    assert pieces_of(sizes, None) == dict.fromkeys(sizes, 1)


@given(
    st.dictionaries(st.integers(), st.integers(0, 10**6), max_size=5),
    st.none() | st.integers(1, 50),
    st.integers(1000, 10**6),
)
def test_no_task_has_more_rows_than_allowed_and_there_are_as_many_tasks_as_asked_for(
    sizes: dict[int, int], at_least: int | None, rows_max: int
) -> None:
    pieces = pieces_of(sizes, at_least, rows_max)
    assert all(
        to - after <= rows_max
        for key, size in sizes.items()
        for after, to in split_range(5, 5 + size, pieces[key])
    )
    assert all(pieces[key] >= count for key, count in pieces_of(sizes, at_least).items())
    assert pieces_of({1: 2_500, 2: 1_000}, None, 1_000) == {1: 3, 2: 1}
