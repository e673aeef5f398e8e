"""Messages of WS-ReliableMessaging, both ways: real peers' bytes, every element in every version, the published schemas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from wsrm_kit import (
    IDS,
    VERSIONS,
    anonymous,
    document_examples,
    message,
    sample,
    schema_faults,
    wcf_trace,
    wire,
)

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.wsrm import limits
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import (
    ABSENT,
    AckRequested,
    Blame,
    CloseSequence,
    CloseSequenceResponse,
    Content,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    IncompleteSequenceBehavior,
    MakeConnection,
    Offer,
    Sequence,
    SequenceAcknowledgement,
    SoapFault,
    SoapMessage,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.codec.encoder import encode, http_fields
from srmp_spark.wsrm.codec.faults import FaultCode, SoapFaultError, code_of, fault_of
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion

A = "urn:uuid:0b162747-99cf-479c-972f-95b776e141c3"
NEW = pytest.mark.parametrize("versions", VERSIONS, ids=IDS)
THE_CODE_ITSELF = {
    FaultCode.CREATE_SEQUENCE_REFUSED,
    FaultCode.MISSING_SELECTION,
    FaultCode.UNSUPPORTED_SELECTION,
}
"""Faults that SOAP 1.1 tells as its faultcode."""
Versions = tuple[SoapVersion, AddressingVersion, RmVersion]


def what_it_says(read: SoapMessage) -> SoapMessage:
    """Without the spelling of a Body that the fields of the message repeat, and without what counts for nothing."""
    return replace(read, body=b"" if read.content is not None else read.body, refused=())


# --- what peers send --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", wire())
def test_every_message_of_cxf_and_metro_is_read_and_means_the_same_when_we_write_it(
    name: str,
) -> None:
    read = decode(wire()[name])
    assert read.refused == ()
    written = encode(read)
    assert what_it_says(decode(written)) == what_it_says(read)
    assert schema_faults(written) == []


def test_the_wcf_trace_of_2007() -> None:
    create, created, first, reply, ack, last = map(decode, wcf_trace())
    assert isinstance(create.content, CreateSequence)
    assert create.content.offer == Offer("urn:uuid:be73ae30-145a-4bd6-bf04-ee6a3b1edfce")
    assert isinstance(created.content, CreateSequenceResponse)
    assert created.relates_to == create.message_id
    assert created.content.accept == EndpointReference(create.to)
    ours, theirs = created.content.identifier, create.content.offer.identifier
    assert (first.sequence, first.ack_requested) == (Sequence(ours, 1), (AckRequested(ours),))
    assert first.body == b'<BilesenAl xmlns="http://www.bsenyurt.com/FabrikaLib/UretimServisi"/>'
    assert reply.acknowledgements == (SequenceAcknowledgement(ours, ((1, 1),), buffer_remaining=8),)
    assert ack.acknowledgements == (SequenceAcknowledgement(theirs, ((1, 1),), buffer_remaining=8),)
    assert last.sequence == Sequence(ours, 4, is_last=True)
    for original, read in zip(wcf_trace(), (create, created, first, reply, ack, last), strict=True):
        assert decode(encode(read)) == read
        assert schema_faults(original) == []


def test_the_seven_messages_of_the_document_with_its_quotation_marks_put_right() -> None:
    """[MS-WSRVCRM] 4.1: white space around every value, as printed there."""
    read = [decode(each) for each in document_examples()]
    assert [each.sequence.number if each.sequence else None for each in read] == [
        1,
        None,
        2,
        None,
        None,
        3,
        None,
    ]
    acks = [each.acknowledgements[0] for each in read if each.acknowledgements]
    assert [(ack.ranges, ack.buffer_remaining) for ack in acks] == [
        (((1, 1),), 1), (((1, 2),), 0), (((1, 2),), 1), (((1, 3),), 0),
    ]  # fmt: skip
    assert {ack.identifier for ack in acks} == {A}


def test_as_the_document_prints_them_four_of_the_seven_are_no_xml() -> None:
    printed = sample("mswsrvcrm_4.1_as_printed.txt").splitlines()
    for line, mended in zip(printed, document_examples(), strict=True):
        if line == mended:
            decode(line)
        else:
            with pytest.raises(RemoteProtocolError, match="not well-formed"):
                decode(line)
    assert (
        sum(line != mended for line, mended in zip(printed, document_examples(), strict=True)) == 4
    )


def test_none_beside_ranges_counts_for_nothing() -> None:
    """CXF writes it into every acknowledgement of 1.1."""
    read = decode(sample("cxf_wire_rm11_SequenceAcknowledgement.xml"))
    assert read.acknowledgements[0].ranges == ((1, 1),)
    assert schema_faults(sample("cxf_wire_rm11_SequenceAcknowledgement.xml")) != []
    assert schema_faults(encode(read)) == []


def test_an_acknowledgement_that_breaks_the_schema_is_refused_and_the_message_is_not() -> None:
    read = decode(sample("sandesha2_SequenceAcknowledgement.xml"))
    assert read.acknowledgements == ()
    assert read.refused == (
        "<Identifier> is missing in <SequenceAcknowledgement>, or not in its place",
    )
    assert read.from_ == EndpointReference("http://localhost:8070/axis/services/TestService")


# --- what we write ----------------------------------------------------------------------------------------------------------


def contents(versions: Versions) -> list[Content]:
    _, addressing, rm = versions
    here, is_new = anonymous(addressing), rm is RmVersion.V1_1
    offer = Offer("urn:o", EndpointReference("http://c/x?a&b") if is_new else None, 0,
                  IncompleteSequenceBehavior.NO_DISCARD if is_new else None)  # fmt: skip
    found: list[Content] = [
        CreateSequence(here), CreateSequence(here, 60_500, offer), CreateSequence(EndpointReference("http://c/<&>'x"), 0),
        CreateSequenceResponse(A), CreateSequenceResponse(A, 1, None, here), TerminateSequence(A),
        *(fault_of(code, rm, A) for code in FaultCode if code.is_of(rm)),
    ]  # fmt: skip
    if is_new:
        found += [
            TerminateSequence(A, 7), TerminateSequenceResponse(A), CloseSequence(A), CloseSequence(A, 7),
            CloseSequenceResponse(A),
            CreateSequenceResponse(A, 0, IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP, here),
            MakeConnection("http://docs.oasis-open.org/ws-rx/wsmc/200702/anonymous?id=1"), MakeConnection(),
        ]  # fmt: skip
    return found


@NEW
def test_every_body_in_every_version_is_read_as_written_and_valid(
    versions: Versions,
) -> None:
    for content in contents(versions):
        envelope = encode(
            message(versions, content=content, message_id="urn:m", to="http://h/q?a=1&b=2")
        )
        read = decode(envelope).content
        if isinstance(content, SoapFault) and isinstance(read, SoapFault) and not read.identifier:
            content = replace(
                content, identifier=""
            )  # SOAP 1.1 has no place for it in 1.0, or for CreateSequenceRefused
            assert versions[0] is SoapVersion.V1_1
        if (
            isinstance(content, SoapFault)
            and code_of(content) in THE_CODE_ITSELF
            and versions[0] is SoapVersion.V1_1
        ):
            content = replace(
                content, blame=Blame.OTHER
            )  # it is the code, which then says nothing of the blame
        assert read == content
        assert schema_faults(envelope) == []


@NEW
def test_every_header_in_every_version_is_read_as_written_and_valid(
    versions: Versions,
) -> None:
    _, addressing, rm = versions
    is_new = rm is RmVersion.V1_1
    acks = [
        SequenceAcknowledgement("urn:1"), SequenceAcknowledgement("urn:1", buffer_remaining=0),
        SequenceAcknowledgement("urn:1", ((1, 1), (3, 9)), buffer_remaining=2**31 - 1),
        SequenceAcknowledgement("urn:1", (), (2, 4)),
        SequenceAcknowledgement("urn:1", (), (2,), buffer_remaining=8), SequenceAcknowledgement("urn:1", ((1, 2**63 - 1),)),
    ]  # fmt: skip
    acks += (
        [
            SequenceAcknowledgement("urn:1", ((1, 2),), (), True, 8),
            SequenceAcknowledgement("urn:1", (), (), True),
        ]
        if is_new
        else []
    )
    for ack in acks:
        sent = message(
            versions, sequence=Sequence(A, 2**63 - 1, not is_new), ack_requested=(AckRequested(A),), acknowledgements=(ack,),
            message_id="urn:m", relates_to="urn:r", reply_to=anonymous(addressing), fault_to=EndpointReference("http://f/"),
            from_=EndpointReference("http://me/"), to="http://h/q", message_pending=True if is_new else None, body=b"<x/>",
        )  # fmt: skip
        envelope = encode(sent)
        assert decode(envelope) == sent
        assert schema_faults(envelope) == []
        if (
            ack.buffer_remaining != ABSENT
        ):  # [MS-WSRVCRM] 2.2.1: in the extensibility element, which is the last
            assert envelope.split(b"</r:SequenceAcknowledgement>")[0].endswith(
                b"</netrm:BufferRemaining>"
            )


@pytest.mark.parametrize(
    "ack",
    [
        SequenceAcknowledgement(A, ((1, 2),), (3,)), SequenceAcknowledgement(A, ((3, 4), (1, 2))),
        SequenceAcknowledgement(A, ((2, 1),)),
        SequenceAcknowledgement(A, ((0, 0),)), SequenceAcknowledgement(A, (), (0,)), SequenceAcknowledgement(A, ((1, 2**63),)),
        SequenceAcknowledgement(A, buffer_remaining=2**31), SequenceAcknowledgement(A, buffer_remaining=-2),
        SequenceAcknowledgement(A, (), (3,), True),
    ],
)  # fmt: skip
def test_what_no_acknowledgement_can_say_is_never_written(ack: SequenceAcknowledgement) -> None:
    with pytest.raises(LocalProtocolError, match="no acknowledgement can say"):
        encode(message(acknowledgements=(ack,)))


def test_what_one_version_has_and_the_other_has_not_is_never_written() -> None:
    old = VERSIONS[3]
    for wrong in (
        message(old, acknowledgements=(SequenceAcknowledgement(A, ((1, 1),), (), True),)),
        message(old, content=CloseSequence(A)),
        message(old, content=TerminateSequence(A, 3)), message(old, content=TerminateSequenceResponse(A)),
        message(old, content=CreateSequence(EndpointReference("urn:x"), None, Offer("urn:o", EndpointReference("urn:e")))),
        message(content=CreateSequence(EndpointReference("urn:x"), None, Offer("urn:o"))),
        message(sequence=Sequence(A, 1, True)),
        message(sequence=Sequence(A, 0)), replace(message(content=CloseSequence(A)), rm=None),
        replace(message(), addressing=AddressingVersion.V2004_08), replace(message(sequence=Sequence(A, 1)), rm=None),
        message(old, content=CreateSequenceResponse(A, None, IncompleteSequenceBehavior.NO_DISCARD)),
    ):  # fmt: skip
        with pytest.raises(LocalProtocolError):
            encode(wrong)


def test_http_names_the_action_once_more() -> None:
    assert http_fields(message(VERSIONS[0], action="urn:a")) == {
        "Content-Type": "text/xml; charset=utf-8",
        "SOAPAction": '"urn:a"',
    }
    assert http_fields(message(VERSIONS[5], action='urn:"a')) == {
        "Content-Type": 'application/soap+xml; charset=utf-8; action="urn:\\"a"'
    }


# --- BufferRemaining --------------------------------------------------------------------------------------------------------


def with_ack(inner: str, rm: RmVersion = RmVersion.V1_1) -> SoapMessage:
    envelope = encode(
        message((SoapVersion.V1_2, AddressingVersion.V2005_08, rm), sequence=Sequence(A, 1))
    ).decode()
    block = (
        f'<r:SequenceAcknowledgement xmlns:n="http://schemas.microsoft.com/ws/2006/05/rm"><r:Identifier>{A}</r:Identifier>'
        f"{inner}</r:SequenceAcknowledgement></s:Header>"
    )
    return decode(envelope.replace("</s:Header>", block).encode())


ONE = '<r:AcknowledgementRange Upper=" 3" Lower="1"/>'


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), (" 8\n", 8), ("2147483647", 2147483647), ("+7", 7), ("007", 7)]
)
def test_buffer_remaining_is_an_int_of_31_bits(text: str, value: int) -> None:
    """[MS-WSRVCRM] 2.2.3."""
    for rm in RmVersion:
        (ack,) = with_ack(
            f"{ONE}<n:BufferRemaining>{text}</n:BufferRemaining>", rm
        ).acknowledgements
        assert ack == SequenceAcknowledgement(A, ((1, 3),), buffer_remaining=value)


@pytest.mark.parametrize(
    "inner",
    [
        *(f"{ONE}<n:BufferRemaining>{bad}</n:BufferRemaining>"
          for bad in ("-1", "", "x", "1.0", "2147483648", "99999999999999999999999", "1 2", "<a/>1", "０")),
        f"{ONE}<n:BufferRemaining>1</n:BufferRemaining><n:BufferRemaining>1</n:BufferRemaining>",
        f"<n:BufferRemaining>1</n:BufferRemaining>{ONE}",
        f"{ONE}<n:BufferRemaining>1</n:BufferRemaining><r:Final/>",
        "<n:BufferRemaining>1</n:BufferRemaining><r:Nack>2</r:Nack>",
        "<n:BufferRemaining>1</n:BufferRemaining>",
        f"{ONE}<r:Nack>2</r:Nack>", "<r:None/><r:Nack>2</r:Nack>", "<r:Nack>2</r:Nack><r:Final/>", "<r:Nack>0</r:Nack>",
        '<r:AcknowledgementRange Lower="2" Upper="1"/>', '<r:AcknowledgementRange Lower="0" Upper="1"/>',
        '<r:AcknowledgementRange Lower="1"/>', '<r:AcknowledgementRange Lower="1" Upper="9223372036854775808"/>',
    ],
)  # fmt: skip
def test_an_invalid_acknowledgement_is_refused_alone(inner: str) -> None:
    read = with_ack(inner)
    assert read.acknowledgements == ()
    assert len(read.refused) == 1
    assert read.sequence == Sequence(A, 1)


def test_a_buffer_remaining_of_another_namespace_is_somebody_elses() -> None:
    (ack,) = with_ack(
        f'{ONE}<BufferRemaining xmlns="urn:x">0</BufferRemaining><y xmlns="urn:y"/>'
    ).acknowledgements
    assert ack.buffer_remaining == ABSENT


def test_ranges_are_told_in_order_and_merged() -> None:
    ranges = "".join(
        f'<r:AcknowledgementRange Lower="{a}" Upper="{b}"/>'
        for a, b in ((5, 6), (1, 2), (3, 3), (6, 8))
    )
    assert with_ack(ranges).acknowledgements[0].ranges == ((1, 3), (5, 8))
    assert (
        with_ack('<r:AcknowledgementRange Lower="0" Upper="0"/>', RmVersion.V1_0)
        .acknowledgements[0]
        .ranges
        == ()
    )
    for count, taken in ((limits.RANGES_MAX, 1), (limits.RANGES_MAX + 1, 0)):
        many = "".join(
            f'<r:AcknowledgementRange Lower="{2 * n}" Upper="{2 * n}"/>'
            for n in range(1, count + 1)
        )
        assert len(with_ack(many).acknowledgements) == taken


# --- addressing, faults, Body -----------------------------------------------------------------------------------------------


def test_reference_parameters_go_back_as_they_came() -> None:
    """WS-Addressing 1.0 SOAP binding 3.2: as headers, marked in 2005/08; prefixes in their texts must still mean something."""
    parameters = (
        '<k:Key xmlns:k="urn:k" xmlns:x="urn:x" a="1&lt;" k:b="2">x:y &amp; '
        '<k:in/>tail</k:Key><plain xmlns="">7</plain>'
    )
    acks_to = f"<a:Address>http://c/</a:Address><a:ReferenceParameters>{parameters}</a:ReferenceParameters><a:Metadata/>"
    envelope = encode(message(content=CreateSequence(EndpointReference("http://c/")))).decode()
    read = decode(envelope.replace("<a:Address>http://c/</a:Address>", acks_to).encode())
    assert isinstance(read.content, CreateSequence)
    endpoint = read.content.acks_to
    assert decode(encode(read)).content == read.content
    sent = encode(
        message(
            parameters=endpoint.reference_parameters, acknowledgements=(SequenceAcknowledgement(A),)
        )
    ).decode()
    assert 'rp:IsReferenceParameter="true"' in sent
    assert 'xmlns:x="urn:x"' in sent
    assert ">x:y &amp; <k:in></k:in>tail</k:Key>" in sent
    old = encode(message(VERSIONS[0], parameters=endpoint.reference_parameters)).decode()
    assert "IsReferenceParameter" not in old
    decode(sent.encode())
    too_long = acks_to.replace("x:y", "y" * limits.REFERENCE_PARAMETERS_MAX)
    with pytest.raises(SoapFaultError, match="REFERENCE_PARAMETERS_MAX"):
        decode(envelope.replace("<a:Address>http://c/</a:Address>", too_long).encode())


def test_a_body_can_be_read_without_its_envelope() -> None:
    """Declarations that it takes from further out are added, and nothing else is touched."""
    envelope = (
        '<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" '
        'xmlns:a="http://www.w3.org/2005/08/addressing" '
        'xmlns:x="urn:x" xmlns="urn:default" xmlns:unused="urn:u"><s:Header><a:Action>urn:'
        "a</a:Action></s:Header>"
        '<s:Body xmlns:xsd="urn:xsd&amp;"><x:one t="xsd:string" ><two/></x:one><three '
        'xmlns="" xmlns:x="urn:other" x:b=""/>'
        "</s:Body></s:Envelope>"
    )
    assert decode(envelope.encode()).body == (
        b'<x:one xmlns="urn:default" xmlns:x="urn:x" xmlns:xsd="urn:xsd&amp;" '
        b't="xsd:string" ><two/></x:one>'
        b'<three xmlns:xsd="urn:xsd&amp;" xmlns="" xmlns:x="urn:other" x:b=""/>'
    )
    same = "<b:body xmlns:b='urn:b'>\r\n <!-- kept --> <![CDATA[<]]> &#10;</b:body>"
    assert decode(encode(message(body=same.encode()))).body == same.encode()
    assert decode(encode(message())).body == b""


def test_faults_of_soap_1_1_are_in_a_header() -> None:
    """WS-ReliableMessaging 1.1 section 4: SOAP 1.1 has no subcodes."""
    for rm, versions in ((RmVersion.V1_0, VERSIONS[0]), (RmVersion.V1_1, VERSIONS[4])):
        envelope = encode(message(versions, content=fault_of(FaultCode.UNKNOWN_SEQUENCE, rm, A)))
        assert b"<r:SequenceFault><r:FaultCode>r:UnknownSequence</r:FaultCode>" in envelope
        assert b"<faultcode>s:Client</faultcode>" in envelope
        read = decode(envelope)
        assert isinstance(read.content, SoapFault)
        assert code_of(read.content) is FaultCode.UNKNOWN_SEQUENCE
        refused = encode(message(versions, content=fault_of(FaultCode.CREATE_SEQUENCE_REFUSED, rm)))
        assert b"SequenceFault" not in refused
        assert b":CreateSequenceRefused</faultcode>" in refused
    assert code_of(SoapFault(Blame.SENDER, "{urn:x}UnknownSequence")) is None


def test_metros_faults_say_which_sequence() -> None:
    read = decode(sample("metro_wire_rm11_fault_SequenceClosed.xml"))
    assert isinstance(read.content, SoapFault)
    assert code_of(read.content) is FaultCode.SEQUENCE_CLOSED
    assert read.content.identifier == "uuid:48552a54-0256-4abd-bfeb-98645484b637"
    assert read.rm is RmVersion.V1_1


def test_message_number_rollover_tells_the_highest_number() -> None:
    content = fault_of(FaultCode.MESSAGE_NUMBER_ROLLOVER, RmVersion.V1_1, A, max_number=9)
    assert decode(encode(message(content=content))).content == content
