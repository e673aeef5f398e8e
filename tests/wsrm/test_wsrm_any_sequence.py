"""Requests in any order, version and mixture: each gets an answer that can be written, and nothing else happens."""

from __future__ import annotations

import contextlib
import random
import time

import pytest
from roles_kit import NEW, OLD, Queue, Versions
from wsrm_kit import VERSIONS

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import (
    CreateSequenceResponse,
    EndpointReference,
    SoapFault,
    SoapMessage,
)
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.endpoint_text import endpoint_of, text_of
from srmp_spark.wsrm.codec.namespaces import (
    MAKE_CONNECTION,
    MAKE_CONNECTION_ANONYMOUS,
    AddressingVersion,
    RmVersion,
)
from srmp_spark.wsrm.limits import ATTRIBUTES_MAX, REFERENCE_PARAMETERS_MAX
from srmp_spark.wsrm.receiving.destination_effects import RespondLater
from srmp_spark.wsrm.receiving.inbound_states import InboundState

OPERATIONS = (
    "CreateSequence", "CloseSequence", "TerminateSequence", "Sequence", "LastMessage", "AckRequested",
    "SequenceAcknowledgement", "MakeConnection", "Fault", "nothing",
)  # fmt: skip


def request(
    versions: Versions,
    operation: str,
    identifier: str,
    number: int,
    *,
    acks_to: str,
    offer: str = "",
) -> bytes:
    """A message as anybody may write it, also one that our own encoder refuses to write."""
    soap, addressing, rm = versions
    named = f"<r:Identifier>{identifier}</r:Identifier>"
    header = body = ""
    if operation == "CreateSequence":
        offered = f"<r:Offer><r:Identifier>{offer}</r:Identifier></r:Offer>" if offer else ""
        body = (
            f"<r:CreateSequence><r:AcksTo><a:Address>{acks_to}</a:Address></r:AcksTo>"
            f"{offered}</r:CreateSequence>"
        )
    elif operation in ("CloseSequence", "TerminateSequence"):
        last = (
            f"<r:LastMsgNumber>{number}</r:LastMsgNumber>"
            if number % 2 and rm is RmVersion.V1_1
            else ""
        )
        body = f"<r:{operation}>{named}{last}</r:{operation}>"
    elif operation in ("Sequence", "LastMessage"):
        last = "<r:LastMessage/>" if operation == "LastMessage" else ""
        header = (
            f"<r:Sequence>{named}<r:MessageNumber>{number}</r:MessageNumber>{last}</r:Sequence>"
        )
        body = "<n/>"
    elif operation == "AckRequested":
        header = f"<r:AckRequested>{named}</r:AckRequested>"
    elif operation == "SequenceAcknowledgement":
        header = (
            f'<r:{operation}>{named}<r:AcknowledgementRange Lower="1" '
            f'Upper="{number}"/></r:{operation}>'
        )
    elif operation == "MakeConnection":
        body = (
            f'<m:MakeConnection xmlns:m="{MAKE_CONNECTION}"><m:Address>{acks_to}</m:Add'
            "ress></m:MakeConnection>"
        )
    elif operation == "Fault":
        body = "<s:Fault><faultcode>s:Client</faultcode><faultstring>no</faultstring></s:Fault>"
    return (
        f'<s:Envelope xmlns:s="{soap.value}" xmlns:a="{addressing.value}" '
        f'xmlns:r="{rm.value}"><s:Header>'
        f"<a:Action>{rm.value}/{operation}</a:Action><a:MessageID>urn:m{number}</a:MessageID>{header}</s:Header>"
        f"<s:Body>{body}</s:Body></s:Envelope>"
    ).encode()


def ask(queue: Queue, envelope: bytes, owner: str = "") -> list[SoapMessage | None]:
    """What is said, and that every word of it can be written."""
    message = decode(envelope)
    received = queue.destination.receive(message, "post", queue.now, queue.utc, owner)
    (outputs,) = queue.commit(received)
    said = []
    for output in outputs:
        if isinstance(output, RespondLater):
            late = queue.destination.answer(output.received, queue.now)
            said += [each.message for each in late if not isinstance(each, RespondLater)]
        else:
            said.append(output.message)
    for each in said:
        assert each is None or decode(encode(each))
    return said


def test_three_requests_of_two_versions_end_nothing() -> None:
    """CreateSequence of 1.0, CloseSequence of 1.1 that names it, a message of 1.0 in it."""
    queue = Queue(versions=OLD)
    identifier = queue.open()
    (fault,) = ask(queue, request(NEW, "CloseSequence", identifier, 2, acks_to=""))
    assert fault is not None
    assert isinstance(fault.content, SoapFault)
    assert "another version" in fault.content.reason
    assert queue.told(queue.number(1)) == (((1, 1),), 7), "its own client does not notice"


