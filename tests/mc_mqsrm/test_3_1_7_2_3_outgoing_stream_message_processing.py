"""[MC-MQSRM] 3.1.7.2.3 Outgoing Stream Message Processing: numbers, ``<previous>``, ``<start>``, one stream after another."""

from __future__ import annotations

from srmp_spark.srmp.sending.outgoing_states import SenderSettings
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from tests.kit.sending_playbook import (
    DESTINATION,
    IDENTITY,
    RECEIPTS_URL,
    SendingPlaybook,
    answer,
    committed,
    dead,
    delivered,
    enqueue,
    hold_commits,
    no_answer,
    operator,
    restart,
    sends,
    stream_receipt,
    tick,
)


def stream_of(playbook: SendingPlaybook) -> OutgoingStream:
    stream = playbook.sender.get(DESTINATION, "stream")
    assert isinstance(stream, OutgoingStream)
    return stream


def test_the_first_message_has_number_1_and_each_one_more() -> None:
    """ "The first message in a stream sequence is assigned the value 1" (3.1.1.2)."""
    assert (
        SendingPlaybook()
        >> enqueue(3)
        << sends(1, position=1, previous=0, start=True)
        >> answer(200)
        << sends(2, position=2, previous=1)
        >> answer(200)
        << sends(3, position=3, previous=2)
        >> answer(200)
    )


def test_the_stream_is_named_by_our_guid_and_an_ordinal_with_a_time_stamp_above() -> None:
    """2.2.5.3.1: "The higher-value half of the 64-bit stream identifier forms the … TimeStamp"."""
    playbook = SendingPlaybook()
    assert playbook >> enqueue() << sends(1, start=True)
    place = playbook.under_way[0].message.stream
    assert place is not None
    assert place.id.guid == IDENTITY
    assert place.id.ordinal >> 32 == playbook.clock.utc() // 1_000_000
    assert place.id.ordinal & 0xFFFF_FFFF == 1


def test_only_the_first_message_carries_start_and_it_does_so_each_time() -> None:
    """2.2.5.3.4: "MUST be present in the first message of a stream and MUST NOT be present in any subsequent message"."""
    playbook = SendingPlaybook()
    assert playbook >> enqueue(2) << sends(1, start=True)
    first = playbook.under_way[0].message
    assert first.stream is not None
    assert first.stream.send_receipts_to == RECEIPTS_URL
    assert playbook >> no_answer() >> tick(20) << sends(1, start=True, again=True)
    assert playbook.under_way[0].message == first
    assert playbook >> answer(200) << sends(2)
    second = playbook.under_way[0].message
    assert second.stream is not None
    assert second.stream.send_receipts_to is None
    assert (second.durable, second.priority) == (True, 0)


def test_numbers_are_given_out_at_the_commit_and_survive_a_restart() -> None:
    assert (
        SendingPlaybook()
        >> hold_commits()
        >> enqueue(2)
        >> enqueue(1)
        >> restart()  # nothing of it was committed, so nothing of it exists
        >> enqueue(2)
        >> committed()
        << sends(4, position=1, previous=0, start=True)
        >> restart()
        << sends(4, position=1, previous=0, start=True, again=True)
    )


def test_nothing_leaves_before_it_is_stored() -> None:
    assert (
        SendingPlaybook()
        >> hold_commits()
        >> enqueue(1)
        >> tick(3600)
        >> committed()
        << sends(1, start=True)
    )


def test_a_restart_sends_everything_unacknowledged_again_as_it_was() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(3)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
        << sends(3)
        >> stream_receipt(1)
        << delivered(1)
        >> restart()
        << sends(2, previous=1, again=True)
        >> answer(200)
        << sends(3, previous=2, again=True)
    )


def test_previous_bridges_what_expired_unsent() -> None:
    """As printed <previous> would name the number that was taken out, and the peer would wait for it for ever."""
    assert (
        SendingPlaybook()
        >> enqueue(1)
        << sends(1, start=True)
        >> enqueue(2, time_to_reach_queue=5)
        >> enqueue(1)
        >> tick(10)
        >> answer(200)
        << dead(2, "expired", last=3)
        << sends(4, position=4, previous=1)
        >> answer(200)
        >> stream_receipt(4)
        << delivered(1, 4)
        >> enqueue(1)
        << sends(5, position=1, previous=0, start=True)
    )


