"""WCF's four patterns: the sequence that a client offers for replies is taken, stays empty, and ends as the other does."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from roles_kit import HERE, NEW, OLD, THERE, Queue, Versions

from srmp_spark.wsrm.codec.elements import (
    CloseSequence,
    CloseSequenceResponse,
    CreateSequenceResponse,
    EndpointReference,
    IncompleteSequenceBehavior,
    Offer,
    Sequence,
    SequenceAcknowledgement,
    SoapMessage,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.codec.namespaces import RmVersion
from srmp_spark.wsrm.receiving.destination_effects import Respond, RespondLater, SendSeparately
from srmp_spark.wsrm.receiving.inbound_states import InboundState

BOTH = pytest.mark.parametrize("versions", [OLD, NEW], ids=["1.0", "1.1"])
RETURN = "urn:uuid:0afb8d36-bf26-4776-b8cf-8c91fddb5496"


def offered(
    queue: Queue, acks_to: EndpointReference | None = None, message_id: str = "urn:m1"
) -> SoapMessage:
    """As a WCF client with a two-way binding begins; the same endpoint in all places (B1101)."""
    endpoint = acks_to or EndpointReference(queue.versions[1].anonymous)
    offer = Offer(RETURN, None if queue.versions[2] is RmVersion.V1_0 else endpoint)
    return replace(queue.create(endpoint, message_id, offer=offer), reply_to=endpoint)


def opened(
    buffer: int = 8, versions: Versions = NEW, acks_to: EndpointReference | None = None
) -> Queue:
    queue = Queue(buffer, versions)
    message = offered(queue, acks_to)
    answer = queue.answer(message) if acks_to is None else queue.sent(message).message
    assert isinstance(answer.content, CreateSequenceResponse)
    queue.identifier = answer.content.identifier
    return queue


def last_of(queue: Queue, number: int) -> SoapMessage:
    return replace(
        queue.number(number, is_last=True), action=RmVersion.V1_0.action("LastMessage"), body=b""
    )


def of_rm(queue: Queue, content: CloseSequence | TerminateSequence, message_id: str) -> SoapMessage:
    return queue.of_rm(type(content).__name__, content, message_id=message_id)


# --- (a) and (b): no Offer --------------------------------------------------------------------------------------------------


@BOTH
def test_without_an_offer_nothing_is_accepted(versions: Versions) -> None:
    """A one-way WCF client faults the session when it finds an Accept."""
    queue = Queue(8, versions)
    content = queue.answer(queue.create()).content
    assert isinstance(content, CreateSequenceResponse)
    assert content.accept is None


def test_the_final_acknowledgement_is_in_the_answer_to_terminate_sequence_too() -> None:
    """WCF's 1.1 client reads it there once more, and faults where it is missing or not all of it is named."""
    queue = Queue()
    queue.open()
    queue.say(queue.number(1))
    queue.say(queue.of_rm("CloseSequence", CloseSequence(queue.identifier, 1)))
    for _ in range(2):
        over = queue.answer(of_rm(queue, TerminateSequence(queue.identifier, 1), "urn:m9"))
        assert (over.content, over.relates_to) == (
            TerminateSequenceResponse(queue.identifier),
            "urn:m9",
        )
        assert over.acknowledgements == (
            SequenceAcknowledgement(queue.identifier, ((1, 1),), (), True, 7),
        )


# --- (c): request/reply, a client that can only be answered -----------------------------------------------------------------


@BOTH
def test_an_offer_is_accepted_at_the_address_that_the_client_used(versions: Versions) -> None:
    """Byte for byte (R1108, R1112), also for a copy and after a restart."""
    queue = Queue(8, versions)
    for restarted in (False, False, True):
        if restarted:
            queue.restart()
        content = queue.answer(
            replace(offered(queue), to="http://QM.example:80/wsrm/private$/orders")
        ).content
        assert isinstance(content, CreateSequenceResponse)
        assert content.accept == EndpointReference("http://QM.example:80/wsrm/private$/orders")
        behavior = IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP
        assert content.behavior is (behavior if versions[2] is RmVersion.V1_1 else None)
    assert len(queue.destination) == 1
    assert [each.returns for each in queue.rows.values()] == [RETURN]


def test_an_offer_whose_messages_would_go_elsewhere_is_not_accepted() -> None:
    """R1102: the same address in AcksTo and in the Offer."""
    queue = Queue()
    content = queue.answer(queue.create(offer=Offer(RETURN, THERE))).content
    assert isinstance(content, CreateSequenceResponse)
    assert content.accept is None


@BOTH
def test_a_message_that_was_not_taken_is_answered_with_nothing(versions: Versions) -> None:
    """An acknowledgement that does not name the message is an InvalidAcknowledgement to its client, and ends the session."""
    queue = opened(versions=versions)
    assert queue.say(queue.number(2)) == [Respond(None)]  # behind a gap
    assert queue.say(queue.number(2)) == [Respond(None)]
    assert queue.ack_of(queue.number(1)).ranges == ((1, 2),)
    assert queue.ack_of(queue.number(2)).ranges == ((1, 2),)
    received = queue.destination.not_now(
        queue.number(3), queue.now, queue.utc
    )  # the queue is paused
    assert queue.commit(received) == [[Respond(None)]]
    assert queue.ack_of(queue.ask()).ranges == ((1, 2),)  # a poll is answered
    assert queue.numbers == [1, 2]


