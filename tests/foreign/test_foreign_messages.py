"""What the foreign sender writes, held against the document's own examples (chapter 4)."""

from __future__ import annotations

import re

import pytest

from srmp_spark.testing.foreign.messages import (
    Dialect,
    ForeignMessage,
    ForeignStream,
    envelope,
    post,
    read_receipt,
    seconds_of,
)

QM = "caf195ea-615c-4264-ae08-11a4e60194c0"

# [MC-MQSRM] 4.2, the printed lines put on one line.
EXAMPLE_4_2 = (
    '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/"><se:Header>'
    '<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1"><action>MSMQ:</action>'
    "<to>http://machine2/msmq/private$/simpleQ</to><id>uuid:20503@caf195ea-615c-4264-ae08-11a4e60194c0</id></path>"
    '<properties se:mustUnderstand="1"><expiresAt>20380119T031407</expiresAt><sentAt>20070'
    "719T031140</sentAt></properties>"
    '<Msmq xmlns="msmq.namespace.xml"><Class>0</Class><Priority>3</Priority>'
    "<Correlation>AAAAAAAAAAAAAAAAAAAAAAAAAAA=</Correlation><App>0</App><BodyType>0</BodyType>"
    "<HashAlgorithm>32772</HashAlgorithm><SourceQmGuid>caf195ea-615c-4264-ae08-11a4e60194c0</SourceQmGuid>"
    "<TTrq>20070723T031140</TTrq></Msmq></se:Header><se:Body></se:Body></se:Envelope>"
)


def message(**values: object) -> ForeignMessage:
    sent_at = seconds_of("20070719T031140")
    given = {
        "to": "http://machine2/msmq/private$/simpleQ",
        "lineage": QM,
        "uniquifier": 20503,
        "sent_at": sent_at,
    }
    return ForeignMessage(**{**given, **values})


def test_example_4_2_is_written_byte_for_byte() -> None:
    assert envelope(message(time_to_reach_queue=seconds_of("20070723T031140"))) == EXAMPLE_4_2


def test_example_4_5_is_written_with_both_lengths_that_the_document_declares() -> None:
    """4.5: the envelope has 779 bytes, the content 1,067. It is a multicast; SRMP is the same."""
    written = post(
        message(
            to="http://x/msmq/private$/q",  # replaced below: post() is for unicast
            lineage="32221eda-9376-46df-b6ed-783091123831",
            uniquifier=4494,
            label="mqsender label",
            sent_at=seconds_of("20070608T023719"),
            body="ardenwhite".encode("utf-16-le"),
            body_type=8,
            time_to_reach_queue=seconds_of("20070612T023719"),
        )
    )
    swap = len("MSMQ:MULTICAST=234.1.1.1:8001") - len("http://x/msmq/private$/q")
    boundaries = 3 * (len("4494") - len("292"))  # the document's boundary number has three digits
    declared = re.search(rb"Content-Length: (\d+)\r\n\r\n<se:Envelope", written.content)
    assert declared is not None
    assert int(declared[1]) + swap == 779
    assert len(written.content) + swap - boundaries == 1067


def test_the_text_and_the_examples_spell_the_stream_element_differently() -> None:
    stream = ForeignStream(guid=QM, ordinal=4839986701558349830, current=2, previous=1)
    as_in_4_4 = (
        f'<Stream se:mustUnderstand="1"><streamId>{stream.id}</streamId><current>2'
        "</current></Stream>"
    )
    assert as_in_4_4 in envelope(message(stream=stream), Dialect.EXAMPLES)
    assert "<current>2</current><previous>1</previous></stream>" in envelope(
        message(stream=stream), Dialect.TEXT
    )


@pytest.mark.parametrize("dialect", Dialect)
def test_every_dialect_declares_the_lengths_it_has(dialect: Dialect) -> None:
    written = post(
        message(
            body=b"body with --MSMQ - SOAP boundary, 20503 in it", extension=b"ext", durable=True
        ),
        dialect,
    )
    assert written.raw.endswith(written.content)
    assert f"Content-Length: {len(written.content)}\r\n".encode() in written.raw
    position, parts = 0, []
    head_end = re.compile(rb"Content-Length: (\d+)\r\n(?:Content-Id: [^\r]*\r\n)?\r\n")
    while (head := head_end.search(written.content[position:])) is not None:
        start = position + head.end()
        position = start + int(head[1])
        parts.append(written.content[start:position])
        assert re.match(
            rb"(\r\n)?--MSMQ - SOAP boundary, 20503(--)?\r\n", written.content[position:]
        )
    assert parts[0].startswith(b"<se:Envelope") and parts[0].endswith(b"</se:Envelope>")  # noqa: PT018 - one fact: the part is the envelope
    assert parts[1:] == [b"body with --MSMQ - SOAP boundary, 20503 in it", b"ext"]


def test_a_stream_receipt_of_the_document_is_read() -> None:
    text = (
        '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/"><se:Header>'
        '<path xmlns="http://schemas.xmlsoap.org/rp/" '
        'se:mustUnderstand="1"><action>MSMQ:QM Ordering '
        "Ack</action><to>http://machine1/MSMQ/private$/receipts?SenderStream=XRntV</to>"
        "<rev><via>http://machine2/msmq/private$/tsimpleq</via></rev><id>uuid:26643@32221eda-9376-46df-b6ed-783091123831</id></path>"
        "<streamReceipt><streamId>uid:2744e4e1-2b48-43e8-b441-42745f280d53\\4839986701558349830</streamId><lastOrdinal>2</lastOrdinal>"
        '</streamReceipt><Msmq xmlns="msmq.namespace.xml"><Class>255</Class></Msmq></se:He'
        "ader></se:Envelope>"
    )
    receipt = read_receipt(
        text, at=1.0, target="/msmq/private$/receipts?senderstream=xrntv", headers={}
    )
    assert receipt.stream_id == "uid:2744e4e1-2b48-43e8-b441-42745f280d53\\4839986701558349830"
    assert (receipt.last_ordinal, receipt.message_class, receipt.delivery_of) == (2, 255, None)


def test_what_is_no_receipt_is_a_fault() -> None:
    with pytest.raises(ValueError, match="without <path>"):
        read_receipt("<se:Envelope/>", at=0.0, target="/", headers={})
