"""The codec of WS-ReliableMessaging: others are read, the schemas accept what we write, and it means what was meant."""

from __future__ import annotations

import pytest
from lxml import etree
from wsrm_kit import SEQUENCE, VERSIONS, plain, schema_faults, wcf_trace, wire, wire_names

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.decoder import decode
from srmp_spark.wsrm.elements import (
    ABSENT,
    AckRequested,
    CloseSequence,
    CloseSequenceResponse,
    Content,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    Fault,
    IncompleteSequenceBehavior,
    MakeConnection,
    Offer,
    Sequence,
    SequenceAcknowledgement,
    SoapMessage,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.encoder import encode, http_fields
from srmp_spark.wsrm.faults import FaultCode, code_of, fault_of
from srmp_spark.wsrm.namespaces import AddressingVersion, RmVersion, SoapVersion

Versions = tuple[SoapVersion, AddressingVersion, RmVersion]
ACKNOWLEDGEMENTS = {
    "ranges": SequenceAcknowledgement(SEQUENCE, ((1, 3), (5, 9)), buffer_remaining=4),
    "nothing yet": SequenceAcknowledgement(SEQUENCE, (), buffer_remaining=8),
    "nacks": SequenceAcknowledgement(SEQUENCE, (), (4, 7), buffer_remaining=0),
    "without a buffer": SequenceAcknowledgement(SEQUENCE, ((1, 1),)),
    "the highest number": SequenceAcknowledgement(SEQUENCE, ((1, 2**63 - 1),), buffer_remaining=2**31 - 1),
}
HERE = EndpointReference("http://here.example/acks")


# --- what others sent -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", wire_names())
def test_every_message_of_cxf_and_metro_is_read(name: str) -> None:
    message = decode(wire(name))
    assert message.refused == ()
    wanted = {"rm10a04": (RmVersion.V1_0, AddressingVersion.V2004_08), "rm10": (RmVersion.V1_0, AddressingVersion.V2005_08),
              "rm11": (RmVersion.V1_1, AddressingVersion.V2005_08)}[name.split("_")[2]]  # fmt: skip
    assert message.addressing is wanted[1]
    assert message.rm in (wanted[0], None)


def test_the_content_of_captured_messages() -> None:
    created = decode(wire("metro_wire_rm11_CreateSequence"))
    assert isinstance(created.content, CreateSequence)
    assert created.content.acks_to.address == AddressingVersion.V2005_08.anonymous
    closed = decode(wire("metro_wire_rm11_CloseSequence"))
    assert isinstance(closed.content, CloseSequence)
    polled = decode(wire("metro_wire_rm11_mc_MakeConnection"))
    assert isinstance(polled.content, MakeConnection)
    last = decode(wire("metro_wire_rm10_LastMessage")).sequence
    assert last is not None
    assert last.is_last
    message = decode(wire("metro_wire_rm11_Message"))
    assert message.sequence is not None
    assert message.sequence.number == 1
    assert message.ack_requested == (AckRequested(message.sequence.identifier),)
    assert b"m-000001" in message.body


def test_none_beside_ranges_counts_for_nothing() -> None:
    """CXF writes it into every acknowledgement of 1.1."""
    sent = wire("cxf_wire_rm11_SequenceAcknowledgement")
    assert b"None" in sent
    (ack,) = decode(sent).acknowledgements
    assert ack.ranges
    assert ack.buffer_remaining == ABSENT


@pytest.mark.parametrize("code", ["InvalidAcknowledgement", "SequenceClosed", "SequenceTerminated", "UnknownSequence"])
def test_the_faults_of_metro_are_told_apart(code: str) -> None:
    fault = decode(wire(f"metro_wire_rm11_fault_{code}")).content
    assert isinstance(fault, Fault)
    found = code_of(fault)
    assert found is not None
    assert found.subcode_name == code


def test_the_trace_of_wcf_is_read() -> None:
    messages = {number: decode(message) for number, message in wcf_trace().items()}
    offered = messages[1].content
    assert isinstance(offered, CreateSequence)
    assert offered.offer is not None
    answered = messages[2].content
    assert isinstance(answered, CreateSequenceResponse)
    assert answered.accept is not None
    assert messages[2].relates_to == messages[1].message_id
    assert messages[3].sequence == Sequence(answered.identifier, 1)
    assert messages[4].acknowledgements == (SequenceAcknowledgement(answered.identifier, ((1, 1),), buffer_remaining=8),)
    assert messages[4].ack_requested == (AckRequested(offered.offer.identifier),)
    assert messages[5].acknowledgements[0].buffer_remaining == 8
    assert messages[10].sequence == Sequence(answered.identifier, 4, is_last=True)


# --- what we write ----------------------------------------------------------------------------------------------------------


def _again(message: SoapMessage) -> SoapMessage:
    """Written and read; the schema has nothing against it."""
    assert message.rm is not None
    written = encode(message)
    assert schema_faults(written, message.rm, message.addressing) == []
    return decode(written)


@pytest.mark.parametrize("versions", VERSIONS, ids=lambda v: "-".join(each.name for each in v))
@pytest.mark.parametrize("name", ACKNOWLEDGEMENTS)
def test_acknowledgements_are_valid_and_buffer_remaining_is_last(versions: Versions, name: str) -> None:
    """[MS-WSRVCRM] 2.2.1."""
    ack = ACKNOWLEDGEMENTS[name]
    message = plain(versions, acknowledgements=(ack,))
    assert _again(message).acknowledgements == (ack,)
    (block,) = etree.fromstring(encode(message)).iter(f"{{{versions[2].value}}}SequenceAcknowledgement")
    children = [etree.QName(child).localname for child in block]
    assert children.count("BufferRemaining") == (ack.buffer_remaining != ABSENT)
    assert ack.buffer_remaining == ABSENT or children[-1] == "BufferRemaining"


@pytest.mark.parametrize("versions", VERSIONS, ids=lambda v: "-".join(each.name for each in v))
def test_a_message_of_a_sequence_is_valid_and_its_body_untouched(versions: Versions) -> None:
    body = '<o:order xmlns:o="urn:o">\n <!-- ü --><![CDATA[<&>]]></o:order>'.encode()
    sent = plain(
        versions, to="http://there.example/q?a=1&b=2", message_id="urn:uuid:1",
        sequence=Sequence(SEQUENCE, 7, is_last=versions[2] is RmVersion.V1_0),
        ack_requested=(AckRequested(SEQUENCE),), body=body,
    )  # fmt: skip
    read = _again(sent)
    assert (read.sequence, read.ack_requested, read.body, read.to) == (sent.sequence, sent.ack_requested, body, sent.to)


def _contents(rm: RmVersion) -> list[Content]:
    is_new = rm is RmVersion.V1_1
    behavior = IncompleteSequenceBehavior.NO_DISCARD if is_new else None
    common: list[Content] = [
        CreateSequence(HERE),
        CreateSequence(HERE, 90_500, Offer("urn:uuid:2", HERE if is_new else None, 1_000, behavior)),
        CreateSequenceResponse(SEQUENCE),
        CreateSequenceResponse(SEQUENCE, 0, behavior, HERE),
        TerminateSequence(SEQUENCE),
    ]
    new: list[Content] = [
        TerminateSequence(SEQUENCE, 9), TerminateSequenceResponse(SEQUENCE), CloseSequence(SEQUENCE),
        CloseSequence(SEQUENCE, 9), CloseSequenceResponse(SEQUENCE),
    ]  # fmt: skip
    return common + (new if is_new else [])


@pytest.mark.parametrize("versions", VERSIONS, ids=lambda v: "-".join(each.name for each in v))
def test_bodies_of_the_protocol_are_valid_and_read_as_they_were_meant(versions: Versions) -> None:
    for content in _contents(versions[2]):
        assert _again(plain(versions, content=content)).content == content


@pytest.mark.parametrize("versions", VERSIONS, ids=lambda v: "-".join(each.name for each in v))
@pytest.mark.parametrize("code", FaultCode)
def test_every_fault_is_told_in_both_versions_of_soap(versions: Versions, code: FaultCode) -> None:
    read = decode(encode(plain(versions, content=fault_of(code, versions[2], SEQUENCE)))).content
    assert isinstance(read, Fault)
    assert code_of(read) is code


def test_final_is_of_1_1_and_stands_before_the_buffer() -> None:
    final = SequenceAcknowledgement(SEQUENCE, ((1, 2),), is_final=True, buffer_remaining=3)
    for versions in VERSIONS:
        if versions[2] is RmVersion.V1_1:
            assert _again(plain(versions, acknowledgements=(final,))).acknowledgements == (final,)
        else:
            with pytest.raises(LocalProtocolError):
                encode(plain(versions, acknowledgements=(final,)))


@pytest.mark.parametrize("ack", [
    SequenceAcknowledgement(SEQUENCE, ((1, 2),), (3,)),
    SequenceAcknowledgement(SEQUENCE, (), (3,), is_final=True),
    SequenceAcknowledgement(SEQUENCE, ((3, 2),)),
    SequenceAcknowledgement(SEQUENCE, ((0, 2),)),
    SequenceAcknowledgement(SEQUENCE, ((1, 2**63),)),
    SequenceAcknowledgement(SEQUENCE, ((1, 1),), buffer_remaining=2**31),
    SequenceAcknowledgement(SEQUENCE, ((1, 1),), buffer_remaining=-2),
])  # fmt: skip
def test_what_no_acknowledgement_can_say_is_not_written(ack: SequenceAcknowledgement) -> None:
    with pytest.raises(LocalProtocolError):
        encode(plain(VERSIONS[-1], acknowledgements=(ack,)))


def test_http_names_the_action() -> None:
    old, new = plain(VERSIONS[0]), plain(VERSIONS[-1])
    assert http_fields(old) == {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": '"urn:do"'}
    assert http_fields(new) == {"Content-Type": 'application/soap+xml; charset=utf-8; action="urn:do"'}
