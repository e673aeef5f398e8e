"""HistoryClock: the wall clock when it behaves, and never more than a tenth off the pace when it does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srmp_spark.srmp.receiving.history_clock import RESOLUTION_S, SLEW, HistoryClock

SECOND = 1_000_000
DAY = 86_400 * SECOND
T = 1_780_000_000 * SECOND


def test_it_shows_the_wall_clock_while_that_goes_its_pace() -> None:
    clock = HistoryClock(None)
    for second in range(0, 100, 7):
        assert clock.read(T + second * SECOND, 1000.0 + second) == T + second * SECOND


def test_a_wall_clock_set_ahead_is_approached_by_a_tenth() -> None:
    clock = HistoryClock(None)
    clock.read(T, 0.0)
    assert clock.read(T + 3650 * DAY, 100.0) == T + 110 * SECOND
    assert clock.read(T + 3650 * DAY, 200.0) == T + 220 * SECOND


def test_a_wall_clock_set_back_slows_it_and_never_turns_it() -> None:
    clock = HistoryClock(None)
    clock.read(T, 0.0)
    assert clock.read(T - 3650 * DAY, 100.0) == T + 90 * SECOND


def test_a_life_goes_on_where_the_last_one_ended() -> None:
    clock = HistoryClock(T)
    assert clock.read(T + 7 * DAY, 5.0) == T, "the first reading knows no elapsed time"
    assert clock.read(T + 7 * DAY + 10 * SECOND, 15.0) == T + 11 * SECOND


def test_after_a_week_without_service_it_catches_up() -> None:
    clock = HistoryClock(T)
    value = 0
    for day in range(72):
        value = clock.read(T + (7 + day) * DAY, day * 86_400.0)
    assert value == T + (7 + 71) * DAY


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(-(10**18), 10**18)), max_size=30))
def test_it_never_runs_more_than_a_tenth_fast_or_slow(steps: list[tuple[float, int]]) -> None:
    clock = HistoryClock(None)
    now, value = 0.0, clock.read(T, 0.0)
    late = RESOLUTION_S * SECOND
    for elapsed, wall in steps:
        now += elapsed
        before, value = value, clock.read(wall, now)
        allowed = elapsed * SECOND
        assert value >= before
        assert (
            (allowed - late) * (1 - SLEW) - 2 <= value - before <= (allowed + late) * (1 + SLEW) + 2
        )


def test_readings_close_together_are_the_same_and_lose_no_time() -> None:
    clock = HistoryClock(None)
    clock.read(T, 0.0)
    steps = 1_000
    readings = [clock.read(T + round(n * SECOND * 0.003), n * 0.003) for n in range(1, steps + 1)]
    assert readings[0] == T
    assert T + round(steps * 0.003 * SECOND) - readings[-1] <= RESOLUTION_S * SECOND