@pytest.mark.parametrize(
    "operation", ["CloseSequence", "TerminateSequence", "Sequence", "AckRequested"]
)
@pytest.mark.parametrize("mine", VERSIONS)
def test_a_sequence_is_moved_by_its_own_version_alone(operation: str, mine: Versions) -> None:
    queue = Queue(versions=mine)
    identifier = queue.open()
    before = queue.rows[identifier]
    for other in VERSIONS:
        if other[1:] == mine[1:] or (operation == "CloseSequence" and other[2] is RmVersion.V1_0):
            continue
        for number in (1, 2):
            (said,) = ask(queue, request(other, operation, identifier, number, acks_to=""))
            assert said is not None
            assert isinstance(said.content, SoapFault)
    assert queue.rows[identifier] == before
    assert queue.delivered == []


def test_a_closed_sequence_of_1_0_that_an_earlier_release_stored_answers_all_the_same() -> None:
    queue = Queue(versions=OLD)
    identifier = queue.open()
    queue.rows[identifier] = queue.rows[identifier]._replace(state=InboundState.CLOSED)
    queue.restart()
    assert queue.fault_of(queue.number(1)).subcode.endswith("}SequenceTerminated")


@pytest.mark.parametrize("seed", range(60))
def test_no_sequence_of_requests_raises_anything_but_a_refusal(seed: int) -> None:
    rng = random.Random(seed)
    queue = Queue(rng.choice((0, 1, 8)), sequences_max=12, sequences_of_one_max=4)
    known = ["urn:nobody"]
    for step in range(250):
        versions = rng.choice(VERSIONS)
        if rng.random() < 0.2:  # a mixture that no version allows
            versions = (
                versions[0],
                rng.choice(list(AddressingVersion)),
                rng.choice(list(RmVersion)),
            )
        anonymous = versions[1].anonymous
        acks_to = rng.choice(
            (
                anonymous,
                anonymous,
                "http://c.example/acks",
                f"{MAKE_CONNECTION_ANONYMOUS}1",
                versions[1].none,
            )
        )
        operation = rng.choice(OPERATIONS)
        envelope = request(
            versions,
            operation,
            rng.choice(known),
            rng.randint(1, 6),
            acks_to=acks_to,
            offer=rng.choice(("", "urn:offer")),
        )
        try:
            said = ask(queue, envelope, owner=rng.choice("abcd"))
        except RemoteProtocolError:
            continue
        known += [
            each.content.identifier
            for each in said
            if each and isinstance(each.content, CreateSequenceResponse)
        ]
        del known[1:-8]
        queue.now += rng.choice((0.0, 0.1, 30.0, 700.0))
        queue.destination.set_room(rng.randint(0, 8))
        for output in queue.destination.poll(queue.now, queue.utc):
            assert not isinstance(output, RespondLater)
            assert output.message is None or decode(encode(output.message))
        if step % 40 == 39:
            queue.commit()
            queue.restart()


# --- what is stored can be read again -----------------------------------------------------------------------


def with_parameter(declared: int, parameter: str, address: str = "http://c.example/acks") -> bytes:
    """A CreateSequence whose Envelope and Body declare so many prefixes each."""
    soap, addressing, rm = NEW
    outer = "".join(f' xmlns:e{number}="urn:e{number}"' for number in range(declared))
    inner = "".join(f' xmlns:b{number}="urn:b{number}"' for number in range(declared))
    return (
        f'<s:Envelope xmlns:s="{soap.value}" xmlns:a="{addressing.value}" '
        f'xmlns:r="{rm.value}"{outer}><s:Header>'
        f"<a:Action>{rm.value}/CreateSequence</a:Action><a:MessageID>urn:m1</a:MessageID></s:Header><s:Body{inner}>"
        f"<r:CreateSequence><r:AcksTo><a:Address>{address}</a:Address><a:ReferenceParameters>{parameter}"
        "</a:ReferenceParameters></r:AcksTo></r:CreateSequence></s:Body></s:Envelope>"
    ).encode()


def test_a_reference_parameter_in_the_scope_of_many_declarations_is_stored_with_those_that_it_uses() -> (
    None
):
    queue = Queue()
    ask(queue, with_parameter(55, '<e7:session e9:kind="b3:Order">b5:x</e7:session>'))
    (row,) = queue.rows.values()
    text = text_of(row.acks_to, row.addressing)
    assert endpoint_of(text) == row.acks_to
    assert [f"urn:{name}" in text for name in ("e7", "e9", "b3", "b5", "e1", "b1")] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]


def test_one_that_no_reader_could_read_again_is_refused_before_anything_is_stored() -> None:
    queue = Queue()
    names = " ".join(f"e{number}:x b{number}:y" for number in range(ATTRIBUTES_MAX - 5))
    (said,) = ask(queue, with_parameter(ATTRIBUTES_MAX - 5, f"<e7:session>{names}</e7:session>"))
    assert said is not None
    assert isinstance(said.content, SoapFault)
    assert "AcksTo cannot be written again" in said.content.reason
    assert queue.rows == {}


