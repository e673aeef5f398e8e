"""[MC-MQSRM] 3.1.7.4 Pause Queue, 3.1.7.5 Resume Queue; and what else an operator may decide about an outgoing queue."""

from __future__ import annotations

import pytest

from srmp_spark.srmp.sending.outgoing_effects import Kind
from srmp_spark.srmp.sending.outgoing_states import OutgoingState
from tests.kit.sending_playbook import (
    DESTINATION,
    Input,
    SendingPlaybook,
    answer,
    dead,
    delivered,
    enqueue,
    no_answer,
    operator,
    restart,
    sends,
    stream_receipt,
    tick,
)

KINDS: list[Kind] = ["stream", "plain"]


def pause(kind: Kind = "stream") -> Input:
    return operator("pause", lambda sender: sender.pause(DESTINATION, kind))


def resume(kind: Kind = "stream") -> Input:
    return operator("resume", lambda sender: sender.resume(DESTINATION, kind))


def drop(kind: Kind = "stream") -> Input:
    return operator("drop", lambda sender: sender.drop(DESTINATION, kind, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_leaves_while_paused(kind: Kind) -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(2, kind=kind)
        << sends(1, start=True, kind=kind)
        >> pause(kind)
        >> no_answer()
        >> tick(3600)
    )
    (queue,) = playbook.sender
    assert (queue.state, playbook.sender.next_timer()) == (OutgoingState.ON_HOLD, None)
    assert playbook >> resume(kind) << sends(1, start=True, again=True, kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_retransmission_timer_is_cancelled(kind: Kind) -> None:
    """ "the Retransmission Timer MUST be canceled": resumed, the queue waits for no timer of before."""
    playbook = SendingPlaybook()
    assert playbook >> enqueue(1, kind=kind) << sends(1, start=True, kind=kind) >> no_answer()
    assert playbook.sender.next_timer() is not None
    assert playbook >> pause(kind)
    assert playbook.sender.next_timer() is None
    assert playbook >> tick(3600) >> resume(kind) << sends(1, start=True, again=True, kind=kind)
    assert playbook.sender.next_timer() == (playbook.clock.now + 30 if kind == "stream" else None)


def test_the_stream_receipt_wait_timer_is_cancelled() -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(1) << sends(1, start=True) >> answer(200)
    assert playbook.sender.next_timer() == playbook.clock.now + 30
    assert playbook >> pause()
    assert playbook.sender.next_timer() is None


def test_a_pause_survives_a_restart() -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(1) << sends(1, start=True) >> pause() >> restart() >> tick(3600)
    assert playbook >> resume() << sends(1, start=True, again=True)


def test_receipts_count_while_paused() -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(2)
        << sends(1, start=True)
        >> pause()
        >> answer(200)
        >> stream_receipt(1)
        << delivered(1)
    )
    assert playbook >> resume() << sends(2, previous=1)


def test_what_awaits_a_receipt_awaits_it_again_after_a_pause() -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1)
        << sends(1, start=True)
        >> answer(200)
        >> pause()
        >> tick(3600)
        >> resume()
        >> tick(29)
    )
    assert playbook >> tick(1) << sends(1, start=True, again=True)


def test_what_is_dropped_is_dead_and_in_doubt_where_it_may_have_arrived() -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(4) << sends(1, start=True) >> answer(200) << sends(2)
    assert (
        playbook
        >> drop()
        << dead(1, "dropped", last=2, in_doubt=True)
        << dead(3, "dropped", last=4)
    )
    assert playbook >> enqueue(1) >> answer(200) << sends(5, position=1, start=True)


def test_a_dropped_regular_message_that_arrives_all_the_same() -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(2, kind="plain") << sends(1, kind="plain")
    assert (
        playbook
        >> drop("plain")
        << dead(1, "dropped", in_doubt=True)
        << dead(2, "dropped")
        >> answer(200)
        >> tick(3600)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_is_told_when_there_is_no_such_queue(kind: Kind) -> None:
    sender = SendingPlaybook().sender
    assert not sender.pause(DESTINATION, kind)
    assert not sender.resume(DESTINATION, kind)
    assert not sender.retry(DESTINATION, kind)
    assert not sender.drop(DESTINATION, kind, 0)
    assert not sender.forget(DESTINATION, kind)
    assert not sender.reset(DESTINATION)


def test_a_queue_in_which_something_is_cannot_be_forgotten() -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(1) << sends(1, start=True)
    assert not playbook.sender.forget(DESTINATION, "stream")
    assert playbook >> answer(200) >> stream_receipt(1) << delivered(1)
    assert playbook.sender.forget(DESTINATION, "stream")
    assert playbook >> tick(1) >> restart() >> enqueue(1) << sends(2, position=1, start=True)
