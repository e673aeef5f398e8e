"""What a stranger may send instead of a SOAP message: each limit by its name, and nothing that SOAP forbids."""

from __future__ import annotations

import pytest
from wsrm_kit import VERSIONS, message

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.wsrm import limits
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import (
    AckRequested,
    Blame,
    CreateSequence,
    EndpointReference,
    Sequence,
    TerminateSequence,
)
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.faults import SoapFaultError
from srmp_spark.wsrm.codec.values import duration, format_duration

GOOD = encode(message(sequence=Sequence("urn:s", 1), message_id="urn:m", body=b"<b/>"))


def refused(
    envelope: bytes, match: str, kind: type[RemoteProtocolError] = RemoteProtocolError
) -> RemoteProtocolError:
    with pytest.raises(kind, match=match) as caught:
        decode(envelope)
    assert caught.value.section
    return caught.value


def header(block: str, envelope: bytes = GOOD) -> bytes:
    return envelope.replace(b"</s:Header>", block.encode() + b"</s:Header>")


@pytest.mark.parametrize(
    ("envelope", "match"),
    [
        (b"", "not well-formed"),
        (b"hello", "not well-formed"),
        (GOOD[:-1], "not well-formed"),
        (GOOD + b"<x/>", "not well-formed"),
        (b"<!DOCTYPE a>" + GOOD, "no document type"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]>' + GOOD, "no document type"),
        (b"<?pi x?>" + GOOD, "no processing instruction"),
        (GOOD.replace(b"<b/>", b"<?pi x?>"), "no processing instruction"),
        (b'<?xml version="1.0" encoding="utf-16"?>' + GOOD, "UTF-8|well-formed"),
        (b'<?xml version="1.0" encoding="iso-8859-1"?>' + GOOD, "UTF-8"),
        (GOOD.decode().encode("utf-16"), "UTF-8|well-formed"),
        (GOOD.replace(b"<b/>", b"\xff"), "UTF-8"),
        (GOOD.replace(b"<b/>", b"&b;"), "well-formed"),
        (GOOD.replace(b"<b/>", b"<u:b/>"), "well-formed"),
        (b"<Envelope/>", "no SOAP 1.1 or 1.2 Envelope"),
        (
            GOOD.replace(b"2003/05/soap-envelope", b"2001/12/soap-envelope"),
            "no SOAP 1.1 or 1.2 Envelope",
        ),
        (GOOD.replace(b"<s:Body><b/></s:Body>", b""), "holds a Body"),
        (GOOD.replace(b"<s:Body>", b"<s:Body/><s:Body>"), "one Header and, after it, one Body"),
        (GOOD.replace(b"</s:Body>", b"</s:Body><s:Header/>"), "one Header and, after it, one Body"),
        (GOOD.replace(b"</s:Body>", b"</s:Body><x/>"), "one Header and, after it, one Body"),
        (
            GOOD.replace(b"<s:Header>", b"<s:Header/><s:Header>"),
            "one Header and, after it, one Body",
        ),
        (
            b'<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body/></s:Envelope>',
            "no headers of WS-Addressing",
        ),
    ],
)
def test_what_is_no_soap_message(envelope: bytes, match: str) -> None:
    assert refused(envelope, match).status_hint == 400


