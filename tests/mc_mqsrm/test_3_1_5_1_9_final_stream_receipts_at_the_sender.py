"""[MC-MQSRM] 3.1.5.1.9 Final Stream Receipt Message Processing: the receiving application took it, or never will."""

from __future__ import annotations

from srmp_spark.srmp.sending.outgoing_states import FINAL_RECEIPT_GRACE_S, SenderSettings
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from tests.kit.sending_playbook import (
    DESTINATION,
    RECEIPTS_URL,
    SendingPlaybook,
    answer,
    dead,
    delivered,
    enqueue,
    final_receipt,
    operator,
    restart,
    sends,
    stream_receipt,
    tick,
    verdict,
)


def two_acknowledged(settings: SenderSettings | None = None) -> SendingPlaybook:
    playbook = SendingPlaybook(settings)
    assert (
        playbook
        >> enqueue(2, final=True)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
    )
    assert playbook >> stream_receipt(2)  # nothing is finished by it
    return playbook


def stream_of(playbook: SendingPlaybook) -> OutgoingStream:
    stream = playbook.sender.get(DESTINATION, "stream")
    assert isinstance(stream, OutgoingStream)
    return stream


def test_a_stream_receipt_alone_does_not_finish_it() -> None:
    playbook = two_acknowledged()
    assert (
        stream_of(playbook).unread,
        stream_of(playbook).unacknowledged,
        stream_of(playbook).ended,
    ) == (2, 0, False)


def test_positive_finishes_exactly_one_in_any_order() -> None:
    assert (
        two_acknowledged() >> final_receipt(2) << delivered(2) >> final_receipt(1) << delivered(1)
    )


def test_negative_makes_a_dead_letter() -> None:
    """3.1.5.2.1.2."""
    assert (
        two_acknowledged()
        >> final_receipt(1, positive=False)
        << dead(1, "not-received")
        >> final_receipt(2)
        << delivered(2)
    )


def test_it_acknowledges_too_when_the_stream_receipt_was_lost() -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(2, final=True)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
    )
    assert playbook >> final_receipt(2) << delivered(2) >> tick(3600)
    assert stream_of(playbook).unread == 1


def test_a_second_one_changes_nothing() -> None:
    assert (
        two_acknowledged() >> final_receipt(1) << delivered(1) >> final_receipt(1) << verdict("old")
    )


def test_the_stream_goes_on_while_one_is_missing_and_ends_with_the_last() -> None:
    """3.1.7.6: the stream is there as long as a message awaits either receipt."""
    playbook = two_acknowledged()
    assert (
        playbook
        >> enqueue(1)
        << sends(3, position=3, previous=2)
        >> answer(200)
        >> stream_receipt(3)
        << delivered(3)
    )
    assert playbook >> final_receipt(1) << delivered(1) >> final_receipt(2) << delivered(2)
    assert playbook >> enqueue(1) << sends(4, position=1, start=True)


def test_they_are_awaited_across_a_restart() -> None:
    playbook = two_acknowledged()
    assert playbook >> restart() >> final_receipt(1) << delivered(1)
    assert stream_of(playbook).unread == 1


def test_a_final_receipt_that_never_comes_is_given_up_in_doubt() -> None:
    """The text has no timer for it."""
    playbook = two_acknowledged(SenderSettings(final_receipt_wait=1000))
    assert playbook >> tick(999) >> final_receipt(1) << delivered(1) >> tick(999)
    assert playbook >> tick(1) << dead(2, "final-receipt-missing", in_doubt=True)
    assert stream_of(playbook).ended


def test_the_limit_goes_on_across_restarts() -> None:
    """Otherwise a process that is started anew each night would wait for ever."""
    playbook = two_acknowledged(SenderSettings(final_receipt_wait=100_000))
    assert (
        playbook
        >> tick(10_000)
        >> final_receipt(1)
        << delivered(1)
        >> tick(50_000)
        >> restart()
        >> tick(40_000)
    )
    assert playbook >> restart() >> tick(9_999)
    assert playbook >> tick(1) << dead(2, "final-receipt-missing", in_doubt=True)
    assert stream_of(playbook).ended


def test_receipts_that_came_while_the_process_did_not_run_are_read_before_the_limit_counts() -> (
    None
):
    playbook = two_acknowledged(SenderSettings(final_receipt_wait=100_000))
    playbook.clock.now += 1_000_000
    assert (
        playbook
        >> restart()
        >> tick(FINAL_RECEIPT_GRACE_S - 1)
        >> final_receipt(1)
        << delivered(1)
        >> tick(99_999)
    )
    playbook.clock.now += 1_000_000
    assert playbook >> restart() >> tick(FINAL_RECEIPT_GRACE_S - 1)
    assert playbook >> tick(1) << dead(2, "final-receipt-missing", in_doubt=True)


def test_a_wait_that_an_older_version_began_begins_with_the_first_start() -> None:
    playbook = two_acknowledged(SenderSettings(final_receipt_wait=100_000))
    ((key, row),) = playbook.disk.queues.items()
    playbook.disk.queues[key] = row._replace(finals_since=0, finals_to=0)
    assert playbook >> tick(90_000) >> restart() >> tick(50_000) >> restart() >> tick(49_999)
    assert playbook >> tick(1) << dead(1, "final-receipt-missing", last=2, in_doubt=True)


