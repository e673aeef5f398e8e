"""A set of sequences against a plain set of Python."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.sequences.sequence_set import (
    BLOCK_BYTES,
    BLOCK_SEQUENCES,
    SequenceSet,
    SetPiece,
    count_in_either,
    first_missing,
)

END = 3 * BLOCK_SEQUENCES
EDGES = st.builds(
    lambda block, off: max(0, block * BLOCK_SEQUENCES + off),
    st.integers(0, 2),
    st.integers(-3, 3) | st.integers(0, 40),
)
"""Where blocks meet is where a mistake would be."""
NUMBERS = EDGES | st.integers(0, END - 1)
LENGTHS = st.integers(0, 40) | st.sampled_from(
    [BLOCK_SEQUENCES - 1, BLOCK_SEQUENCES, BLOCK_SEQUENCES + 30]
)
RUNS = st.builds(lambda first, more: (first, first + more), NUMBERS, LENGTHS)
STEPS = st.lists(
    st.tuples(st.just("add"), RUNS)
    | st.tuples(st.just("each"), st.lists(NUMBERS, max_size=40))
    | st.tuples(st.just("every second"), RUNS)
    | st.tuples(st.just("discard"), NUMBERS),
    max_size=8,
)


def runs_of(numbers: set[int]) -> list[tuple[int, int]]:
    firsts = sorted(n for n in numbers if n - 1 not in numbers)
    lasts = sorted(n for n in numbers if n + 1 not in numbers)
    return list(zip(firsts, lasts, strict=True))


def built(steps: Iterable[tuple[str, object]]) -> tuple[SequenceSet, set[int]]:
    """The set and its model, which agree on their number after each step."""
    found, model = SequenceSet(), set[int]()
    for what, given_ in steps:
        if what == "add":
            first, last = given_  # type: ignore[misc]
            found.add(first, last)
            model |= set(range(first, last + 1))
        elif what == "discard":
            found.discard_through(given_)  # type: ignore[arg-type]
            model = {n for n in model if n > given_}  # type: ignore[operator]
        else:
            numbers = (
                list(range(given_[0], given_[1], 2)) if what == "every second" else list(given_)
            )  # type: ignore[index, call-overload]
            found.add_each(numbers)
            model |= set(numbers)
        assert len(found) == len(model)
    return found, model


@settings(max_examples=100, deadline=None)
@given(STEPS, NUMBERS, RUNS)
def test_it_says_what_a_plain_set_says(
    steps: list[tuple[str, object]], number: int, run: tuple[int, int]
) -> None:
    found, model = built(steps)
    first, last = run
    assert list(found.runs()) == runs_of(model)
    assert list(found.runs(number)) == runs_of({n for n in model if n >= number})
    assert list(found.gaps(first, last)) == runs_of(set(range(first, last + 1)) - model)
    assert found.count(first, last) == sum(first <= n <= last for n in model)
    assert [n in found for n in (number, first, last)] == [
        n in model for n in (number, first, last)
    ]
    assert found.next_missing(number) == next(n for n in itertools.count(number) if n not in model)
    if model:
        assert (found.first, found.last) == (min(model), max(model))
    assert found == SequenceSet(runs_of(model)), "however it was made"


@settings(max_examples=60, deadline=None)
@given(STEPS, STEPS, NUMBERS, RUNS)
def test_two_sets_together(
    steps: list[tuple[str, object]],
    more: list[tuple[str, object]],
    number: int,
    run: tuple[int, int],
) -> None:
    found, model = built(steps)
    other, others = built(more)
    either = model | others
    assert first_missing(number, found, other) == next(
        n for n in itertools.count(number) if n not in either
    )
    assert count_in_either(*run, found, other) == sum(run[0] <= n <= run[1] for n in either)
    found.update(other)
    assert list(found.runs()) == runs_of(either)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=4), st.booleans())
def test_changes_alone_keep_a_copy_on_disk_true(
    rounds: list[list[tuple[str, object]]], deletes: bool
) -> None:
    """What is stored is the set, whether old pieces are deleted or not: a set that only grows makes none of them false."""
    found, model = SequenceSet(), set[int]()
    disk: dict[int, SetPiece] = {}
    for steps in rounds:
        for what, given_ in steps:
            if what != "discard":
                some, more = built([(what, given_)])
                found.update(some)
                model |= more
        pieces, gone = found.take_changes()
        disk |= {piece.block: piece for piece in pieces}
        if deletes:
            for block in gone:
                disk.pop(block, None)
        assert found.changed == 0
        again = SequenceSet()
        for piece in disk.values():
            again.add_piece(piece)
        assert again == found
        assert list(again.runs()) == runs_of(model)
        if deletes:
            assert sorted(disk.values()) == list(found.pieces())


@settings(max_examples=60, deadline=None)
@given(STEPS, st.lists(NUMBERS, max_size=3))
def test_what_was_discarded_is_deleted_below_its_block_and_cut_when_it_is_read(
    steps: list[tuple[str, object]], marks: list[int]
) -> None:
    found, model = built([step for step in steps if step[0] != "discard"])
    disk: dict[int, SetPiece] = {}
    for to in sorted(marks):
        pieces, _ = found.take_changes()
        disk |= {piece.block: piece for piece in pieces}
        found.discard_through(to)
        model = {n for n in model if n > to}
        pieces, _ = found.take_changes()
        disk |= {piece.block: piece for piece in pieces}
        disk = {block: piece for block, piece in disk.items() if block >= to // BLOCK_SEQUENCES}
        again = SequenceSet()
        for piece in disk.values():
            again.add_piece(piece)
        again.discard_through(to)
        assert list(again.runs()) == runs_of(model)


def test_sets_that_meet_outside_a_range_have_nothing_in_both_of_it() -> None:
    one = SequenceSet([(BLOCK_SEQUENCES - 1, BLOCK_SEQUENCES - 1)])
    other = SequenceSet([(BLOCK_SEQUENCES - 1, BLOCK_SEQUENCES)])
    assert (
        one.count_in_both(0, 0, other) == one.count_in_both(BLOCK_SEQUENCES + 1, 9_999, other) == 0
    )
    assert one.count_in_both(0, BLOCK_SEQUENCES, other) == 1
    assert count_in_either(0, 0, one, other) == 0


def test_one_more_is_one_piece_and_a_billion_are_three() -> None:
    scattered = SequenceSet()
    scattered.add_each(range(2, 2_000_000, 2))
    scattered.take_changes()
    scattered.add(1_000_001, 1_000_001)
    ((piece,), gone) = scattered.take_changes()
    assert len(piece.bits or b"") <= BLOCK_BYTES
    assert gone == []
    scattered.add(3_000_001, 1_003_000_000)
    pieces, gone = scattered.take_changes()
    assert (len(pieces), gone) == (3, [])
    assert len(scattered) == 999_999 + 1 + 1_000_000_000


def test_what_cannot_be_a_piece_is_refused_and_changes_nothing() -> None:
    for piece in (
        SetPiece(-1, 1, b"\1"),
        SetPiece(0, 0, None),
        SetPiece(3, 2, b"\1"),
        SetPiece(3, 1, b""),
        SetPiece(3, 1, b"\1" * 600),
    ):
        found = SequenceSet()
        with pytest.raises(ValueError, match=r"piece|no part"):
            found.add_piece(piece)
        assert found == SequenceSet()


def test_what_is_no_range_is_refused() -> None:
    for first, last in ((-1, 3), (4, 3)):
        with pytest.raises(ValueError, match="no range"):
            SequenceSet().add(first, last)
    with pytest.raises(ValueError, match="no sequence"):
        SequenceSet().add_each([3, -1])
    with pytest.raises(ValueError, match="empty"):
        _ = SequenceSet().first


def test_a_million_scattered_rows_are_less_than_a_megabyte() -> None:
    tracemalloc.start()
    try:
        found = SequenceSet()
        for begin in range(0, 2_000_000, 200_000):
            found.add_each(range(begin, begin + 200_000, 2))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == 1_000_000
    assert used < 700_000
    assert found.count(11, 1_999_990) == 999_990


def test_it_is_not_hashed_and_says_what_it_is() -> None:
    with pytest.raises(TypeError):
        hash(SequenceSet())
    assert repr(SequenceSet([(1, 3), (9, 9)])) == "SequenceSet(4: 1-3, 9-9)"
