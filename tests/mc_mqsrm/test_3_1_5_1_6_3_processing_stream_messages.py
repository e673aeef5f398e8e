"""[MC-MQSRM] 3.1.5.1.6.3 Processing Stream Messages: three criteria, or the message is ignored (and answered 200)."""

from __future__ import annotations

import pytest

from srmp_spark.message import StreamId
from tests.kit.playbook import (
    SENDER,
    STREAM,
    Playbook,
    commit_begins,
    commit_ends,
    delivered,
    ok,
    operator,
    post,
    refused,
    repeated,
    restart,
    row,
    stream_message,
    stream_receipt,
    synced,
    tick,
)

LEDGER = "private$/ledger"


def test_first_criterion_start_with_current_1_and_another_stream_id() -> None:
    """ "<start>, its <current> element is set to 1, and its <streamId> element is not equal to Stream.IncomingId"."""
    assert Playbook() >> post(stream_message(1)) << row(LEDGER, 1) >> synced() << ok()


def test_second_criterion_current_is_the_next_number() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        # The number decides, whatever <previous> claims.
        >> post(stream_message(3, previous=0))
        << row(LEDGER, 3)
        >> synced()
        << ok(3)
    )


def test_third_criterion_previous_bridges_the_gap_of_expired_messages() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(5, previous=1))
        << row(LEDGER, 2)
        >> post(stream_message(9, previous=3))
        << row(LEDGER, 3)
        >> synced()
        << ok(3)
    )


@pytest.mark.parametrize(("current", "previous"), [(3, 2), (5, 4), (5, 2), (4_294_967_295, 2)])
def test_a_gap_that_previous_does_not_bridge_is_ignored_and_answered_200(
    current: int, previous: int
) -> None:
    """A 400 would make the sender delete it; with 200 it keeps the message and sends it again."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(current, previous=previous))
        << repeated("gap")
        >> synced()
        << ok(2)
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
    )


def test_a_message_of_a_stream_that_never_began_is_ignored() -> None:
    assert (
        Playbook()
        >> post(stream_message(5, previous=0))
        << repeated("gap")
        >> post(stream_message(1, start=False))
        << repeated("gap")
        >> synced()
        << ok(2)
        >> tick(60)
    )


def test_a_refused_position_leaves_no_trace_in_the_history_of_identifiers() -> None:
    """3.1.5.1.6.3 comes before 3.1.5.1.11: the same message fits when its turn comes."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(3))
        << repeated("gap")
        >> synced()
        << ok(2)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> post(stream_message(3))
        << row(LEDGER, 3)
        >> synced()
        << ok(2)
    )


def test_a_repeated_position_makes_no_row_even_under_a_new_identifier() -> None:
    """3.1.7.2.2 gives each sending a new identifier; the position still tells."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(1, uniquifier=999))
        << repeated("position")
        >> synced()
        << ok(2)
    )


def test_a_late_copy_of_a_position_that_was_bridged_is_a_repeat() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(3, previous=1))
        << row(LEDGER, 2)
        >> post(stream_message(2))
        << repeated("position")
        >> synced()
        << ok(3)
    )


def test_a_start_with_a_higher_ordinal_begins_the_next_stream() -> None:
    """3.1.1.2: "When all the messages in a stream sequence have been acknowledged, … increment the Stream.ID.Ordinal"."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(1, stream=STREAM + 1, uniquifier=7))
        << row(LEDGER, 2)
        >> post(stream_message(2, uniquifier=8))  # of the stream that ended
        << repeated("stale")
        >> synced()
        << ok(3)
        >> tick(0.5)
        << stream_receipt(last_ordinal=1, stream=STREAM + 1)
    )