def test_a_queue_that_does_not_take_a_message_now_says_what_it_has_to_a_one_way_client() -> None:
    queue = Queue()
    queue.open()
    queue.say(queue.number(1))
    ((respond,),) = queue.commit(queue.destination.not_now(queue.number(2), queue.now, queue.utc))
    assert respond.message.acknowledgements[0].ranges == ((1, 1),)
    assert queue.numbers == [1]
    assert queue.ack_of(queue.number(2)).ranges == ((1, 2),)


def test_0_is_never_said_to_a_client_that_would_not_hear_otherwise() -> None:
    """WCF's request/reply client reads BufferRemaining on the answer to a message, and on no poll: 0 would be for ever. So it
    is told 1, and late."""
    queue = opened(buffer=1)
    for number in (1, 2, 2):
        ((later,),) = queue.commit(queue.receive(queue.number(number)))
        assert isinstance(later, RespondLater)
        assert later.until == queue.now + queue.settings.answer_held
        assert (later.received.deliveries, later.received.request.body) == (
            (),
            b"",
        )  # it waits without its 4 MB
        (respond,) = queue.destination.answer(later.received, queue.now)
        assert respond.message is not None
        (ack,) = respond.message.acknowledgements
        assert (ack.ranges, ack.buffer_remaining) == (((1, number),), 1)
    assert queue.told(queue.ask()) == (((1, 2),), 1)
    assert queue.numbers == [1, 2]
    queue.destination.set_room(1)
    assert queue.told(queue.number(2)) == (((1, 2),), 1)
    one_way = Queue(buffer=1)
    one_way.open()
    assert one_way.told(one_way.number(1))[1] == 0


@pytest.mark.parametrize("empty", [True, False], ids=["an empty one", "the application's"])
def test_1_0_the_last_message_is_acknowledged_as_any_other(empty: bool) -> None:
    """WCF's client takes any answer that acknowledges it; CXF's finds no acknowledgement in a LastMessage of ours."""
    queue = opened(versions=OLD)
    queue.say(queue.number(1))
    sent = last_of(queue, 2) if empty else queue.number(2, is_last=True)
    sent = replace(sent, message_id="urn:m7")
    for restarted in (False, False, True):  # and so is each copy of it
        if restarted:
            queue.restart()
        answer = queue.answer(sent)
        assert answer.action == RmVersion.V1_0.action("SequenceAcknowledgement")
        assert (answer.sequence, answer.relates_to) == (None, "urn:m7")
        assert answer.acknowledgements[0].ranges == ((1, 2),)
    assert queue.numbers == ([1] if empty else [1, 2])


def test_1_0_a_last_message_behind_a_gap_does_not_end_the_other_sequence() -> None:
    queue = opened(versions=OLD, acks_to=THERE)
    assert queue.say(last_of(queue, 2)) == [Respond(None)]
    assert queue.say(queue.number(1)) == [Respond(None)]
    *_, own = queue.say(last_of(queue, 2))
    assert own.message is not None
    assert own.message.sequence == Sequence(RETURN, 1, is_last=True)


def test_1_0_terminate_sequence_is_answered_with_ours() -> None:
    """WCF's client repeats it until there is an answer; 202 is none."""
    queue = opened(versions=OLD)
    queue.say(queue.number(1))
    queue.say(last_of(queue, 2))
    for _ in range(2):
        answer = queue.answer(of_rm(queue, TerminateSequence(queue.identifier), "urn:m8"))
        assert (answer.content, answer.relates_to) == (TerminateSequence(RETURN), "urn:m8")
        assert answer.acknowledgements[0].ranges == ((1, 2),)
    assert queue.rows[queue.identifier].state is InboundState.TERMINATED


def test_1_1_close_and_terminate_close_both() -> None:
    queue = opened()
    queue.say(queue.number(1))
    closing = of_rm(queue, CloseSequence(queue.identifier, 1), "urn:m7")
    final = SequenceAcknowledgement(RETURN, (), (), True, 8)  # theirs, of ours
    closed = queue.answer(replace(closing, acknowledgements=(final,)))
    assert (closed.content, closed.relates_to) == (
        CloseSequenceResponse(queue.identifier),
        "urn:m7",
    )
    over = queue.answer(of_rm(queue, TerminateSequence(queue.identifier, 1), "urn:m8"))
    assert over.content == TerminateSequenceResponse(queue.identifier)
    assert over.acknowledgements[0].is_final


def test_an_operation_that_wants_a_reply_is_taken_and_acknowledged() -> None:
    """As in the trace of 2007. Its caller hears from its own side that there was none."""
    queue = opened(versions=OLD)
    wants = replace(
        queue.number(1), message_id="urn:m5", reply_to=EndpointReference(OLD[1].anonymous)
    )
    answer = queue.answer(wants)
    assert (answer.sequence, answer.body) == (None, b"")
    assert answer.acknowledgements[0].ranges == ((1, 1),)
    assert queue.numbers == [1]


