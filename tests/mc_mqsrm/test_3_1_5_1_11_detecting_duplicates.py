"""[MC-MQSRM] 3.1.5.1.11 Detecting Duplicates."""

from __future__ import annotations

import pytest

from srmp_spark.message import Arrival
from srmp_spark.names import NULL_GUID
from srmp_spark.testing.playbook import (
    SENDER,
    Playbook,
    commit_begins,
    commit_ends,
    ok,
    operator,
    post,
    refused,
    repeated,
    restart,
    row,
    synced,
    tick,
    user_message,
)

ORDERS = "private$/orders"
OTHER = "dc1cd9a6-8130-4504-88d2-851707fe4632"
DAY = 86_400.0


def test_an_identifier_in_the_history_is_discarded_and_answered_200() -> None:
    assert (
        Playbook()
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> post(user_message(7))
        << repeated("identifier")
        >> post(user_message(8))
        << row(ORDERS, 2)
        >> post(user_message(7, lineage=OTHER))
        << row(ORDERS, 3)
        >> synced()
        << ok(4)
    )


def test_the_history_is_one_for_all_queues() -> None:
    assert (
        Playbook(queues={ORDERS: False, "copies": False})
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> post(user_message(7, queue="copies"))
        << repeated("identifier")
    )


def test_a_null_guid_with_1_bypasses_duplicate_detection() -> None:
    """Such messages have no <Msmq>: nothing tells one from another."""
    message = user_message(1, lineage=NULL_GUID, has_msmq=False)
    assert Playbook() >> post(message) << row(ORDERS, 1) >> post(message) << row(ORDERS, 2) >> synced() << ok(2)


def test_a_null_guid_with_another_number_does_not() -> None:
    message = user_message(2, lineage=NULL_GUID)
    assert Playbook() >> post(message) << row(ORDERS, 1) >> post(message) << repeated("identifier")


def test_the_identifier_is_saved_with_its_row_and_not_before() -> None:
    """Saved before, it would turn the sender's retry after a crash into a loss."""
    playbook = Playbook()
    assert (
        playbook
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> commit_begins()
        >> restart(commit_survives=False)
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> commit_begins()
        >> restart(commit_survives=True)
        >> post(user_message(7))
        << repeated("identifier")
        >> synced()
        << ok()
    )
    assert [(run.lineage, run.first, run.last) for run in playbook.disk.history.values()] == [(SENDER, 7, 7)]


def test_a_repeat_of_what_is_still_on_its_way_to_the_disk_rides_behind_it() -> None:
    assert (
        Playbook()
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> commit_begins()
        >> post(user_message(7))
        << repeated("identifier")
        >> commit_ends()
        << ok(1)
        >> synced()
        << ok(1)
    )


def test_what_was_refused_is_not_in_the_history() -> None:
    def pause(paused: bool) -> None:
        playbook.receiver.queues[ORDERS].paused = paused

    playbook = Playbook()
    assert (
        playbook
        >> operator("pause", lambda r: pause(True))
        >> post(user_message(7))
        << refused(503, "paused")
        >> operator("resume", lambda r: pause(False))
        >> post(user_message(7))
        << row(ORDERS, 1)
    )


def test_identifiers_are_remembered_for_thirty_days_and_then_forgotten() -> None:
    """Windows: 30 minutes (appendix A <16>), while its own resend goes on every 6 hours (<18>)."""
    assert (
        Playbook()
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> tick(29 * DAY)
        >> post(user_message(7))
        << repeated("identifier")
        >> tick(1.1 * DAY)
        >> post(user_message(70))  # something new makes the history look for what is old
        << row(ORDERS, 2)
        >> post(user_message(7))
        << row(ORDERS, 3)
        >> synced()
        << ok(4)
    )


def test_setting_the_wall_clock_makes_nothing_new() -> None:
    playbook = Playbook()
    receive = playbook.receiver.receive
    day_us = 86_400_000_000
    receive(user_message(7), Arrival(playbook.clock.utc(), "http", "p"), 0.0)
    for jump in (+3650 * day_us, -3650 * day_us):
        receive(user_message(8), Arrival(playbook.clock.utc() + jump, "http", "p"), 7200.0)
        receive(user_message(9), Arrival(playbook.clock.utc() + jump, "http", "p"), 14400.0)
    for number in (7, 8, 9):
        assert playbook.receiver.history.seen(SENDER, number)


@pytest.mark.parametrize("years", [[+10], [-10], [+10, -10], [-10, +10], [+1] * 20])
def test_restarts_under_a_wrong_clock_make_nothing_new(years: list[int]) -> None:
    """Before the restart a message arrives under the wrong clock, too, and is the newest then."""
    playbook = Playbook()
    assert playbook >> post(user_message(1)) << row(ORDERS, 1) >> synced() << ok()
    number = 1
    for jump in years:
        playbook.clock.utc_offset_us += jump * 365 * 86_400_000_000
        for _ in range(2):
            number += 10  # far from the others: each is a run of its own
            playbook.step(post(user_message(number)))
            playbook.step(synced())
            playbook.step(tick(7200))
            playbook.step(restart())
    assert [run.first for run in playbook.receiver.history.rows()] == list(range(1, number + 1, 10))
