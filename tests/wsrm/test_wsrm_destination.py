"""The destination role of WS-ReliableMessaging: once, in order, acknowledged when stored; each state and event."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from roles_kit import NEW, OLD, THERE, UTC, Queue, Versions
from wsrm_kit import IDS, VERSIONS, sample, wcf_trace

from srmp_spark.errors import LocalProtocolError
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import (
    AckRequested,
    Blame,
    CloseSequence,
    CloseSequenceResponse,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    MakeConnection,
    Sequence,
    SequenceAcknowledgement,
    SoapFault,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.faults import FaultCode, code_of
from srmp_spark.wsrm.codec.namespaces import MAKE_CONNECTION_ANONYMOUS, RmVersion
from srmp_spark.wsrm.receiving.destination import RmDestination
from srmp_spark.wsrm.receiving.destination_effects import (
    DestinationSettings,
    Durable,
    Respond,
    SendSeparately,
)
from srmp_spark.wsrm.receiving.inbound_sequence import size_of
from srmp_spark.wsrm.receiving.inbound_states import (
    TRANSITIONS,
    InboundEvent,
    InboundState,
    Reaction,
)

BOTH = pytest.mark.parametrize("versions", [OLD, NEW], ids=["1.0", "1.1"])
POLLED = EndpointReference(f"{MAKE_CONNECTION_ANONYMOUS}890cb1ba-0abc-4ca4-9ef2-039d28437414")


# --- once, in order, acknowledged when stored -------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", VERSIONS, ids=IDS)
def test_a_whole_sequence_in_every_version(versions: Versions) -> None:
    queue = Queue(8, versions)
    queue.open()
    assert [queue.ack_of(queue.number(n)).ranges for n in (1, 2, 3)] == [
        ((1, 1),),
        ((1, 2),),
        ((1, 3),),
    ]
    if versions[2] is RmVersion.V1_0:
        last = replace(
            queue.number(4, is_last=True), action=RmVersion.V1_0.action("LastMessage"), body=b""
        )
        assert queue.ack_of(last).ranges == ((1, 4),)
        assert queue.say(queue.of_rm("TerminateSequence", TerminateSequence(queue.identifier))) == [
            Respond(None)
        ]
    else:
        closed = queue.answer(
            queue.of_rm("CloseSequence", CloseSequence(queue.identifier, 3), message_id="urn:m7")
        )
        assert (closed.content, closed.relates_to) == (
            CloseSequenceResponse(queue.identifier),
            "urn:m7",
        )
        assert closed.acknowledgements[0].is_final
        over = queue.answer(
            queue.of_rm("TerminateSequence", TerminateSequence(queue.identifier, 3))
        )
        assert over.content == TerminateSequenceResponse(queue.identifier)
    assert queue.numbers == [1, 2, 3]
    assert [each.message.body for each in queue.delivered] == [
        b"<n>1</n>",
        b"<n>2</n>",
        b"<n>3</n>",
    ]
    assert [each.payload for each in queue.delivered] == ["post"] * 3


@BOTH
def test_a_message_behind_a_gap_waits_unacknowledged_and_its_answer_does_not(
    versions: Versions,
) -> None:
    """CXF's only resend thread waits for the answer of the early one while the missing one is due: never hold it."""
    queue = Queue(8, versions)
    queue.open()
    assert queue.ack_of(queue.number(3)).ranges == ()
    assert queue.ack_of(queue.number(2)).ranges == ()
    assert queue.numbers == []
    assert queue.ack_of(queue.number(1)).ranges == ((1, 3),)
    assert queue.numbers == [1, 2, 3]


def test_what_is_held_is_bounded_in_number_and_bytes() -> None:
    for setting in ("held_max", "held_bytes_max", "held_total_max"):
        opened = Queue()
        opened.open()
        cost = 1 if setting == "held_max" else size_of(decode(encode(opened.number(2))))
        queue = Queue(8, **{setting: 2 * cost})
        queue.open()
        for number in (2, 3, 4):
            queue.say(queue.number(number))
        assert queue.ack_of(queue.number(1)).ranges == ((1, 3),)
        assert queue.ack_of(queue.number(4)).ranges == ((1, 4),)  # it came again
        assert queue.numbers == [1, 2, 3, 4]


