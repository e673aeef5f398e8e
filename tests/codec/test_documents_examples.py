"""The seven examples of [MC-MQSRM] chapter 4: they decode, and those with provable lengths re-encode byte for byte."""

from __future__ import annotations

import pytest
from codec_kit import envelope_of, sample, with_true_lengths

from srmp_spark.message import Receipt, StreamId, StreamPosition
from srmp_spark.names import NULL_GUID
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.encoder import encode, encode_envelope, http_head
from srmp_spark.srmp.codec.http_head import content_type_of, soap_action_of
from srmp_spark.srmp.codec.values import NEVER_AT, parse_date
from tests.kit.plain_reading import read_envelope

STREAM = StreamId("2744e4e1-2b48-43e8-b441-42745f280d53", 4839986701558349830)
RECEIPTS = [
    "mqsrm_4.3_delivery_receipt_flat.txt",
    "mqsrm_4.3_commitment_receipt_flat.txt",
    "mqsrm_4.4_stream_receipt_1_flat.txt",
    "mqsrm_4.4_stream_receipt_2_flat.txt",
    "mqsrm_4.4_stream_receipt_3_flat.txt",
]


def decode_sample(name):
    post = with_true_lengths(name)
    return decode(post.content_type, post.content)


def test_4_1_a_message_without_msmq():
    message = decode_sample("mqsrm_4.1_simple_as_printed.txt")
    assert message.destination == "http://machine2/msmq/private$/simpleq"
    assert message.label == "mqsender label"
    assert not message.has_msmq
    assert (message.lineage, message.uniquifier) == (NULL_GUID, 1)
    assert not message.has_identity
    assert message.sent_at == parse_date("20070608T164419")
    assert message.expires_at == parse_date("20070609T164419")
    assert message.time_to_reach_queue is None
    assert message.body == b"First Message"
    assert (message.message_class, message.priority, message.delivery) == (0, 3, "express")


def test_4_2_a_message_with_msmq():
    message = read_envelope(envelope_of("mqsrm_4.2_envelope_flat.xml"))
    assert message.has_msmq
    assert message.id == r"{caf195ea-615c-4264-ae08-11a4e60194c0}\20503"
    assert message.source_qm == "caf195ea-615c-4264-ae08-11a4e60194c0"
    assert message.label == ""
    assert message.expires_at == NEVER_AT
    assert message.time_to_reach_queue == parse_date("20070723T031140")
    assert message.correlation == bytes(20)
    assert message.hash_algorithm == 32772


def test_4_3_a_request_for_both_receipts():
    message = decode_sample("mqsrm_4.3_receipt_request_as_printed.txt")
    assert message.action == "Generic label"
    assert message.label is None, "without MSMQ: Windows ignores the whole of it (appendix A <5>)"
    assert message.response_queue == "http://machine1/MSMQ/private$/Q1"
    assert message.delivery_receipt_to == "http://machine1/MSMQ/private$/receipts"
    assert message.commitment_receipt_to == "http://machine1/MSMQ/private$/deliverydone"
    assert message.commitment_positive
    assert message.commitment_negative
    assert message.uniquifier == 1, (
        "the <id> of 4.3 ends in 8, but without <Msmq> it MUST be ignored (2.2.4.3)"
    )
    assert message.body == b"Both delivery and commitment receipt requests"


def test_4_3_the_delivery_receipt():
    message = decode_sample("mqsrm_4.3_delivery_receipt_flat.txt")
    assert message.message_class == 2
    assert message.receipt == Receipt("delivery", NULL_GUID, 1, parse_date("20070719T032454"))
    assert message.correlation == bytes(16) + (1).to_bytes(4, "little"), (
        "the identifier of what it answers: number 1"
    )
    assert message.response_queue == "http://machine2/msmq/private$/simpleq"


def test_4_3_the_commitment_receipt():
    message = decode_sample("mqsrm_4.3_commitment_receipt_flat.txt")
    assert message.message_class == 0x4000
    assert message.receipt == Receipt(
        "commitment", NULL_GUID, 1, parse_date("20070719T032721"), "positive"
    )


@pytest.mark.parametrize(
    ("number", "body"), [(1, b"First Message"), (2, b"Message 0"), (3, b"Last Message")]
)
def test_4_4_the_stream(number, body):
    message = decode_sample(f"mqsrm_4.4_stream_{number}_as_printed.txt")
    receipts_to = (
        "http://machine1/MSMQ/private$/receipts?SenderStream=XRntV" if number == 1 else None
    )
    assert message.stream == StreamPosition(STREAM, number, number - 1, number == 1, receipts_to)
    assert message.delivery == "transactional"
    assert message.body == body
    assert message.lineage == message.source_qm != message.stream.id.guid, (
        "three machines in one stream, as printed"
    )


@pytest.mark.parametrize("number", [1, 2, 3])
def test_4_4_the_stream_receipts(number):
    message = decode_sample(f"mqsrm_4.4_stream_receipt_{number}_flat.txt")
    assert message.message_class == 0x00FF
    assert message.action == "MSMQ:QM Ordering Ack"
    assert message.destination == "http://machine1/MSMQ/private$/receipts?SenderStream=XRntV"
    assert message.receipt == Receipt("stream", stream_id=STREAM, last_ordinal=number)


def test_4_5_a_multicast_message():
    message = decode_sample("mqsrm_4.5_pgm_bytes_reconstructed.bin")
    assert message.destination == "MSMQ:MULTICAST=234.1.1.1:8001"
    assert message.body_type == 8
    assert message.body.decode("utf-16-le") == "ardenwhite"


def test_4_5_is_written_byte_for_byte_with_its_head():
    post = sample("mqsrm_4.5_pgm_bytes_reconstructed.bin")
    content_type, content = encode(
        decode(post.content_type, post.content), boundary="MSMQ - SOAP boundary, 292"
    )
    assert content == post.content
    assert len(content) == 1067
    assert http_head("234.1.1.1:8001", "234.1.1.1:8001", content_type, len(content)) == post.head


def test_4_2_is_written_byte_for_byte():
    envelope = envelope_of("mqsrm_4.2_envelope_flat.xml")
    assert encode_envelope(read_envelope(envelope)) == envelope


@pytest.mark.parametrize("name", RECEIPTS)
def test_receipts_are_written_byte_for_byte_without_multipart(name):
    post = sample(name)
    assert encode(decode(post.content_type, post.content), boundary="unused") == (
        b"text/xml",
        post.content,
    )


def test_the_folded_content_type_as_the_document_prints_it():
    post = with_true_lengths("mqsrm_4.1_simple_as_printed.txt")
    folded = post.head.replace(b"; type=text/xml", b";\r\n type=text/xml")
    assert folded != post.head
    assert decode(content_type_of(folded), post.content) == decode(post.content_type, post.content)
    assert soap_action_of(folded) == "MSMQMessage"


def test_the_hand_written_message_of_a_scanner():
    """Metasploit's text: a blank before a line end in a tag, CRLF before delimiters, none after the last."""
    post = with_true_lengths("metasploit_queuejumper_compound_message.txt")
    message = decode(post.content_type, post.content)
    assert message.label == "poc"
    assert message.body == b"Message\r\n", (
        "the corrected length takes the CRLF before the delimiter for body"
    )
    shorter = post.content.replace(
        b"Content-Length: 9\r\nContent-Id", b"Content-Length: 7\r\nContent-Id"
    )
    assert decode(post.content_type, shorter).body == b"Message"
