"""Stored posts into the columns of INTERFACE.md section 4."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from rows_kit import ARRIVED, SENDER, SENT, STREAM_RECEIPT, message, record_of, varied

from srmp_spark.errors import StoreDamagedError
from srmp_spark.message import Arrival, Receipt, StreamId, StreamPosition
from srmp_spark.rows.columns import NAMES, arrow_schema
from srmp_spark.rows.decode import rows_of
from srmp_spark.rows.group import Record
from srmp_spark.srmp.codec import encoder

QM, EPOCH, QUEUE = "11111111-2222-3333-4444-555555555555", "ab12", "private$/orders"


def at(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=microseconds)


def row(record: Record, envelope: bool = False) -> dict[str, Any]:
    return rows_of(QM, EPOCH, QUEUE, [(7, record)], envelope).to_pylist()[0]


def test_a_plain_message_has_every_column() -> None:
    found = row(record_of(message(20503, response_queue="http://m1/msmq/private$/answers")))
    assert list(found) == list(NAMES)
    assert {name: value for name, value in found.items() if value is not None} == {
        "queue_manager": QM, "epoch": EPOCH, "sequence": 7, "queue": QUEUE, "arrived_at": at(ARRIVED), "transport": "http",
        "peer": "192.0.2.1:4711", "message_id": f"{{{SENDER}}}\\20503", "lineage": SENDER, "uniquifier": 20503, "class": 0,
        "priority": 3, "delivery": "express", "label": "order", "body": b"order 20503", "body_type": 0,
        "body_text": "order 20503",
        "soap_action": "MSMQMessage", "correlation_id": bytes(20), "app_specific": 0, "sent_at": at(SENT),
        "expires_at": at(ARRIVED + 10_000_000), "time_to_reach_queue": at(ARRIVED + 10_000_000), "expired": False,
        "destination": "DIRECT=http://Machine2/msmq/private$/Orders", "response_queue": "http://m1/msmq/private$/answers",
        "source_qm": SENDER, "first_in_transaction": False, "last_in_transaction": False, "journal": False,
        "dead_letter": False, "trace": False, "receipts_requested": [], "hash_algorithm": 32772, "signature_status": "none",
    }  # fmt: skip


def test_every_property_has_its_column() -> None:
    found = row(
        record_of(
            message(
                message_class=0x4000, priority=7, durable=True, body="Größe".encode("utf-16-le"), body_type=8,
                extension=b"<h/>", correlation=bytes(range(20)), app_specific=5, journal=True, dead_letter=True, trace=True,
                delivery_receipt_to="http://m1/msmq/private$/admin", commitment_receipt_to="http://m1/msmq/private$/admin",
                commitment_positive=True, commitment_negative=True, connector_type=SENDER, provider_type=1,
                provider_name="Microsoft Base", destination_list=("http://a/msmq/q",), admin_list=("http://b/msmq/q",),
                response_list=("http://c/msmq/q", "http://d/msmq/q"),
            ),
            Arrival(ARRIVED, "https", "[2001:db8::1]:9", "CN=orders"),
        )
    )  # fmt: skip
    expected = {
        "class": 0x4000, "priority": 7, "delivery": "recoverable", "body_type": 8, "body_text": "Größe", "extension": b"<h/>",
        "correlation_id": bytes(range(20)), "app_specific": 5, "journal": True, "dead_letter": True, "trace": True,
        "admin_queue": "http://m1/msmq/private$/admin", "connector_type": SENDER,
        "receipts_requested": ["delivery", "commitment_positive", "commitment_negative"],
        "provider_type": 1, "provider_name": "Microsoft Base", "destination_list": ["http://a/msmq/q"],
        "admin_list": ["http://b/msmq/q"], "response_list": ["http://c/msmq/q", "http://d/msmq/q"],
        "transport": "https", "peer": "[2001:db8::1]:9", "sender_name": "CN=orders",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_a_stream_message() -> None:
    receipts_to = "http://m1/msmq/private$/order_queue$"
    position = StreamPosition(
        StreamId(SENDER, 2**63 + 7), 1, 0, start=True, send_receipts_to=receipts_to
    )
    found = row(
        record_of(
            message(
                stream=position,
                first_in_transaction=True,
                last_in_transaction=True,
                source_qm=SENDER,
            )
        )
    )
    assert (found["delivery"], found["stream_sequence"], found["stream_previous"]) == (
        "transactional",
        1,
        0,
    )
    assert found["stream_id"] == f"uid:{SENDER}\\{2**63 + 7}"
    assert found["first_in_transaction"]
    assert found["last_in_transaction"]
    assert found["admin_queue"] is None, (
        "the order queue takes stream receipts; it is no administration queue"
    )


def test_receipts_are_rows_too() -> None:
    stream = row(
        record_of(
            message(
                body=b"", receipt=STREAM_RECEIPT, message_class=0xFF, action="MSMQ:QM Ordering Ack"
            )
        )
    )
    assert stream["receipt_kind"] == "stream"
    assert (stream["receipt_stream_id"], stream["receipt_last_ordinal"]) == (f"uid:{SENDER}\\5", 9)
    delivery = Receipt("delivery", lineage=SENDER, uniquifier=12, at=SENT)
    found = row(record_of(message(body=b"", receipt=delivery, message_class=2)))
    assert (found["receipt_kind"], found["receipt_for"], found["receipt_at"]) == (
        "delivery",
        f"{{{SENDER}}}\\12",
        at(SENT),
    )
    negative = Receipt("commitment", lineage=SENDER, uniquifier=12, at=SENT, decision="negative")
    found = row(record_of(message(body=b"", receipt=negative, message_class=0xC000)))
    assert (found["receipt_kind"], found["receipt_decision"], found["class"]) == (
        "commitment",
        "negative",
        0xC000,
    )


def test_a_message_without_msmq_has_defaults() -> None:
    """INTERFACE.md: class is 0 without <Msmq>; the identifier is the NULL GUID with 1 ([MC-MQSRM] 3.1.5.1.1)."""
    null = "00000000-0000-0000-0000-000000000000"
    bare = message(
        1,
        has_msmq=False,
        lineage=null,
        source_qm=None,
        hash_algorithm=None,
        time_to_reach_queue=None,
    )
    found = row(record_of(bare))
    assert (found["class"], found["message_id"], found["source_qm"]) == (0, f"{{{null}}}\\1", None)
    assert found["expires_at"] == at(ARRIVED + 10_000_000)


def test_a_label_needs_its_prefix() -> None:
    assert row(record_of(message(action="http://example.org/do")))["label"] is None
    assert row(record_of(message(action="MSMQ:")))["label"] == ""


def test_a_multicast_destination_is_a_format_name() -> None:
    assert (
        row(record_of(message(destination="MSMQ:MULTICAST=234.1.1.1:8001")))["destination"]
        == "MULTICAST=234.1.1.1:8001"
    )


@pytest.mark.parametrize(
    ("reach", "expires", "expired"),
    [(ARRIVED + 10**6, ARRIVED - 10**6, False), (ARRIVED - 10**6, ARRIVED + 10**6, True)],
)
def test_ttrq_takes_precedence(reach: int, expires: int, expired: bool) -> None:
    """[MC-MQSRM] 3.1.5.1.4."""
    assert (
        row(record_of(message(time_to_reach_queue=reach, expires_at=expires)))["expired"] is expired
    )


def test_numbers_beyond_the_jvm_are_shown_as_twos_complement() -> None:
    found = row(record_of(message(2**64 - 1, app_specific=2**63, body_type=2**64 - 2)))
    assert (found["uniquifier"], found["app_specific"], found["body_type"]) == (-1, -(2**63), -2)


def test_the_envelope_comes_when_asked_for() -> None:
    sent = message()
    assert row(record_of(sent))["envelope"] is None
    assert row(record_of(sent), envelope=True)["envelope"] == encoder.encode_envelope(sent).decode()


def test_a_batch_is_what_its_rows_are() -> None:
    """Constant columns and all short ways give what one row at a time gives."""
    pairs = varied(60)
    whole = rows_of(QM, EPOCH, QUEUE, pairs, True)
    assert whole.schema.equals(arrow_schema())
    single = [rows_of(QM, EPOCH, QUEUE, [pair], True).to_pylist()[0] for pair in pairs]
    assert whole.to_pylist() == single


def test_no_rows_are_an_empty_batch_with_the_schema() -> None:
    empty = rows_of(QM, EPOCH, QUEUE, [])
    assert empty.num_rows == 0
    assert empty.schema.equals(arrow_schema())


def test_a_damaged_record_names_queue_and_sequence() -> None:
    good = record_of(message())
    broken = good._replace(post=good.post[:-300])
    with pytest.raises(StoreDamagedError, match=r"row 8 of private\$/orders"):
        rows_of(QM, EPOCH, QUEUE, [(7, good), (8, broken)])