@BOTH
def test_nothing_is_acknowledged_before_it_is_stored(versions: Versions) -> None:
    """By the proof of a sync, and by nothing else."""
    queue = Queue(8, versions)
    queue.open()
    first = queue.receive(queue.number(1))
    assert [each.number for each in first.deliveries] == [1]
    with pytest.raises(LocalProtocolError, match="newer than the changes"):
        queue.destination.committed([first], Committed(queue.position), queue.now)
    repeated, asked = queue.receive(queue.number(1)), queue.receive(queue.ask())
    assert repeated.deliveries == asked.deliveries == ()
    assert repeated.generation == asked.generation == first.generation
    (outputs, *_) = queue.commit(first, repeated, asked)
    assert outputs[0].message.acknowledgements[0].ranges == ((1, 1),)
    for no_proof in (None, 5, True):
        with pytest.raises(LocalProtocolError, match="needs the store's proof"):
            Durable(1, no_proof)  # type: ignore[arg-type]  # that is the test
        with pytest.raises(LocalProtocolError, match="proves no commit"):
            queue.destination.committed([], no_proof, queue.now)  # type: ignore[arg-type]
    queue.position = 0
    with pytest.raises(LocalProtocolError, match="proves no commit after"):
        queue.destination.committed([], Committed(0), queue.now)


@BOTH
def test_an_acknowledgement_names_what_is_stored_and_not_what_was_only_decided(
    versions: Versions,
) -> None:
    queue = Queue(8, versions)
    queue.open()
    queue.say(queue.number(1))
    asked = queue.receive(queue.ask())  # before 2 comes
    queue.receive(queue.number(2))
    (outputs,) = queue.destination.committed([asked], Committed(queue.position), queue.now)
    assert outputs[0].message.acknowledgements[0].ranges == ((1, 1),)


@BOTH
def test_after_a_crash_what_was_acknowledged_is_there_and_the_rest_comes_again(
    versions: Versions,
) -> None:
    queue = Queue(8, versions)
    queue.open()
    for number in (1, 2, 4):
        queue.say(queue.number(number))
    queue.receive(queue.number(3))  # taken, not stored
    queue.restart()
    assert queue.ack_of(queue.ask()).ranges == ((1, 2),)
    assert queue.ack_of(queue.number(3)).ranges == ((1, 3),)
    assert queue.ack_of(queue.number(4)).ranges == ((1, 4),)
    assert queue.ack_of(queue.number(2)).ranges == ((1, 4),)
    assert queue.numbers == [1, 2, 3, 4]


# --- the table --------------------------------------------------------------------------------------------------------------


def test_the_table_knows_every_pair() -> None:
    absent = set(product(InboundState, InboundEvent)) - set(TRANSITIONS)
    assert absent == {(InboundState.UNKNOWN, InboundEvent.TIME_IS_OVER)}
    assert {
        step.reaction for (state, _), step in TRANSITIONS.items() if state is not InboundState.OPEN
    } & {Reaction.TAKE} == set()


