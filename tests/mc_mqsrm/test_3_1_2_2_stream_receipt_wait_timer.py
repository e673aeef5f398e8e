"""[MC-MQSRM] 3.1.2.2, 3.1.3.1, 3.1.6.2: without a stream receipt everything that awaits one goes again, by the resend table."""

from __future__ import annotations

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.srmp.sending.outgoing_states import SenderSettings
from srmp_spark.srmp.waits import RESEND_TABLE_S
from tests.kit.sending_playbook import (
    SendingPlaybook,
    answer,
    delivered,
    enqueue,
    no_answer,
    restart,
    sends,
    stream_receipt,
    tick,
)


def test_the_table_is_three_times_30_seconds_5_minutes_30_minutes_then_6_hours() -> None:
    """Appendix A <18>."""
    assert RESEND_TABLE_S == (30, 30, 30, 300, 300, 300, 1800, 1800, 1800, 21600)


@pytest.mark.parametrize("table", [RESEND_TABLE_S, (1.0, 2.0)])
def test_each_time_out_takes_the_next_wait_and_the_last_one_stays(table: tuple[float, ...]) -> None:
    playbook = SendingPlaybook(SenderSettings(resend_table=table))
    assert playbook >> enqueue(1) << sends(1, start=True) >> answer(200)
    for wait in (*table, table[-1], table[-1]):
        assert (
            playbook
            >> tick(wait - 0.5)
            >> tick(0.5)
            << sends(1, start=True, again=True)
            >> answer(200)
        )


def test_a_time_out_sets_the_next_time_from_now_by_the_next_wait() -> None:
    """3.1.6.2, EodResendTime: before any answer to what goes again."""
    playbook = SendingPlaybook(SenderSettings(resend_table=(30.0, 100.0)))
    assert playbook >> enqueue(1) << sends(1, start=True) >> answer(200)
    assert playbook >> tick(30) << sends(1, start=True, again=True)
    assert playbook.sender.next_timer() == playbook.clock.now + 100


def test_everything_that_awaits_a_receipt_goes_again_in_order() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(3)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
        << sends(3)
        >> answer(200)
        >> stream_receipt(1)
        << delivered(1)
        >> tick(30)
        << sends(2, previous=1, again=True)
        >> answer(200)
        << sends(3, previous=2, again=True)
        >> answer(200)
        >> stream_receipt(3)
        << delivered(2, 3)
        >> tick(86400)
    )


def test_the_wait_begins_with_the_200_to_the_first_that_awaits_a_receipt() -> None:
    """A large message on a slow line is under way for nearly all of it, and was sent whole once more as soon as it arrived."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(2)
        << sends(1, start=True)
        >> tick(29)
        >> answer(200)
        << sends(2)
        >> tick(1)
        >> answer(200)
    )
    assert playbook >> tick(28.5)
    assert (
        playbook
        >> tick(0.5)
        << sends(1, start=True, again=True)
        >> answer(200)
        << sends(2, again=True)
    )


def test_progress_begins_the_wait_and_the_table_anew() -> None:
    """3.1.5.1.8.2 as printed counts up with each receipt: the better the peer answers, the longer we would wait."""
    assert (
        SendingPlaybook(SenderSettings(resend_table=(30.0, 100.0)))
        >> enqueue(2)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
        >> tick(30)
        << sends(1, start=True, again=True)
        >> answer(200)
        << sends(2, again=True)
        >> answer(200)
        >> tick(99)
        >> stream_receipt(1)
        << delivered(1)
        >> tick(29)
        >> tick(1)
        << sends(2, previous=1, again=True)
        >> answer(200)
        >> tick(99)
        >> tick(1)
        << sends(2, previous=1, again=True)
    )


def test_trouble_stops_the_timer_until_something_is_sent_again() -> None:
    """3.1.7.2.5: "The Stream Receipt Wait Timer MUST be canceled"; its successor begins with the next sending."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(2)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> tick(25)
        >> no_answer()
    )
    assert playbook.sender.next_timer() == playbook.clock.now + 20
    assert playbook >> tick(20) << sends(2, again=True)
    assert playbook.sender.next_timer() == playbook.clock.now + 30


def test_a_pass_that_is_under_way_is_not_begun_again() -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(2) << sends(1, start=True) >> answer(200) << sends(2) >> answer(200)
    assert playbook >> tick(30) << sends(1, start=True, again=True)
    assert playbook >> tick(31) >> answer(200) << sends(2, again=True) >> answer(200)


def test_after_a_restart_the_wait_begins_with_the_first_sending() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(1)
        << sends(1, start=True)
        >> answer(200)
        >> tick(25)
        >> restart()
        << sends(1, start=True, again=True)
        >> answer(200)
        >> tick(29)
        >> tick(1)
        << sends(1, start=True, again=True)
    )


@pytest.mark.parametrize("table", [(), (30.0, 0.0), (-1.0,)])
def test_a_table_that_makes_no_sense_is_refused(table: tuple[float, ...]) -> None:
    with pytest.raises(ConfigurationError, match="--resend-table"):
        SenderSettings(resend_table=table)
