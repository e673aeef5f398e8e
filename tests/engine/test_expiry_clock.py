"""The time by which messages expire: the wall clock, unless somebody has just set it ahead."""

from __future__ import annotations

import pytest

from srmp_spark.srmp.receiving.expiry_clock import JUMP_S, PAUSE_S, ExpiryClock
from srmp_spark.srmp.receiving.receiver import ReceiverSettings
from tests.kit.playbook import Playbook, post, refused, row, user_message

US = 1_000_000
START = 1_790_000_000 * US
YEAR_S = 365 * 86_400


def begun() -> ExpiryClock:
    clock = ExpiryClock()
    assert clock.read(START, 1000.0) == START
    return clock


def test_it_shows_the_wall_clock_while_that_goes_its_pace() -> None:
    clock = begun()
    assert clock.read(START + 10 * US, 1010.0) == START + 10 * US
    assert clock.read(START + 86_400 * US, 1000.0 + 86_400) == START + 86_400 * US


@pytest.mark.parametrize("seconds", [1, -1, int(JUMP_S), -int(JUMP_S), -3600, -10 * YEAR_S])
def test_a_small_step_and_any_step_back_count_at_once(seconds: int) -> None:
    clock = begun()
    assert clock.read(START + seconds * US, 1000.0) == START + seconds * US
    assert clock.ahead_s == 0


@pytest.mark.parametrize("seconds", [int(JUMP_S) + 1, 3600, 10 * YEAR_S])
def test_set_ahead_it_counts_after_an_hour(seconds: int) -> None:
    clock = begun()
    for passed in (0.0, 1.0, PAUSE_S - 1):
        assert clock.read(START + int((seconds + passed) * US), 1000.0 + passed) == START + int(
            passed * US
        )
        assert clock.ahead_s == seconds
    assert clock.read(START + int((seconds + PAUSE_S) * US), 1000.0 + PAUSE_S) == START + int(
        (seconds + PAUSE_S) * US
    )
    assert clock.ahead_s == 0


def test_set_right_within_the_hour_nothing_has_happened() -> None:
    clock = begun()
    clock.read(START + YEAR_S * US, 1000.0)
    assert clock.read(START + 60 * US, 1060.0) == START + 60 * US
    assert clock.ahead_s == 0
    assert clock.read(START + YEAR_S * US, 1100.0) == START + 100 * US, (
        "the next slip has an hour of its own"
    )


def test_a_second_leap_begins_the_hour_anew() -> None:
    clock = begun()
    clock.read(START + YEAR_S * US, 1000.0)
    late = 1000.0 + PAUSE_S - 1
    clock.read(START + 2 * YEAR_S * US, late)
    assert clock.read(START + 2 * YEAR_S * US, late + 2) == START + int((PAUSE_S + 1) * US)


def test_our_own_slip_refuses_nobodys_message() -> None:
    """``--expired refuse`` answers 400, on which a sender deletes: not for an hour after our clock was set ahead."""
    playbook = Playbook(ReceiverSettings(expired="refuse"))
    in_time = {"time_to_reach_queue": playbook.clock.utc() + 600 * US}
    assert playbook >> post(user_message(1, **in_time)) << row("private$/orders", 1)
    playbook.clock.utc_offset_us += YEAR_S * US
    assert playbook >> post(user_message(2, **in_time)) << row("private$/orders", 2)
    playbook.clock.now += 601
    assert playbook >> post(user_message(3, **in_time)) << refused(400, "expired")