def in_state(state: InboundState) -> Queue:
    """With message 1 taken and 3 held."""
    queue = Queue()
    queue.open()
    queue.say(queue.number(1))
    queue.say(queue.number(3))
    if state is InboundState.CLOSED:
        queue.say(queue.of_rm("CloseSequence", CloseSequence(queue.identifier)))
    elif state is InboundState.TERMINATED:
        queue.say(queue.of_rm("TerminateSequence", TerminateSequence(queue.identifier)))
    elif state is InboundState.UNKNOWN:
        queue.identifier = "urn:uuid:never"
    return queue


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("state", InboundState, ids=lambda state: state.name)
def test_every_event_in_every_state(state: InboundState, restarted: bool) -> None:
    """What the answer is, by the table; restarts change nothing of it."""
    sends = {
        InboundEvent.NEW_MESSAGE: lambda queue: queue.number(2),
        InboundEvent.KNOWN_MESSAGE: lambda queue: queue.number(1),
        InboundEvent.ACK_REQUESTED: lambda queue: queue.ask(),
        InboundEvent.CLOSE_SEQUENCE: lambda queue: queue.of_rm(
            "CloseSequence", CloseSequence(queue.identifier)
        ),
        InboundEvent.TERMINATE_SEQUENCE: lambda queue: queue.of_rm(
            "TerminateSequence", TerminateSequence(queue.identifier)
        ),
    }
    for event, send in sends.items():
        queue = in_state(state)
        if restarted:
            queue.restart()
        if state is InboundState.UNKNOWN:
            event = InboundEvent.NEW_MESSAGE if event is InboundEvent.KNOWN_MESSAGE else event
        expected = TRANSITIONS[state, event]
        answer = queue.answer(send(queue))
        fault = code_of(answer.content) if isinstance(answer.content, SoapFault) else None
        if expected.reaction is Reaction.TAKE:
            assert answer.acknowledgements[0].ranges == ((1, 2 if restarted else 3),)
        elif expected.reaction is Reaction.ACKNOWLEDGE:
            assert answer.acknowledgements[0].ranges == ((1, 1),)
            assert answer.acknowledgements[0].is_final == (state is InboundState.CLOSED)
        elif expected.reaction is Reaction.ANSWER:
            assert isinstance(answer.content, CloseSequenceResponse | TerminateSequenceResponse)
        else:
            assert fault is FaultCode[expected.reaction.name]
            assert isinstance(answer.content, SoapFault)
            assert answer.content.identifier == queue.identifier
            assert answer.action == RmVersion.V1_1.action("fault")
        assert (fault is FaultCode.SEQUENCE_CLOSED) == bool(fault and answer.acknowledgements)
        found = queue.destination.get(queue.identifier)
        assert (InboundState.UNKNOWN if found is None else found.state) is expected.state


def test_time_is_over_in_every_state() -> None:
    """The inactivity timeout ends a sequence that nobody closes, and a terminated one is forgotten later."""
    for state in (InboundState.OPEN, InboundState.CLOSED):
        queue = in_state(state)
        queue.now += queue.settings.inactivity_timeout
        queue.destination.poll(queue.now, queue.utc)
        assert code_of(queue.fault_of(queue.number(2))) is FaultCode.SEQUENCE_TERMINATED
        assert queue.rows[queue.identifier].state is InboundState.TERMINATED
        queue.now += queue.settings.terminated_kept
        queue.destination.poll(queue.now, queue.utc)
        queue.commit()
        assert queue.rows == {}
        assert code_of(queue.fault_of(queue.number(2))) is FaultCode.UNKNOWN_SEQUENCE
        assert queue.destination.next_timer() is None


def test_whoever_asks_lives() -> None:
    """0 for an hour must not end the session of a sender that waits and polls."""
    queue = Queue(1)
    queue.open()
    queue.say(queue.number(1))
    for _ in range(120):
        queue.now += 30.0
        queue.destination.poll(queue.now, queue.utc)
        assert queue.told(queue.ask()) == (((1, 1),), 0)


def test_expires_ends_a_sequence_however_busy() -> None:
    queue = Queue()
    answer = queue.answer(queue.create(expires=90_000))
    assert isinstance(answer.content, CreateSequenceResponse)
    assert answer.content.expires == 90_000
    queue.identifier = answer.content.identifier
    queue.now += 60.0
    queue.say(queue.number(1))
    queue.restart()
    queue.now += 29.0
    queue.destination.poll(queue.now, queue.utc)
    assert queue.ack_of(queue.number(2)).ranges == ((1, 2),)
    queue.now += 1.1
    queue.destination.poll(queue.now, queue.utc)
    assert code_of(queue.fault_of(queue.number(3))) is FaultCode.SEQUENCE_TERMINATED
    never = Queue()
    assert never.answer(never.create(expires=0)).content.expires is None
    assert next(iter(never.rows.values())).expires_at is None


# --- CreateSequence ---------------------------------------------------------------------------------------------------------


@BOTH
def test_a_repeated_create_sequence_gets_the_same_sequence(versions: Versions) -> None:
    """Metro repeats it at once; both peers would make a second sequence. Also after a restart."""
    queue = Queue(8, versions)
    first = queue.open()
    assert queue.open() == first
    queue.restart()
    assert queue.open() == first
    assert queue.open(message_id="urn:m2") != first
    assert len(queue.destination) == 2


