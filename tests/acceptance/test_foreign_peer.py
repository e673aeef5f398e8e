"""A sender written from [MC-MQSRM] alone against the real service: every column right, receipts in time."""

from __future__ import annotations

import asyncio
import base64
import datetime
import time
from collections.abc import Iterator
from typing import Any

import pytest
from harness import landed, peek

from srmp_spark.testing.foreign.messages import (
    Dialect,
    ForeignMessage,
    ForeignStream,
    http_post,
    post,
    seconds_of,
)
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.http import ReceiptsServer, Wire
from tests.kit.foreign.ledger import Ledger
from tests.kit.foreign.senders import ForeignQueueManager
from tests.kit.foreign.stream_sender import StreamSender
from tests.kit.foreign.verdict import judge

QM = "caf195ea-615c-4264-ae08-11a4e60194c0"
CONNECTOR = "fd74b8eb-2af7-4ac5-9405-074e315df392"
SENT = seconds_of("20260918T120000")
RECEIPT_EARLIEST, RECEIPT_LATEST = 0.5 - 0.05, 10.5
"""Seconds since the sender saw our 200, which a busy machine shows it late."""
"""Seconds ([MC-MQSRM] 3.1.1.3.2: 500 ms after the last message, 10 s at most; half a second for the way)."""


@pytest.fixture(scope="module")
def queue_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    directory = tmp_path_factory.mktemp("foreign")
    queues = ["private$/orders", "private$/payments:transactional", "public", "private$/Größe %&"]
    allowed = ["http://127.0.0.1:*"]
    with RunningQueueManager(
        directory, queues=queues, allow_url=allowed, retransmission_timeout=1
    ) as running:
        yield running


def send(queue_manager: RunningQueueManager, message: ForeignMessage, dialect: Dialect) -> int:
    return send_raw(queue_manager, post(message, dialect).raw)


def send_raw(queue_manager: RunningQueueManager, raw: bytes) -> int:
    async def run() -> int:
        wire = Wire(lambda: queue_manager.endpoint, reply_timeout=5.0)
        answer = await wire.exchange(raw)
        await wire.close()
        assert answer.body == b""
        return answer.status

    return asyncio.run(run())


def url(queue_manager: RunningQueueManager, queue: str) -> str:
    host, port = queue_manager.endpoint
    return f"http://{host}:{port}/msmq/{queue}"


def last_row(queue_manager: RunningQueueManager, queue: str) -> dict[str, Any]:
    return peek(queue, api=queue_manager.api)[-1]