def test_previous_skips_a_dead_message_only_when_that_is_stored() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(3)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> hold_commits()
        >> answer(400)
        >> tick(10)
        >> committed()
        << dead(2, "refused", status=400)
        << sends(3, previous=1)
    )


def test_a_refusal_that_was_not_stored_is_asked_for_again() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(3)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> hold_commits()
        >> answer(400)
        >> restart()
        << sends(1, start=True, again=True)
        >> answer(200)
        << sends(2, again=True)
    )


def test_a_stream_whose_first_message_was_taken_out_begins_anew_under_the_same_identifiers() -> (
    None
):
    """Only position 1 carries <start>: without it no peer could take the others."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(3)
        << sends(1, start=True)
        >> answer(400)
        << dead(1, "refused", status=400)
        << sends(2, position=1, previous=0, start=True)
        >> answer(200)
        << sends(3, position=2, previous=1)
    )
    first, second = playbook.ordinals
    assert second > first


def test_when_all_is_acknowledged_the_next_message_begins_a_stream_with_a_higher_ordinal() -> None:
    """3.1.1.2: "the protocol MUST increment the Stream.ID.Ordinal by 1 and reset the Stream.SequenceNumber to zero"."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1)
        << sends(1, start=True)
        >> answer(200)
        >> stream_receipt(1)
        << delivered(1)
        >> enqueue(1)
        << sends(2, position=1, previous=0, start=True)
    )
    assert playbook.ordinals[1] == playbook.ordinals[0] + 1


def test_a_new_stream_has_a_higher_ordinal_also_when_the_clock_was_set_back() -> None:
    """A peer takes a <start> with a lower one for a late copy."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1)
        << sends(1, start=True)
        >> answer(200)
        >> stream_receipt(1)
        << delivered(1)
    )
    playbook.clock.utc_offset_us -= 86_400_000_000
    assert playbook >> restart() >> enqueue(1) << sends(2, position=1, start=True)
    assert playbook.ordinals[1] > playbook.ordinals[0]


def test_while_something_is_unacknowledged_messages_join_the_stream() -> None:
    assert (
        SendingPlaybook()
        >> enqueue(1)
        << sends(1, start=True)
        >> answer(200)
        >> enqueue(1)
        << sends(2, previous=1)
        >> stream_receipt(1)
        << delivered(1)
        >> enqueue(1)
        >> answer(200)
        << sends(3, previous=2)
    )


def test_a_stream_that_has_used_up_its_numbers_is_acknowledged_before_the_next_begins() -> None:
    """A position is a 32-bit number (3.1.1.2)."""
    assert (
        SendingPlaybook(SenderSettings(stream_length_max=2))
        >> enqueue(3)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
        >> stream_receipt(1)
        << delivered(1)
        >> stream_receipt(2)
        << delivered(2)
        << sends(3, position=1, previous=0, start=True)
    )


def test_an_operator_moves_the_rest_into_a_new_stream() -> None:
    """For a peer that lost its state."""
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
        >> operator("reset", lambda sender: sender.reset(DESTINATION))
        << sends(2, position=1, previous=0, start=True, again=True)
        >> answer(200)
        << sends(3, position=2, previous=1, again=True)
    )


def test_no_more_than_the_limit_waits_for_receipts() -> None:
    playbook = SendingPlaybook(SenderSettings(unacknowledged_max=2))
    assert (
        playbook
        >> enqueue(4)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
        >> stream_receipt(1)
        << sends(3)
        << delivered(1)
    )
    assert stream_of(playbook).unacknowledged == 2


def test_two_queues_of_one_host_have_a_stream_each() -> None:
    """As printed a host has one stream: a queue that is full or gone would hold up all others of its machine."""
    sender = SendingPlaybook().sender
    for queue in ("a", "b", "a"):
        sender.enqueue(
            f"http://machine2/msmq/private$/{queue}", "stream", 1, 0, receipts_url=RECEIPTS_URL
        )
    streams = [stream for stream in sender if isinstance(stream, OutgoingStream)]
    assert [(stream.key.destination[-1], stream.end) for stream in streams] == [("a", 2), ("b", 1)]
    assert streams[0].ordinal != streams[1].ordinal