def test_a_copy_of_create_sequence_that_comes_after_the_end_makes_no_second_one() -> None:
    queue = Queue()
    first = queue.open()
    queue.say(queue.of_rm("TerminateSequence", TerminateSequence(first)))
    assert queue.open() == first
    assert code_of(queue.fault_of(queue.number(1))) is FaultCode.SEQUENCE_TERMINATED
    queue.now += queue.settings.terminated_kept
    queue.destination.poll(queue.now, queue.utc)
    assert queue.open() != first


def test_the_answer_says_whose_it_is() -> None:
    queue = Queue()
    answer = queue.answer(queue.create())
    assert (answer.relates_to, answer.action) == (
        "urn:m1",
        RmVersion.V1_1.action("CreateSequenceResponse"),
    )
    away = queue.sent(
        replace(
            queue.create(THERE, "urn:m2"),
            reply_to=EndpointReference("http://client.example/replies"),
        )
    )
    assert away.endpoint.address == away.message.to == "http://client.example/replies"
    assert isinstance(away.message.content, CreateSequenceResponse)


def test_create_sequence_is_refused_when_it_can_have_no_acknowledgements_or_there_are_too_many() -> (
    None
):
    queue = Queue(8, sequences_max=1)
    fault = queue.fault_of(queue.create(EndpointReference(queue.versions[1].none)))
    assert (code_of(fault), fault.blame) == (FaultCode.CREATE_SEQUENCE_REFUSED, Blame.SENDER)
    queue.open()
    fault = queue.fault_of(queue.create(message_id="urn:m2"))
    assert (code_of(fault), fault.blame) == (FaultCode.CREATE_SEQUENCE_REFUSED, Blame.RECEIVER)
    assert "1 sequences" in fault.reason


def test_the_wcf_client_of_2007_is_accepted_and_answered() -> None:
    """As its messages are, with our identifier in the place of the service's."""
    create, _, first, _, ack, last = map(decode, wcf_trace())
    queue = Queue(8, OLD)
    answer = queue.answer(create)
    assert isinstance(answer.content, CreateSequenceResponse)
    assert answer.relates_to == create.message_id
    queue.identifier = ours = answer.content.identifier
    answered = queue.answer(
        replace(first, sequence=Sequence(ours, 1), ack_requested=(AckRequested(ours),))
    )
    assert answered.acknowledgements == (
        SequenceAcknowledgement(ours, ((1, 1),), buffer_remaining=7),
    )
    assert queue.say(ack) == [Respond(None)]  # of the sequence that it offered
    for number in (2, 3):
        queue.say(replace(first, sequence=Sequence(ours, number)))
    assert queue.ack_of(replace(last, sequence=Sequence(ours, 4, True))).ranges == ((1, 4),)
    assert queue.numbers == [1, 2, 3]
    assert queue.delivered[0].message.action.endswith("/UretimServisi/BilesenAl")


# --- the end ----------------------------------------------------------------------------------------------------------------


def test_close_with_a_gap_tells_what_is_missing_and_refuses_it_later() -> None:
    queue = Queue()
    queue.open()
    for number in (1, 3):
        queue.say(queue.number(number))
    closed = queue.answer(queue.of_rm("CloseSequence", CloseSequence(queue.identifier, 3)))
    assert closed.acknowledgements == (
        SequenceAcknowledgement(queue.identifier, ((1, 1),), (), True, 7),
    )
    late = queue.answer(queue.number(2))
    assert isinstance(late.content, SoapFault)
    assert code_of(late.content) is FaultCode.SEQUENCE_CLOSED
    assert late.acknowledgements[0].is_final
    assert queue.numbers == [1]


def test_1_0_an_empty_last_message_is_no_row_and_one_with_a_body_is() -> None:
    """What is acknowledged is delivered, whatever its action."""
    queue = Queue(8, OLD)
    queue.open()
    action = RmVersion.V1_0.action("LastMessage")
    assert queue.ack_of(replace(queue.number(1), action=action)).ranges == ((1, 1),)
    assert queue.ack_of(
        replace(queue.number(2, is_last=True), action=action, body=b"\n ")
    ).ranges == ((1, 2),)
    assert queue.numbers == [1]