def moment(text: str) -> float:
    """Seconds since 1970 of an RFC 3339 time in UTC."""
    assert text.endswith("Z")
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("dialect", Dialect)
def test_every_property_of_a_durable_message_reaches_its_column(
    dialect: Dialect, queue_manager: RunningQueueManager
) -> None:
    to = url(queue_manager, "private$/Orders")
    message = ForeignMessage(
        to=to,
        lineage=QM,
        uniquifier=1000 + list(Dialect).index(dialect),
        label="order <1> & Größe",
        sent_at=SENT,
        expires_at=SENT + 86_400,
        time_to_reach_queue=SENT + 345_600,
        body="ardenwhite".encode("utf-16-le"),
        body_type=8,
        extension=b"\x00\x01extension",
        response_queue="http://machine1/MSMQ/private$/answers",
        durable=True,
        delivery_receipt_to="http://machine1/MSMQ/private$/receipts",
        commitment_receipt_to="http://machine1/MSMQ/private$/receipts",
        positive_only=True,
        negative_only=True,
        priority=6,
        journal=True,
        dead_letter=True,
        trace=True,
        correlation=bytes(range(20)),
        connector_type=CONNECTOR,
        app=36,
        hash_algorithm=32772,
        provider_type=1234,
        provider_name="ProviderName",
        destination_list=("http://machine1/msmq/private$/a", "http://machine2/msmq/private$/b"),
        admin_list=("http://machine1/msmq/private$/admin",),
        response_list=("http://machine1/msmq/private$/r1", "http://machine1/msmq/private$/r2"),
    )
    before = time.time()
    assert send(queue_manager, message, dialect) == 200
    row = last_row(queue_manager, "private$/orders")
    assert before - 1 <= moment(row.pop("arrived_at")) <= time.time() + 1
    assert [
        moment(row.pop(name)) - SENT for name in ("sent_at", "expires_at", "time_to_reach_queue")
    ] == [0, 86_400, 345_600]
    assert row.pop("peer").startswith("127.0.0.1:")
    assert row.pop("sequence") >= 1
    assert row.pop("soap_action") in ('"MSMQMessage"', "MSMQMessage")
    assert row.pop("soap_body") in (None, "")
    assert row == {
        "queue_manager": queue_manager.guid,
        "epoch": queue_manager.epoch,
        "queue": "private$/orders",
        "transport": "http",
        "sender_name": None,
        "message_id": f"{{{QM}}}\\{message.uniquifier}",
        "lineage": QM,
        "uniquifier": message.uniquifier,
        "class": 0,
        "priority": 6,
        "delivery": "recoverable",
        "label": "order <1> & Größe",
        "body": base64_of(message.body),
        "body_type": 8,
        "body_text": "ardenwhite",
        "extension": base64_of(b"\x00\x01extension"),
        "correlation_id": base64_of(bytes(range(20))),
        "app_specific": 36,
        "expired": True,  # SENT is in the past, and so is <TTrq>
        "destination": f"DIRECT={to}",
        "destination_list": list(message.destination_list),
        "response_queue": "http://machine1/MSMQ/private$/answers",
        "response_list": list(message.response_list),
        "admin_queue": "http://machine1/MSMQ/private$/receipts",
        "admin_list": list(message.admin_list),
        "source_qm": QM,
        "stream_id": None,
        "stream_sequence": None,
        "stream_previous": None,
        "first_in_transaction": False,
        "last_in_transaction": False,
        "journal": True,
        "dead_letter": True,
        "trace": True,
        "receipts_requested": ["delivery", "commitment_positive", "commitment_negative"],
        "receipt_kind": None,
        "receipt_for": None,
        "receipt_decision": None,
        "receipt_at": None,
        "receipt_stream_id": None,
        "receipt_last_ordinal": None,
        "connector_type": CONNECTOR,
        "connector_qm": None,
        "provider_name": "ProviderName",
        "provider_type": 1234,
        "hash_algorithm": 32772,
        "signature_status": "none",
        "lookup_id": None,
        "wsrm_sequence": None,
        "wsrm_number": None,
        "envelope": None,
    }


def test_the_smallest_message_of_the_document_has_no_identity_and_defaults(
    queue_manager: RunningQueueManager,
) -> None:
    """Example 4.1: no ``<Msmq>``; its ``<id>`` is ignored (2.2.4.3), and so every copy is a row."""
    message = ForeignMessage(
        to=url(queue_manager, "public"), lineage=QM, uniquifier=7, label="mqsender label", sent_at=SENT,
        body=b"First Message", msmq=False,
    )  # fmt: skip
    for _ in range(2):
        assert send(queue_manager, message, Dialect.EXAMPLES) == 200
    rows = peek("public", api=queue_manager.api)
    assert [row["sequence"] for row in rows] == [1, 2]
    row = rows[0]
    assert (row["message_id"], row["lineage"], row["uniquifier"]) == (
        "{00000000-0000-0000-0000-000000000000}\\1",
        "00000000-0000-0000-0000-000000000000",
        1,
    )
    assert (row["class"], row["delivery"], row["label"], row["body_type"]) == (
        0,
        "express",
        "mqsender label",
        0,
    )
    assert base64.b64decode(row["body"]) == b"First Message"


