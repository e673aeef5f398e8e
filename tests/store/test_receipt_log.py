"""Our order queue as the sender process reads it: in pieces, whatever strangers have put there."""

from __future__ import annotations

from pathlib import Path

import pytest
import store_kit
from store_kit import NOW, Store, srmp_record

from srmp_spark.message import Arrival, StreamId
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.queue_manager.sender import receipts
from srmp_spark.queue_manager.sender.receipts import Found, ReceiptLog
from srmp_spark.rows.group import Record
from srmp_spark.srmp.encoder import encode, http_head
from srmp_spark.srmp.receipts import stream_receipt

PEER = "caf195ea-615c-4264-ae08-11a4e60194c0"


@pytest.fixture(autouse=True)
def order_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_kit, "QUEUE", ORDER_QUEUE)


def receipt_record(n: int, size: int, at: int) -> Record:
    to = "http://qm/msmq/private$/order_queue$"
    message = stream_receipt(
        identity=PEER, uniquifier=n, to=to, via=to, stream_id=StreamId(PEER, 7), last_ordinal=n, sent_at=NOW
    )
    content_type, content = encode(message, boundary="MSMQ - SOAP boundary, 53287")
    head = http_head("/msmq/private$/order_queue$", "qm", content_type, len(content))
    return Record(Arrival(at + n, "http", "192.0.2.1:4711", None), head + content, len(head))


def ordinals(found: Found) -> list[int | None]:
    return [message.receipt.last_ordinal for message in found.messages if message.receipt is not None]


def test_what_is_no_receipt_counts_as_read_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of an earlier version may hold a million of them: the receipts between them are heard piece by piece."""
    monkeypatch.setattr(receipts, "ROWS_MAX", 3)
    store = Store(tmp_path / "d")
    store.put(4, make=srmp_record)
    store.put(2, make=receipt_record)
    log = ReceiptLog(tmp_path / "d")
    first = log.read(0)
    assert (ordinals(first), first.to, first.more) == ([], 3, True)
    second = log.read(first.to)
    assert (ordinals(second), second.to, second.more) == ([5, 6], 6, True)
    assert log.read(second.to) == Found(6, [], more=False)
    store.close()


def test_large_ones_count_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "d")
    store.put(3, make=srmp_record, size=4096)
    store.put(1, make=receipt_record)
    monkeypatch.setattr(receipts, "BYTES_MAX", 8192)
    log = ReceiptLog(tmp_path / "d")
    first = log.read(0)
    assert (ordinals(first), first.to, first.more) == ([], 2, True)
    assert ordinals(log.read(first.to)) == [4]
    store.close()


def test_one_that_cannot_be_read_counts_and_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "ROWS_MAX", 1)
    store = Store(tmp_path / "d")
    store.put(1, make=store_kit.record)  # an earlier version took it: it has no Content-Type
    store.put(1, make=receipt_record)
    log = ReceiptLog(tmp_path / "d")
    first = log.read(0)
    assert (ordinals(first), first.to, first.more) == ([], 1, True)
    assert ordinals(log.read(first.to)) == [2]
    store.close()