def test_a_start_with_a_lower_ordinal_is_a_late_copy() -> None:
    """Ours: read literally ("not equal to Stream.IncomingId") it would throw the live stream away."""
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1, stream=STREAM))
        << row(LEDGER, 1)
        >> post(stream_message(1, stream=STREAM - 1, uniquifier=7))
        << repeated("stale")
        >> post(stream_message(2, stream=STREAM))
        << row(LEDGER, 2)
        >> synced()
        << ok(3)
        >> tick(0.5)
        << stream_receipt(last_ordinal=2)
    )
    (stream,) = playbook.receiver.streams
    assert stream.reject_count == 0


def test_a_repeated_start_of_the_live_stream_is_a_repeat() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> post(stream_message(1))
        << repeated("position")
        >> post(stream_message(3))
        << row(LEDGER, 3)
        >> synced()
        << ok(4)
    )


def test_streams_of_one_sender_to_two_queues_are_two_streams() -> None:
    playbook = Playbook(queues={"private$/ledger": True, "invoices": True})
    assert (
        playbook
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(1, queue="invoices", stream=STREAM + 1, uniquifier=7))
        << row("invoices", 1)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> synced()
        << ok(3)
    )


def test_the_guid_in_the_stream_id_names_the_stream_and_not_source_qm_guid() -> None:
    """The document's own example 4.4 changes SourceQmGuid within one stream."""
    assert (
        Playbook()
        >> post(stream_message(1, source_qm="dc1cd9a6-8130-4504-88d2-851707fe4632"))
        << row(LEDGER, 1)
        >> post(stream_message(2, source_qm="6a74a825-57b2-43e5-9d34-f1d8b2b8950a"))
        << row(LEDGER, 2)
        >> synced()
        << ok(2)
    )


def test_a_stream_begun_by_an_authenticated_peer_is_that_peers() -> None:
    """[MC-MQSRM] 5.1: a forged <start> would replace the state of the stream."""
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1), sender_name="CN=machine1")
        << row(LEDGER, 1)
        >> post(stream_message(2), sender_name="CN=mallory")
        << refused(403, "stream-sender")
        >> post(
            stream_message(1, stream=STREAM + 1, uniquifier=7)
        )  # a forged <start> on plain HTTP
        << refused(403, "stream-sender")
        >> post(stream_message(2), sender_name="CN=machine1")
        << row(LEDGER, 2)
        >> synced()
        << ok(2)
    )
    [stream] = playbook.receiver.streams
    assert (stream.ordinal, stream.reject_count, stream.gap_at) == (STREAM, 0, None), (
        "no forgery moved anything"
    )


def test_on_plain_http_the_address_is_not_compared() -> None:
    """It proves nothing there, and an honest sender's changes: DHCP, NAT, fail-over of a cluster node."""
    assert (
        Playbook()
        >> post(stream_message(1), peer="192.0.2.1:50001")
        << row(LEDGER, 1)
        >> post(stream_message(2), peer="198.51.100.9:50002")
        << row(LEDGER, 2)
        >> synced()
        << ok(2)
    )


@pytest.mark.parametrize(
    ("peer", "sender_name", "told"),
    [
        ("198.51.100.9:50002", None, "192.0.2.1:50001"),
        ("[2001:db8::1]:50001", None, "192.0.2.1:50001"),
        ("192.0.2.1:50002", None, None),
        ("198.51.100.9:50002", "CN=machine1", None),
    ],
)
def test_on_plain_http_another_host_is_told_once(
    peer: str, sender_name: str | None, told: str | None
) -> None:
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1), peer="192.0.2.1:50001", sender_name=sender_name)
        << row(LEDGER, 1)
        >> post(stream_message(2), peer=peer, sender_name=sender_name)
        << row(LEDGER, 2)
    )
    (stream,) = playbook.receiver.streams
    assert [stream.take_move(0.0), stream.take_move(0.0)] == [told, None]


