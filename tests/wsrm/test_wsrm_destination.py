"""The destination: what is answered to what, and never before it is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest
from destination_bench import CALLABLE, NEW, OLD, Bench, Versions, answer, fault, said
from wsrm_kit import SEQUENCE, VERSIONS, plain, schema_faults, wcf_trace, wire

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.decoder import decode
from srmp_spark.wsrm.destination import LAST_MESSAGE
from srmp_spark.wsrm.destination_effects import Forget, Reply, Send, Store, Stored, Unavailable
from srmp_spark.wsrm.elements import (
    AckRequested,
    Blame,
    CloseSequence,
    CloseSequenceResponse,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    Fault,
    MakeConnection,
    Sequence,
    SequenceAcknowledgement,
    SoapMessage,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.encoder import encode
from srmp_spark.wsrm.faults import FaultCode
from srmp_spark.wsrm.incoming_states import TRANSITIONS, SequenceEvent, SequenceState
from srmp_spark.wsrm.limits import HELD_BYTES_MAX, HELD_MAX, INACTIVITY_TIMEOUT, SEQUENCES_MAX, TERMINATED_KEPT
from srmp_spark.wsrm.namespaces import RmVersion

# --- what others show -------------------------------------------------------------------------------------------------------


def test_the_seven_messages_of_the_document_with_room_for_two() -> None:
    """[MS-WSRVCRM] 4: values 1, 0, 1, 0; ranges 1-1, 1-2, 1-2, 1-3. The fifth comes by itself, so the source can be called."""
    bench = Bench(2, OLD)
    sequence = bench.created(CALLABLE)

    def sent(number: int) -> SoapMessage:
        reply, send = bench.receive(bench.numbered(sequence, number))
        assert isinstance(reply, Reply)
        assert reply.message is None
        assert isinstance(send, Send)
        return send.message

    second, fourth = sent(1), sent(2)
    (unsolicited,) = bench.destination.message_processed()
    assert isinstance(unsolicited, Send)
    assert unsolicited.to.address == CALLABLE
    seventh = sent(3)
    written = [second, fourth, unsolicited.message, seventh]
    assert [said(each) for each in written] == [(((1, 1),), 1), (((1, 2),), 0), (((1, 2),), 1), (((1, 3),), 0)]
    assert [number for _, number, _ in bench.rows] == [1, 2, 3]
    for each in written:
        assert schema_faults(encode(each), OLD[2], OLD[1]) == []


def test_the_trace_of_wcf_is_accepted_and_answered() -> None:
    """Messages 1, 3 and 10 are a source's; 3 and 10 are numbered anew, for what lay between is not in the trace."""
    bench, trace = Bench(8, OLD), wcf_trace()
    created = answer(bench.receive(decode(trace[1])))
    assert isinstance(created.content, CreateSequenceResponse)
    assert created.relates_to == decode(trace[1]).message_id
    mine, theirs = created.content.identifier.encode(), b"urn:uuid:27079656-f1cf-460d-9289-28f43f664fbe"
    first = answer(bench.receive(decode(trace[3].replace(theirs, mine))))
    assert said(first) == (((1, 1),), 7)
    last = trace[10].replace(theirs, mine).replace(b"<r:MessageNumber>4<", b"<r:MessageNumber>2<")
    assert said(answer(bench.receive(decode(last)))) == (((1, 2),), 7), "what has no content takes no room, and makes no row"
    assert [body for _, _, body in bench.rows] == [decode(trace[3]).body]
    assert answer(bench.receive(decode(last.replace(b"<r:MessageNumber>2<", b"<r:MessageNumber>3<")))).content is not None


@pytest.mark.parametrize(
    "name", ["cxf_wire_rm10", "cxf_wire_rm10a04", "cxf_wire_rm11", "metro_wire_rm10", "metro_wire_rm10a04", "metro_wire_rm11"]
)
def test_sequences_of_cxf_and_metro_are_created_and_the_answer_is_valid(name: str) -> None:
    request = decode(wire(f"{name}_CreateSequence"))
    created = answer(Bench().receive(request))
    assert isinstance(created.content, CreateSequenceResponse)
    assert created.rm is request.rm
    assert created.rm is not None
    assert schema_faults(encode(created), created.rm, created.addressing) == []