def test_stream_messages_carry_their_position(queue_manager: RunningQueueManager) -> None:
    ordinal = SENT << 32 | 6
    for current, previous in ((1, 0), (2, 1), (5, 2)):
        stream = ForeignStream(
            guid=QM, ordinal=ordinal, current=current, previous=previous,
            receipts_to="http://127.0.0.1:9/msmq/private$/order_queue$" if current == 1 else None,
        )  # fmt: skip
        message = ForeignMessage(
            to=url(queue_manager, "private$/payments"), lineage=QM, uniquifier=2000 + current, sent_at=SENT, priority=0,
            body=b"x", durable=True, stream=stream, first_in_transaction=current != 2, last_in_transaction=True,
        )  # fmt: skip
        assert send(queue_manager, message, Dialect.TEXT) == 200
    rows = peek("private$/payments", api=queue_manager.api)[-3:]
    assert [(row["stream_sequence"], row["stream_previous"]) for row in rows] == [
        (1, 0),
        (2, 1),
        (5, 2),
    ]
    assert {row["stream_id"] for row in rows} == {f"uid:{QM}\\{ordinal}"}
    assert {(row["delivery"], row["priority"]) for row in rows} == {("transactional", 0)}
    assert [row["first_in_transaction"] for row in rows] == [True, False, True]
    assert {row["last_in_transaction"] for row in rows} == {True}


def test_queue_names_with_any_printable_character_in_any_case(
    queue_manager: RunningQueueManager,
) -> None:
    for number, name in enumerate(
        ("PRIVATE$/Gr%C3%B6%C3%9Fe%20%25&", "private$\\gr%c3%b6%c3%9fe%20%25%26")
    ):
        message = ForeignMessage(
            to=url(queue_manager, name),
            lineage=QM,
            uniquifier=3001 + number,
            sent_at=SENT,
            body=b"x",
        )
        assert send(queue_manager, message, Dialect.EXAMPLES) == 200, name
        row = last_row(queue_manager, "private$/größe %&")
        assert (row["queue"], row["uniquifier"]) == ("private$/größe %&", 3001 + number)
        assert row["destination"] == f"DIRECT={url(queue_manager, name)}", "as sent, case kept"


def test_receipts_that_arrive_are_rows(queue_manager: RunningQueueManager) -> None:
    """The delivery receipt of example 4.3, word for word, sent to a queue of ours (3.1.5.1.7)."""
    envelope = (
        '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/"><se:Header>'
        '<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1"><action>MSMQ:</action>'
        f"<to>{url(queue_manager, 'private$/orders')}</to><rev><via>http://machine2/msmq/private$/simpleq</via></rev>"
        "<id>uuid:34826@ac678228-2dd6-418b-b31f-0539ffeea853</id></path><properties "
        'se:mustUnderstand="1">'
        "<expiresAt>20380119T031407</expiresAt><sentAt>20070719T032451</sentAt></properties><deliveryReceipt>"
        "<receivedAt>20070719T032454</receivedAt><id>uuid:1@00000000-0000-0000-0000-000000000000</id></deliveryReceipt>"
        '<Msmq xmlns="msmq.namespace.xml"><Class>2</Class><Priority>3</Priority>'
        "<Correlation>AAAAAAAAAAAAAAAAAAAAAAEAAAA=</Correlation><App>0</App><BodyType>0</BodyType>"
        "<HashAlgorithm>0</HashAlgorithm><SourceQmGuid>ac678228-2dd6-418b-b31f-0539ffeea853</SourceQmGuid>"
        "<TTrq>20070723T032451</TTrq></Msmq></se:Header><se:Body></se:Body></se:Envelope>"
    ).encode()
    assert (
        send_raw(
            queue_manager, http_post("/msmq/private$/orders", "machine1", "text/xml", envelope).raw
        )
        == 200
    )
    row = last_row(queue_manager, "private$/orders")
    assert (row["class"], row["receipt_kind"]) == (2, "delivery")
    assert row["receipt_for"] == "{00000000-0000-0000-0000-000000000000}\\1"
    assert moment(row["receipt_at"]) == seconds_of("20070719T032454")
    assert row["response_queue"] == "http://machine2/msmq/private$/simpleq"