def test_no_number_above_the_last_message() -> None:
    """1.0: LastMessageNumberExceeded; CXF and Metro say nothing, or take it."""
    queue = Queue(8, OLD)
    queue.open()
    queue.say(queue.number(1))
    queue.say(
        queue.number(3, is_last=True)
    )  # an application's message may be the last; this one waits for 2
    assert code_of(queue.fault_of(queue.number(4))) is FaultCode.LAST_MESSAGE_NUMBER_EXCEEDED
    assert (
        code_of(queue.fault_of(queue.number(2, is_last=True)))
        is FaultCode.LAST_MESSAGE_NUMBER_EXCEEDED
    )
    queue.say(queue.number(2))
    queue.restart()
    assert code_of(queue.fault_of(queue.number(4))) is FaultCode.LAST_MESSAGE_NUMBER_EXCEEDED
    assert queue.numbers == [1, 2, 3]


def test_the_highest_number_there_is() -> None:
    """9223372036854775807, and the decoder refuses one more."""
    queue = Queue()
    queue.open()
    sequence = queue.destination.get(queue.identifier)
    assert sequence is not None
    sequence.accepted = 2**63 - 2
    assert queue.ack_of(queue.number(2**63 - 1)).ranges == ((1, 2**63 - 1),)


# --- who speaks, and where answers go ---------------------------------------------------------------------------------------


def test_acknowledgements_go_to_acks_to_whatever_reply_to_says() -> None:
    """CXF puts ReplyTo none on one-way messages; Metro's service then never acknowledges, and CXF resends for ever."""
    queue = Queue()
    queue.open()
    for reply_to in ("http://www.w3.org/2005/08/addressing/none", "http://elsewhere.example/"):
        answer = queue.answer(replace(queue.number(1), reply_to=EndpointReference(reply_to)))
        assert answer.acknowledgements[0].ranges == ((1, 1),)
    cxf = decode(sample("cxf_wire_rm11_Message.xml"))
    assert queue.ack_of(replace(cxf, sequence=Sequence(queue.identifier, 2))).ranges == ((1, 2),)


def test_several_messages_share_one_acknowledgement_to_an_address() -> None:
    queue = Queue()
    queue.open(THERE)
    for number in (1, 2, 3, 3):
        assert queue.say(queue.number(number)) == [Respond(None)]
        queue.now += 0.04
    assert queue.destination.poll(queue.now, queue.utc) == []
    queue.now += 0.05
    (send,) = queue.destination.poll(queue.now, queue.utc)
    assert isinstance(send, SendSeparately)
    assert send.endpoint == THERE
    assert send.message.to == THERE.address
    assert send.message.acknowledgements[0].ranges == ((1, 3),)
    queue.now += 5
    assert queue.destination.poll(queue.now, queue.utc) == []
    queue.say(queue.number(2))  # its acknowledgement was lost: once more
    queue.now += 0.2
    assert len(queue.destination.poll(queue.now, queue.utc)) == 1
    asked = queue.sent(replace(queue.number(2, asks=True), message_id="urn:m1")).message
    assert asked.acknowledgements[0].ranges == ((1, 3),)
    assert asked.relates_to == "", (
        "it is no reply: CXF's client drops one to a message that is out of its hands"
    )


def test_faults_go_to_fault_to_reply_to_or_acks_to_and_else_back() -> None:
    queue = Queue()
    queue.open(THERE)
    queue.say(queue.of_rm("TerminateSequence", TerminateSequence(queue.identifier)))
    fault_to, reply_to = (
        EndpointReference("http://f.example/"),
        EndpointReference("http://r.example/"),
    )
    sent = queue.number(1)
    assert queue.sent(replace(sent, fault_to=fault_to, reply_to=reply_to)).endpoint == fault_to
    assert queue.sent(replace(sent, reply_to=reply_to)).endpoint == reply_to
    assert queue.sent(sent).endpoint == THERE
    queue.identifier = "urn:uuid:never"
    assert code_of(queue.fault_of(queue.number(1))) is FaultCode.UNKNOWN_SEQUENCE


def test_what_is_not_reliable_is_told_so() -> None:
    queue = Queue()
    assert code_of(queue.fault_of(queue.message(body=b"<x/>"))) is FaultCode.WSRM_REQUIRED


