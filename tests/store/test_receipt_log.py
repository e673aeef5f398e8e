"""Our order queue as the sender process reads it: in pieces, whatever strangers have put there."""

from __future__ import annotations

from pathlib import Path

import pytest
import store_kit
from store_kit import NOW, Store, srmp_record

from srmp_spark.message import Arrival, StreamId
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.queue_manager.sender import receipts
from srmp_spark.queue_manager.sender.receipts import (
    FoundReceipts,
    Mark,
    ReceiptLog,
    note_read,
    read_mark,
    read_to,
)
from srmp_spark.rows.group import Record
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.srmp.receiving.receipts import stream_receipt
from srmp_spark.store.outbox.tables.database import OutboxDatabase

PEER = "caf195ea-615c-4264-ae08-11a4e60194c0"


@pytest.fixture(autouse=True)
def order_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_kit, "QUEUE", ORDER_QUEUE)


def receipt_record(n: int, size: int, at: int) -> Record:
    to = "http://qm/msmq/private$/order_queue$"
    message = stream_receipt(
        identity=PEER,
        uniquifier=n,
        to=to,
        via=to,
        stream_id=StreamId(PEER, 7),
        last_ordinal=n,
        sent_at=NOW,
    )
    content_type, content = encode(message, boundary="MSMQ - SOAP boundary, 53287")
    head = http_head("/msmq/private$/order_queue$", "qm", content_type, len(content))
    return Record(Arrival(at + n, "http", "192.0.2.1:4711", None), head + content, len(head))


def ordinals(found: FoundReceipts) -> list[int | None]:
    return [
        message.receipt.last_ordinal for message in found.messages if message.receipt is not None
    ]


def test_what_is_no_receipt_counts_as_read_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert log.read(second.to) == FoundReceipts(6, [], more=False)
    assert second.mark is not None
    assert second.mark.sequence == 6
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


def test_an_older_copy_that_has_grown_beyond_what_was_read_is_read_again(tmp_path: Path) -> None:
    """Before the sender process reads, the new rows of the copy may have all the numbers that were read: their receipts counted
    as read, and a peer sends a final receipt once."""
    older, newer = Store(tmp_path / "older"), Store(tmp_path / "newer")
    older.put(5, make=receipt_record)
    read = ReceiptLog(tmp_path / "older").read(0)
    assert read.mark is not None
    assert (read.to, read.mark.sequence) == (5, 5)
    again = ReceiptLog(tmp_path / "older", read.mark)
    assert ordinals(again.read(5)) == [], "it is the one that was read"
    older.put(1, make=receipt_record)
    assert ordinals(again.read(5)) == [6]

    newer.put(
        7, make=lambda n, size, at: receipt_record(n + 10, size, at)
    )  # the same numbers, and other receipts
    found = ReceiptLog(tmp_path / "newer", read.mark).read(5)
    assert ordinals(found) == [*range(11, 18)]
    assert found.to == 7
    assert ordinals(ReceiptLog(tmp_path / "newer", found.mark).read(found.to)) == []
    assert ordinals(ReceiptLog(tmp_path / "newer").read(5)) == [16, 17], (
        "of an outbox that knows no mark"
    )
    older.close()
    newer.close()


def test_a_row_that_retention_took_says_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "d")
    store.put(3, make=receipt_record)
    assert ordinals(ReceiptLog(tmp_path / "d", Mark(9, "gone")).read(3)) == []
    assert ordinals(ReceiptLog(tmp_path / "d", Mark(3, "another")).read(3)) == [1, 2, 3]
    store.close()


def test_the_mark_is_stored_with_how_far_was_read(tmp_path: Path) -> None:
    database = OutboxDatabase.open(tmp_path)
    assert read_mark(database) is None
    note_read(database, 7, Mark(6, "ab"))
    note_read(database, 8)
    assert (read_to(database), read_mark(database)) == (8, Mark(6, "ab"))
    with database.transaction() as connection:
        connection.execute("UPDATE meta SET value = 'x' WHERE key = 'order_queue_read_mark'")
    assert read_mark(database) is None
    database.close()


def test_one_that_cannot_be_read_counts_and_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "ROWS_MAX", 1)
    store = Store(tmp_path / "d")
    store.put(1, make=store_kit.record)  # an earlier version took it: it has no Content-Type
    store.put(1, make=receipt_record)
    log = ReceiptLog(tmp_path / "d")
    first = log.read(0)
    assert (ordinals(first), first.to, first.more) == ([], 1, True)
    assert ordinals(log.read(first.to)) == [2]
    store.close()
