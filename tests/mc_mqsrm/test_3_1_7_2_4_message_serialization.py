"""[MC-MQSRM] 3.1.7.2.4 Message Serialization: every string that "MUST be appended to the string buffer", in its place.

Where Windows' bytes (chapter 4) and this section differ, Windows' are written: ``<Stream>``, ``<rev>`` before ``<id>``, closed
flags, and ``<Correlation>``, ``<App>`` and ``<HashAlgorithm>`` also when there is nothing to say.
"""

from __future__ import annotations

import pytest

from srmp_spark.message import Message, StreamId, StreamPosition
from srmp_spark.srmp.codec.encoder import encode_envelope
from srmp_spark.srmp.codec.values import parse_date

GUID = "32221eda-9376-46df-b6ed-783091123831"
CONNECTOR = "fd74b8eb-2af7-4ac5-9405-074e315df392"
EVERYTHING = Message(
    destination="DIRECT=http://machine2/msmq/private$/orders",
    action="MSMQ:order 4711",
    lineage=GUID,
    uniquifier=26626,
    has_msmq=True,
    message_class=7,
    priority=5,
    durable=True,
    stream=StreamPosition(
        StreamId(CONNECTOR, 4839986701558349830),
        1,
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
    hash_algorithm=32772,
    response_queue="http://machine1/msmq/private$/answers",
    delivery_receipt_to="http://machine1/msmq/private$/admin",
    commitment_receipt_to="http://machine1/msmq/private$/done",
    commitment_positive=True,
    commitment_negative=True,
    journal=True,
    dead_letter=True,
    trace=True,
    first_in_transaction=True,
    last_in_transaction=True,
    connector_type=CONNECTOR,
    connector_qm=CONNECTOR,
    provider_type=1234,
    provider_name="ProviderName",
    source_qm=GUID,
    destination_list=("http://m1/msmq/a", "http://m2/msmq/a"),
    admin_list=("http://m1/msmq/b",),
    response_list=("http://m1/msmq/c",),
)

ENVELOPE = (
    '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/">',
    "<se:Header>",
    '<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1">',
    "<action>MSMQ:order 4711</action>",
    "<to>http://machine2/msmq/private$/orders</to>",
    "<rev><via>http://machine1/msmq/private$/answers</via></rev>",
    "<id>uuid:26626@32221eda-9376-46df-b6ed-783091123831</id>",
    "</path>",
    '<properties se:mustUnderstand="1">',
    "<expiresAt>20070609T023719</expiresAt>",
    "<sentAt>20070608T023719</sentAt>",
    "</properties>",
    '<services se:mustUnderstand="1">',
    "<durable/>",
    "<deliveryReceiptRequest><sendTo>http://machine1/msmq/private$/admin</sendTo></deliveryReceiptRequest>",
    "<commitmentReceiptRequest><sendTo>http://machine1/msmq/private$/done</sendTo>",
    "<positiveOnly/>",
    "<negativeOnly/>",
    "</commitmentReceiptRequest>",
    "</services>",
    '<Stream se:mustUnderstand="1">',
    "<streamId>uid:fd74b8eb-2af7-4ac5-9405-074e315df392\\4839986701558349830</streamId>",
    "<current>1</current>",
    "<previous>4</previous>",
    "<start><sendReceiptsTo>http://machine1/msmq/private$/order_queue$</sendReceiptsTo></start>",
    "</Stream>",
    '<Msmq xmlns="msmq.namespace.xml">',
    "<Class>7</Class>",
    "<Priority>5</Priority>",
    "<Journal/>",
    "<DeadLetter/>",
    "<Correlation>AAECAwQFBgcICQoLDA0ODxAREhM=</Correlation>",
    "<Trace/>",
    "<ConnectorType>fd74b8eb-2af7-4ac5-9405-074e315df392</ConnectorType>",
    "<App>36</App>",
    "<BodyType>8</BodyType>",
    "<HashAlgorithm>32772</HashAlgorithm>",
    "<Eod><First/><Last/><ConnectorId>fd74b8eb-2af7-4ac5-9405-074e315df392</ConnectorId></Eod>",
    "<Provider><Type>1234</Type><Name>ProviderName</Name></Provider>",
    "<SourceQmGuid>32221eda-9376-46df-b6ed-783091123831</SourceQmGuid>",
    "<DestinationMqf>http://m1/msmq/a http://m2/msmq/a </DestinationMqf>",
    "<AdminMqf>http://m1/msmq/b </AdminMqf>",
    "<ResponseMqf>http://m1/msmq/c </ResponseMqf>",
    "<TTrq>20070612T023719</TTrq>",
    "</Msmq>",
    "</se:Header>",
    "<se:Body></se:Body>",
    "</se:Envelope>",
)


def test_every_element_is_written_in_its_place() -> None:
    assert encode_envelope(EVERYTHING).decode() == "".join(ENVELOPE)


BARE = Message(EVERYTHING.destination, "MSMQ:", GUID, 1, True, body_type=8, expires_at=EVERYTHING.expires_at,
               time_to_reach_queue=EVERYTHING.time_to_reach_queue)  # fmt: skip


def test_what_a_message_has_not_is_not_written() -> None:
    """ "If the … attribute has a non-NULL value", "… is set to True", "… has a nonzero value"."""
    assert encode_envelope(BARE).decode() == (
        "".join(ENVELOPE[:3])
        + "<action>MSMQ:</action>"
        + ENVELOPE[4]
        + f"<id>uuid:1@{GUID}</id></path>"
        '<properties se:mustUnderstand="1"><expiresAt>20070609T023719</expiresAt></properties>'
        '<Msmq xmlns="msmq.namespace.xml"><Class>0</Class><Priority>3</Priority>'
        "<Correlation>AAAAAAAAAAAAAAAAAAAAAAAAAAA=</Correlation><App>0</App><BodyType>8</BodyType>"
        f"<HashAlgorithm>32772</HashAlgorithm><SourceQmGuid>{GUID}</SourceQmGuid><TTrq>20070612T023719</TTrq></Msmq>"
        "</se:Header><se:Body></se:Body></se:Envelope>"
    )


@pytest.mark.parametrize(
    ("attribute", "written", "before"),
    [
        ("response_queue", ENVELOPE[5], "<id>"),
        ("sent_at", "<sentAt>20070608T023719</sentAt>", "</properties>"),
        ("journal", "<Journal/>", "<Correlation>"),
        ("dead_letter", "<DeadLetter/>", "<Correlation>"),
        ("trace", "<Trace/>", "<App>"),
        ("connector_type", f"<ConnectorType>{CONNECTOR}</ConnectorType>", "<App>"),
        ("first_in_transaction", "<Eod><First/></Eod>", "<SourceQmGuid>"),
        ("last_in_transaction", "<Eod><Last/></Eod>", "<SourceQmGuid>"),
        ("connector_qm", f"<Eod><ConnectorId>{CONNECTOR}</ConnectorId></Eod>", "<SourceQmGuid>"),
        ("provider_type", "<Provider><Type>1234</Type></Provider>", "<SourceQmGuid>"),
        ("provider_name", "<Provider><Name>ProviderName</Name></Provider>", "<SourceQmGuid>"),
        ("destination_list", ENVELOPE[-8], "<TTrq>"),
        ("admin_list", ENVELOPE[-7], "<TTrq>"),
        ("response_list", ENVELOPE[-6], "<TTrq>"),
    ],
)
def test_each_attribute_is_written_by_itself(attribute: str, written: str, before: str) -> None:
    """Its own condition decides, and no other element comes or goes with it."""
    alone = BARE._replace(**{attribute: getattr(EVERYTHING, attribute)})
    assert encode_envelope(alone).decode() == encode_envelope(BARE).decode().replace(
        before, written + before
    )


def test_each_request_for_a_receipt_opens_services_by_itself() -> None:
    """ "Recoverable, or … AckPosArrival, or … FinalAckRequired"; <positiveOnly/> and <negativeOnly/> by themselves."""

    def services(**fields: object) -> str:
        text = encode_envelope(
            Message("http://m/msmq/q", "MSMQ:", GUID, 1, True, **fields)
        ).decode()  # type: ignore[arg-type]  # any
        return text.partition("</properties>")[2].partition("<Msmq")[0]

    opened, closed = '<services se:mustUnderstand="1">', "</services>"
    delivery = "<deliveryReceiptRequest><sendTo>http://a/q</sendTo></deliveryReceiptRequest>"
    commitment = (
        "<commitmentReceiptRequest><sendTo>http://a/q</sendTo>{}</commitmentReceiptRequest>"
    )
    url = "http://a/q"
    assert services() == ""
    assert services(durable=True) == f"{opened}<durable/>{closed}"
    assert services(delivery_receipt_to=url) == f"{opened}{delivery}{closed}"
    assert services(commitment_receipt_to=url) == f"{opened}{commitment.format('')}{closed}"
    positive, negative = (commitment.format(f"<{only}Only/>") for only in ("positive", "negative"))
    assert (
        services(commitment_receipt_to=url, commitment_positive=True)
        == f"{opened}{positive}{closed}"
    )
    assert (
        services(commitment_receipt_to=url, commitment_negative=True)
        == f"{opened}{negative}{closed}"
    )
