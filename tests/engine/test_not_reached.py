"""A peer that cannot be reached: nothing is read for it, nothing is written down, and it is tried again."""

from __future__ import annotations

import pytest

from srmp_spark.message import Message
from srmp_spark.srmp.sending.outgoing_effects import Kind, Load, Send, StoredMessage
from srmp_spark.srmp.sending.outgoing_queue import READ_AHEAD_BYTES_MAX
from srmp_spark.srmp.sending.outgoing_states import OutgoingState
from srmp_spark.srmp.sending.sender import Sender
from srmp_spark.srmp.waits import RETRANSMISSION_TIMEOUT_S
from tests.kit.oracle import Oracle
from tests.kit.sending_playbook import (
    DESTINATION,
    IDENTITY,
    RECEIPTS_URL,
    SendingPlaybook,
    answer,
    dead,
    delivered,
    enqueue,
    operator,
    peer_is_down,
    restart,
    sends,
    stream_receipt,
    tick,
)
from tests.kit.sim_outbox import SimOutbox


def state(playbook: SendingPlaybook) -> OutgoingState:
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
    assert state(playbook) is OutgoingState.INACTIVE
    assert (
        playbook
        >> tick(RETRANSMISSION_TIMEOUT_S)
        >> peer_is_down(False)
        >> tick(RETRANSMISSION_TIMEOUT_S / 2)
    )
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
    assert state(playbook) is OutgoingState.WAITING
    playbook.sender.not_reached(load, 0.0)
    assert state(playbook) is OutgoingState.INACTIVE
    assert playbook.sender.poll(0.0, 0) == []
    assert playbook.sender.next_timer() == RETRANSMISSION_TIMEOUT_S


def test_the_end_of_an_outdated_attempt_says_nothing() -> None:
    playbook, load = loading()
    assert playbook.sender.retry(DESTINATION, "stream")
    (newer,) = playbook.sender.poll(0.0, 0)
    playbook.sender.not_reached(load, 0.0)
    assert state(playbook) is OutgoingState.WAITING
    assert isinstance(newer, Load)
    playbook.sender.not_reached(newer, 0.0)
    assert state(playbook) is OutgoingState.INACTIVE


def test_an_attempt_that_ends_after_a_pause_leaves_the_queue_on_hold() -> None:
    playbook, load = loading()
    playbook.sender.pause(DESTINATION, "stream")
    playbook.sender.not_reached(load, 0.0)
    assert state(playbook) is OutgoingState.ON_HOLD
    assert playbook.sender.next_timer() is None


def test_what_left_before_the_peer_went_down_goes_again_when_it_is_back() -> None:
    """Its receipt may be lost with the peer: the pass behind the acknowledged begins anew, once there is a connection."""
    playbook = SendingPlaybook()
    assert playbook >> enqueue(2) << sends(1, start=True)
    assert playbook >> answer(200) << sends(2)
    assert playbook >> answer(200) >> stream_receipt(1) << delivered(1)
    assert (
        playbook
        >> peer_is_down()
        >> operator("retry", lambda sender: sender.retry(DESTINATION, "stream"))
    )
    assert state(playbook) is OutgoingState.INACTIVE
    assert playbook >> peer_is_down(False) >> tick(RETRANSMISSION_TIMEOUT_S) << sends(2, again=True)


