"""[MC-MQSRM] 3.1.7.2.5 Sending the Message: what each HTTP outcome means."""

from __future__ import annotations

import pytest

from srmp_spark.errors import LocalProtocolError
from srmp_spark.srmp.sending.outgoing_states import OutgoingState, SenderSettings
from tests.kit.sending_playbook import (
    DESTINATION,
    SendingPlaybook,
    answer,
    answer_withdraws,
    committed,
    dead,
    delivered,
    enqueue,
    hold_commits,
    no_answer,
    operator,
    sends,
    stream_receipt,
    tick,
)


def test_200_finishes_a_regular_message() -> None:
    """ "The sending QM MUST delete the message … if the message is a regular or durable message"."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(2, kind="plain")
        << sends(1, kind="plain")
        >> answer(200)
        << delivered(1)
        << sends(2, kind="plain")
    )
    assert playbook >> answer(200) << delivered(2)
    assert playbook.sender.forget(DESTINATION, "plain")


def test_400_is_a_dead_letter_with_its_status_and_the_stream_goes_on_behind_it() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(4)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(400)
        << dead(2, "refused", status=400)
        << sends(3, previous=1)
        >> answer(400)
        << dead(3, "refused", status=400)
        << sends(4, previous=1)
        >> answer(200)
        >> stream_receipt(4)
        << delivered(1, 4)
    )


def test_400_for_the_last_message_ends_the_stream() -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(2)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> stream_receipt(1)
        << delivered(1)
    )
    assert playbook >> answer(400) << dead(2, "refused", status=400)
    assert playbook >> tick(86400) >> enqueue(1) << sends(3, position=1, start=True)


def test_400_to_a_repeat_is_a_dead_letter_in_doubt() -> None:
    """The first time it may have been taken: the queue became another one since."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1)
        << sends(1, start=True)
        >> no_answer()
        >> tick(20)
        << sends(1, start=True, again=True)
    )
    assert playbook >> answer(400) << dead(1, "refused", status=400, in_doubt=True)


def test_400_to_a_regular_message() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(2, kind="plain")
        << sends(1, kind="plain")
        >> answer(400)
        << dead(1, "refused", status=400)
        << sends(2, kind="plain")
        >> answer(200)
        << delivered(2)
    )


@pytest.mark.parametrize("status", [500, 501, 502, 503, 504, 599])
def test_5xx_is_sent_again(status: int) -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(1) << sends(1, start=True) >> answer(status)
    (queue,) = playbook.sender
    assert (queue.state, queue.last_status) == (OutgoingState.INACTIVE, status)
    again = status not in (501, 503)
    assert playbook >> tick(20) << sends(1, start=True, again=again)


def test_trouble_makes_a_connected_queue_inactive_too() -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(2) << sends(1, start=True) >> answer(200) << sends(2)
    (queue,) = playbook.sender
    assert queue.state is OutgoingState.CONNECTED
    assert playbook >> answer(500) >> tick(19.9)
    assert queue.state is OutgoingState.INACTIVE
    assert playbook >> tick(0.1) << sends(2, again=True)