def test_one_for_another_stream_or_for_no_message_changes_nothing() -> None:
    """3.1.5.1.9.1: "If no such Stream element can be found, the protocol MUST discard", "if no such message"."""
    playbook = two_acknowledged()
    assert (
        playbook
        >> final_receipt(1, guid="99999999-0000-4000-8000-000000000000")
        << verdict("another-stream")
    )
    assert playbook >> final_receipt(3) << verdict("beyond")
    assert playbook >> final_receipt(1) << delivered(1) >> final_receipt(2) << delivered(2)
    assert playbook >> enqueue(1, final=True) << sends(3, position=1, start=True) >> answer(200)
    assert (
        playbook
        >> final_receipt(1, stream=-1)
        << verdict("another-stream")
        >> final_receipt(1)
        << delivered(3)
    )


def test_a_stream_that_was_begun_anew_still_hears_of_the_messages_of_the_one_before() -> None:
    """3.1.7.6: a Stream is there as long as a message of it awaits either receipt, also across a restart."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(3, final=True)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
        << sends(3)
    )
    assert playbook >> answer(200) >> stream_receipt(2)
    assert (
        playbook
        >> operator("reset", lambda sender: sender.reset(DESTINATION))
        << sends(3, position=1, start=True, again=True)
        >> answer(200)
    )
    old, new = -1, 0
    assert playbook >> restart() << sends(3, position=1, start=True, again=True) >> answer(200)
    assert playbook >> final_receipt(2, stream=old, positive=False) << dead(2, "not-received")
    # Position 3 has moved to the new stream
    assert playbook >> final_receipt(3, stream=old) << verdict("old")
    assert playbook >> stream_receipt(1, stream=old) << verdict("old")
    assert playbook >> stream_receipt(1, stream=new) >> final_receipt(1, stream=new) << delivered(3)
    assert stream_of(playbook).earlier != ()
    assert playbook >> final_receipt(1, stream=old) << delivered(1)
    assert (stream_of(playbook).earlier, stream_of(playbook).ended) == ((), True)
    assert playbook >> final_receipt(1, stream=old) << verdict("another-stream")


def test_it_comes_to_where_its_own_stream_said_and_not_to_where_a_later_one_does() -> None:
    """Also when the address changed between the two: only a new stream says so."""
    first, second = f"{RECEIPTS_URL}?SenderStream=first", f"{RECEIPTS_URL}?SenderStream=second"
    playbook = SendingPlaybook()
    playbook.sender.receipts_go_to(RECEIPTS_URL, lambda _, url: first)
    assert (
        playbook
        >> enqueue(3, final=True)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
        << sends(3)
    )
    assert playbook >> answer(200) >> stream_receipt(2, to=first)
    playbook.sender.receipts_go_to(RECEIPTS_URL, lambda _, url: second)
    reset = operator("reset", lambda sender: sender.reset(DESTINATION))
    assert playbook >> reset << sends(3, position=1, start=True, again=True) >> answer(200)
    assert playbook >> restart() << sends(3, position=1, start=True, again=True) >> answer(200)
    assert playbook >> final_receipt(1, stream=-1, to=second) << verdict("another-address")
    assert playbook >> final_receipt(1, stream=-1, to=first) << delivered(1)
    assert (
        playbook
        >> stream_receipt(1, to=first)
        << verdict("another-address")
        >> stream_receipt(1, to=second)
    )
    assert (
        playbook
        >> final_receipt(1, to=second)
        << delivered(3)
        >> final_receipt(2, stream=-1, to=first)
        << delivered(2)
    )


def begun_anew() -> SendingPlaybook:
    """Messages 1 and 2 await final receipts in the old stream (-1), message 3 is position 1 of the new one (0)."""
    playbook = two_acknowledged()
    assert playbook >> enqueue(1, final=True) << sends(3) >> answer(200)
    assert (
        playbook
        >> operator("reset", lambda sender: sender.reset(DESTINATION))
        << sends(3, position=1, start=True, again=True)
        >> answer(200)
    )
    return playbook


def test_position_0_is_no_message_and_finishes_none_of_the_stream_before() -> None:
    """Positions count from 1 ([MC-MQSRM] 3.1.1.2), so ``<lastOrdinal>0`` names "no such message" (3.1.5.1.9.1)."""
    playbook = begun_anew()
    assert (
        playbook
        >> final_receipt(0, stream=0)
        << verdict("old")
        >> final_receipt(0, stream=-1)
        << verdict("old")
    )
    assert playbook >> final_receipt(0, stream=0, positive=False) << verdict("old")
    assert (
        playbook
        >> final_receipt(2, stream=-1)
        << delivered(2)
        >> final_receipt(1, stream=-1)
        << delivered(1)
    )
    assert playbook >> final_receipt(1, stream=0) << delivered(3)


def test_a_queue_that_is_forgotten_and_comes_again_does_not_know_its_earlier_streams() -> None:
    playbook = begun_anew()
    old = stream_of(playbook).earlier
    assert (
        playbook
        >> final_receipt(1, stream=-1)
        << delivered(1)
        >> final_receipt(2, stream=-1)
        << delivered(2)
    )
    assert playbook >> final_receipt(1, stream=0) << delivered(3)
    stream_of(
        playbook
    ).earlier = old  # as a data directory of 0.2 may hold it, which counted position 0
    playbook.sender._ledger.streams[old[0].ordinal] = stream_of(playbook).key
    assert playbook >> operator("forget", lambda sender: sender.forget(DESTINATION, "stream"))
    assert playbook >> enqueue(1) << sends(4, position=1, start=True) >> answer(200)
    assert playbook >> final_receipt(1, stream=-2) << verdict("another-stream")