@pytest.mark.parametrize(
    ("envelope", "match"),
    [
        (GOOD.replace(b"</s:Header>", b"<a:MessageID>urn:n</a:MessageID></s:Header>"), "MessageID stands there twice"),
        (GOOD.replace(b'<a:Action s:mustUnderstand="1">urn:a</a:Action>', b""), "Action is missing"),
        (GOOD.replace(b"urn:a<", b" <"), "wsa:Action is empty"),
        (GOOD.replace(b"urn:a<", b"urn:\na<"), "wsa:Action is no URI"),
        (GOOD.replace(b"<r:MessageNumber>1</r:MessageNumber>", b""), "<MessageNumber> is missing"),
        (GOOD.replace(b">1<", b">0<"), "between 1 and"),
        (GOOD.replace(b">1<", b">9223372036854775808<"), "between 1 and"),
        (GOOD.replace(b">1<", b">one<"), "not a number"),
        (GOOD.replace(b"</r:Sequence>", b"<r:LastMessage/></r:Sequence>"), "<LastMessage> has no place there"),
        (GOOD.replace(b"<r:Identifier>urn:s</r:Identifier>", b""), "<Identifier> is missing"),
        (header('<r:Sequence xmlns:r="http://schemas.xmlsoap.org/ws/2005/02/rm"/>'), "two versions of WS-ReliableMessaging"),
        (header("<r:Sequence><r:Identifier>u</r:Identifier><r:MessageNumber>1</r:MessageNu"
"mber></r:Sequence>"), "one Sequence"),
        (GOOD.replace(b"<b/>", b"<r:Nothing/>"), "unknown element"),
        (header("<a:ReplyTo/>"), "without an Address"),
        (header("<a:ReplyTo><a:Address>urn:1</a:Address><a:Address>urn:2</a:Address></a:ReplyTo>"), "one Address"),
        (header("<r:SequenceFault/>"), "<FaultCode> is missing"),
        (header('<x s:mustUnderstand="2" xmlns="urn:x"/>'), "mustUnderstand is 0, 1, true or false"),
        (encode(message(VERSIONS[0], sequence=Sequence("urn:s", 1))).replace(b"schemas.xmlsoap.org/ws/2005/02/rm",
            b"docs.oasis-open.org/ws-rx/wsrm/200702"), "goes with WS-Addressing 2005/08"),
    ],
    ids=lambda value: value if isinstance(value, str) else "envelope",
)  # fmt: skip
def test_what_breaks_a_rule_can_be_answered_with_a_fault(envelope: bytes, match: str) -> None:
    error = refused(envelope, match, SoapFaultError)
    assert isinstance(error, SoapFaultError)
    assert error.fault.blame is Blame.SENDER


def test_a_header_that_must_be_understood_and_is_not() -> None:
    """SOAP 1.2 part 1 section 2.4: of those for us alone."""
    for value in ("1", "true", " true "):
        error = refused(
            header(f'<x s:mustUnderstand="{value}" xmlns="urn:x"/>'),
            "must be understood is not supported: '{urn:x}x'",
        )
        assert isinstance(error, SoapFaultError)
        assert (error.fault.blame, error.message_id) == (Blame.MUST_UNDERSTAND, "urn:m")
    for value in (
        's:mustUnderstand="0"',
        's:mustUnderstand="1" s:role="urn:somebody-else"',
        'mustUnderstand="1"',
        "",
    ):
        assert decode(header(f'<x {value} xmlns="urn:x"/>')) == decode(GOOD)
    elsewhere = GOOD.replace(
        b'<r:Sequence s:mustUnderstand="1"', b'<r:Sequence s:role="urn:somebody-else"'
    )
    assert decode(elsewhere).sequence is None


