"""[MC-MQSRM] 3.1.5.1.1 Message Deserialization: which element becomes which property; 2.2.5.3 and 2.2.6: what it must hold."""

from __future__ import annotations

import pytest

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Message, Receipt, StreamId, StreamPosition
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.values import parse_date

GUID = "32221eda-9376-46df-b6ed-783091123831"
OTHER = "fd74b8eb-2af7-4ac5-9405-074e315df392"

ENVELOPE = f"""<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/">
<se:Header>
<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1">
 <action>MSMQ:order 4711</action><to>http://machine2/msmq/private$/orders</to><id>uuid:26626@{GUID}</id>
 <rev><via>MSMQ:DIRECT=OS:machine1\\private$\\answers</via></rev>
</path>
<properties se:mustUnderstand="1"><expiresAt>20070609T023719</expiresAt><sentAt>20070608T023719</sentAt></properties>
<services se:mustUnderstand="1">
 <durable/>
 <deliveryReceiptRequest><sendTo>http://machine1/msmq/private$/admin</sendTo></deliveryReceiptRequest>
 <commitmentReceiptRequest><sendTo>https://machine1/msmq/private$/done</sendTo><positiveOnly/><negativeOnly/>
 </commitmentReceiptRequest>
</services>
<stream se:mustUnderstand="1">
 <streamId>uid:{OTHER}\\4839986701558349830</streamId><current>7</current><previous>4</previous>
 <start><sendReceiptsTo>http://machine1/msmq/private$/order_queue$</sendReceiptsTo></start>
</stream>
<Msmq xmlns="msmq.namespace.xml">
 <Class>1</Class><Priority>5</Priority><Journal/><DeadLetter/><Correlation>AAECAwQFBgcICQoLDA0ODxAREhM=</Correlation><Trace/>
 <ConnectorType>{OTHER}</ConnectorType><App>36</App><BodyType>8</BodyType><HashAlgorithm>32771</HashAlgorithm>
 <Eod><First/><Last/><ConnectorId>{OTHER}</ConnectorId></Eod>
 <Provider><Type>1234</Type><Name>ProviderName</Name></Provider>
 <SourceQmGuid>{GUID}</SourceQmGuid>
 <DestinationMqf>
http://m1/msmq/a
https://m2/msmq/a
</DestinationMqf>
 <AdminMqf>http://m1/msmq/b http://m2/msmq/b</AdminMqf>
 <ResponseMqf>http://m1/msmq/c</ResponseMqf>
 <TTrq>20070612T023719</TTrq>
</Msmq>
</se:Header><se:Body></se:Body></se:Envelope>"""


def read(*replacements: tuple[str, str]) -> Message:
    text = ENVELOPE
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return decode(b"text/xml", text.encode())


def test_every_element_becomes_its_property() -> None:
    assert read() == Message(
        destination="http://machine2/msmq/private$/orders",
        action="MSMQ:order 4711",
        lineage=GUID,
        uniquifier=26626,
        has_msmq=True,
        message_class=1,
        priority=5,
        durable=True,
        stream=StreamPosition(
            StreamId(OTHER, 4839986701558349830),
            7,
            4,
            True,
            "http://machine1/msmq/private$/order_queue$",
        ),
        sent_at=parse_date("20070608T023719"),
        expires_at=parse_date("20070609T023719"),
        time_to_reach_queue=parse_date("20070612T023719"),
        body_type=8,
        correlation=bytes(range(20)),
        app_specific=36,
        hash_algorithm=32771,
        response_queue="DIRECT=OS:machine1\\private$\\answers",
        delivery_receipt_to="http://machine1/msmq/private$/admin",
        commitment_receipt_to="https://machine1/msmq/private$/done",
        commitment_positive=True,
        commitment_negative=True,
        journal=True,
        dead_letter=True,
        trace=True,
        first_in_transaction=True,
        last_in_transaction=True,
        connector_type=OTHER,
        connector_qm=OTHER,
        provider_type=1234,
        provider_name="ProviderName",
        source_qm=GUID,
        destination_list=("http://m1/msmq/a", "https://m2/msmq/a"),
        admin_list=("http://m1/msmq/b", "http://m2/msmq/b"),
        response_list=("http://m1/msmq/c",),
    )
    assert read().label == "order 4711"


