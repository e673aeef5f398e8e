"""[MC-MQSRM] 3.1.5.1.4 does not check on arrival, 2.2.5.1.1 and 2.2.6.17 discard: an option."""

from __future__ import annotations

from srmp_spark.srmp.receiver import ReceiverSettings
from srmp_spark.testing.playbook import Playbook, ok, post, refused, repeated, row, stream_message, synced, user_message
from srmp_spark.testing.sim_clock import START_UTC_US

ORDERS = "private$/orders"
HOUR = 3_600_000_000
PAST, FUTURE = START_UTC_US - HOUR, START_UTC_US + HOUR
REFUSE = ReceiverSettings(expired="refuse")


def test_by_default_a_message_that_comes_too_late_is_kept() -> None:
    assert Playbook() >> post(user_message(time_to_reach_queue=PAST, expires_at=PAST)) << row(ORDERS, 1)


def test_an_operator_may_have_it_refused() -> None:
    assert Playbook(REFUSE) >> post(user_message(time_to_reach_queue=PAST)) << refused(400, "expired")
    assert Playbook(REFUSE) >> post(user_message(expires_at=PAST)) << refused(400, "expired")
    assert Playbook(REFUSE) >> post(user_message(time_to_reach_queue=FUTURE)) << row(ORDERS, 1)
    assert Playbook(REFUSE) >> post(user_message()) << row(ORDERS, 1)


def test_ttrq_takes_precedence_over_expires_at() -> None:
    assert Playbook(REFUSE) >> post(user_message(time_to_reach_queue=FUTURE, expires_at=PAST)) << row(ORDERS, 1)
    assert Playbook(REFUSE) >> post(user_message(time_to_reach_queue=PAST, expires_at=FUTURE)) << refused(400, "expired")


def test_what_expired_after_it_was_accepted_is_a_repeat_and_not_refused() -> None:
    assert (
        Playbook(REFUSE)
        >> post(user_message(1, time_to_reach_queue=FUTURE))
        << row(ORDERS, 1)
        >> post(user_message(1, time_to_reach_queue=PAST))
        << repeated("identifier")
        >> synced()
        << ok(2)
    )


def test_a_refused_stream_message_leaves_its_position_free() -> None:
    assert (
        Playbook(REFUSE)
        >> post(stream_message(1))
        << row("private$/ledger", 1)
        >> post(stream_message(2, time_to_reach_queue=PAST))
        << refused(400, "expired")
        >> post(stream_message(3, previous=1))
        << row("private$/ledger", 2)
    )