# --- (d): duplex, a client with an address ----------------------------------------------------------------------------------


def test_1_0_with_an_address_the_ends_are_messages_of_their_own() -> None:
    queue = opened(versions=OLD, acks_to=THERE)
    assert queue.say(queue.number(1)) == [Respond(None)]
    respond, told, last = queue.say(last_of(queue, 2))
    assert respond == Respond(None)
    assert isinstance(told, SendSeparately)
    assert told.message.acknowledgements[0].ranges == ((1, 2),)
    assert isinstance(last, SendSeparately)
    assert last.endpoint == THERE
    assert (last.message.to, last.message.sequence) == (
        THERE.address,
        Sequence(RETURN, 1, is_last=True),
    )
    theirs = queue.of_rm(
        "SequenceAcknowledgement", acknowledgements=(SequenceAcknowledgement(RETURN, ((1, 1),)),)
    )
    assert queue.say(theirs) == [Respond(None)]
    over = queue.sent(of_rm(queue, TerminateSequence(queue.identifier), ""))
    assert (over.endpoint, over.message.content) == (THERE, TerminateSequence(RETURN))


def test_1_1_with_an_address_the_other_sequence_is_closed_and_terminated() -> None:
    """Each has a MessageID, the same one in each copy, and ReplyTo what the client calls us: WCF's client checks both."""
    queue = opened(acks_to=THERE)
    queue.say(queue.number(1))
    for content, theirs, ours in (
        (
            CloseSequence(queue.identifier, 1),
            CloseSequenceResponse(queue.identifier),
            CloseSequence(RETURN),
        ),
        (
            TerminateSequence(queue.identifier, 1),
            TerminateSequenceResponse(queue.identifier),
            TerminateSequence(RETURN),
        ),
    ):
        said = []
        for _ in range(2):
            respond, answer, own = queue.say(
                replace(of_rm(queue, content, "urn:m7"), reply_to=THERE)
            )
            assert respond == Respond(None)
            assert isinstance(answer, SendSeparately)
            assert isinstance(own, SendSeparately)
            assert answer.message.content == theirs
            assert answer.message.acknowledgements[0].is_final
            assert (own.endpoint, own.message.content, own.message.relates_to) == (THERE, ours, "")
            assert own.message.reply_to == EndpointReference(HERE)
            said.append(own.message.message_id)
        assert len(set(said)) == 1
        assert said[0]
    for name, response in (
        ("Close", CloseSequenceResponse(RETURN)),
        ("Terminate", TerminateSequenceResponse(RETURN)),
    ):
        assert queue.say(queue.of_rm(f"{name}SequenceResponse", response)) == [Respond(None)]


def test_0_is_said_to_a_client_with_an_address() -> None:
    """It is called when room returns."""
    queue = opened(buffer=1, acks_to=THERE)
    assert queue.sent(queue.number(1, asks=True)).message.acknowledgements[0].buffer_remaining == 0
    (send,) = queue.destination.set_room(1)
    assert isinstance(send, SendSeparately)
    assert send.message.acknowledgements[0].buffer_remaining == 1


# --- a client by WCF's rules ------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("seed", range(60))
def test_a_client_by_wcf_s_rules_never_faults_and_never_stops(
    versions: Versions, seed: int
) -> None:
    """Copies, disorder, restarts, a queue that is full, paused or read: no answer breaks a rule of the client, its quota never
    ends with nothing on its way, and everything is delivered once and in order."""
    random = Random(seed)
    queue = opened(random.choice((1, 2, 8)), versions)
    count, first, next_, quota, steps = 20, 1, 1, 8, 0
    done: set[int] = set()
    while first <= count:
        steps += 1
        assert steps < 5_000, f"{first} of {count}, quota {quota}"
        flying = [number for number in range(first, next_) if number not in done]
        if quota > 0 and next_ - first < 8 and next_ <= count:
            next_, quota = next_ + 1, quota - 1
            flying.append(next_ - 1)
        assert flying, "it waits for ever"
        number = random.choice(flying)
        if random.random() < 0.1:
            queue.restart()
        if random.random() < 0.3:
            queue.destination.set_room(random.choice((0, 0, 1, queue.settings.buffer)))
        pauses = random.random() < 0.2 and not next(iter(queue.destination)).knows(number)
        sent = queue.number(number)
        received = (
            queue.destination.not_now(sent, queue.now, queue.utc) if pauses else queue.receive(sent)
        )
        ((output,),) = queue.commit(received)
        if isinstance(output, RespondLater):
            (output,) = queue.destination.answer(output.received, queue.now)
        assert isinstance(output, Respond)
        if output.message is None or random.random() < 0.1:  # 202, or lost
            continue
        (ack,) = output.message.acknowledgements
        assert any(lower <= number <= upper for lower, upper in ack.ranges), (
            "InvalidAcknowledgement"
        )
        assert ack.buffer_remaining > 0
        done.add(number)
        if number == first:
            while first in done:
                first += 1
            quota = ack.buffer_remaining - (next_ - first)
    assert queue.numbers == list(range(1, count + 1))
