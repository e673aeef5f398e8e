"""[MS-WSRVCRM] 2.2, 3.1 and 4: the destination under flow control, each event by its name."""

from __future__ import annotations

from itertools import product

import pytest
from roles_kit import NEW, OLD, THERE, Queue, Versions
from wsrm_kit import document_examples

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import ABSENT, CloseSequence, TerminateSequence
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.limits import BUFFER_REMAINING_MAX
from srmp_spark.wsrm.receiving.destination_effects import (
    DestinationSettings,
    Respond,
    SendSeparately,
)
from srmp_spark.wsrm.receiving.flow_control import (
    TRANSITIONS,
    FlowControlEvent,
    FlowControlObject,
    FlowControlState,
)

BOTH = pytest.mark.parametrize("versions", [OLD, NEW], ids=["1.0", "1.1"])


# --- the object -------------------------------------------------------------------------------------------------------------


def test_it_starts_in_flow_control_state_with_the_values_of_the_destination() -> None:
    """3.1.3; <1> and <2>: .NET's own are 8 and 4096."""
    afco = FlowControlObject()
    assert (afco.state, afco.get_buffer_remaining(), afco.maximum) == (
        FlowControlState.FLOW_CONTROL_STATE,
        8,
        4096,
    )
    afco = FlowControlObject(2, 5)
    assert (afco.get_buffer_remaining(), afco.maximum) == (2, 5)
    assert DestinationSettings().buffer == 8
    for initial, maximum in ((-1, 5), (6, 5), (0, BUFFER_REMAINING_MAX + 1)):
        with pytest.raises(LocalProtocolError, match="Buffer Remaining lies between"):
            FlowControlObject(initial, maximum)


def test_every_event_is_processed_by_the_one_state() -> None:
    """3.1.1.1."""
    assert set(TRANSITIONS) == set(product(FlowControlState, FlowControlEvent))
    assert {state for state, _ in TRANSITIONS.values()} == {FlowControlState.FLOW_CONTROL_STATE}


def test_get_buffer_remaining_returns_the_value_and_leaves_it() -> None:
    """3.1.7.1."""
    afco = FlowControlObject(3, 5)
    assert [afco.get_buffer_remaining() for _ in range(3)] == [3, 3, 3]


def test_message_received_decrements_above_0_and_not_at_it() -> None:
    """3.1.7.3."""
    afco = FlowControlObject(2, 5)
    seen = []
    for _ in range(4):
        afco.message_received()
        seen.append(afco.get_buffer_remaining())
    assert seen == [1, 0, 0, 0]


def test_set_buffer_remaining_sets_it_within_the_maximum() -> None:
    """3.1.7.4."""
    afco = FlowControlObject(2, 5)
    for value in (0, 5, 3):
        afco.set_buffer_remaining(value)
        assert afco.get_buffer_remaining() == value
    for value in (-1, 6):
        with pytest.raises(LocalProtocolError):
            afco.set_buffer_remaining(value)
    assert afco.get_buffer_remaining() == 3


def test_a_message_changes_the_value_by_triggering_set_buffer_remaining() -> None:
    """3.1.7.3: "by having the RMD trigger the SET_BUFFER_REMAINING event"."""
    triggered: list[int] = []

    class Watched(FlowControlObject):
        __slots__ = ()

        def set_buffer_remaining(self, new: int) -> None:
            triggered.append(new)
            super().set_buffer_remaining(new)

    afco = Watched(1, 2)
    for _ in range(2):
        afco.message_received()
    assert triggered == [0]


def test_the_object_is_its_model_for_every_value_and_every_event() -> None:
    """States × events, against the sentences written as arithmetic."""
    for maximum in range(1, 7):
        for value, event in product(range(maximum + 1), FlowControlEvent):
            afco = FlowControlObject(value, maximum)
            expected = {
                FlowControlEvent.GET_BUFFER_REMAINING: value,
                FlowControlEvent.MESSAGE_RECEIVED: value - 1 if value > 0 else value,
                FlowControlEvent.SET_BUFFER_REMAINING: maximum - value,
            }[event]
            if event is FlowControlEvent.SET_BUFFER_REMAINING:
                afco.set_buffer_remaining(maximum - value)
            else:
                getattr(afco, event.name.lower())()
            assert afco.get_buffer_remaining() == expected
            assert afco.state is FlowControlState.FLOW_CONTROL_STATE


# --- the object in the destination ------------------------------------------------------------------------------------------


def test_the_seven_messages_of_the_document() -> None:
    """4.1: room for two. Its values are 1, 0, 1, 0 and its ranges 1-1, 1-2, 1-2, 1-3; what we write says what it prints."""
    printed = [decode(each) for each in document_examples()]
    queue = Queue(2, OLD)
    queue.open(THERE)
    theirs = printed[0].sequence.identifier
    said: list[object] = []

    def heard(outputs: list[object]) -> None:
        for output in outputs:
            if isinstance(output, SendSeparately):
                (ack,) = output.message.acknowledgements
                said.append((ack.ranges, ack.buffer_remaining))
                assert encode(output.message).count(b"BufferRemaining") == 2

    def deliver(index: int) -> None:
        header = printed[index].sequence
        assert header is not None
        assert header.identifier == theirs
        queue.say(queue.number(header.number))
        queue.now += queue.settings.acknowledgement_interval
        heard(queue.destination.poll(queue.now, queue.utc))

    deliver(0)
    deliver(2)
    heard(queue.destination.set_room(1))  # the application comes online and processes message 1
    deliver(5)
    assert said == [(((1, 1),), 1), (((1, 2),), 0), (((1, 2),), 1), (((1, 3),), 0)]
    assert said == [
        (ack.ranges, ack.buffer_remaining) for each in printed for ack in each.acknowledgements
    ]
    assert queue.numbers == [1, 2, 3]