@pytest.mark.parametrize(
    "status", [201, 202, 204, 301, 302, 307, 401, 403, 404, 405, 408, 411, 413, 415, 422, 429]
)
def test_only_200_is_success_and_only_400_is_final(status: int) -> None:
    """A redirect is never followed; a 404 or 413 is a configuration that somebody will repair. The message is kept."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1)
        << sends(1, start=True)
        >> answer(status)
        >> tick(20)
        << sends(1, start=True, again=True)
    )


def test_an_end_is_reported_once() -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(1) << sends(1, start=True)
    send = playbook.under_way[0]
    assert playbook >> answer(200)
    with pytest.raises(LocalProtocolError, match="each sending ends once"):
        playbook.sender.answered(send, 200, 0.0, 0)


def test_one_is_under_way_at_a_time() -> None:
    """ "The protocol MUST wait for the HTTP response or time-out"."""
    playbook = SendingPlaybook()
    assert playbook >> enqueue(100) << sends(1, start=True) >> tick(10)
    assert len(playbook.under_way) == 1
    assert playbook >> answer(200) << sends(2) >> tick(10)
    assert len(playbook.under_way) == 1


def test_a_window_opens_with_each_200() -> None:
    playbook = SendingPlaybook(SenderSettings(in_flight_max=4))
    assert playbook >> enqueue(9) << sends(1, start=True) >> answer(200) << sends(2) << sends(3)
    assert playbook >> answer(200) << sends(4) << sends(5) << sends(6)


def test_behind_a_refused_message_the_pipeline_goes_again_with_a_bridge() -> None:
    """The peer answered 200 to 3 and ignored it: it says that it follows 2, which is not there."""
    playbook = SendingPlaybook(SenderSettings(in_flight_max=2))
    assert playbook >> enqueue(4) << sends(1, start=True) >> answer(200) << sends(2) << sends(3)
    assert (
        playbook
        >> answer(400)
        << dead(2, "refused", status=400)
        << sends(3, previous=1, again=True)
    )
    # The late answer to the first 3 says nothing
    assert playbook >> answer(200) << sends(4, previous=3)


def test_behind_trouble_the_pipeline_goes_again_in_order() -> None:
    playbook = SendingPlaybook(SenderSettings(in_flight_max=2))
    assert playbook >> enqueue(3) << sends(1, start=True) >> answer(200) << sends(2) << sends(3)
    assert (
        playbook
        >> answer(503)
        >> answer(200)
        >> tick(20)
        << sends(2, again=True)
        >> answer(200)
        << sends(3, again=True)
    )


def test_late_ends_of_an_earlier_pass_say_nothing() -> None:
    """The wait timer began a new pass while a sending hung: what becomes of that one decides nothing any more."""
    for late in (answer(400), answer(200), no_answer()):
        playbook = SendingPlaybook(SenderSettings(in_flight_max=2))
        assert playbook >> enqueue(2) << sends(1, start=True) >> answer(200) << sends(2)
        assert playbook >> tick(
            30
        )  # 1 and 2 shall go again, but 2 is still under way and the window is one
        assert (
            playbook
            >> late
            << sends(1, start=True, again=True)
            >> answer(200)
            << sends(2, again=True)
        )


def test_regular_messages_that_are_answered_together_end_in_one_run() -> None:
    playbook = SendingPlaybook(SenderSettings(in_flight_max=2))
    assert playbook >> enqueue(3, kind="plain") << sends(1, kind="plain")
    assert (
        playbook >> answer(200) << delivered(1) << sends(2, kind="plain") << sends(3, kind="plain")
    )
    assert (
        playbook >> hold_commits() >> answer(200) >> answer(200) >> committed() << delivered(2, 3)
    )


def test_what_a_400_withdraws_goes_at_once_and_in_order() -> None:
    """It never left: that is no trouble, and no reason to wait for the Retransmission Timer."""
    playbook = SendingPlaybook(SenderSettings(in_flight_max=2))
    assert playbook >> enqueue(5, kind="plain") << sends(1, kind="plain")
    assert (
        playbook >> answer(200) << delivered(1) << sends(2, kind="plain") << sends(3, kind="plain")
    )
    assert (
        playbook
        >> answer_withdraws(400)
        << sends(3, kind="plain")
        << sends(4, kind="plain")
        << dead(2, "refused", status=400)
        >> answer_withdraws(400)
        << sends(4, kind="plain")
        << sends(5, kind="plain")
        << dead(3, "refused", status=400)
    )
    (queue,) = playbook.sender
    assert (queue.state, queue.attempts, queue.window) == (OutgoingState.CONNECTED, 0, 2)


def test_what_a_400_withdraws_from_a_stream_goes_when_the_dead_letter_is_stored() -> None:
    playbook = SendingPlaybook(SenderSettings(in_flight_max=2))
    assert playbook >> enqueue(4) << sends(1, start=True) >> answer(200) << sends(2) << sends(3)
    assert (
        playbook
        >> answer_withdraws(400)
        << dead(2, "refused", status=400)
        << sends(3, previous=1)
        << sends(4)
    )


def test_what_a_503_withdraws_waits_with_it() -> None:
    playbook = SendingPlaybook(SenderSettings(in_flight_max=2))
    assert playbook >> enqueue(3, kind="plain") << sends(1, kind="plain")
    assert (
        playbook >> answer(200) << delivered(1) << sends(2, kind="plain") << sends(3, kind="plain")
    )
    assert playbook >> answer_withdraws(503) >> tick(20) << sends(2, kind="plain")
    (queue,) = playbook.sender
    assert queue.attempts == 1, "one sending was in trouble, not two"
    assert playbook >> answer(200) << sends(3, kind="plain") << delivered(2)


def test_a_closed_connection_means_nothing() -> None:
    """3.1.6.4 Session Cleanup."""
    playbook = SendingPlaybook()
    assert playbook >> enqueue(1) << sends(1, start=True) >> answer(200)
    (queue,) = playbook.sender
    assert queue.state is OutgoingState.CONNECTED
    assert playbook >> operator("closed", lambda sender: sender.closed(DESTINATION, "stream"))
    assert queue.state is OutgoingState.DISCONNECTED
    assert playbook >> enqueue(1) << sends(2)
    with pytest.raises(LocalProtocolError, match="report what was under way first"):
        playbook.sender.closed(DESTINATION, "stream")
