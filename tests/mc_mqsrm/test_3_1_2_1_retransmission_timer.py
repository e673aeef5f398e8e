"""[MC-MQSRM] 3.1.2.1, 3.1.6.1, 3.1.7.1: what failed is sent again after RetransmissionTimeout, in order, as it was."""

from __future__ import annotations

import pytest

from srmp_spark.srmp.sending.outgoing_states import RETRY_AFTER_S_MAX, OutgoingState, SenderSettings
from srmp_spark.srmp.waits import RETRANSMISSION_TIMEOUT_S
from tests.kit.sending_playbook import (
    DESTINATION,
    SendingPlaybook,
    answer,
    delivered,
    enqueue,
    no_answer,
    operator,
    restart,
    sends,
    stream_receipt,
    tick,
)


def test_a_lost_answer_is_followed_by_the_same_message() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(2)
        << sends(1, start=True)
        >> no_answer()
        >> tick(19.9)
        >> tick(0.1)
        << sends(1, start=True, again=True)
        >> answer(200)
        << sends(2)
    )


def test_a_peer_that_is_down_costs_one_attempt_each_time() -> None:
    playbook = SendingPlaybook(SenderSettings(in_flight_max=8))
    assert playbook >> enqueue(100) << sends(1, start=True)
    for _ in range(5):
        assert (
            playbook
            >> no_answer(left=False)
            >> tick(RETRANSMISSION_TIMEOUT_S)
            << sends(1, start=True)
        )
    (queue,) = playbook.sender
    assert (queue.state, queue.attempts, len(queue.buffer)) == (OutgoingState.WAITING, 5, 99)


def test_while_it_waits_nothing_is_kept_in_memory() -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(100) << sends(1, start=True) >> no_answer()
    (queue,) = playbook.sender
    assert (queue.state, len(queue.buffer)) == (OutgoingState.INACTIVE, 0)


@pytest.mark.parametrize(
    ("retry_after", "wait"), [(3.0, 3.0), (0.0, 1.0), (1e9, RETRY_AFTER_S_MAX)]
)
def test_retry_after_counts_within_limits(retry_after: float, wait: float) -> None:
    assert (
        SendingPlaybook()
        >> enqueue(1)
        << sends(1, start=True)
        >> answer(503, retry_after=retry_after)
        >> tick(wait - 0.01)
        >> tick(0.01)
        << sends(1, start=True)
    )


def test_what_was_answered_200_waits_for_its_receipt_and_is_not_repeated() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(3)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> no_answer()
        >> tick(20)
        << sends(2, again=True)
    )


def test_a_receipt_that_comes_in_the_meantime_spares_the_repeat() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(2)
        << sends(1, start=True)
        >> no_answer()
        >> stream_receipt(1)
        << delivered(1)
        >> tick(20)
        << sends(2, previous=1)
    )


def test_the_retransmission_timer_does_not_survive_a_restart_and_need_not() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(1)
        << sends(1, start=True)
        >> no_answer()
        >> restart()
        << sends(1, start=True, again=True)
    )


def test_an_operator_need_not_wait() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(1)
        << sends(1, start=True)
        >> no_answer()
        >> operator("retry", lambda sender: sender.retry(DESTINATION, "stream"))
        << sends(1, start=True, again=True)
    )


def test_regular_messages_go_again_too() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(2, kind="plain")
        << sends(1, kind="plain")
        >> answer(500)
        >> tick(20)
        << sends(1, again=True, kind="plain")
        >> answer(200)
        << delivered(1)
        << sends(2, kind="plain")
        >> answer(200)
        << delivered(2)
    )