@BOTH
def test_every_acknowledgement_carries_buffer_remaining(versions: Versions) -> None:
    """2.2.1: MUST, in each message that has one: answers, asked for, unasked, repeated, final, beside a fault."""
    queue = Queue(3, versions)
    queue.open()
    acks = [
        *queue.answer(queue.number(1)).acknowledgements,
        *queue.answer(queue.number(1)).acknowledgements,
    ]
    acks += queue.answer(queue.ask()).acknowledgements
    if versions is NEW:
        acks += queue.answer(
            queue.of_rm("CloseSequence", CloseSequence(queue.identifier, 1))
        ).acknowledgements
        acks += queue.answer(queue.number(2)).acknowledgements  # SequenceClosed
        acks += queue.answer(queue.ask()).acknowledgements
        acks += queue.answer(
            queue.of_rm("TerminateSequence", TerminateSequence(queue.identifier, 1))
        ).acknowledgements
    assert len(acks) == (7 if versions is NEW else 3)
    assert {ack.buffer_remaining for ack in acks} == {2}
    there = Queue(3, versions)
    there.open(THERE)
    assert there.sent(there.number(1, asks=True)).message.acknowledgements[0].buffer_remaining == 2


@BOTH
def test_only_new_messages_lower_the_value(versions: Versions) -> None:
    """3.1.7.3 does not say so; a storm of copies would lower it to 0 for ever."""
    queue = Queue(5, versions)
    queue.open()
    assert queue.told(queue.number(1)) == (((1, 1),), 4)
    for _ in range(20):
        assert queue.told(queue.number(1)) == (((1, 1),), 4)
    assert queue.told(queue.number(3)) == (((1, 1),), 3)  # held behind the gap: it takes room, too
    assert queue.told(queue.number(3)) == (((1, 1),), 3)
    assert queue.told(queue.number(2)) == (((1, 3),), 2)


@BOTH
def test_at_0_what_comes_all_the_same_is_taken(versions: Versions) -> None:
    """CXF and Metro do not know the element and go on: the value asks, it does not refuse."""
    queue = Queue(1, versions)
    queue.open()
    assert queue.told(queue.number(1)) == (((1, 1),), 0)
    assert queue.told(queue.number(2)) == (((1, 2),), 0)
    assert queue.numbers == [1, 2]


def test_the_room_of_the_queue_sets_the_value() -> None:
    """3.1.7.4: the higher layer's flow control. What is held behind a gap needs room as well."""
    queue = Queue(8)
    queue.open()
    assert queue.destination.set_room(3) == []
    assert queue.told(queue.ask()) == ((), 3)
    queue.destination.set_room(1_000_000)
    assert queue.told(queue.ask()) == ((), 8)
    queue.say(queue.number(2))
    queue.destination.set_room(3)
    assert queue.told(queue.ask()) == ((), 2)
    queue.destination.set_room(0)
    assert queue.told(queue.ask()) == ((), 0)


def test_when_room_returns_an_acknowledgement_goes_out_unasked() -> None:
    """Figure 1, message 5; once, and only to those who were told 0."""
    queue = Queue(1)
    queue.open(THERE)
    assert queue.sent(queue.number(1, asks=True)).message.acknowledgements[0].buffer_remaining == 0
    assert queue.destination.set_room(0) == []
    (send,) = queue.destination.set_room(1)
    assert isinstance(send, SendSeparately)
    assert send.endpoint == THERE
    assert (
        send.message.acknowledgements[0].ranges,
        send.message.acknowledgements[0].buffer_remaining,
    ) == (((1, 1),), 1)
    assert queue.destination.set_room(1) == []
    anonymous = Queue(1)
    anonymous.open()
    assert anonymous.told(anonymous.number(1)) == (((1, 1),), 0)
    assert anonymous.destination.set_room(1) == []
    assert anonymous.told(anonymous.ask()) == (((1, 1),), 1)  # it polls


def test_two_sequences_of_a_queue_share_its_room() -> None:
    queue = Queue(4)
    first = queue.open()
    queue.open(message_id="urn:m2")
    assert queue.told(queue.number(1)) == (((1, 1),), 3)
    queue.identifier = first
    assert queue.told(queue.number(1)) == (((1, 1),), 2)


def test_an_acknowledgement_before_anything_arrived_carries_it_too() -> None:
    for versions in (OLD, NEW):
        queue = Queue(8, versions)
        queue.open()
        ack = queue.ack_of(queue.ask())
        assert (ack.ranges, ack.buffer_remaining) == ((), 8)
        assert ack.buffer_remaining != ABSENT
        assert queue.say(queue.of_rm("SequenceAcknowledgement")) == [Respond(None)]
