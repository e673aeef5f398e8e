"""[MC-MQSRM] 3.1.5.1.6.2 Processing Regular and Durable Messages: the delivery receipt; chapters 4.3 and 4.4: its bytes."""

from __future__ import annotations

import pytest

from srmp_spark.message import CLASS_ACK_REACH_QUEUE, CLASS_REPORT, Arrival, Receipt, StreamId
from srmp_spark.names import NULL_GUID
from srmp_spark.srmp.codec.encoder import encode_envelope
from srmp_spark.srmp.codec.values import parse_date
from srmp_spark.srmp.receiving.effects import Accepted, OwedReceipt
from srmp_spark.srmp.receiving.receipts import correlation_of, delivery_receipt, stream_receipt
from tests.kit.playbook import (
    SENDER,
    Playbook,
    commit_begins,
    ok,
    owed_receipt,
    post,
    repeated,
    restart,
    row,
    stream_message,
    synced,
    user_message,
)

ORDERS = "private$/orders"
ADMIN = "http://machine1/MSMQ/private$/receipts"


def test_a_delivery_receipt_is_owed_with_the_row_that_it_speaks_of() -> None:
    playbook = Playbook()
    message = user_message(delivery_receipt_to=ADMIN)
    assert playbook >> post(message) << row(ORDERS, 1) << owed_receipt(ADMIN) >> synced() << ok()
    (owed,) = playbook.disk.owed.values()
    assert (owed.kind, owed.url, owed.queue, owed.lineage, owed.uniquifier) == (
        "delivery",
        ADMIN,
        ORDERS,
        SENDER,
        1,
    )
    assert owed.arrived_at == playbook.clock.utc()
    assert owed.peer == "192.0.2.1:1801"
    assert OwedReceipt.from_payload(owed.payload()) == owed


def test_it_is_gone_if_the_row_is_gone_and_there_if_the_row_is_there() -> None:
    playbook = Playbook()
    message = user_message(delivery_receipt_to=ADMIN)
    assert (
        playbook
        >> post(message)
        << row(ORDERS, 1)
        << owed_receipt(ADMIN)
        >> commit_begins()
        >> restart(commit_survives=False)
        >> post(message)
        << row(ORDERS, 1)
        << owed_receipt(ADMIN)
        >> commit_begins()
        >> restart(commit_survives=True)
    )
    assert len(playbook.disk.owed) == 1


def test_a_stream_message_may_ask_for_one_too() -> None:
    """3.1.1.4.3: delivery receipts and stream receipts are separate mechanisms."""
    assert (
        Playbook()
        >> post(stream_message(1, delivery_receipt_to=ADMIN))
        << row("private$/ledger", 1)
        << owed_receipt(ADMIN)
    )


def test_a_repeat_owes_nothing_new() -> None:
    message = user_message(delivery_receipt_to=ADMIN)
    assert (
        Playbook()
        >> post(message)
        << row(ORDERS, 1)
        << owed_receipt(ADMIN)
        >> post(message)
        << repeated("identifier")
    )


@pytest.mark.parametrize(
    "fields",
    [{"message_class": CLASS_ACK_REACH_QUEUE, "receipt": Receipt("delivery")}, {"receipt": Receipt("stream")},
     {"message_class": CLASS_REPORT}],
)  # fmt: skip
def test_a_receipt_never_asks_for_a_receipt(fields: dict[str, object]) -> None:
    """Two queue managers would go on writing to each other."""
    assert Playbook() >> post(user_message(delivery_receipt_to=ADMIN, **fields)) << row(ORDERS, 1)


def test_a_commitment_receipt_is_not_owed_on_arrival() -> None:
    """3.1.7.3.1 sends it when the message leaves the queue."""
    outcome = Playbook().receiver.receive(
        user_message(commitment_receipt_to=ADMIN, commitment_positive=True),
        Arrival(0, "http", "p"),
        0.0,
    )
    assert isinstance(outcome, Accepted)
    assert outcome.owed == ()


