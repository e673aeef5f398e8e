"""Forwarded messages in the outbox: once with their cursor, and as they came."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from outbox_kit import NOW, QM, RECEIPTS, A, B, Desk

from srmp_spark.errors import StoreDamagedError
from srmp_spark.message import CLASS_ORDER_ACK, Message, Receipt, StreamId, StreamPosition
from srmp_spark.names import NULL_GUID
from srmp_spark.queue_manager.sender import link
from srmp_spark.srmp.redirection import forwarded
from srmp_spark.store.outbox.forwarded import APPLICATION, Cursor, ForwardedBatch, Incoming, read_to
from srmp_spark.store.outbox.schema import DATABASE_FILE, FORMAT, FORMAT_OF_NEW, OUTBOX
from srmp_spark.store.sqlite_file import check_format

SENDER = "2744e4e1-2b48-43e8-b441-42745f280d53"
VIA = f"1.1 srmp-{QM}"


def message(number: int, *, to: str = A, stream: bool = True, **fields: object) -> Message:
    position = StreamPosition(StreamId(SENDER, 7), number, number - 1, number == 1, RECEIPTS if number == 1 else None)
    values: dict[str, object] = {
        "action": f"MSMQ:label {number}", "lineage": SENDER, "uniquifier": 1000 + number, "has_msmq": True, "source_qm": SENDER,
        "stream": position if stream else None, "durable": True, "body": b"body %d" % number, "body_type": 8,
        "first_in_transaction": True, "correlation": bytes(range(20)),
    } | fields  # fmt: skip
    return Message(to, **values)  # type: ignore[arg-type]  # fields of a message


def forward(desk: Desk, messages: list[Message], to: int, epoch: str = "e1") -> None:
    rows = [Incoming(each, each.destination, VIA) for each in messages]
    batch = ForwardedBatch(desk.outbox.database, rows, Cursor(epoch, to), NOW)
    assert batch.step()
    desk.write(batch)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_messages_and_cursor_are_one_transaction(desk: Desk, tmp_path: Path) -> None:
    assert read_to(desk.outbox.database) is None
    forward(desk, [message(1), message(2)], 2)
    batch = ForwardedBatch(desk.outbox.database, [Incoming(message(3), A, VIA)], Cursor("e1", 3), NOW)
    batch.step()
    batch.abort()
    desk.close()
    again = Desk(tmp_path)
    assert read_to(again.outbox.database) == Cursor("e1", 2)
    assert [stored.message.uniquifier for stored in again.read()] == [1001, 1002]


def test_a_cursor_moves_over_what_is_nothing_to_forward(desk: Desk) -> None:
    forward(desk, [], 9)
    assert read_to(desk.outbox.database) == Cursor("e1", 9)
    assert list(desk.sender) == []


def test_a_message_is_read_back_as_it_is_sent(desk: Desk) -> None:
    sent = [
        message(1, extension=b"\x00ext", expires_at=NOW, time_to_reach_queue=NOW, sent_at=NOW, app_specific=7, trace=True,
                commitment_receipt_to=B, commitment_negative=True, delivery_receipt_to=B, priority=6, connector_type=SENDER,
                destination_list=(A, B), dead_letter=True, journal=True, response_queue=B, hash_algorithm=32_772),
        message(2, body=b"", action="no label of MSMQ's", correlation=bytes(20), hash_algorithm=32_772),
    ]  # fmt: skip
    forward(desk, sent, 2)
    found = desk.read()
    assert [stored.via for stored in found] == [VIA, VIA]
    for stored, each in zip(found, sent, strict=True):
        assert stored.message == forwarded(each, A)._replace(body=each.body, extension=each.extension)
        assert stored.message.id == each.id


def test_receipts_are_forwarded_too(desk: Desk) -> None:
    receipt = Receipt("stream", stream_id=StreamId(SENDER, 7), last_ordinal=9)
    sent = message(1, stream=False, receipt=receipt, message_class=CLASS_ORDER_ACK, body=b"", body_type=0, hash_algorithm=0)
    forward(desk, [sent], 1)
    (stored,) = desk.read(kind="plain")
    assert stored.message.receipt == receipt
    assert stored.message.message_class == CLASS_ORDER_ACK


def test_a_message_without_identity_gets_ours_for_good(desk: Desk, tmp_path: Path) -> None:
    """Each sending says the same, so its next receiver knows a repeat."""
    bare = Message(A, "MSMQ:x", NULL_GUID, 1, body=b"plain SRMP")
    forward(desk, [bare, bare], 2)
    desk.close()
    for _ in range(2):
        again = Desk(tmp_path)
        assert [(each.message.lineage, each.message.uniquifier) for each in again.read(kind="plain")] == [(QM, 1), (QM, 2)]
        again.close()


def test_order_is_kept_per_destination_and_kind(desk: Desk) -> None:
    mixed = [message(n, to=A if n % 3 else B, stream=n % 4 != 0) for n in range(1, 701)]
    forward(desk, mixed, 700)
    for to in (A, B):
        for kind in ("stream", "plain"):
            chosen = [each for each in mixed if each.destination == to and (each.stream is not None) == (kind == "stream")]
            wanted = [each.uniquifier for each in chosen]
            assert [stored.message.uniquifier for stored in desk.read(to, kind)] == wanted
    rows = desk.outbox.database.connection.execute("SELECT application, batch, sum(rows) FROM parts").fetchone()
    assert rows == (APPLICATION, "e1:700", 700)


def test_a_dead_letter_keeps_the_message_as_it_came(desk: Desk) -> None:
    forward(desk, [message(1), message(2)], 2)
    desk.sender.drop(A, "stream", NOW)
    desk.save()
    assert desk.read() == []
    ((moved, letters, _),) = desk.outbox.waiting.moved(0, 10)
    assert [letter.message.id for letter in letters] == [message(1).id, message(2).id]
    assert moved.reason == "dropped"


def test_an_older_version_opens_the_outbox_until_something_is_forwarded(desk: Desk, tmp_path: Path) -> None:
    """It would send these as messages of its own."""

    def found() -> int:
        with sqlite3.connect(tmp_path / DATABASE_FILE) as connection:
            return check_format(connection, OUTBOX)

    desk.send([{"body": b"x"}])
    forward(desk, [], 1)
    assert found() == FORMAT_OF_NEW == 1
    forward(desk, [message(1)], 2)
    desk.close()
    assert found() == FORMAT == 2
    link.check_outbox(tmp_path)
    with sqlite3.connect(tmp_path / DATABASE_FILE) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(StoreDamagedError, match="start the newer version"):
        link.check_outbox(tmp_path)
