"""What we write: everything that can be said comes back the same, and what cannot be said is refused."""

from __future__ import annotations

import re

import pytest
from codec_kit import GUID
from hypothesis import given
from message_strategies import messages, quick

from srmp_spark.errors import LocalProtocolError
from srmp_spark.message import NEVER, Message, Receipt, StreamId, StreamPosition
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.encoder import encode, encode_envelope, http_head
from srmp_spark.srmp.codec.values import NEVER_AT, parse_date

URL = "http://machine2/msmq/private$/simpleq"
PLAIN = Message(URL, "MSMQ:label", GUID, 7, True, expires_at=NEVER_AT)


@quick
@given(messages)
def test_what_is_written_is_read_back(message):
    content_type, content = encode(message, boundary="MSMQ - SOAP boundary, 292")
    assert decode(content_type, content) == message


@quick
@given(messages)
def test_an_envelope_is_one_line_without_declaration(message):
    envelope = encode_envelope(message._replace(action="MSMQ:"))
    assert envelope.startswith(b"<se:Envelope ")
    assert not re.search(rb">\s+<", envelope)


def test_the_order_of_windows():
    message = PLAIN._replace(
        response_queue=URL,
        sent_at=0,
        delivery_receipt_to=URL,
        commitment_receipt_to=URL,
        commitment_positive=True,
        commitment_negative=True,
        stream=StreamPosition(StreamId(GUID, 9), 1, 0, True, URL),
        journal=True,
        dead_letter=True,
        trace=True,
        connector_type=GUID,
        connector_qm=GUID,
        first_in_transaction=True,
        last_in_transaction=True,
        provider_type=1,
        provider_name="Provider",
        destination_list=("a", "b"),
        admin_list=("c",),
        response_list=("d",),
    )
    envelope = encode_envelope(message).decode()
    names = re.findall(r"<([A-Za-z:]+)", envelope)
    assert " ".join(names) == (
        "se:Envelope se:Header path action to rev via id properties expiresAt sentAt "
        "services durable deliveryReceiptRequest sendTo commitmentReceiptRequest sendTo "
        "positiveOnly negativeOnly "
        "Stream streamId current start sendReceiptsTo "
        "Msmq Class Priority Journal DeadLetter Correlation Trace ConnectorType App "
        "BodyType HashAlgorithm "
        "Eod First Last ConnectorId Provider Type Name SourceQmGuid DestinationMqf "
        "AdminMqf ResponseMqf TTrq se:Body"
    )
    assert "<Journal/><DeadLetter/>" in envelope
    assert "<DestinationMqf>a b </DestinationMqf>" in envelope
    assert "</commitmentReceiptRequest></services>" in envelope
    assert "<durable/>" in envelope, "a stream message MUST be durable (2.2.5.3)"
    assert "<previous>" not in envelope, "absent before 1 (3.1.7.2.4)"


@pytest.mark.parametrize(
    ("current", "previous", "written"), [(1, 0, None), (2, 1, 1), (5, 0, 0), (5, 3, 3), (1, 7, 7)]
)
def test_previous_is_left_out_only_where_absent_means_it(current, previous, written):
    envelope = encode_envelope(
        PLAIN._replace(stream=StreamPosition(StreamId(GUID, 9), current, previous))
    ).decode()
    assert re.findall("<previous>(.*)</previous>", envelope) == (
        [] if written is None else [str(written)]
    )


def test_what_windows_always_writes():
    envelope = encode_envelope(PLAIN._replace(expires_at=None)).decode()
    assert f"<expiresAt>{NEVER}</expiresAt></properties>" in envelope
    assert f"<TTrq>{NEVER}</TTrq>" in envelope
    assert "<Correlation>AAAAAAAAAAAAAAAAAAAAAAAAAAA=</Correlation><App>0</App>" in envelope
    assert "<HashAlgorithm>32772</HashAlgorithm>" in envelope
    receipt = PLAIN._replace(
        message_class=255, receipt=Receipt("stream", stream_id=StreamId(GUID, 9), last_ordinal=1)
    )
    assert "<HashAlgorithm>0</HashAlgorithm>" in encode_envelope(receipt).decode()


