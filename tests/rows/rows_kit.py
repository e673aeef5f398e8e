"""Posts as a Windows sender makes them, stored."""

from __future__ import annotations

from typing import Any

from srmp_spark.message import Arrival, Message, Receipt, StreamId, StreamPosition
from srmp_spark.rows.group import Record
from srmp_spark.srmp.codec.encoder import encode, http_head

SENDER = "caf195ea-615c-4264-ae08-11a4e60194c0"
ARRIVED = 1_784_430_700_000_000  # 2026-07-19T03:11:40Z
SENT = ARRIVED - 2_000_000
ARRIVAL = Arrival(ARRIVED, "http", "192.0.2.1:4711")


def message(n: int = 1, **fields: Any) -> Message:
    base: dict[str, Any] = {
        "destination": "http://Machine2/msmq/private$/Orders", "action": "MSMQ:order", "lineage": SENDER, "uniquifier": n,
        "has_msmq": True, "sent_at": SENT, "source_qm": SENDER, "body": b"order %d" % n, "hash_algorithm": 32772,
        "expires_at": ARRIVED + 10_000_000, "time_to_reach_queue": ARRIVED + 10_000_000,
    }  # fmt: skip
    return Message(**{**base, **fields})


def record_of(
    sent: Message, arrival: Arrival = ARRIVAL, *, boundary: str = "MSMQ - SOAP boundary, 53287"
) -> Record:
    content_type, content = encode(sent, boundary=boundary)
    head = http_head("/msmq/private$/orders", "machine2", content_type, len(content))
    return Record(arrival, head + content, len(head))


def varied(count: int) -> list[tuple[int, Record]]:
    """Rows that differ in as many columns as they can."""
    stream = StreamId(SENDER, 2**63 + 7)
    pairs = []
    for n in range(1, count + 1):
        sender = f"{n % 3:08x}-615c-4264-ae08-11a4e60194c0"
        fields: dict[str, Any] = {"lineage": sender, "source_qm": sender, "priority": n % 8}
        fields["body"] = bytes([n % 256]) * (n % 50)
        if n % 5 == 0:
            start = (
                {"start": True, "send_receipts_to": "http://a/msmq/private$/order_queue$"}
                if n == 5
                else {}
            )
            fields["stream"] = StreamPosition(stream, n, max(0, n - 3), **start)
        if n % 7 == 0:
            fields |= {"delivery_receipt_to": "http://a/msmq/private$/admin", "durable": True}
        if n % 11 == 0:
            fields |= {"extension": b"<h/>", "correlation": bytes(range(20))}
            fields |= {"body_type": 8, "body": "Größe".encode("utf-16-le")}
        arrival = Arrival(
            ARRIVED + n,
            "https" if n % 2 else "http",
            f"192.0.2.{n % 250}:1",
            "CN=x" if n % 4 else None,
        )
        pairs.append((n, record_of(message(n, **fields), arrival)))
    return pairs


STREAM_RECEIPT = Receipt("stream", stream_id=StreamId(SENDER, 5), last_ordinal=9)