# The receipts of chapters 4.3 and 4.4, as the document prints them but on one line, as their lengths demand.
STREAM_RECEIPT_4_4 = (
    b'<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/"><se:Header>'
    b'<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1"><action>MSMQ:QM '
    b"Ordering Ack</action>"
    b"<to>http://machine1/MSMQ/private$/receipts?SenderStream=XRntV</to>"
    b"<rev><via>http://machine2/msmq/private$/tsimpleq</via></rev><id>uuid:26643@32221eda-9376-46df-b6ed-783091123831</id></path>"
    b'<properties se:mustUnderstand="1"><expiresAt>20380119T031407</expiresAt><sentAt>2007'
    b"0619T165959</sentAt></properties>"
    b"<streamReceipt><streamId>uid:2744e4e1-2b48-43e8-b441-42745f280d53\\4839986701558349830</streamId>"
    b"<lastOrdinal>2</lastOrdinal></streamReceipt>"
    b'<Msmq xmlns="msmq.namespace.xml"><Class>255</Class><Priority>0</Priority>'
    b"<Correlation>AAAAAAAAAAAAAAAAAAAAAAAAAAA=</Correlation><App>0</App><BodyType>0</BodyType><HashAlgorithm>0</HashAlgorithm>"
    b"<SourceQmGuid>32221eda-9376-46df-b6ed-783091123831</SourceQmGuid><TTrq>20070623T165959</TTrq></Msmq></se:Header>"
    b"<se:Body></se:Body></se:Envelope>"
)
DELIVERY_RECEIPT_4_3 = (
    b'<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/"><se:Header>'
    b'<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1"><action>MSMQ:</action>'
    b"<to>http://machine1/MSMQ/private$/receipts</to>"
    b"<rev><via>http://machine2/msmq/private$/simpleq</via></rev><id>uuid:34826@ac678228-2dd6-418b-b31f-0539ffeea853</id></path>"
    b'<properties se:mustUnderstand="1"><expiresAt>20380119T031407</expiresAt><sentAt>2007'
    b"0719T032451</sentAt></properties>"
    b"<deliveryReceipt><receivedAt>20070719T032454</receivedAt><id>uuid:1@00000000-0000-0000-0000-000000000000</id>"
    b"</deliveryReceipt>"
    b'<Msmq xmlns="msmq.namespace.xml"><Class>2</Class><Priority>3</Priority>'
    b"<Correlation>AAAAAAAAAAAAAAAAAAAAAAEAAAA=</Correlation><App>0</App><BodyType>0</BodyType><HashAlgorithm>0</HashAlgorithm>"
    b"<SourceQmGuid>ac678228-2dd6-418b-b31f-0539ffeea853</SourceQmGuid><TTrq>20070723T032451</TTrq></Msmq></se:Header>"
    b"<se:Body></se:Body></se:Envelope>"
)


def test_the_stream_receipt_of_4_4_byte_for_byte() -> None:
    message = stream_receipt(
        identity="32221eda-9376-46df-b6ed-783091123831",
        uniquifier=26643,
        to="http://machine1/MSMQ/private$/receipts?SenderStream=XRntV",
        via="http://machine2/msmq/private$/tsimpleq",
        stream_id=StreamId("2744e4e1-2b48-43e8-b441-42745f280d53", 4839986701558349830),
        last_ordinal=2,
        sent_at=parse_date("20070619T165959"),
    )
    assert encode_envelope(message) == STREAM_RECEIPT_4_4


def _owed(action: str) -> OwedReceipt:
    arrived_at = parse_date("20070719T032454")
    return OwedReceipt(
        "delivery", ADMIN, "private$/simpleq", NULL_GUID, 1, arrived_at, action, "192.0.2.1:1801"
    )


def test_the_delivery_receipt_of_4_3_byte_for_byte() -> None:
    """Its message carries the label "Generic label" without "MSMQ:", which counts as empty (appendix A <6>)."""
    message = delivery_receipt(
        _owed("Generic label"),
        identity="ac678228-2dd6-418b-b31f-0539ffeea853",
        uniquifier=34826,
        via="http://machine2/msmq/private$/simpleq",
        sent_at=parse_date("20070719T032451"),
    )
    assert encode_envelope(message) == DELIVERY_RECEIPT_4_3


@pytest.mark.parametrize(
    ("action", "receipt_action"),
    [("MSMQ:order 7", "MSMQ:order 7"), ("", "MSMQ:"), ("MSMQ:", "MSMQ:")],
)
def test_the_receipt_repeats_the_label(action: str, receipt_action: str) -> None:
    receipt = delivery_receipt(
        _owed(action), identity=SENDER, uniquifier=1, via="http://machine2/msmq/q", sent_at=0
    )
    assert receipt.action == receipt_action


def test_the_correlation_is_the_identifier_as_it_stands_in_memory() -> None:
    """[MS-MQMQ] 2.2.8: OBJECTID is a GUID and a 32-bit number, low byte first."""
    assert correlation_of("01020304-0506-0708-090a-0b0c0d0e0f10", 0x1_2345_6789) == bytes.fromhex(
        "0403020106050807090a0b0c0d0e0f1089674523"
    )
