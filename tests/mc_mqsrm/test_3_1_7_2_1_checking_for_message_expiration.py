"""[MC-MQSRM] 3.1.7.2.1 Checking for Message Expiration: what is too late is not sent, and what may have arrived is not dead."""

from __future__ import annotations

import pytest

from srmp_spark.srmp.sending.outgoing_effects import Kind
from tests.kit.dialogue import Input
from tests.kit.sending_playbook import (
    SendingPlaybook,
    answer,
    dead,
    delivered,
    enqueue,
    no_answer,
    once_more,
    restart,
    sends,
    stream_receipt,
    tick,
)


def test_an_expired_message_is_not_sent() -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1)
        << sends(1, start=True)
        >> enqueue(1, time_to_reach_queue=5)
        >> tick(5.1)
    )
    assert playbook >> answer(200) << dead(2, "expired") >> tick(1)
    assert playbook >> stream_receipt(1) << delivered(1) >> tick(86400)


def test_it_is_in_time_until_then() -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1)
        << sends(1, start=True)
        >> enqueue(1, time_to_reach_queue=5)
        >> tick(5)
        >> answer(200)
        << sends(2)
    )


def test_many_expire_in_one_transaction() -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1)
        << sends(1, start=True)
        >> enqueue(100, time_to_reach_queue=5)
        >> tick(6)
    )
    before = playbook.disk.position
    assert playbook >> answer(200) << dead(2, "expired", last=101)
    assert playbook.disk.position - before <= 2


KINDS: list[Kind] = ["stream", "plain"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_peer_may_have_is_sent_until_its_fate_is_known(kind: Kind) -> None:
    """Told as dead although it arrived, it would be sent anew by somebody, and doubled."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1, kind=kind, time_to_reach_queue=5)
        << sends(1, start=True, kind=kind)
        >> no_answer()
    )
    assert playbook >> tick(20) << sends(1, start=True, again=True, kind=kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", [answer(503), no_answer(left=False)], ids=["503", "refused"])
def test_a_second_attempt_says_nothing_about_the_first(kind: Kind, end: Input) -> None:
    playbook = SendingPlaybook()
    assert (
        playbook >> enqueue(1, kind=kind, time_to_reach_queue=5) << sends(1, start=True, kind=kind)
    )
    assert playbook >> once_more() >> end >> tick(20) << sends(1, start=True, again=True, kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_also_after_a_restart(kind: Kind) -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1, kind=kind, time_to_reach_queue=5)
        << sends(1, start=True, kind=kind)
        >> tick(10)
    )
    assert playbook >> restart() << sends(1, start=True, again=True, kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_peer_surely_does_not_have_expires(kind: Kind) -> None:
    """503 says that it was not taken, and where no connection was made nothing arrived."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1, kind=kind, time_to_reach_queue=5)
        << sends(1, start=True, kind=kind)
        >> answer(503)
    )
    assert playbook >> tick(20) << dead(1, "expired")
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1, kind=kind, time_to_reach_queue=5)
        << sends(1, start=True, kind=kind)
        >> no_answer(left=False)
    )
    assert playbook >> tick(20) << dead(1, "expired")


@pytest.mark.parametrize("kind", KINDS)
def test_that_is_known_after_a_restart_too(kind: Kind) -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(3, kind=kind, time_to_reach_queue=5)
        << sends(1, start=True, kind=kind)
        >> answer(503)
    )
    assert playbook >> tick(10) >> restart() << dead(1, "expired", last=3)


def test_after_all_has_expired_the_next_message_begins_a_stream() -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(2, time_to_reach_queue=5) << sends(1, start=True) >> answer(503)
    assert playbook >> tick(20) << dead(1, "expired", last=2)
    assert playbook >> enqueue(1) << sends(3, position=1, start=True)