def test_stream_receipts_come_half_a_second_after_the_last_message_and_ten_seconds_after_the_first_at_the_latest(
    queue_manager: RunningQueueManager,
) -> None:
    """Three bursts, then a trickle that never pauses for half a second and lasts longer than ten."""

    async def run() -> tuple[StreamSender, Ledger, list[str]]:
        ledger = Ledger()
        async with ReceiptsServer() as receipts:
            manager = ForeignQueueManager(
                endpoint=lambda: queue_manager.endpoint,
                ledger=ledger,
                receipts_url=receipts.url(query="?SenderStream=XRntV"),
                resend_table=(30.0,),
            )
            receipts.on_receipt = manager.on_receipt
            sender = StreamSender(manager, "private$/payments", window=1000)
            running = asyncio.create_task(sender.run())
            for burst in range(3):
                for number in range(burst + 1):
                    sender.enqueue(f"burst {burst} {number}".encode())
                while sender.unreceipted:
                    await asyncio.sleep(0.02)
            for number in range(40):
                sender.enqueue(f"trickle {number}".encode())
                await asyncio.sleep(0.3)
            sender.close()
            await asyncio.wait_for(running, 15)
            return (
                sender,
                ledger,
                [receipt.target for receipt in receipts.receipts] + receipts.faults,
            )

    sender, ledger, targets = asyncio.run(run())
    assert ledger.violations == []
    assert set(targets) <= {
        "/msmq/private$/order_queue$?SenderStream=XRntV",
        "/msmq/private$/order_queue$?senderstream=xrntv",
    }
    new = [receipt for receipt in sender.seen if receipt.oldest_acknowledged_at is not None]
    assert len(new) >= 5, "one for each burst, and at least two for twelve seconds of trickle"
    for receipt in new:
        since_oldest = receipt.at - receipt.oldest_acknowledged_at
        assert RECEIPT_EARLIEST <= since_oldest <= RECEIPT_LATEST
        if since_oldest < 9.9:  # by the ten-second rule it may follow its last message at once
            assert receipt.at - receipt.last_sent_at >= RECEIPT_EARLIEST
    assert max(receipt.at - receipt.oldest_acknowledged_at for receipt in new) >= 9.5, (
        "the trickle held the receipt back"
    )
    verdict = judge(
        ledger,
        landed(
            [
                row
                for row in peek("private$/payments", api=queue_manager.api)
                if row["lineage"] != QM
            ]
        ),
    )
    assert verdict.ok, verdict.complaint()
    assert verdict.acknowledged == verdict.landed == 46


def test_a_lost_or_refused_stream_receipt_is_sent_again(queue_manager: RunningQueueManager) -> None:
    async def run() -> tuple[Ledger, int]:
        ledger = Ledger()
        async with ReceiptsServer(refuse_next=1, drop_next=1) as receipts:
            manager = ForeignQueueManager(
                endpoint=lambda: queue_manager.endpoint,
                ledger=ledger,
                receipts_url=receipts.url(),
                resend_table=(2.0,),
            )
            receipts.on_receipt = manager.on_receipt
            sender = StreamSender(manager, "private$/payments")
            for number in range(3):
                sender.enqueue(f"lost receipt {number}".encode())
            sender.close()
            await asyncio.wait_for(sender.run(), 30)
            return ledger, len(receipts.receipts)

    ledger, delivered = asyncio.run(run())
    assert ledger.count("receipted_at") == 3
    assert delivered >= 1


def test_a_delivery_receipt_comes_for_what_is_stored(queue_manager: RunningQueueManager) -> None:
    async def run() -> ReceiptsServer:
        async with ReceiptsServer() as receipts:
            message = ForeignMessage(
                to=url(queue_manager, "private$/orders"), lineage=QM, uniquifier=4001, label="my label", sent_at=SENT,
                body=b"x", durable=True, delivery_receipt_to=receipts.url("private$/receipts"),
            )  # fmt: skip
            wire = Wire(lambda: queue_manager.endpoint, reply_timeout=5.0)
            assert (await wire.exchange(post(message).raw)).status == 200
            assert (await wire.exchange(post(message).raw)).status == 200, "a copy"
            await wire.close()
            for _ in range(100):
                if receipts.receipts:
                    break
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)
            return receipts

    receipts = asyncio.run(run())
    assert receipts.faults == []
    (receipt,) = receipts.receipts
    assert receipt.delivery_of == f"uuid:4001@{QM}"
    assert receipt.action == "MSMQ:my label", "the identical label string (2.2.4.1)"
    assert receipt.to == receipts.url("private$/receipts")
    assert (receipt.message_class, receipt.headers["content-type"]) == (2, "text/xml")
    assert receipt.headers["soapaction"] == '"MSMQMessage"'