def test_one_version_for_a_sequence() -> None:
    """WCF's R2102."""
    queue = Queue()
    queue.open()
    other = replace(queue.number(1), rm=RmVersion.V1_0)
    fault = queue.fault_of(other)
    assert "another version" in fault.reason
    assert queue.numbers == []


def test_messages_that_need_no_answer() -> None:
    """CXF sends a SequenceAcknowledgement and a LastMessage without their headers; faults come for what we sent."""
    queue = Queue()
    assert queue.say(decode(sample("cxf_wire_rm11_AckAction_without_header.xml"))) == [
        Respond(None)
    ]
    assert queue.say(queue.message(RmVersion.V1_0.action("LastMessage"))) == [Respond(None)]
    assert queue.say(decode(sample("metro_wire_rm11_fault_UnknownSequence.xml"))) == [Respond(None)]


def test_one_message_may_ask_for_several_sequences() -> None:
    queue = Queue()
    first, second = queue.open(), queue.open(message_id="urn:m2")
    queue.say(queue.number(1))
    both = queue.answer(
        queue.of_rm("AckRequested", ack_requested=(AckRequested(first), AckRequested(second)))
    )
    assert {(ack.identifier, ack.ranges) for ack in both.acknowledgements} == {
        (first, ()),
        (second, ((1, 1),)),
    }
    unknown = queue.of_rm(
        "AckRequested", ack_requested=(AckRequested(first), AckRequested("urn:uuid:never"))
    )
    assert code_of(queue.fault_of(unknown)) is FaultCode.UNKNOWN_SEQUENCE


def test_after_a_restart_clients_with_an_address_hear_of_room() -> None:
    """Whether they were told 0 is not stored; an acknowledgement too much hurts nobody, and a silent one waits 30 seconds."""
    queue = Queue(1)
    queue.open(THERE)
    assert queue.sent(queue.number(1, asks=True)).message.acknowledgements[0].buffer_remaining == 0
    queue.restart()
    assert queue.destination.set_room(0) == []
    (send,) = queue.destination.set_room(1)
    assert isinstance(send, SendSeparately)
    assert send.message.acknowledgements[0].buffer_remaining == 1
    assert queue.destination.set_room(1) == []


# --- WS-MakeConnection ------------------------------------------------------------------------------------------------------


def test_a_client_that_can_only_be_answered_gets_acknowledgements_in_the_answers_and_news_when_it_asks() -> (
    None
):
    queue = Queue(1)
    queue.open(POLLED)
    assert queue.told(queue.number(1)) == (((1, 1),), 0)
    poll = queue.message("urn:mc", content=MakeConnection(POLLED.address))
    assert queue.say(poll) == [Respond(None)]
    queue.destination.set_room(1)
    answer = queue.answer(poll)
    assert (answer.acknowledgements[0].buffer_remaining, answer.message_pending) == (1, False)
    assert queue.say(poll) == [Respond(None)]


def test_faults_of_make_connection() -> None:
    queue = Queue()
    for content, code in (
        (MakeConnection(), FaultCode.MISSING_SELECTION),
        (MakeConnection("http://elsewhere.example/"), FaultCode.UNSUPPORTED_SELECTION),
    ):
        assert code_of(queue.fault_of(queue.message("urn:mc", content=content))) is code


def test_the_repr_says_where_it_stands() -> None:
    destination = RmDestination("urn:here", lambda: "urn:1", DestinationSettings(buffer=3))
    assert repr(destination) == "<Destination 0 sequences <FlowControlObject 3 of 3>>"
    queue = in_state(InboundState.OPEN)
    (sequence,) = queue.destination
    assert repr(sequence) == "<InboundSequence urn:uuid:1 OPEN accepted=1 held=1>"
    assert UTC
    assert isinstance(queue.create().content, CreateSequence)


def test_with_addressing_of_2004_it_is_told_in_other_words() -> None:
    """WSRMRequired is of 1.1, and that goes with 2005/08 alone. Fuzzing found the fault that nobody could write."""
    old = Queue(8, VERSIONS[0])
    fault = old.fault_of(replace(old.message(body=b"<x/>"), rm=None))
    assert code_of(fault) is None
    assert "switch reliable sessions on" in fault.reason