def test_a_direct_format_name_becomes_the_bare_url():
    assert f"<to>{URL}</to>".encode() in encode_envelope(
        PLAIN._replace(destination=f"DIRECT={URL}")
    )


def test_fractions_of_a_second_are_cut_off():
    at = parse_date("20261122T010203")
    assert b"<sentAt>20261122T010203</sentAt>" in encode_envelope(
        PLAIN._replace(sent_at=at + 999_999)
    )


def test_multipart_only_with_something_to_carry():
    assert encode(PLAIN, boundary="b")[0] == b"text/xml"
    assert (
        encode(PLAIN._replace(body=b"x"), boundary="b")[0]
        == b'multipart/related; boundary="b"; type=text/xml'
    )
    content = encode(PLAIN._replace(extension=b""), boundary="b")[1]
    assert content.count(b"--b") == 3
    assert f"Content-Id: extension@{GUID}".encode() in content
    assert content.endswith(b"--b--\r\n")


@pytest.mark.parametrize(
    "change",
    [
        {"action": "MSMQ:\x00"},
        {"action": "MSMQ:\x1b"},
        {"action": "MSMQ:\ud800"},
        {"action": "MSMQ:\uffff"},
        {"destination": ""},
        {"destination": " http://a/msmq/b"},
        {"destination": "DIRECT="},
        {"response_queue": ""},
        {"lineage": "no guid"},
        {"source_qm": "00000000-0000-0000-0000-000000000001"},
        {"uniquifier": -1},
        {"uniquifier": 2**64},
        {"message_class": 2**32},
        {"priority": 8},
        {"priority": -1},
        {"body_type": -1},
        {"correlation": b"19 bytes are too few"[:19]},
        {"sent_at": parse_date("99991231T235959") + 1_000_000},
        {"expires_at": parse_date("00010101T000000") - 1},
        {"stream": StreamPosition(StreamId(GUID, 9), 0, 0)},
        {"stream": StreamPosition(StreamId(GUID, 9), 2**32, 0)},
        {"stream": StreamPosition(StreamId(GUID, 9), 1, 0, True)},
        {"stream": StreamPosition(StreamId(GUID, 9), 2, 1, False, URL)},
        {"receipt": Receipt("stream")},
        {"receipt": Receipt("delivery", GUID, 1)},
        {"receipt": Receipt("commitment", GUID, 1, 0)},
        {"commitment_positive": True},
        {"destination_list": ("a b",)},
        {"admin_list": ("",)},
        {"response_list": ("a",) * 101},
        {"signature": "unverified"},
        {"soap_body": "<a/>"},
        {"has_msmq": False},
    ],
)
def test_what_srmp_cannot_say_is_refused(change):
    with pytest.raises(LocalProtocolError):
        encode_envelope(PLAIN._replace(**change))


def test_a_message_without_msmq_says_which_properties_would_be_lost():
    with pytest.raises(LocalProtocolError, match="priority, app_specific: only <Msmq>"):
        encode_envelope(Message(URL, priority=4, app_specific=5))


def test_a_receipt_carries_nothing():
    receipt = Receipt("stream", stream_id=StreamId(GUID, 9), last_ordinal=1)
    with pytest.raises(LocalProtocolError, match="neither body nor extension"):
        encode(PLAIN._replace(receipt=receipt, body=b"x"), boundary="b")


@pytest.mark.parametrize("boundary", ["", "x" * 71, "a\r\nb", 'a"b', "a ", "ü"])
def test_a_boundary_that_is_none(boundary):
    with pytest.raises(LocalProtocolError, match="boundary"):
        encode(PLAIN._replace(body=b"x"), boundary=boundary)


@pytest.mark.parametrize(
    ("target", "host"),
    [("/a\r\nX: y", "h"), ("/a b", "h"), ("/ü", "h"), ("", "h"), ("/a", "h\n"), ("/a", "")],
)
def test_nothing_gets_into_the_head_that_is_no_target_or_host(target, host):
    with pytest.raises(LocalProtocolError):
        http_head(target, host, b"text/xml", 5)


def test_nothing_gets_into_the_head_by_the_content_type():
    with pytest.raises(LocalProtocolError):
        http_head("/a", "h", b"text/xml\r\nX: y", 5)