@pytest.mark.parametrize(
    ("element", "attribute"),
    [
        ("<durable/>", "durable"),
        ("<positiveOnly/>", "commitment_positive"),
        ("<negativeOnly/>", "commitment_negative"),
        ("<Journal/>", "journal"),
        ("<DeadLetter/>", "dead_letter"),
        ("<Trace/>", "trace"),
        ("<First/>", "first_in_transaction"),
        ("<Last/>", "last_in_transaction"),
    ],
)
def test_a_flag_that_is_absent_is_false(element: str, attribute: str) -> None:
    """ "MUST be set to True if the … element is present; otherwise, to False"; no other property changes with it."""
    assert read((element, "")) == read()._replace(**{attribute: False})


def test_without_durable_and_stream_it_is_express() -> None:
    """ "Recoverable if the <durable/> element is present; otherwise, … Express"."""
    nothing = (ENVELOPE[ENVELOPE.index("<stream ") : ENVELOPE.index("<Msmq ")], "")
    assert [read(nothing).delivery, read(nothing, ("<durable/>", "")).delivery] == [
        "recoverable",
        "express",
    ]


@pytest.mark.parametrize("element", ["streamId", "current"])
def test_a_stream_needs(element: str) -> None:
    """2.2.5.3.1, 2.2.5.3.2: "MUST be present as a child element of the <stream> element"."""
    start, end = (
        ENVELOPE.index(f"<{element}>"),
        ENVELOPE.index(f"</{element}>") + len(f"</{element}>"),
    )
    with pytest.raises(RemoteProtocolError, match=f"<{element}> is missing"):
        read((ENVELOPE[start:end], ""))


@pytest.mark.parametrize("wrong", ["", "x", "-1", "1.0", "18446744073709551616"])
@pytest.mark.parametrize(
    "element",
    ["<Class>1", "<Priority>5", "<App>36", "<BodyType>8", "<HashAlgorithm>32771", "<Type>1234"],
)
def test_a_number_is_an_unsigned_long(element: str, wrong: str) -> None:
    """2.2.6: "MUST contain a number of type xs:unsignedLong"."""
    with pytest.raises(RemoteProtocolError):
        read((element, element.partition(">")[0] + ">" + wrong))


@pytest.mark.parametrize("wrong", ["", "x", f"{OTHER}x", OTHER[:-1], f"{{{OTHER}}}"])
@pytest.mark.parametrize("element", ["ConnectorType", "ConnectorId", "SourceQmGuid"])
def test_a_guid_is_a_guid(element: str, wrong: str) -> None:
    """2.2.6.7, 2.2.6.11, 2.2.6.13: "MUST contain a GUID string"."""
    start = ENVELOPE.index(f"<{element}>")
    whole = ENVELOPE[start : ENVELOPE.index("</", start)]
    with pytest.raises(RemoteProtocolError):
        read((whole, f"<{element}>{wrong}"))


def test_a_receipt_is_read_with_what_it_says() -> None:
    receipt = (
        "<deliveryReceipt><receivedAt>20070719T032454</receivedAt><id>uuid:3@"
        f"{OTHER}</id></deliveryReceipt>"
    )
    assert read(("<Msmq ", f"{receipt}<Msmq ")).receipt == Receipt(
        "delivery", OTHER, 3, parse_date("20070719T032454")
    )


def test_a_message_without_the_mark_must_understand_is_taken() -> None:
    """2.2.4, 2.2.5: each "MUST be marked with the SOAP attribute"; that is the sender's duty."""
    assert ENVELOPE.count(' se:mustUnderstand="1"') == 4
    assert read((' se:mustUnderstand="1"', "")) == read()
