"""How bytes from outside are read: encodings, what grows while it is read, invalid acknowledgements, mixed versions."""

from __future__ import annotations

import tracemalloc

import pytest
from wsrm_kit import VERSIONS, message

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import Blame, Sequence, SequenceAcknowledgement, SoapMessage
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.faults import SoapFaultError
from srmp_spark.wsrm.codec.namespaces import FLOW_CONTROL
from srmp_spark.wsrm.codec.xml_tree import parse_tree
from srmp_spark.wsrm.limits import (
    ACKNOWLEDGEMENTS_MAX,
    BODY_ELEMENTS_MAX,
    DEPTH_MAX,
    ENVELOPE_MAX,
    HEADER_MAX,
    RANGES_MAX,
)

SEQUENCE = "urn:uuid:0b162747-99cf-479c-972f-95b776e141c3"
SOAP = "http://www.w3.org/2003/05/soap-envelope"
GOOD = encode(message(VERSIONS[-1], sequence=Sequence(SEQUENCE, 1), body=b"<a/>"))
ACK = encode(
    message(
        VERSIONS[-1],
        acknowledgements=(SequenceAcknowledgement(SEQUENCE, ((1, 3),), buffer_remaining=5),),
    )
)
NAMED = f'<n:BufferRemaining xmlns:n="{FLOW_CONTROL}">%s</n:BufferRemaining>'
BUFFER = f'<netrm:BufferRemaining xmlns:netrm="{FLOW_CONTROL}">5</netrm:BufferRemaining>'
"""As it stands in ``ACK``."""


def envelope(body: str, declarations: str = "", header: str = "") -> bytes:
    return (
        f'<s:Envelope xmlns:s="{SOAP}"{declarations}><s:Header>{header}</s:Header><s:Bo'
        f"dy>{body}</s:Body></s:Envelope>"
    ).encode()


@pytest.mark.parametrize("hostile", [
    b"", b"<", b"<a/>", b"\0", GOOD + b"<a/>", GOOD[:-1],
    b'<!DOCTYPE s [<!ENTITY e "x">]>' + GOOD,
    b"<?go?>" + GOOD,
    GOOD.replace(b"<a/>", b"<?go?>"),
    b'<?xml version="1.0" encoding="iso-8859-1"?>' + GOOD,
    b'<?xml version="1.1"?>' + GOOD,
    GOOD.replace(b"<a/>", b"\xff"),
    GOOD.replace(b"<a/>", b"&e;"),
    GOOD.replace(b"<a/>", b"</s:Body><s:Body>"),
    GOOD.replace(b"/2003/05/", b"/2004/05/"),
    GOOD.decode().encode("utf-16"), GOOD.decode().encode("utf-16-le"), GOOD.decode().encode("utf-16-be"),
    GOOD.decode().encode("utf-32"),
], ids=lambda b: ascii(b[:24]))  # fmt: skip
def test_what_soap_forbids_is_refused(hostile: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(hostile)


def test_a_byte_order_mark_of_utf_8_is_read_over() -> None:
    assert decode(b"\xef\xbb\xbf" + GOOD).body == b"<a/>"


@pytest.mark.parametrize(("hostile", "limit"), [
    (envelope("x" * ENVELOPE_MAX), "ENVELOPE_MAX"),
    (envelope("", header=f"<a>{'x' * HEADER_MAX}</a>"), "HEADER_MAX"),
    (envelope("<a>" * DEPTH_MAX + "</a>" * DEPTH_MAX), "DEPTH_MAX"),
    (envelope("<a/>" * (BODY_ELEMENTS_MAX + 1)), "BODY_ELEMENTS_MAX"),
    (envelope("", header="<a/>" * 2_000), "HEADER_ELEMENTS_MAX"),
    (envelope("", header="<a" + "".join(f' a{i}=""' for i in range(99)) + "/>"), "ATTRIBUTES_MAX"),
    (envelope("<a/>", "".join(f' xmlns:p{i}="u"' for i in range(99))), "ATTRIBUTES_MAX"),
    (envelope("<a/>" * 90_000, f' xmlns="{"u" * 60_000}"'), "IDENTIFIER_MAX"),
    (envelope("<a/>" * 90_000, f' xmlns="{"u" * 1_000}"'), "DECLARATIONS_ADDED_MAX"),
], ids=lambda v: v if isinstance(v, str) else "")  # fmt: skip
def test_each_limit_is_named_and_refused_without_much_memory(hostile: bytes, limit: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceededError) as refused:
            parse_tree(hostile, ())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused.value.name == limit
    assert peak < 64 << 20, "what is refused costs no more than what is read"


def test_a_body_in_a_column_declares_what_it_uses_of_the_envelope() -> None:
    body = '<o:a xmlns:b="urn:b" t="d:x"><c/></o:a><e/>'
    tree = parse_tree(
        envelope(body, ' xmlns:o="urn:o" xmlns:d="urn:d" xmlns="urn:default" xmlns:unused="urn:u"'),
        (),
    )
    assert tree.body.decode() == (
        '<o:a xmlns="urn:default" xmlns:d="urn:d" xmlns:o="urn:o" xmlns:b="urn:b" '
        't="d:x"><c/></o:a>'
        '<e xmlns="urn:default" xmlns:d="urn:d" xmlns:o="urn:o"/>'
    )


# --- BufferRemaining, [MS-WSRVCRM] 2.2.3 ------------------------------------------------------------------------------------


def _acknowledged(buffer: str, *, ahead: bool = False) -> SoapMessage:
    text = ACK.decode()
    assert BUFFER in text
    text = text.replace(BUFFER, "" if ahead else buffer)
    if ahead:
        text = text.replace("<r:AcknowledgementRange", f"{buffer}<r:AcknowledgementRange", 1)
    return decode(text.encode())


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), (" 8 ", 8), ("2147483647", 2**31 - 1), ("+7", 7), ("007", 7), ("\n1\n", 1)],
)
def test_buffer_remaining_is_a_number_that_is_not_negative(text: str, value: int) -> None:
    (ack,) = _acknowledged(NAMED % text).acknowledgements
    assert ack.buffer_remaining == value


