"""[MC-MQSRM] 3.1.5.1.4 does not check on arrival, 2.2.5.1.1 and 2.2.6.17 discard: an option."""

from __future__ import annotations

from dataclasses import replace

from srmp_spark.message import Arrival, StreamId
from srmp_spark.names import FORWARD_QUEUE
from srmp_spark.srmp.forward.redirection import Forwarding
from srmp_spark.srmp.receiving.effects import Accepted, Refused, Repeated
from srmp_spark.srmp.receiving.receiver import ReceiverSettings
from tests.kit.playbook import (
    RECEIPTS_URL,
    SENDER,
    STREAM,
    Playbook,
    commit_begins,
    delivered,
    ok,
    post,
    refused,
    repeated,
    restart,
    row,
    stream_message,
    stream_receipt,
    synced,
    tick,
    user_message,
)
from tests.kit.sim_clock import START_UTC_US

ORDERS, LEDGER = "private$/orders", "private$/ledger"
HOUR = 3_600_000_000
PAST, FUTURE = START_UTC_US - HOUR, START_UTC_US + HOUR
REFUSE = ReceiverSettings(expired="refuse")
ARRIVAL = Arrival(START_UTC_US, "http", "192.0.2.1:1801")


def test_by_default_a_message_that_comes_too_late_is_kept() -> None:
    assert (
        Playbook()
        >> post(user_message(time_to_reach_queue=PAST, expires_at=PAST))
        << row(ORDERS, 1)
    )


def test_an_operator_may_have_it_refused() -> None:
    assert (
        Playbook(REFUSE) >> post(user_message(time_to_reach_queue=PAST)) << refused(400, "expired")
    )
    assert Playbook(REFUSE) >> post(user_message(expires_at=PAST)) << refused(400, "expired")
    assert Playbook(REFUSE) >> post(user_message(time_to_reach_queue=FUTURE)) << row(ORDERS, 1)
    assert Playbook(REFUSE) >> post(user_message()) << row(ORDERS, 1)


def test_ttrq_takes_precedence_over_expires_at() -> None:
    assert (
        Playbook(REFUSE)
        >> post(user_message(time_to_reach_queue=FUTURE, expires_at=PAST))
        << row(ORDERS, 1)
    )
    assert (
        Playbook(REFUSE)
        >> post(user_message(time_to_reach_queue=PAST, expires_at=FUTURE))
        << refused(400, "expired")
    )


def test_what_expired_after_it_was_accepted_is_a_repeat_and_not_refused() -> None:
    assert (
        Playbook(REFUSE)
        >> post(user_message(1, time_to_reach_queue=FUTURE))
        << row(ORDERS, 1)
        >> post(user_message(1, time_to_reach_queue=PAST))
        << repeated("identifier")
        >> synced()
        << ok(2)
    )


def test_in_a_stream_the_position_counts_and_there_is_no_row() -> None:
    """3.1.7.2.3 as printed: ``<previous>`` of 3 is 2 although 2 is gone from the sender's queue. Refused, it would be a gap."""
    assert (
        Playbook(REFUSE)
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(2, time_to_reach_queue=PAST))
        << repeated("expired")
        >> post(stream_message(3, previous=2))
        << row(LEDGER, 2)
        >> synced()
        << ok(3)
        >> tick(0.5)
        << stream_receipt(last_ordinal=3)
    )


def test_a_stream_may_begin_and_end_with_messages_that_came_too_late() -> None:
    assert (
        Playbook(REFUSE)
        >> post(stream_message(1, time_to_reach_queue=PAST))
        << repeated("expired")
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> delivered()
        >> post(stream_message(2, expires_at=PAST))
        << repeated("expired")
        >> post(stream_message(2, expires_at=PAST))  # the sender repeats what it has no receipt for
        << repeated("position")
        >> synced()
        << ok(2)
        >> tick(0.5)
        << stream_receipt(last_ordinal=2)
    )


def test_the_position_of_a_discarded_message_survives_a_restart() -> None:
    """200 for it needs the commit that holds the position, as for a row."""
    playbook = Playbook(REFUSE)
    assert (
        playbook
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(2, time_to_reach_queue=PAST))
        << repeated("expired")
        >> commit_begins()
        >> restart(commit_survives=False)
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(2, time_to_reach_queue=PAST))
        << repeated("expired")
        >> synced()
        << ok(2)
        >> restart()
        >> post(stream_message(3, previous=2))
        << row(LEDGER, 2)
    )


