"""Leases and marks (INTERFACE.md section 1, consumers), with time handed in."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.errors import ApiError
from srmp_spark.holder import Holder
from srmp_spark.interface import SHARING_VIOLATION
from srmp_spark.queue_manager.queues.consumers import (
    LEASE_SECONDS,
    LEASE_SECONDS_AFTER_START,
    Consumer,
    HolderValue,
    parse_holder,
    try_register,
)
from srmp_spark.sequences.sequence_set import SequenceSet

UTC = 1_790_000_000_000_000


def ask(
    consumer: Consumer,
    holder: HolderValue,
    now: float,
    *,
    planned: int | None = None,
    seen: int | None = None,
) -> str:
    seen = consumer.renewals if seen is None else seen
    return try_register(consumer, holder, planned, seen, now=now, utc=UTC + int(now * 1e6))


def waiting(consumer: Consumer, first: int, end: int) -> int:
    """How many sequences from ``first`` to ``end``, both included, are not received."""
    low = max(first, consumer.received + 1)
    return 0 if low > end else end - low + 1 - consumer.ahead.count(low, end)


class TestLease:
    def test_the_first_receiver_gets_it_and_renews_it(self) -> None:
        consumer = Consumer("default")
        assert ask(consumer, "A", 0.0) == "granted"
        assert consumer.lease_until == UTC + 60_000_000
        assert ask(consumer, "A", 10.0) == "granted"
        assert consumer.is_held(10.0 + LEASE_SECONDS - 0.1)
        assert not consumer.is_held(10.0 + LEASE_SECONDS)

    def test_a_second_receiver_waits_and_is_refused_by_name_as_soon_as_the_holder_renews(
        self,
    ) -> None:
        consumer = Consumer("default")
        ask(consumer, "query orders", 0.0)
        seen = consumer.renewals
        assert ask(consumer, "B", 1.0, seen=seen) == "wait"
        assert ask(consumer, "B", 9.0, seen=seen) == "wait"
        ask(consumer, "query orders", 10.0)
        with pytest.raises(ApiError) as refused:
            ask(consumer, "B", 10.1, seen=seen)
        assert (
            (refused.value.status, refused.value.code)
            == (409, SHARING_VIOLATION)
            == (409, "C00E0009")
        )
        assert "query orders" in refused.value.message
        assert "--consumer" in refused.value.hint

    def test_a_second_receiver_takes_over_if_the_holder_is_silent_for_60_seconds(self) -> None:
        consumer = Consumer("default")
        ask(consumer, "A", 0.0)
        seen = consumer.renewals
        assert ask(consumer, "B", 59.9, seen=seen) == "wait"
        assert ask(consumer, "B", 60.0, seen=seen) == "granted"
        assert consumer.holder == "B"

    def test_at_once_when_the_holder_s_process_on_this_host_is_gone(self) -> None:
        gone = dataclasses.replace(Holder.here("killed query"), started="1").as_dict()
        consumer = Consumer("default")
        ask(consumer, gone, 0.0)
        assert ask(consumer, "B", 0.1) == "granted"

    def test_of_two_that_wait_one_gets_it_and_the_other_is_told(self) -> None:
        consumer = Consumer("default")
        ask(consumer, "A", 0.0)
        seen = consumer.renewals
        assert ask(consumer, "B", 60.0, seen=seen) == "granted"
        with pytest.raises(ApiError, match="held by B"):
            ask(consumer, "C", 60.0, seen=seen)

    def test_a_lease_survives_a_restart_for_long_enough_to_be_renewed(self) -> None:
        before = Consumer("default")
        ask(before, Holder.here("query").as_dict(), 0.0, planned=5)
        after = Consumer.load("default", before.row(), before.ahead.copy(), now=1000.0)
        assert (after.holder, after.planned) == (before.holder, 5)
        assert after.is_held(1000.0 + LEASE_SECONDS_AFTER_START - 0.1)
        assert not after.is_held(1000.0 + LEASE_SECONDS_AFTER_START)


class TestMarks:
    def test_a_mark_covers_only_what_was_planned(self) -> None:
        """A query that began at ``latest`` says nothing about what came before."""
        consumer = Consumer("default", received=10)
        ask(consumer, "A", 0.0, planned=101)
        assert consumer.mark_to(110).rows == 10
        assert (consumer.received, list(consumer.ahead.runs())) == (10, [(101, 110)])
        assert waiting(consumer, 1, 120) == 90 + 10
        assert consumer.mark_to(100).rows == 0, (
            "below the first planned row there is nothing to mark"
        )

    def test_a_mark_that_says_where_it_begins_covers_that(self) -> None:
        """A query knows from its checkpoint where it began, whoever has registered since."""
        consumer = Consumer("default", received=10)
        ask(consumer, "A", 0.0)
        assert consumer.mark_range(101, 110).rows == 10
        assert (consumer.received, list(consumer.ahead.runs())) == (10, [(101, 110)])
        assert consumer.mark_range(11, 100).rows == 90
        assert (consumer.received, list(consumer.ahead.runs())) == (110, [])
        assert consumer.mark_range(120, 119).rows == 0

    def test_the_plan_of_a_receiver_that_says_it_with_each_mark_binds_no_other(self) -> None:
        """A query that began at ``latest`` and left before its first mark held up the marks of the one that came back."""
        consumer = Consumer("default")
        consumer.grant("latest", 901, now=0.0, utc=0, ranged=True)
        consumer.release()
        consumer.grant("earliest", None, now=0.0, utc=0, ranged=True)
        assert consumer.mark_to(500).rows == 500
        assert consumer.received == 500

    def test_marks_never_go_back(self) -> None:
        consumer = Consumer("default")
        ask(consumer, "A", 0.0)
        assert consumer.mark_to(10).rows == 10
        assert consumer.mark_to(5).rows == 0
        assert consumer.received == 10

    def test_receiving_by_priority_fills_the_gaps(self) -> None:
        consumer = Consumer("default")
        ask(consumer, "A", 0.0)
        assert consumer.mark_each([7, 3, 4]) == (3, [(3, 4), (7, 7)])
        assert (consumer.received, list(consumer.ahead.runs())) == (0, [(3, 4), (7, 7)])
        assert [waiting(consumer, n, n) for n in (1, 3, 4, 5, 7)] == [1, 0, 0, 1, 0]
        assert consumer.mark_each([1, 2]).rows == 2
        assert (consumer.received, list(consumer.ahead.runs())) == (4, [(7, 7)])
        assert consumer.mark_each([5, 6, 7]).rows == 2
        assert (consumer.received, list(consumer.ahead.runs())) == (7, [])

    def test_marks_may_be_as_scattered_as_they_are(self) -> None:
        """Whoever sends alternating priorities decides how many runs a reader by priority leaves behind."""
        consumer = Consumer("default")
        for begin in range(2, 60_000, 2_000):
            assert consumer.mark_each(range(begin, begin + 2_000, 2)).rows == 1_000
        assert (consumer.received, len(consumer.ahead), waiting(consumer, 1, 60_001)) == (
            0,
            30_000,
            30_001,
        )
        assert consumer.mark_each(range(1, 60_002, 2)).rows == 30_001
        assert (consumer.received, len(consumer.ahead)) == (60_001, 0)

    @settings(max_examples=100, deadline=None)
    @given(
        st.lists(st.sets(st.integers(1, 40), max_size=12), max_size=6),
        st.sets(st.integers(1, 40)),
        st.integers(0, 20),
    )
    def test_a_mark_goes_on_behind_what_is_no_more(
        self, takes: list[set[int]], holes: set[int], trimmed: int
    ) -> None:
        consumer, gone = Consumer("default"), SequenceSet((n, n) for n in holes)
        model = set[int]()
        for take in takes:
            assert consumer.mark_each(take).rows == len(take - model)
            model |= take
            consumer.pass_over(trimmed, gone)
            passed = next(n for n in range(1, 100) if n not in model | holes and n > trimmed) - 1
            model |= set(range(1, passed + 1))
            assert consumer.received == passed
            assert {n for low, high in consumer.ahead.runs() for n in range(low, high + 1)} == {
                n for n in model if n > passed
            }

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 8)), max_size=25))
    def test_marks_are_a_set_of_sequences(self, runs: list[tuple[int, int]]) -> None:
        consumer, model = Consumer("default"), set[int]()
        for first, more in runs:
            new = set(range(first, first + more + 1))
            consumer.planned = first
            marked = consumer.mark_to(first + more)
            assert marked.rows == len(new - model)
            told = {n for low, high in marked.runs for n in range(low, high + 1)}
            assert new - model <= told <= model | new, (
                "all that is new is decided, and nothing that is not received"
            )
            model |= new
        assert {n for n in range(1, 60) if not waiting(consumer, n, n)} == model
        assert waiting(consumer, 1, 55) == len(set(range(1, 56)) - model)
        assert waiting(consumer, 20, 55) == len(set(range(20, 56)) - model)
        assert not consumer.ahead or consumer.ahead.first > consumer.received + 1


@pytest.mark.parametrize("value", [None, "", "x" * 501, 5, [], {}, {"host": "h"}])
def test_what_is_no_holder_is_a_usage_error(value: object) -> None:
    with pytest.raises(ApiError) as refused:
        parse_holder(value)
    assert refused.value.status == 400