def test_each_limit_by_its_name() -> None:
    def exceeded(name: str, envelope: bytes) -> None:
        error = refused(envelope, name)
        assert not isinstance(error, LimitExceededError) or error.limit == getattr(limits, name)

    nested = b"<b>" * (limits.DEPTH_MAX - 2) + b"</b>" * (limits.DEPTH_MAX - 2)
    assert decode(GOOD.replace(b"<b/>", nested)).body == nested
    exceeded("DEPTH_MAX", GOOD.replace(b"<b/>", b"<b>" + nested + b"</b>"))
    many = b"<b/>" * limits.BODY_ELEMENTS_MAX
    assert decode(GOOD.replace(b"<b/>", many)).body == many
    exceeded("BODY_ELEMENTS_MAX", GOOD.replace(b"<b/>", many + b"<b/>"))
    exceeded("BODY_ELEMENTS_MAX", GOOD.replace(b"<b/>", b"<b>" + many + b"</b>"))
    exceeded("HEADER_ELEMENTS_MAX", header("<x>" + "<y/>" * limits.HEADER_ELEMENTS_MAX + "</x>"))
    exceeded(
        "HEADER_ELEMENTS_MAX",
        GOOD.replace(b"<b/>", b"<r:CloseSequence>%b</r:CloseSequence>" % (b"<y/>" * 1_000)),
    )
    exceeded("HEADER_MAX", header("<x>" + "y" * limits.HEADER_MAX + "</x><z/>"))
    exceeded("HEADER_MAX", header("<x>" + "y" * limits.HEADER_MAX + "</x>"))
    attributes = " ".join(f'a{n}=""' for n in range(limits.ATTRIBUTES_MAX + 1))
    exceeded("ATTRIBUTES_MAX", GOOD.replace(b"<b/>", f"<b {attributes}/>".encode()))
    exceeded("ATTRIBUTES_MAX", header(f"<x {attributes}/>"))
    namespaces = " ".join(f'xmlns:a{n}="urn:{n}"' for n in range(limits.ATTRIBUTES_MAX + 1))
    exceeded("ATTRIBUTES_MAX", GOOD.replace(b"<b/>", f"<b {namespaces}/>".encode()))
    exceeded("IDENTIFIER_MAX", GOOD.replace(b"urn:s", b"urn:" + b"s" * limits.IDENTIFIER_MAX))
    asked = encode(message(ack_requested=(AckRequested("urn:s"),) * limits.ACKNOWLEDGEMENTS_MAX))
    assert len(decode(asked).ack_requested) == limits.ACKNOWLEDGEMENTS_MAX
    exceeded(
        "ACKNOWLEDGEMENTS_MAX",
        header("<r:AckRequested><r:Identifier>urn:s</r:Identifier></r:AckRequested>", asked),
    )
    exceeded(
        "ACKNOWLEDGEMENTS_MAX",
        header("<r:SequenceAcknowledgement/>" * (limits.ACKNOWLEDGEMENTS_MAX + 1)),
    )


def test_the_whole_message_is_the_only_413() -> None:
    body = b"x" * (limits.ENVELOPE_MAX - len(GOOD) + 4)
    assert decode(GOOD.replace(b"<b/>", body)).body == body
    error = refused(GOOD.replace(b"<b/>", body + b"x"), "ENVELOPE_MAX")
    assert error.status_hint == 413


def test_a_protocol_element_is_read_in_its_own_order() -> None:
    create = encode(message(content=CreateSequence(EndpointReference("urn:x"), 5_000)))
    swapped = create.replace(b"<r:AcksTo>", b"<r:Expires>PT5S</r:Expires><r:AcksTo>").replace(
        b"</r:AcksTo><r:Expires>PT5S</r:Expires>", b"</r:AcksTo>"
    )
    refused(swapped, "<AcksTo> is missing in <CreateSequence>, or not in its place")
    more = create.replace(b"</r:CreateSequence>", b'<x xmlns="urn:x"/></r:CreateSequence>')
    assert decode(more) == decode(create)
    refused(
        create.replace(b"</r:CreateSequence>", b"<r:Expires/></r:CreateSequence>"),
        "has no place there",
    )
    refused(create.replace(b"PT5S", b"5 s"), "not a duration")
    refused(create.replace(b"CreateSequence>", b"CreateSequences>"), "unknown element")
    last = encode(message(content=TerminateSequence("urn:s", 3)))
    refused(last.replace(b">3<", b">0<"), "between 1 and")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("PT0S", 0), ("P0D", 0), ("PT1.5S", 1_500), (" PT30S ", 30_000), ("PT0.0001S", 1), ("P1DT1H1M1S", 90_061_000),
     ("P1Y", limits.EXPIRES_MAX), ("P999999Y", limits.EXPIRES_MAX), ("P1M", 30 * 86_400_000), ("PT0.000S", 0)],
)  # fmt: skip
def test_durations(text: str, milliseconds: int) -> None:
    assert duration(text, "s") == milliseconds
    assert duration(format_duration(milliseconds), "s") == milliseconds


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1", "PT1", "-PT1S", "P1S", "PT1.S", "1", "PT１S"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="not a duration"):
        duration(text, "s")