def test_a_stream_that_goes_to_and_fro_is_told_once_an_hour() -> None:
    playbook = Playbook()
    for number in range(1, 8):
        assert playbook.step(post(stream_message(number), peer=f"192.0.2.{number % 2}:1")) == [
            row(LEDGER, number)
        ]
        (stream,) = playbook.receiver.streams
        told = stream.take_move(1000.0 * number)
        assert (told is not None) == (number in (2, 6)), number


def test_an_accepted_position_whose_identifier_is_known_moves_the_stream_without_a_row() -> None:
    """A sender gave a stream up and began the next with what was left of it; the receipt covers it all the same."""
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1, uniquifier=7))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> post(stream_message(1, stream=STREAM + 1, uniquifier=7))
        << repeated("identifier")
        >> post(stream_message(2, stream=STREAM + 1, uniquifier=8))
        << row(LEDGER, 2)
        >> commit_begins()
        >> commit_ends()
        << ok(2)
        >> tick(0.5)
        << stream_receipt(last_ordinal=2, stream=STREAM + 1)
        >> delivered()
        >> restart()
        >> post(stream_message(3, stream=STREAM + 1, uniquifier=9))
        << row(LEDGER, 3)
    )


def test_a_position_moved_without_a_row_is_acknowledged_only_after_its_commit() -> None:
    assert (
        Playbook()
        >> post(stream_message(1, uniquifier=7))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> delivered()
        >> post(stream_message(2, uniquifier=7))
        << repeated("identifier")
        >> tick(60)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=2)
    )


def test_a_start_without_an_address_for_receipts_is_refused() -> None:
    """2.2.5.3.4: "the SRMP element <sendReceiptsTo> MUST be present". Nobody would ever hear of this stream."""
    message = stream_message(1)
    assert message.stream is not None
    message = message._replace(stream=message.stream._replace(send_receipts_to=None))
    playbook = Playbook()
    assert playbook >> post(message) << refused(400, "no-receipts-url")
    assert len(playbook.receiver.streams) == 0


def test_what_the_stream_remembers() -> None:
    """Stream.IncomingId, .IncomingSequenceNumber and .SendReceiptsTo "MUST be saved to persistent storage" (3.1.1.1.6)."""
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1, source_qm=SENDER), peer="192.0.2.1:50001")
        << row(LEDGER, 1)
        >> post(stream_message(4, previous=1, source_qm=SENDER), peer="192.0.2.2:50002")
        << row(LEDGER, 2)
        >> post(stream_message(9))
        << repeated("gap")
        >> synced()
        << ok(3)
    )
    saved = playbook.disk.streams[LEDGER, SENDER]
    assert saved.stream_ordinal == STREAM
    assert saved.sequence_number == 4
    assert saved.last_acknowledged == 0
    assert saved.send_receipts_to == "http://machine1/MSMQ/private$/order_queue$"
    assert saved.peer == "192.0.2.2:50002"
    assert saved.source_qm == SENDER
    assert saved.reject_count == 1
    (stream,) = playbook.receiver.streams
    assert stream.id == StreamId(SENDER, STREAM)
    assert stream.gap_at == 5


def test_an_operator_gives_up_a_gap() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(5))
        << repeated("gap")
        >> operator("accept-gap", lambda receiver: receiver.accept_gap(LEDGER, SENDER))
        >> post(stream_message(5))
        << row(LEDGER, 2)
        >> post(stream_message(8))  # only the one gap
        << repeated("gap")
    )


def test_a_gap_that_is_given_up_ends_at_the_lowest_position_that_came() -> None:
    """The operator decides in the middle of a round: what stands before in the round must not be lost as well."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(5))
        << repeated("gap")
        >> post(stream_message(6))
        << repeated("gap")
        >> operator("accept-gap", lambda receiver: receiver.accept_gap(LEDGER, SENDER))
        >> post(stream_message(7))  # the rest of the round
        << repeated("gap")
        >> post(stream_message(5))
        << row(LEDGER, 2)
        >> post(stream_message(6))
        << row(LEDGER, 3)
    )


def test_a_second_decision_takes_whatever_comes() -> None:
    """A late copy came from inside the gap, and its sender has nothing there any more."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(3))
        << repeated("gap")
        >> operator("accept-gap", lambda receiver: receiver.accept_gap(LEDGER, SENDER))
        >> post(stream_message(5))
        << repeated("gap")
        >> operator("accept-gap", lambda receiver: receiver.accept_gap(LEDGER, SENDER))
        >> post(stream_message(5))
        << row(LEDGER, 2)
    )