@pytest.mark.parametrize(
    "text", ["-1", "", " ", "x", "1.0", "2147483648", "9" * 400, "\u0664", "1 2", "0x1", "1_0"]
)
def test_an_invalid_value_makes_the_acknowledgement_count_for_nothing(text: str) -> None:
    message = _acknowledged(NAMED % text)
    assert message.acknowledgements == ()
    assert len(message.refused) == 1
    assert "BufferRemaining" in message.refused[0]


def test_two_values_count_for_nothing_and_so_does_one_before_the_ranges() -> None:
    assert _acknowledged((NAMED % 1) * 2).acknowledgements == ()
    assert _acknowledged(NAMED % 1, ahead=True).acknowledgements == ()


def test_a_value_of_another_namespace_is_somebody_elses_extension() -> None:
    (ack,) = _acknowledged(
        '<n:BufferRemaining xmlns:n="urn:other">1</n:BufferRemaining>'
    ).acknowledgements
    assert ack.buffer_remaining == -1


# --- messages ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "is_read"),
    [
        ("0", False),
        ("1", True),
        ("9223372036854775807", True),
        ("9223372036854775808", False),
        ("-1", False),
    ],
)
def test_message_numbers_end_where_1_1_says(number: str, is_read: bool) -> None:
    text = GOOD.replace(b"<r:MessageNumber>1<", f"<r:MessageNumber>{number}<".encode())
    if is_read:
        sequence = decode(text).sequence
        assert sequence is not None
        assert sequence.number == int(number)
    else:
        with pytest.raises(SoapFaultError):
            decode(text)


def test_a_header_that_must_be_understood_and_is_not_is_told() -> None:
    text = GOOD.replace(
        b"</s:Header>", b'<x:y xmlns:x="urn:x" s:mustUnderstand="true"/></s:Header>'
    )
    with pytest.raises(SoapFaultError) as refused:
        decode(text)
    assert refused.value.fault.blame is Blame.MUST_UNDERSTAND
    assert decode(text.replace(b'"true"', b'"0"')).body == b"<a/>"
    assert (
        decode(
            text.replace(b's:mustUnderstand="true"', b's:mustUnderstand="1" s:role="urn:another"')
        ).body
        == b"<a/>"
    )


@pytest.mark.parametrize(("old", "new"), [
    (b"<s:Body>", b'<s:Body><r:TerminateSequence xmlns:r="http://schemas.xmlsoap.org/ws/2005/02/rm"><r:Identifier>u</r:Identifier></r:TerminateSequence>'),
    (b"</s:Header>", b'<w:To xmlns:w="http://schemas.xmlsoap.org/ws/2004/08/addressing">urn:x</w:To></s:Header>'),
    (b"</s:Header>", b"<a:Action>urn:twice</a:Action></s:Header>"),
    (b"</s:Header>", (b"<r:Sequence><r:Identifier>u</r:Identifier><r:MessageNumber>2</r:Mes"
b"sageNumber></r:Sequence></s:Header>")),
    (b"<r:Identifier>urn", b"<r:Identifier>   </r:Identifier><r:Identifier>urn"),
])  # fmt: skip
def test_what_says_two_things_is_refused(old: bytes, new: bytes) -> None:
    assert old in GOOD
    with pytest.raises(RemoteProtocolError):
        decode(GOOD.replace(old, new))


def test_an_acknowledgement_has_a_limit_of_ranges_and_a_message_of_acknowledgements() -> None:
    ranges = "".join(
        f'<r:AcknowledgementRange Lower="{2 * n}" Upper="{2 * n}"/>'
        for n in range(1, RANGES_MAX + 2)
    )
    text = ACK.decode().replace("<r:AcknowledgementRange", f"{ranges}<r:AcknowledgementRange", 1)
    assert decode(text.encode()).acknowledgements == ()
    start, end = ACK.index(b"<r:SequenceAcknowledgement>"), ACK.index(b"<a:Action")
    many = ACK[:start] + ACK[start:end] * (ACKNOWLEDGEMENTS_MAX + 1) + ACK[end:]
    with pytest.raises(SoapFaultError):
        decode(many)


def test_ranges_are_merged_whatever_their_order() -> None:
    ranges = "".join(
        f'<r:AcknowledgementRange Upper=" {u}" Lower="{low}"/>'
        for low, u in ((7, 9), (4, 5), (0, 0), (5, 6))
    )
    (ack,) = decode(
        ACK.decode().replace('<r:AcknowledgementRange Lower="1" Upper="3"/>', ranges).encode()
    ).acknowledgements
    assert ack.ranges == ((4, 9),)