# --- one sequence -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", VERSIONS, ids=lambda v: "-".join(each.name for each in v))
def test_a_whole_sequence(versions: Versions) -> None:
    bench = Bench(versions=versions)
    sequence, is_new = bench.created(), versions[2] is RmVersion.V1_1
    bench.send(sequence, 1)
    assert said(bench.send(sequence, 2, is_last=not is_new)) == (((1, 2),), 6)
    if is_new:
        closed = answer(bench.receive(bench.message(content=CloseSequence(sequence, 2))))
        assert closed.content == CloseSequenceResponse(sequence)
        assert closed.acknowledgements[0].is_final
        assert schema_faults(encode(closed), versions[2], versions[1]) == []
        ended = answer(bench.receive(bench.message(content=TerminateSequence(sequence, 2))))
        assert ended.content == TerminateSequenceResponse(sequence)
    else:
        (ended_old,) = bench.receive(bench.message(content=TerminateSequence(sequence)))
        assert isinstance(ended_old, Reply)
        assert ended_old.message is None
    assert bench.records[sequence].state is SequenceState.TERMINATED
    assert bench.records[sequence].last_number == 2
    assert len(bench.rows) == 2


def test_nothing_is_acknowledged_before_it_is_stored() -> None:
    bench = Bench()
    sequence = bench.created()
    bench.waits = True
    assert bench.receive(bench.numbered(sequence, 1)) == []
    assert bench.receive(bench.numbered(sequence, 2)) == []
    again = answer(bench.receive(bench.numbered(sequence, 2)))
    assert said(again) == ((), 8), "a copy of what is not stored yet is not acknowledged"
    asked = answer(bench.receive(bench.message(ack_requested=(AckRequested(sequence),))))
    assert said(asked) == ((), 8)
    assert said(answer(bench.store())) == (((1, 1),), 7)
    assert said(answer(bench.store())) == (((1, 2),), 6)


def test_a_sequence_is_there_for_its_source_when_it_is_stored() -> None:
    bench = Bench()
    bench.waits = True
    create = bench.message(content=CreateSequence(EndpointReference(NEW[1].anonymous)))
    assert bench.receive(create) == []
    assert fault(answer(bench.receive(bench.numbered("urn:sequence:1", 1)))) is FaultCode.UNKNOWN_SEQUENCE
    assert bench.receive(create) == [], "the repeated one waits for the same sequence"
    bench.waits = False
    first, second = bench.act([])
    assert isinstance(first, Reply)
    assert isinstance(second, Reply)
    assert first.message == second.message
    assert first.exchange != second.exchange
    assert answer(bench.receive(create)).content == CreateSequenceResponse("urn:sequence:1")
    assert len(bench.records) == 1


def test_what_was_not_stored_and_what_came_behind_it_may_come_again() -> None:
    bench = Bench()
    sequence = bench.created()
    bench.waits = True
    for number in (1, 2, 3):
        bench.receive(bench.numbered(sequence, number))
    first, second, third = bench.unstored
    assert said(answer(bench.store())) == (((1, 1),), 7)
    assert [type(each) for each in bench.destination.not_stored(second.token)] == [Unavailable, Unavailable]
    for token in (second.token, third.token):
        with pytest.raises(LocalProtocolError):
            bench.destination.stored(Stored(token), bench.now)
    bench.unstored.clear()
    bench.waits = False
    assert said(bench.send(sequence, 2)) == (((1, 2),), 6)
    assert said(bench.send(sequence, 3)) == (((1, 3),), 5)
    assert [number for _, number, _ in bench.rows] == [1, 2, 3]
    assert first.record.received == 1


def test_a_sequence_that_could_not_be_stored_is_as_if_nobody_had_asked_for_it() -> None:
    bench = Bench()
    bench.waits = True
    create = bench.message(content=CreateSequence(EndpointReference(NEW[1].anonymous)))
    bench.receive(create)
    (unavailable,) = bench.destination.not_stored(bench.unstored.pop().token)
    assert isinstance(unavailable, Unavailable)
    assert bench.destination.next_due() is None
    bench.waits = False
    assert isinstance(answer(bench.receive(create)).content, CreateSequenceResponse)


def test_stores_of_one_sequence_are_proven_in_their_order() -> None:
    bench = Bench()
    sequence = bench.created()
    bench.waits = True
    bench.receive(bench.numbered(sequence, 1))
    bench.receive(bench.numbered(sequence, 2))
    with pytest.raises(LocalProtocolError):
        bench.destination.stored(Stored(bench.unstored[1].token), bench.now)


