"""The source role of WS-ReliableMessaging: numbers, resends, acknowledgements that count and those that do not, the end."""

from __future__ import annotations

from itertools import product

import pytest
from roles_kit import NEW, OLD, THERE, Queue, Versions
from test_mswsrvcrm_3_2 import Sender
from wsrm_kit import IDS, VERSIONS

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import (
    Blame,
    CloseSequence,
    CloseSequenceResponse,
    CreateSequence,
    CreateSequenceResponse,
    SequenceAcknowledgement,
    SoapFault,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.faults import FaultCode, fault_of
from srmp_spark.wsrm.codec.namespaces import RmVersion
from srmp_spark.wsrm.limits import NUMBER_MAX, WINDOW_MAX
from srmp_spark.wsrm.receiving.destination_effects import Respond
from srmp_spark.wsrm.sending.source import RmSource
from srmp_spark.wsrm.sending.source_effects import (
    Acknowledged,
    Control,
    RmSourceSettings,
    SequenceEnded,
    SequenceOpened,
    Suspicious,
    Transmit,
)
from srmp_spark.wsrm.sending.source_states import OVER, TRANSITIONS, RmSourceEvent, RmSourceState

BOTH = pytest.mark.parametrize("versions", [OLD, NEW], ids=["1.0", "1.1"])


def again(sender: Sender) -> list[int]:
    """Numbers that leave now once more; each asks for an acknowledgement."""
    found = [each for each in sender.poll() if isinstance(each, Transmit) and each.is_again]
    assert all(each.ack_requested for each in found)
    return [each.number for each in found]


# --- both roles together ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", VERSIONS, ids=IDS)
def test_our_source_and_our_destination_in_every_version(versions: Versions) -> None:
    queue, sender = Queue(2, versions), Sender(versions)
    sender.source.enqueue(5)
    sender.source.end(sender.now)
    for _ in range(200):
        for output in sender.source.poll(sender.now):
            if isinstance(output, Transmit):
                sent = sender.source.envelope(output, "urn:a", b"<x/>", f"urn:uuid:{output.number}")
            else:
                sent = output.message
            for answer in queue.say(sent):
                assert isinstance(answer, Respond)
                if answer.message is not None:
                    sender.source.received(decode(encode(answer.message)), sender.now)
        if sender.source.state is RmSourceState.TERMINATED and sender.source.next_timer() is None:
            break
        sender.now += 1.0
        room = queue.destination.flow.get_buffer_remaining()
        queue.destination.set_room(room + 1)
    assert sender.source.state is RmSourceState.TERMINATED
    assert queue.numbers == [1, 2, 3, 4, 5]


# --- creating ---------------------------------------------------------------------------------------------------------------


@BOTH
def test_create_sequence_is_repeated_under_one_message_id_until_it_is_answered(
    versions: Versions,
) -> None:
    sender = Sender(versions, resend_first=2.0, resend_last=60.0)
    sender.source.enqueue(1)
    sent = []
    for _ in range(70):
        for output in sender.poll():
            assert isinstance(output, Control)
            assert isinstance(output.message.content, CreateSequence)
            sent.append((sender.now - 1000.0, output.message.message_id))
        sender.now += 1.0
    assert sent == [(at, "urn:uuid:c") for at in (0.0, 2.0, 6.0, 14.0, 30.0, 62.0)]
    assert (
        sender.heard(content=CreateSequenceResponse("urn:else"), relates_to="urn:uuid:other") == []
    )
    assert sender.heard(content=CreateSequenceResponse("urn:s"), relates_to="urn:uuid:c") == [
        SequenceOpened("urn:s")
    ]
    assert sender.heard(content=CreateSequenceResponse("urn:twice"), relates_to="urn:uuid:c") == []
    assert sender.source.identifier == "urn:s"
    assert sender.new() == [1]


def test_a_refused_create_sequence_ends_it() -> None:
    sender = Sender()
    fault = fault_of(FaultCode.CREATE_SEQUENCE_REFUSED, NEW[2])
    assert sender.heard(content=fault, relates_to="urn:uuid:other") == []
    assert sender.heard(content=fault, relates_to="urn:uuid:c") == [SequenceEnded(fault)]
    assert sender.source.state is RmSourceState.FAILED
    with pytest.raises(LocalProtocolError, match="begin a new one"):
        sender.source.enqueue()


def test_acknowledgements_go_where_the_settings_say() -> None:
    sender = Sender(acks_to=THERE)
    (created,) = sender.poll()
    assert isinstance(created, Control)
    assert created.message.content == CreateSequence(THERE)
    assert created.message.reply_to == THERE


# --- messages ---------------------------------------------------------------------------------------------------------------


def test_numbers_begin_with_1_and_the_window_bounds_what_is_on_its_way() -> None:
    sender = Sender(window=3).open()
    assert sender.source.enqueue(2) == (1, 2)
    assert sender.source.enqueue(3) == (3, 5)
    assert sender.new() == [1, 2, 3]
    assert sender.new() == []
    sender.ack(1)
    assert sender.new() == [4]


def test_the_last_one_that_may_leave_asks_for_an_acknowledgement() -> None:
    sender = Sender(window=3).open(5)
    assert [each.ack_requested for each in sender.poll() if isinstance(each, Transmit)] == [
        False,
        False,
        True,
    ]
    sender = Sender().open(2)
    assert [each.ack_requested for each in sender.poll() if isinstance(each, Transmit)] == [
        False,
        True,
    ]


def test_what_is_not_acknowledged_goes_again_with_growing_pauses_and_asks() -> None:
    """Metro tells each acknowledgement once, CXF answers only a message: a resend that asks satisfies both."""
    sender = Sender(resend_first=1.0, resend_last=8.0).open(2)
    assert sender.new() == [1, 2]
    sender.ack(1)
    times = []
    for _ in range(40):
        sender.now += 1.0
        times += [(sender.now - 1000.0, number) for number in again(sender)]
    assert times == [(float(at), 2) for at in (1, 3, 7, 15, 23, 31, 39)]


def test_the_same_number_is_the_same_message() -> None:
    sender = Sender().open(1)
    first, second = Transmit(1, False, False, False), Transmit(1, True, False, True)
    one, two = (
        sender.source.envelope(each, "urn:a", b"<x/>", "urn:uuid:1") for each in (first, second)
    )
    assert (one.body, one.message_id, one.action, one.sequence) == (
        two.body,
        two.message_id,
        two.action,
        two.sequence,
    )


def test_a_nack_asks_for_its_numbers_now() -> None:
    sender = Sender(resend_first=50.0).open(4)
    sender.new()
    sender.heard(
        acknowledgements=(SequenceAcknowledgement("urn:s", (), (2, 4), buffer_remaining=9),)
    )
    assert again(sender) == [2, 4]
    assert sender.source.polling.buffer_remaining == 9
    sender.ack(4)
    sender.heard(acknowledgements=(SequenceAcknowledgement("urn:s", (), (2,), buffer_remaining=0),))
    assert again(sender) == []  # an old one
    assert sender.source.polling.buffer_remaining == 9


# --- acknowledgements -------------------------------------------------------------------------------------------------------


def test_an_acknowledgement_tells_what_is_new_in_it() -> None:
    sender = Sender().open(9)
    sender.new()
    assert sender.ack(2) == [Acknowledged(((1, 2),))]
    assert sender.ack(2) == []
    ranges = ((1, 3), (5, 5), (7, 8))
    assert sender.heard(acknowledgements=(SequenceAcknowledgement("urn:s", ranges),)) == [
        Acknowledged(((3, 3), (5, 5), (7, 8)))
    ]
    assert list(sender.source.in_flight) == [(4, 4), (6, 6), (9, 9)]
    assert sender.ack(9) == [Acknowledged(((4, 4), (6, 6), (9, 9)))]


@pytest.mark.parametrize(
    "ack",
    [
        SequenceAcknowledgement("urn:s", ((1, 6),), buffer_remaining=0),
        SequenceAcknowledgement("urn:s", (), (6,), buffer_remaining=0),
        SequenceAcknowledgement("urn:s", ((1, 1), (4, 4)), buffer_remaining=0),
    ],
    ids=["never sent", "a Nack for what was never sent", "takes back 2 and adds 4"],
)
def test_nothing_is_finished_on_the_word_of_an_invalid_acknowledgement(
    ack: SequenceAcknowledgement,
) -> None:
    """WS-ReliableMessaging 4: InvalidAcknowledgement."""
    sender = Sender().open(5)
    sender.new()
    sender.ack(2, 4)
    before = sender.source.row()
    (told,) = sender.heard(acknowledgements=(ack,))
    assert isinstance(told, Suspicious)
    assert told.reason.startswith("InvalidAcknowledgement")
    assert sender.source.row() == before


def test_an_acknowledgement_of_another_sequence_is_not_ours() -> None:
    sender = Sender().open(1)
    sender.new()
    assert (
        sender.heard(
            acknowledgements=(SequenceAcknowledgement("urn:else", ((1, 1),), buffer_remaining=0),)
        )
        == []
    )
    assert len(sender.source.in_flight) == 1


# --- the end ----------------------------------------------------------------------------------------------------------------


def test_1_0_ends_with_a_last_message_and_one_way() -> None:
    sender = Sender(OLD).open(2)
    sender.new()
    sender.source.end(sender.now)
    (last,) = [each for each in sender.poll() if isinstance(each, Transmit)]
    assert last == Transmit(3, True, True, False)
    envelope = sender.source.envelope(last, "urn:a", b"<x/>", "urn:uuid:3")
    assert (envelope.action, envelope.body) == (RmVersion.V1_0.action("LastMessage"), b"")
    assert envelope.sequence is not None
    assert envelope.sequence.is_last
    assert sender.ack(2) == [Acknowledged(((1, 2),))]
    assert sender.source.state is RmSourceState.ENDING
    assert sender.ack(3) == [Acknowledged(((3, 3),)), SequenceEnded(None)]
    (terminate,) = sender.poll()
    assert isinstance(terminate, Control)
    assert terminate.message.content == TerminateSequence("urn:s")
    assert terminate.message.reply_to is None
    assert sender.poll() == []
    assert sender.source.next_timer() is None


def test_1_1_closes_and_terminates_each_until_it_is_answered() -> None:
    """LastMsgNumber is the same in both (WCF's R1302)."""
    sender = Sender(resend_first=2.0).open(2)
    sender.new()
    sender.source.end(sender.now)
    assert sender.poll() == []
    sender.ack(2)
    for content, answer in (
        (CloseSequence("urn:s", 2), CloseSequenceResponse("urn:s")),
        (TerminateSequence("urn:s", 2), TerminateSequenceResponse("urn:s")),
    ):
        for _ in range(3):
            (sent,) = sender.poll()
            assert isinstance(sent, Control)
            assert sent.message.content == content
            assert sender.poll() == []
            sender.now += 60.0
        events = sender.heard(content=answer)
    assert events == [SequenceEnded(None)]
    assert sender.source.state is RmSourceState.TERMINATED
    assert sender.heard(content=CloseSequenceResponse("urn:s")) == []
    assert sender.heard(content=TerminateSequenceResponse("urn:s")) == []


@BOTH
def test_the_end_waits_for_all_that_waits(versions: Versions) -> None:
    sender = Sender(versions, window=1)
    sender.source.enqueue(2)
    sender.source.end(sender.now)
    with pytest.raises(LocalProtocolError, match="takes no more messages"):
        sender.source.enqueue()
    sender.open()
    assert sender.new() == [1]
    sender.ack(1, 0)
    assert sender.source.state is RmSourceState.ENDING
    sender.ack(1, 5)
    assert sender.new() == [2]


@BOTH
def test_a_sequence_without_messages_ends_too(versions: Versions) -> None:
    sender = Sender(versions).open()
    events = sender.source.end(sender.now)
    (sent,) = sender.poll()
    assert isinstance(sent, Control)
    if versions is OLD:
        assert events == [SequenceEnded(None)]
        assert sent.message.content == TerminateSequence("urn:s")
    else:
        assert sent.message.content == CloseSequence("urn:s", None)


@pytest.mark.parametrize(
    "code", [FaultCode.UNKNOWN_SEQUENCE, FaultCode.SEQUENCE_TERMINATED, FaultCode.SEQUENCE_CLOSED]
)
def test_a_fault_about_the_sequence_ends_it_and_what_is_on_its_way_is_in_doubt(
    code: FaultCode,
) -> None:
    sender = Sender().open(3)
    sender.new()
    sender.ack(1)
    assert sender.heard(content=fault_of(code, NEW[2], "urn:else")) == []
    fault = fault_of(code, NEW[2], "urn:s")
    assert sender.heard(content=fault) == [SequenceEnded(fault)]
    assert list(sender.source.in_flight) == [(2, 3)]
    assert sender.source.next_timer() is None
    assert sender.poll() == []
    assert sender.heard(content=fault) == []


def test_a_peer_that_forgot_a_sequence_that_is_done_has_done_what_we_wanted() -> None:
    sender = Sender().open(1)
    sender.new()
    sender.source.end(sender.now)
    sender.ack(1)
    assert sender.heard(content=fault_of(FaultCode.UNKNOWN_SEQUENCE, NEW[2], "urn:s")) == [
        SequenceEnded(None)
    ]
    assert sender.source.state is RmSourceState.TERMINATED


def test_an_application_fault_is_no_fault_about_the_sequence() -> None:
    sender = Sender().open(1)
    sender.new()
    assert sender.heard(content=SoapFault(Blame.RECEIVER, "", "out of stock")) == []
    assert sender.source.state is RmSourceState.OPEN


# --- the table, restarts, limits --------------------------------------------------------------------------------------------


def test_the_table_knows_every_pair_that_can_happen() -> None:
    absent = set(product(RmSourceState, RmSourceEvent)) - set(TRANSITIONS)
    ends = (
        RmSourceEvent.END,
        RmSourceEvent.ALL_ACKNOWLEDGED,
        RmSourceEvent.ALL_ACKNOWLEDGED_1_0,
    )  # we alone make these happen
    assert absent == set(product(RmSourceState, ends)) - {
        (RmSourceState.OPEN, RmSourceEvent.END), (RmSourceState.ENDING, RmSourceEvent.ALL_ACKNOWLEDGED),
        (RmSourceState.ENDING, RmSourceEvent.ALL_ACKNOWLEDGED_1_0),
    }  # fmt: skip
    assert all(TRANSITIONS[state, event] in OVER for state, event in TRANSITIONS if state in OVER)


@BOTH
def test_a_restart_in_any_state(versions: Versions) -> None:
    """What the row says goes on: what was on its way goes again, control messages are repeated under their identifiers."""

    def restarted(sender: Sender) -> list[str]:
        row = sender.source.row()
        sender.source = RmSource.restored(sender.settings, row, sender.now)
        assert sender.source.row() == row
        outputs = sender.poll()
        return [
            f"again {each.number}"
            if isinstance(each, Transmit)
            else type(each.message.content).__name__
            for each in outputs
        ]

    sender = Sender(versions)
    assert restarted(sender) == ["CreateSequence"]
    sender.open(3)
    sender.new()
    assert restarted(sender) == ["again 1", "again 2", "again 3"]
    sender.ack(2)
    assert restarted(sender) == ["again 3"]
    sender.source.end(sender.now)
    if versions is NEW:
        assert restarted(sender) == ["again 3"]
        sender.ack(3)
        assert restarted(sender) == ["CloseSequence"]
        sender.heard(content=CloseSequenceResponse("urn:s"))
        assert restarted(sender) == ["TerminateSequence"]
        sender.heard(content=TerminateSequenceResponse("urn:s"))
    else:
        assert restarted(sender) == ["again 3", "again 4"]
        sender.ack(4)
    assert restarted(sender) == []
    assert sender.source.state is RmSourceState.TERMINATED


def test_limits() -> None:
    for window in (0, WINDOW_MAX + 1):
        with pytest.raises(ValueError, match="window"):
            RmSourceSettings(to="http://h/", window=window)
    sender = Sender().open()
    with pytest.raises(LocalProtocolError, match="MessageNumberRollover"):
        sender.source.enqueue(NUMBER_MAX)
    assert repr(sender.source).startswith(
        "<Source urn:s OPEN sent=0/0 in_flight=0 <Polling NOT_POLLING -1"
    )


def test_progress_ends_the_long_pauses() -> None:
    """The simulator found it: a peer that was away for minutes took one message a minute when it was back."""
    sender = Sender(resend_first=1.0, resend_last=60.0).open(3)
    sender.new()
    for _ in range(70):
        sender.now += 1.0
        sender.poll()
    sender.ack(1)
    sender.now += 1.0
    assert again(sender) == [2, 3]
    assert again(sender) == []


# --- for who sends one after the other, and reads its messages from a store -------------------------------------------------


def test_one_new_message_at_a_time_as_its_answer_may_say_that_there_is_no_room() -> None:
    sender = Sender().open(5)

    def numbers() -> list[int]:
        return [
            each.number
            for each in sender.source.poll(sender.now, new_max=1)
            if isinstance(each, Transmit)
        ]

    assert numbers() == [1]
    sender.ack(1, 0)
    assert numbers() == []
    sender.ack(1, 1)
    assert numbers() == [2]


def test_a_message_that_is_not_at_hand_waits_and_so_do_the_new_ones_behind_it() -> None:
    sender = Sender().open(3)
    assert [
        each.number
        for each in sender.source.poll(sender.now, lambda number: number != 2)
        if isinstance(each, Transmit)
    ] == [1]
    sender.now += 60
    assert sender.source.poll(sender.now, lambda number: False) == []
    sender.source.resend(1, sender.now)
    assert sorted(again(sender)) == [1]


def test_room_is_what_may_get_a_number_and_leave_at_once() -> None:
    sender = Sender(window=8).open()
    assert sender.source.room == 8
    sender.source.enqueue(3)
    assert sender.source.room == 5
    sender.poll()
    sender.ack(1, 4)
    assert sender.source.room == 2  # of four two are taken
    sender.ack(3, 0)
    assert sender.source.room == 0


@BOTH
def test_after_a_restart_what_may_not_have_left_goes_where_there_is_room(
    versions: Versions,
) -> None:
    sender = Sender(versions).open(6)
    sender.poll()
    sender.ack(1, 5)
    row = sender.source.row()
    sender.source = RmSource.restored(sender.settings, row._replace(buffer_remaining=2), sender.now)
    assert again(sender) == [2, 3]
    sender.ack(3, 1)
    assert again(sender) == [4]


@BOTH
def test_after_a_restart_at_0_it_asks_first_and_then_the_lowest_number_alone_goes(
    versions: Versions,
) -> None:
    """The room may be full of what is behind a gap, and the lowest number is the gap."""
    sender = Sender(versions).open(4)
    sender.poll()
    sender.ack(1, 0)
    sender.source = RmSource.restored(sender.settings, sender.source.row(), sender.now)
    (asked,) = sender.poll()
    assert isinstance(asked, Control)
    assert asked.message.action.endswith("/AckRequested")
    sender.ack(1, 0)
    assert again(sender) == []
    sender.now += 2.0
    assert again(sender) == [2]
    sender.ack(2, 2)
    assert again(sender) == [3, 4]