def test_a_discarded_message_waits_for_no_room() -> None:
    """It takes none: a full queue does not hold up the stream for it."""
    playbook = Playbook(ReceiverSettings(expired="refuse", queue_quota_bytes=1))
    assert playbook >> post(stream_message(1)) << row(LEDGER, 1)
    playbook.receiver.queues[LEDGER].bytes_waiting = 1
    assert playbook >> post(stream_message(2, time_to_reach_queue=PAST)) << repeated("expired")
    assert playbook >> post(stream_message(3, previous=2)) << refused(503, "quota")


def test_a_discarded_message_tells_who_asked_that_it_came_too_late() -> None:
    """3.1.7.3.3: with ``<DeadLetter/>`` its sender keeps it until the final stream receipt, so one must come."""
    receiver = Playbook(REFUSE).receiver
    late = stream_message(1, time_to_reach_queue=PAST, dead_letter=True)
    discarded = receiver.receive(late, ARRIVAL, 0.0)
    assert isinstance(discarded, Repeated)
    assert discarded.kind == "expired"
    assert discarded.discarded is not None
    assert (discarded.discarded.final_to, discarded.discarded.stream_id, discarded.discarded.position) == (
        RECEIPTS_URL, StreamId(SENDER, STREAM), 1,
    )  # fmt: skip
    silent = receiver.receive(stream_message(2, time_to_reach_queue=PAST), ARRIVAL, 0.0)
    assert isinstance(silent, Repeated)
    assert (silent.kind, silent.discarded) == ("expired", None)


def test_so_does_one_that_would_have_been_forwarded_and_is_not() -> None:
    """Nobody else will tell of it: it ends here, with 200 and in the stream receipt."""
    foreign = "http://machine3/msmq/private$/ledger"
    receiver = Playbook(
        replace(REFUSE, forwarding=Forwarding(store_and_forward=True, allows=lambda url: True))
    ).receiver
    late = stream_message(1, time_to_reach_queue=PAST, dead_letter=True, destination=foreign)
    outcome = receiver.receive(late, ARRIVAL, 0.0)
    assert isinstance(outcome, Repeated)
    assert (outcome.kind, outcome.queue) == ("expired", FORWARD_QUEUE)
    assert outcome.discarded is not None
    assert (outcome.discarded.final_to, outcome.discarded.position) == (RECEIPTS_URL, 1)
    again = receiver.receive(
        late._replace(stream=stream_message(1, stream=STREAM + 1).stream), ARRIVAL, 1.0
    )
    assert isinstance(again, Repeated)
    assert again.moved is not None, "it is told where it stands now"
    timely = stream_message(2, stream=STREAM + 1, dead_letter=True, destination=foreign)
    refused = receiver.receive(timely, ARRIVAL, 2.0)
    assert isinstance(refused, Refused)
    assert refused.reason == "unforwardable", "who would tell of it, when it has arrived?"


def test_what_was_discarded_and_comes_again_in_another_stream_is_told_there_and_not_decided_anew() -> (
    None
):
    receiver = Playbook(REFUSE).receiver
    assert isinstance(
        receiver.receive(
            stream_message(1, time_to_reach_queue=PAST, dead_letter=True), ARRIVAL, 0.0
        ),
        Repeated,
    )
    again = stream_message(
        1, stream=STREAM + 1, uniquifier=101, time_to_reach_queue=PAST, dead_letter=True
    )
    repeat = receiver.receive(again, ARRIVAL, 1.0)
    assert isinstance(repeat, Repeated)
    assert (repeat.kind, repeat.discarded) == ("identifier", None)
    assert repeat.moved is not None
    assert repeat.moved.stream_id == StreamId(SENDER, STREAM + 1)


def test_what_was_accepted_in_time_is_not_discarded_when_it_comes_again_in_another_stream() -> None:
    """One message, one end: its row is in the queue, so nobody is told that it came too late."""
    receiver = Playbook(REFUSE).receiver
    accepted = receiver.receive(
        stream_message(1, time_to_reach_queue=FUTURE, dead_letter=True), ARRIVAL, 0.0
    )
    assert isinstance(accepted, Accepted)
    again = stream_message(
        1, stream=STREAM + 1, uniquifier=101, time_to_reach_queue=PAST, dead_letter=True
    )
    repeat = receiver.receive(again, ARRIVAL, 1.0)
    assert isinstance(repeat, Repeated)
    assert (repeat.kind, repeat.discarded) == ("identifier", None)
    assert repeat.mark is not None