def test_copies_are_answered_and_take_no_room() -> None:
    """Else a storm of copies would bring BufferRemaining to 0 for ever."""
    bench = Bench()
    sequence = bench.created()
    bench.send(sequence, 1)
    assert {said(bench.send(sequence, 1)) for _ in range(50)} == {(((1, 1),), 7)}
    assert len(bench.rows) == 1


def test_what_comes_behind_a_gap_waits_unacknowledged_and_its_exchange_does_not() -> None:
    bench = Bench()
    sequence = bench.created()
    assert [said(bench.send(sequence, number)) for number in (3, 2, 3)] == [((), 8)] * 3
    assert bench.rows == []
    assert said(bench.send(sequence, 1)) == (((1, 3),), 5)
    assert [number for _, number, _ in bench.rows] == [1, 2, 3]


def test_what_waits_behind_a_gap_has_limits() -> None:
    bench = Bench()
    sequence = bench.created()
    bench.send(sequence, HELD_MAX + 2)
    bench.send(sequence, 2**63 - 1)
    for number in range(2, HELD_MAX + 2):
        bench.send(sequence, number)
    assert said(bench.send(sequence, 1))[0] == ((1, HELD_MAX + 1),), "one more waited for nothing and comes again"
    large = Bench()
    sequence = large.created()
    for number in (2, 3, 4):
        large.send(sequence, number, body=b"x" * (HELD_BYTES_MAX // 2))
    assert said(large.send(sequence, 1))[0] == ((1, 3),)


def test_at_0_a_message_is_taken_all_the_same() -> None:
    """CXF and Metro send on; to refuse what the queue has place for would make them send it again, and nothing else."""
    bench = Bench(1)
    sequence = bench.created()
    assert [said(bench.send(sequence, number)) for number in (1, 2, 3)] == [(((1, 1),), 0), (((1, 2),), 0), (((1, 3),), 0)]


def test_room_is_told_once_to_those_who_were_told_0_and_can_be_called() -> None:
    bench = Bench(1)
    called, anonymous = bench.created(CALLABLE), bench.created(message_id="urn:uuid:d")
    bench.receive(bench.numbered(called, 1))
    bench.send(anonymous, 1)
    assert bench.destination.set_buffer_remaining(0) == []
    (send,) = bench.destination.set_buffer_remaining(1)
    assert isinstance(send, Send)
    assert said(send.message) == (((1, 1),), 1)
    assert bench.destination.set_buffer_remaining(1) == []
    assert said(answer(bench.receive(bench.message(ack_requested=(AckRequested(anonymous),))))) == (((1, 1),), 1)


# --- ends -------------------------------------------------------------------------------------------------------------------


def test_a_closed_sequence_takes_nothing_new_and_says_what_it_has() -> None:
    bench = Bench()
    sequence = bench.created()
    bench.send(sequence, 1)
    bench.send(sequence, 3)
    closed = answer(bench.receive(bench.message(content=CloseSequence(sequence, 3))))
    assert closed.acknowledgements == (SequenceAcknowledgement(sequence, ((1, 1),), is_final=True, buffer_remaining=7),)
    assert fault(bench.send(sequence, 2)) is FaultCode.SEQUENCE_CLOSED
    assert bench.send(sequence, 1).acknowledgements[0].is_final
    assert answer(bench.receive(bench.message(ack_requested=(AckRequested(sequence),)))).acknowledgements[0].is_final
    assert len(bench.rows) == 1


def test_an_end_is_not_told_before_it_is_stored() -> None:
    bench = Bench()
    sequence = bench.created()
    bench.waits = True
    assert bench.receive(bench.message(content=CloseSequence(sequence))) == []
    asked = answer(bench.receive(bench.message(ack_requested=(AckRequested(sequence),))))
    assert not asked.acknowledgements[0].is_final
    assert answer(bench.store()).content == CloseSequenceResponse(sequence)


def test_a_repeated_end_has_its_answer_until_it_is_forgotten() -> None:
    bench = Bench()
    sequence = bench.created()
    end = bench.message(content=TerminateSequence(sequence))
    assert answer(bench.receive(end)).content == answer(bench.receive(end)).content == TerminateSequenceResponse(sequence)
    assert fault(bench.send(sequence, 1)) is FaultCode.SEQUENCE_TERMINATED
    bench.now += TERMINATED_KEPT
    assert bench.act(bench.destination.due(bench.now)) == [Forget(sequence)]
    assert fault(answer(bench.receive(end))) is FaultCode.UNKNOWN_SEQUENCE
    assert bench.destination.next_due() is None


def test_nothing_may_stand_behind_the_last_message() -> None:
    bench = Bench(versions=OLD)
    sequence = bench.created()
    bench.send(sequence, 2, is_last=True)
    assert fault(bench.send(sequence, 3)) is FaultCode.LAST_MESSAGE_NUMBER_EXCEEDED
    assert said(bench.send(sequence, 1))[0] == ((1, 2),)
    assert fault(bench.send(sequence, 3)) is FaultCode.LAST_MESSAGE_NUMBER_EXCEEDED
    other = bench.created(message_id="urn:uuid:d")
    bench.send(other, 3)
    assert fault(bench.send(other, 2, is_last=True)) is FaultCode.LAST_MESSAGE_NUMBER_EXCEEDED


def test_a_last_message_without_content_makes_no_row() -> None:
    bench = Bench(versions=OLD)
    sequence = bench.created()
    bench.send(sequence, 1)
    last = bench.message(sequence=Sequence(sequence, 2, is_last=True), action=LAST_MESSAGE)
    assert said(answer(bench.receive(last)))[0] == ((1, 2),)
    assert len(bench.rows) == 1
    assert bench.records[sequence].last_number == 2


def test_a_sequence_that_nobody_uses_ends_and_one_that_polls_does_not() -> None:
    bench = Bench()
    used, unused = bench.created(), bench.created(message_id="urn:uuid:d")
    for _ in range(50):
        bench.now += INACTIVITY_TIMEOUT / 20
        bench.act(bench.destination.due(bench.now))
        bench.receive(bench.message(ack_requested=(AckRequested(used),)))
    assert bench.records[used].state is SequenceState.OPEN
    assert bench.records[unused].state is SequenceState.TERMINATED


def test_a_sequence_ends_when_it_expires() -> None:
    bench = Bench()
    create = CreateSequence(EndpointReference(NEW[1].anonymous), 5_000)
    created = answer(bench.receive(bench.message(content=create))).content
    assert created == CreateSequenceResponse("urn:sequence:1", 5_000)
    bench.now += 4.9
    assert said(bench.send("urn:sequence:1", 1))[0] == ((1, 1),)
    assert bench.destination.next_due() == 1_005.0
    bench.now += 0.1
    bench.act(bench.destination.due(bench.now))
    assert fault(bench.send("urn:sequence:1", 2)) is FaultCode.SEQUENCE_TERMINATED


def test_an_end_by_time_that_is_not_stored_is_tried_again() -> None:
    bench = Bench()
    sequence = bench.created()
    bench.now += INACTIVITY_TIMEOUT
    (store,) = bench.destination.due(bench.now)
    assert isinstance(store, Store)
    assert bench.destination.not_stored(store.token) == []
    assert said(bench.send(sequence, 1))[0] == ((1, 1),)
    bench.now += INACTIVITY_TIMEOUT
    assert len(bench.destination.due(bench.now)) == 1


# --- restarts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", SequenceState)
def test_what_is_stored_goes_on_after_a_restart(state: SequenceState) -> None:
    bench = Bench(2)
    sequence = bench.created(CALLABLE)
    bench.receive(bench.numbered(sequence, 1))
    bench.receive(bench.numbered(sequence, 2))
    if state is not SequenceState.OPEN:
        end = CloseSequence(sequence) if state is SequenceState.CLOSED else TerminateSequence(sequence)
        bench.receive(bench.message(content=end))
    again = Bench(2, records=tuple(bench.records.values()))
    assert again.destination.sequences() == bench.destination.sequences()
    again.destination.set_buffer_remaining(0)
    effects = again.destination.set_buffer_remaining(1)
    assert len(effects) == (state is SequenceState.OPEN), "a source that was told 0 before the restart hears of room"
    replies = again.receive(again.numbered(sequence, 2))
    assert isinstance(replies[1], Send)
    assert replies[1].message.acknowledgements[0].ranges == ((1, 2),)
    create = again.message(content=CreateSequence(EndpointReference(CALLABLE)), message_id="urn:uuid:c")
    assert answer(again.receive(create)).content == CreateSequenceResponse(sequence)
    assert again.rows == []


# --- strangers --------------------------------------------------------------------------------------------------------------


def test_acks_to_is_called_by_the_allow_list_alone() -> None:
    bench = Bench()
    for address in ("http://127.0.0.1:1/", "http://inside.example/", NEW[1].none, "urn:x"):
        refused = answer(bench.receive(bench.message(content=CreateSequence(EndpointReference(address)))))
        assert fault(refused) is FaultCode.CREATE_SEQUENCE_REFUSED
    elsewhere = bench.message(
        content=CreateSequence(EndpointReference(NEW[1].anonymous)), reply_to=EndpointReference("http://inside.example/")
    )
    assert fault(answer(bench.receive(elsewhere))) is FaultCode.CREATE_SEQUENCE_REFUSED
    assert bench.records == {}


def test_reply_to_none_on_a_message_is_acknowledged_all_the_same() -> None:
    """CXF."""
    bench = Bench()
    sequence = bench.created()
    assert said(bench.send(sequence, 1, reply_to=EndpointReference(NEW[1].none)))[0] == ((1, 1),)


def test_a_sequence_belongs_to_who_created_it() -> None:
    bench = Bench()
    create = bench.message(content=CreateSequence(EndpointReference(NEW[1].anonymous)))
    mine = answer(bench.receive(create, "CN=me")).content
    theirs = answer(bench.receive(create, "CN=them")).content
    assert isinstance(mine, CreateSequenceResponse)
    assert mine != theirs
    for content in (None, CloseSequence(mine.identifier), TerminateSequence(mine.identifier)):
        stranger = bench.message(content=content, sequence=None if content else Sequence(mine.identifier, 1))
        assert fault(answer(bench.receive(stranger, "CN=them"))) is FaultCode.UNKNOWN_SEQUENCE
    asking = bench.message(ack_requested=(AckRequested(mine.identifier),))
    assert fault(answer(bench.receive(asking, "CN=them"))) is FaultCode.UNKNOWN_SEQUENCE
    old = plain(OLD, sequence=Sequence(mine.identifier, 1))
    assert fault(answer(bench.receive(old, "CN=me"))) is FaultCode.UNKNOWN_SEQUENCE, "nor in another version"


def test_sequences_have_a_limit() -> None:
    bench = Bench()
    for number in range(SEQUENCES_MAX):
        bench.created(message_id=f"urn:uuid:{number}")
    create = CreateSequence(EndpointReference(NEW[1].anonymous))
    refused = answer(bench.receive(bench.message(content=create, message_id="urn:uuid:more")))
    assert fault(refused) is FaultCode.CREATE_SEQUENCE_REFUSED
    assert bench.created(message_id="urn:uuid:7"), "a repeated one is no new one"


def test_what_else_arrives() -> None:
    bench = Bench()
    for message in (
        bench.message(content=CreateSequenceResponse(SEQUENCE)),
        bench.message(content=Fault(Blame.SENDER)),
        bench.message(acknowledgements=(SequenceAcknowledgement(SEQUENCE, ((1, 1),)),)),
        decode(wire("cxf_wire_rm11_AckAction_without_header")),
    ):
        (reply,) = bench.receive(message)
        assert isinstance(reply, Reply)
        assert reply.message is None
    assert fault(answer(bench.receive(bench.message(content=MakeConnection("urn:x"))))) is FaultCode.UNSUPPORTED_SELECTION
    naked = replace(bench.message(), rm=None)
    assert fault(answer(bench.receive(naked))) is FaultCode.WSRM_REQUIRED
    assert fault(answer(bench.receive(bench.message(content=CreateSequence(EndpointReference(CALLABLE)), message_id="")))) is (
        FaultCode.CREATE_SEQUENCE_REFUSED
    )


@pytest.mark.parametrize("state", SequenceState)
@pytest.mark.parametrize("event", SequenceEvent)
def test_every_state_knows_every_event(state: SequenceState, event: SequenceEvent) -> None:
    after = TRANSITIONS[state, event]
    assert list(SequenceState).index(after) >= list(SequenceState).index(state), "there is no way back"