def test_nothing_is_given_up_while_nothing_is_missing() -> None:
    """Else the next message that others overtook on its way would be answered 200 and acknowledged, and be nowhere."""
    playbook = Playbook()
    assert playbook >> post(stream_message(1)) << row(LEDGER, 1)
    assert not playbook.receiver.accept_gap(LEDGER, SENDER)
    assert not playbook.receiver.accept_gap(LEDGER, SENDER), "nor a second time"
    assert not playbook.receiver.accept_gap("private$/nowhere", SENDER)
    assert (
        playbook
        >> post(stream_message(3))
        << repeated("gap")
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> post(stream_message(3))
        << row(LEDGER, 3)
    )
    assert not playbook.receiver.accept_gap(LEDGER, SENDER), "it has come"


@pytest.mark.parametrize("times", [1, 2])
def test_what_was_given_up_stays_given_up_after_a_restart(times: int) -> None:
    """Windows may send the message behind the gap hours later."""
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(5))
        << repeated("gap")
    )
    for _ in range(times):
        assert playbook.receiver.accept_gap(LEDGER, SENDER)
    assert playbook >> synced() << ok(2) >> restart()
    (stream,) = playbook.receiver.streams
    assert (stream.gap_at, stream.gap_next) == (2, 5 if times == 1 else None)
    if times == 1:
        assert playbook >> post(stream_message(6)) << repeated("gap")
        assert playbook >> post(stream_message(5)) << row(LEDGER, 2)
    else:
        assert playbook >> post(stream_message(6)) << row(LEDGER, 2)
    assert playbook >> post(stream_message(9)) << repeated("gap")


def test_what_was_given_up_is_one_gap_and_no_other_after_a_restart() -> None:
    """The decision names the position behind which something is missing, and the life of the stream in which it is."""
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(3))
        << repeated("gap")
    )
    assert playbook.receiver.accept_gap(LEDGER, SENDER)
    assert playbook >> post(stream_message(2)) << row(LEDGER, 2) >> synced() << ok(3) >> restart()
    assert (
        playbook
        >> post(stream_message(4))
        << repeated("gap")
        >> post(stream_message(3))
        << row(LEDGER, 3)
    )

    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(3))
        << repeated("gap")
    )
    assert playbook.receiver.accept_gap(LEDGER, SENDER)
    assert (
        playbook
        >> synced()
        << ok(2)
        >> operator("drop", lambda receiver: receiver.drop_stream(LEDGER, SENDER))
    )
    assert (
        playbook
        >> post(stream_message(1, uniquifier=200))
        << row(LEDGER, 2)
        >> synced()
        << ok()
        >> restart()
    )
    assert (
        playbook
        >> post(stream_message(3))
        << repeated("gap")
        >> post(stream_message(2))
        << row(LEDGER, 3)
    )


def test_an_operator_drops_a_stream_and_the_sender_may_begin_again_with_a_lower_ordinal() -> None:
    """A sender restored from an old backup counts its streams from an old number."""
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> post(stream_message(1, stream=3, uniquifier=7))
        << repeated("stale")
        >> operator("drop", lambda receiver: receiver.drop_stream(LEDGER, SENDER))
        >> post(stream_message(1, stream=3, uniquifier=7))
        << row(LEDGER, 2)
        >> synced()
        << ok(2)
        >> restart()
        >> post(stream_message(2, stream=3, uniquifier=8))
        << row(LEDGER, 3)
    )
