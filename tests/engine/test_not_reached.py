"""A peer that cannot be reached: nothing is read for it, nothing is written down, and it is tried again."""

from __future__ import annotations

from srmp_spark.srmp.outgoing_effects import Load
from srmp_spark.srmp.outgoing_states import RETRANSMISSION_TIMEOUT_S, QueueState
from srmp_spark.testing.sending_playbook import (
    DESTINATION,
    RECEIPTS_URL,
    SendingPlaybook,
    answer,
    delivered,
    enqueue,
    operator,
    peer_is_down,
    sends,
    stream_receipt,
    tick,
)


def state(playbook: SendingPlaybook) -> QueueState:
    (queue,) = playbook.sender
    return queue.state


def loading() -> tuple[SendingPlaybook, Load]:
    """Return a queue that has asked for its rows, and what it asks for."""
    playbook = SendingPlaybook()
    sender = playbook.sender
    sender.enqueue(DESTINATION, "stream", 2, 0, receipts_url=RECEIPTS_URL)
    sender.committed(sender.changes(), playbook.disk.proof())
    (load,) = sender.poll(0.0, 0)
    assert isinstance(load, Load)
    return playbook, load


def test_a_peer_that_is_down_is_tried_again_when_the_retransmission_timer_ends() -> None:
    playbook = SendingPlaybook()
    assert playbook >> peer_is_down() >> enqueue(1)
    assert state(playbook) is QueueState.INACTIVE
    assert playbook >> tick(RETRANSMISSION_TIMEOUT_S) >> peer_is_down(False) >> tick(RETRANSMISSION_TIMEOUT_S / 2)
    assert playbook >> tick(RETRANSMISSION_TIMEOUT_S / 2) << sends(1, start=True)
    assert playbook >> answer(200) >> stream_receipt(1) << delivered(1)


def test_attempts_that_reach_nobody_write_nothing_down() -> None:
    playbook = SendingPlaybook()
    assert playbook >> peer_is_down() >> enqueue(3)
    stored = playbook.disk.position
    assert playbook >> tick(100 * RETRANSMISSION_TIMEOUT_S)
    assert playbook.disk.position == stored
    (queue,) = playbook.sender
    assert (queue.attempts, queue.left_to, len(queue.buffer)) == (101, 0, 0)


def test_while_a_connection_is_made_the_queue_is_waiting() -> None:
    playbook, load = loading()
    assert state(playbook) is QueueState.WAITING
    playbook.sender.not_reached(load, 0.0)
    assert state(playbook) is QueueState.INACTIVE
    assert playbook.sender.poll(0.0, 0) == []
    assert playbook.sender.next_timer() == RETRANSMISSION_TIMEOUT_S


def test_the_end_of_an_outdated_attempt_says_nothing() -> None:
    playbook, load = loading()
    assert playbook.sender.retry(DESTINATION, "stream")
    (newer,) = playbook.sender.poll(0.0, 0)
    playbook.sender.not_reached(load, 0.0)
    assert state(playbook) is QueueState.WAITING
    assert isinstance(newer, Load)
    playbook.sender.not_reached(newer, 0.0)
    assert state(playbook) is QueueState.INACTIVE


def test_an_attempt_that_ends_after_a_pause_leaves_the_queue_on_hold() -> None:
    playbook, load = loading()
    playbook.sender.pause(DESTINATION, "stream")
    playbook.sender.not_reached(load, 0.0)
    assert state(playbook) is QueueState.ON_HOLD
    assert playbook.sender.next_timer() is None


def test_what_left_before_the_peer_went_down_goes_again_when_it_is_back() -> None:
    """Its receipt may be lost with the peer: the pass behind the acknowledged begins anew, once there is a connection."""
    playbook = SendingPlaybook()
    assert playbook >> enqueue(2) << sends(1, start=True)
    assert playbook >> answer(200) << sends(2)
    assert playbook >> answer(200) >> stream_receipt(1) << delivered(1)
    assert playbook >> peer_is_down() >> operator("retry", lambda sender: sender.retry(DESTINATION, "stream"))
    assert state(playbook) is QueueState.INACTIVE
    assert playbook >> peer_is_down(False) >> tick(RETRANSMISSION_TIMEOUT_S) << sends(2, again=True)