KINDS: list[Kind] = ["stream", "plain"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_for_a_peer_that_is_never_reached_expires(kind: Kind) -> None:
    playbook = SendingPlaybook()
    assert playbook >> peer_is_down() >> enqueue(3, kind=kind, time_to_reach_queue=50)
    assert playbook >> tick(2 * RETRANSMISSION_TIMEOUT_S)
    assert (
        playbook
        >> tick(RETRANSMISSION_TIMEOUT_S)
        << dead(1, "expired")
        << dead(2, "expired", last=3)
    )
    assert (
        playbook
        >> enqueue(1, kind=kind, time_to_reach_queue=5)
        >> tick(RETRANSMISSION_TIMEOUT_S)
        << dead(4, "expired")
    )


@pytest.mark.parametrize("kind", KINDS)
def test_it_expires_up_to_what_has_time_which_is_sent_when_the_peer_is_back(kind: Kind) -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> peer_is_down()
        >> enqueue(2, kind=kind, time_to_reach_queue=5)
        >> enqueue(2, kind=kind)
    )
    assert playbook >> tick(RETRANSMISSION_TIMEOUT_S) << dead(1, "expired") << dead(2, "expired")
    again = playbook >> peer_is_down(False) >> tick(RETRANSMISSION_TIMEOUT_S)
    assert again << sends(3, position=1, start=True, kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_restart_it_is_known_that_it_never_left(kind: Kind) -> None:
    playbook = SendingPlaybook()
    assert playbook >> peer_is_down() >> enqueue(2, kind=kind, time_to_reach_queue=5)
    assert playbook >> tick(10) >> restart() << dead(1, "expired") << dead(2, "expired")


def test_the_next_message_is_read_once_and_again_when_its_time_is_over() -> None:
    playbook = SendingPlaybook()
    reads: list[int] = []
    read = playbook.disk.read

    def noted(load: Load, count: int) -> list[StoredMessage]:
        reads.append(count)
        return read(load, count)

    playbook.disk.read = noted  # type: ignore[method-assign]
    assert playbook >> peer_is_down() >> enqueue(1, time_to_reach_queue=1_000) >> tick(900)
    assert reads == [1]
    assert playbook >> tick(200) << dead(1, "expired")
    assert reads == [1, 1]


def test_rows_that_cannot_be_read_are_a_failed_attempt() -> None:
    playbook, load = loading()
    assert playbook.sender.must_see(load, 0)
    assert playbook.sender.seen(load, None, 0.0, 0) is None
    assert state(playbook) is OutgoingState.INACTIVE
    assert playbook.sender.poll(0.0, 0) == []
    playbook.sender.due(RETRANSMISSION_TIMEOUT_S, 0)
    (again,) = playbook.sender.poll(RETRANSMISSION_TIMEOUT_S, 0)
    assert isinstance(again, Load)
    assert not playbook.sender.must_see(again, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_for_a_peer_that_has_not_answered_no_more_is_read_than_leaves(kind: Kind) -> None:
    """One that accepts connections and says nothing had 129 messages of its own in memory."""
    sender, disk = Sender(IDENTITY), SimOutbox(Oracle())
    sender.enqueue(DESTINATION, kind, 9, 0, receipts_url=RECEIPTS_URL)
    sender.committed(sender.changes(), disk.proof())
    (load,) = sender.poll(0.0, 0)
    assert isinstance(load, Load)
    sender.loaded(load, [large(1)])
    (send,) = sender.poll(0.0, 0)
    assert isinstance(send, Send), "and no Load"
    sender.answered(send, 200, 0.0, 0)
    (load,) = sender.poll(0.0, 0)
    assert isinstance(load, Load)


def test_no_more_is_read_ahead_than_the_limit_of_bytes_says() -> None:
    """129 messages of 1 MB were in memory for each busy destination."""
    sender, disk = Sender(IDENTITY), SimOutbox(Oracle())
    sender.enqueue(DESTINATION, "plain", 9, 0)
    sender.committed(sender.changes(), disk.proof())
    (load,) = sender.poll(0.0, 0)
    assert isinstance(load, Load)
    sender.loaded(load, [large(1)])
    (send,) = sender.poll(0.0, 0)
    assert isinstance(send, Send)
    sender.answered(send, 200, 0.0, 0)
    while loads := [each for each in sender.poll(0.0, 0) if isinstance(each, Load)]:
        sender.loaded(loads[0], [large(loads[0].after + 1)])
        sender.committed(sender.changes(), disk.proof())
    (queue,) = sender
    assert queue.state is OutgoingState.CONNECTED
    assert [each.serial for each in queue.buffer] == [3], "2 is under way"


def large(serial: int) -> StoredMessage:
    """Return a message as large as what is read at once."""
    return StoredMessage(
        serial,
        Message(destination=DESTINATION, uniquifier=serial, body=bytes(READ_AHEAD_BYTES_MAX)),
    )