# --- the work that a stranger's bytes cause ------------------------------------------------------------------


def cpu_of(envelope: bytes) -> float:
    began = time.process_time()
    with contextlib.suppress(RemoteProtocolError):
        decode(envelope)
    return time.process_time() - began


def test_long_prefixes_that_are_not_ascii_cost_no_more_than_others() -> None:
    """480 KB of it took 35 seconds: one regular expression a prefix over the whole Body."""
    soap, addressing, _ = NEW
    declared = "".join(f' xmlns:{"é" * 500}{number}="urn:{number}"' for number in range(60))
    envelope = (
        f'<s:Envelope xmlns:s="{soap.value}" xmlns:a="{addressing.value}"><s:Header><a:Act'
        "ion>urn:a</a:Action></s:Header>"
        f"<s:Body{declared}><x>{'é' * 200_000}</x></s:Body></s:Envelope>"
    ).encode()
    assert cpu_of(envelope) < 0.2


def test_a_large_body_costs_the_same_with_many_prefixes_in_scope() -> None:
    """4 MB with 124 short prefixes took eight seconds."""
    soap, addressing, _ = NEW
    declared = [
        "".join(f' xmlns:{letter}{number}="urn:{letter}{number}"' for number in range(62))
        for letter in "eb"
    ]
    envelope = (
        f'<s:Envelope xmlns:s="{soap.value}" xmlns:a="{addressing.value}"{declared[0]}><s:'
        "Header><a:Action>urn:a</a:Action>"
        f"</s:Header><s:Body{declared[1]}><x>{'some text of an order ' * 180_000}</x></s:B"
        "ody></s:Envelope>"
    ).encode()
    assert cpu_of(envelope) < 1.0


def test_reference_parameters_are_judged_while_they_are_written() -> None:
    soap, addressing, rm = NEW
    declared = "".join(f' xmlns:e{number}="urn:{"x" * 900}{number}"' for number in range(60))
    parameters = '<e1:p a="e2:e3:e4:e5:e6:e7:e8:e9:"/>' * 900
    envelope = (
        f'<s:Envelope xmlns:s="{soap.value}" xmlns:a="{addressing.value}" '
        f'xmlns:r="{rm.value}"><s:Header>'
        f"<a:Action>{rm.value}/CreateSequence</a:Action></s:Header><s:Body{declared}><r:CreateSequence><r:AcksTo>"
        f"<a:Address>http://c/</a:Address><a:ReferenceParameters>{parameters}</a:ReferenceParameters></r:AcksTo>"
        "</r:CreateSequence></s:Body></s:Envelope>"
    ).encode()
    assert len(parameters) > REFERENCE_PARAMETERS_MAX
    assert cpu_of(envelope) < 0.2


# --- what one client can take from the others ----------------------------------------------------------------


def test_one_client_cannot_use_up_the_sequences_of_a_queue() -> None:
    queue = Queue(sequences_max=20, sequences_of_one_max=5)
    begun = [
        ask(queue, request(NEW, "CreateSequence", "", number, acks_to=NEW[1].anonymous), "flood")
        for number in range(50)
    ]
    made = [said for (said,) in begun if said and isinstance(said.content, CreateSequenceResponse)]
    assert len(made) == 5
    (said,) = ask(queue, request(NEW, "CreateSequence", "", 99, acks_to=NEW[1].anonymous), "honest")
    assert said is not None
    assert isinstance(said.content, CreateSequenceResponse)


def test_sequences_that_were_begun_and_left_make_way_for_their_own_client_s_next_one() -> None:
    """Both may stand behind one address: the flood must not shut the honest client out for ten minutes."""
    queue = Queue(sequences_max=20, sequences_of_one_max=5)
    working = queue.open(message_id="urn:working")
    queue.say(queue.number(1))
    for number in range(50):
        ask(queue, request(NEW, "CreateSequence", "", number, acks_to=NEW[1].anonymous))
    queue.now += queue.settings.unused_spared
    (said,) = ask(queue, request(NEW, "CreateSequence", "", 99, acks_to=NEW[1].anonymous))
    assert said is not None
    assert isinstance(said.content, CreateSequenceResponse)
    assert working in queue.rows, "one that took messages never makes way"
    assert len(queue.rows) == 5


def test_one_client_s_gap_takes_nothing_from_another_client_s_room() -> None:
    queue = Queue(4)
    queue.open(message_id="urn:gap")
    for number in (2, 3, 4, 5):
        _, room = queue.told(queue.number(number))
    assert room == 0, "the room of its own"
    queue.open(message_id="urn:other")
    assert queue.told(queue.number(1)) == (((1, 1),), 3), (
        "one row is in the queue, and three more have room"
    )


def test_a_proof_is_needed_for_every_answer() -> None:
    queue = Queue()
    received = queue.receive(queue.create())
    queue.destination.changes()
    assert queue.destination.committed([received], Committed(1), queue.now)
    assert EndpointReference("http://c/") == endpoint_of("http://c/")
