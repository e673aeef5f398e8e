"""The table of an outgoing queue's states, every pair allowed or refused; the settings; the numbers of streams."""

from __future__ import annotations

import itertools
import re

import pytest

from srmp_spark.canonical_url import canonical_destination
from srmp_spark.errors import ConfigurationError, LocalProtocolError
from srmp_spark.names import split_url
from srmp_spark.srmp.limits import SEQUENCE_NUMBER_MAX
from srmp_spark.srmp.sending.outgoing_ledger import STREAM_STAMP_MAX, OutgoingLedger
from srmp_spark.srmp.sending.outgoing_states import (
    IN_FLIGHT_MAX,
    TRANSITIONS,
    OutgoingState,
    QueueEvent,
    SenderSettings,
)
from srmp_spark.srmp.sending.sender import ENQUEUE_MAX, RECORDS_MAX, Sender
from tests.kit.sending_playbook import (
    DESTINATION,
    IDENTITY,
    RECEIPTS_URL,
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


@pytest.mark.parametrize(
    ("state", "event"),
    [*itertools.product(OutgoingState, QueueEvent)],
    ids=lambda member: member.name,
)
def test_every_pair_is_in_the_table_or_refused(state: OutgoingState, event: QueueEvent) -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(1) << sends(1, start=True)
    (queue,) = playbook.sender
    queue.state = state
    if (state, event) in TRANSITIONS:
        queue.move(event)
        assert queue.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(
            LocalProtocolError,
            match=f"{event.name} cannot happen to <OutgoingStream .* {state.value}",
        ):
            queue.move(event)


def test_every_state_can_be_reached_and_left() -> None:
    assert set(TRANSITIONS.values()) == set(OutgoingState)
    assert {state for (state, _), target in TRANSITIONS.items() if target is not state} == set(
        OutgoingState
    )


def test_nothing_leaves_from_a_queue_that_waits_or_is_paused() -> None:
    assert (OutgoingState.INACTIVE, QueueEvent.SEND) not in TRANSITIONS
    assert (OutgoingState.ON_HOLD, QueueEvent.SEND) not in TRANSITIONS


@pytest.mark.parametrize(
    "wrong",
    [
        {"retransmission_timeout": 0.0},
        {"in_flight_max": 0},
        {"in_flight_max": IN_FLIGHT_MAX + 1},
        {"unacknowledged_max": 0},
        {"stream_length_max": 1},
        {"stream_length_max": SEQUENCE_NUMBER_MAX + 1},
        {"final_receipt_wait": 0.0},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        SenderSettings(**wrong)  # type: ignore[arg-type]  # that is the test


def test_a_stream_ordinal_always_grows() -> None:
    ledger = OutgoingLedger()
    last = 0
    for at_s in (1_780_000_000, 1_780_000_000, 5, -7, 2**40, 1_780_000_001):
        ordinal = ledger.new_stream_ordinal(at_s * 1_000_000)
        assert last < ordinal < 2**64
        last = ordinal
    assert last >> 32 == STREAM_STAMP_MAX


def test_a_lost_disk_does_not_bring_old_ordinals_back() -> None:
    """The counter begins anew, the time stamp does not."""
    old = OutgoingLedger()
    for _ in range(1000):
        old.new_stream_ordinal(1_780_000_000_000_000)
    assert OutgoingLedger().new_stream_ordinal(1_780_000_001_000_000) > old.last_stream_ordinal


def test_the_limits_of_enqueue() -> None:
    sender = Sender(IDENTITY)
    for count in (0, -1, ENQUEUE_MAX + 1):
        with pytest.raises(ConfigurationError, match="ENQUEUE_MAX"):
            sender.enqueue(DESTINATION, "plain", count, 0)
    with pytest.raises(LocalProtocolError, match="address for its receipts"):
        sender.enqueue(DESTINATION, "stream", 1, 0)
    for number in range(len(sender), RECORDS_MAX):
        sender.enqueue(f"http://machine{number}/msmq/q", "plain", 1, 0)
    with pytest.raises(ConfigurationError, match="RECORDS_MAX"):
        sender.enqueue("http://one-more/msmq/q", "plain", 1, 0)
    sender.enqueue("http://machine7/msmq/q", "plain", 1, 0)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("http://Machine2/msmq/private$/Orders", "http://machine2/msmq/private$/orders"),
        ("DIRECT=http://machine2/MSMQ\\private$\\orders", "http://machine2/msmq/private$/orders"),
        ("direct=HTTP://machine2:80/msmq/q", "http://machine2/msmq/q"),
        ("https://machine2:443/msmq/q", "https://machine2/msmq/q"),
        ("https://machine2:80/msmq/q", "https://machine2:80/msmq/q"),
        ("http://[::1]:1801/msmq/q", "http://[::1]:1801/msmq/q"),
        ("http://machine2/Other/Path?X=y", "http://machine2/Other/Path?X=y"),
        ("http://machine2/msmq/private%24/q", "http://machine2/msmq/private$/q"),
        ("http://machine2/%6dsmq/q", "http://machine2/msmq/q"),
        ("http://machine2/msmq/private$/%51", "http://machine2/msmq/private$/q"),
        ("http://machine2/msmq/my%20queue", "http://machine2/msmq/my queue"),
        ("http://machine2/msmq/%C3%89t%c3%a9", "http://machine2/msmq/été"),
        ("http://machine2/msmq/100%25%3F%23", "http://machine2/msmq/100%25%3f%23"),
        ("http://machine2/msmq/100%", "http://machine2/msmq/100%25"),
        ("http://machine2/msmq/q ", "http://machine2/msmq/q%20"),
        ("http://machine2/O%74her/a%2fb%c3%89 c", "http://machine2/Other/a%2Fb%C3%89%20c"),
    ],
)
def test_one_queue_has_one_spelling(written: str, canonical: str) -> None:
    assert canonical_destination(written) == canonical
    assert canonical_destination(canonical) == canonical
    assert re.fullmatch("[!-~]+", split_url(canonical).request_target)


@pytest.mark.parametrize(
    "wrong",
    [
        "", "private$/orders", "ftp://machine2/msmq/q", "http://a@b/msmq/q", "DIRECT=OS:machine2\\q", "http://machine2",
        "http://machine2/", "http://machine2/msmq/", "http://machine2/msmq", "http://machine2/msmq/..",
        "http://machine2/msmq/a%2fb", "http://machine2/msmq/a%5Cb", "http://machine2/msmq/%2e%2e", "http://machine2/msmq/q%00",
        "http://machine2/other/q%00", "http://machine2/msmq/q%01", "http://machine2/msmq/%ff", f"http://{'a' * 64}.de/msmq/q",
        f"http://{'a.' * 127}de/msmq/q", "http://größe/msmq/q",
    ],
)  # fmt: skip
def test_what_is_no_destination(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="not a destination"):
        canonical_destination(wrong)


def test_reprs_say_all() -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(2) << sends(1, start=True)
    (queue,) = playbook.sender
    ordinal = playbook.ordinals[0]
    assert repr(playbook.sender) == f"<Sender {IDENTITY} queues=1 unsaved=0 stored=1>"
    assert (
        repr(playbook.under_way[0])
        == f"<Send {DESTINATION} #1 uid:{IDENTITY}\\{ordinal}@1 previous=0>"
    )
    assert repr(queue) == (
        f"<OutgoingStream {DESTINATION} Waiting acknowledged_to=0 cursor=1 released_to=1 "
        "end=2 in_flight=1 "
        f"uid:{IDENTITY}\\{ordinal} base=0 finals=0>"
    )
    assert RECEIPTS_URL not in repr(queue)


@pytest.mark.parametrize(
    ("status", "doubtful"), [(503, set()), (500, {2}), (400, set()), (None, {2})]
)
def test_what_never_left_is_not_in_doubt_whatever_became_of_the_one_before_it(
    status: int | None, doubtful: set[int]
) -> None:
    playbook = SendingPlaybook(SenderSettings(in_flight_max=2))
    assert playbook >> enqueue(4) << sends(1, start=True) >> answer(200) << sends(2) << sends(3)
    (queue,) = playbook.sender
    second, third = playbook.under_way
    queue.never_left(third)
    if status is None:
        playbook.sender.failed(second, 0.0, left=True)
    else:
        playbook.sender.answered(second, status, 0.0, 0)
    assert queue.doubtful == doubtful
    playbook.sender.failed(third, 0.0, left=False)
    assert queue.doubtful == doubtful
    assert queue.left_to == (1 if status == 503 else 2)
    assert not queue.unsent


MOVED_URL = "http://machine1.example/MSMQ/PRIVATE$/order_queue$"


def told(playbook: SendingPlaybook) -> str | None:
    place = playbook.under_way[-1].message.stream
    assert place is not None
    return place.send_receipts_to


def test_a_stream_that_begins_anew_tells_where_receipts_go_today() -> None:
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
    assert playbook >> restart() << sends(2, previous=1, again=True)
    (stream,) = playbook.sender.receipts_go_to(MOVED_URL)
    assert stream.receipts_url == RECEIPTS_URL, "what the peer was told when the stream began"
    reset = operator("reset", lambda sender: sender.reset(DESTINATION))
    assert playbook >> reset >> answer(200) << sends(2, position=1, start=True, again=True)
    assert told(playbook) == MOVED_URL
    assert playbook.sender.receipts_go_to(MOVED_URL) == []
    assert playbook >> restart() << sends(2, position=1, start=True, again=True)
    assert told(playbook) == MOVED_URL, "it is stored"


def test_a_start_that_goes_again_tells_where_receipts_go_today_unless_the_secret_is_another() -> (
    None
):
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(2)
        << sends(1, start=True)
        >> no_answer()
        >> restart()
        << sends(1, start=True, again=True)
    )
    (stream,) = playbook.sender.receipts_go_to(f"{MOVED_URL}?SenderStream=x")
    assert stream.receipts_url == RECEIPTS_URL
    assert playbook.sender.receipts_go_to(MOVED_URL) == []
    assert playbook >> no_answer() >> tick(60) << sends(1, start=True, again=True)
    assert told(playbook) == MOVED_URL
