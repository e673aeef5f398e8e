"""Forwarded messages in the outbox: once with their cursor, and as they came."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest
from outbox_kit import NOW, QM, RECEIPTS, A, B, Desk

from srmp_spark.errors import StoreDamagedError, StoreSyncError
from srmp_spark.message import CLASS_ORDER_ACK, Message, Receipt, StreamId, StreamPosition
from srmp_spark.names import NULL_GUID
from srmp_spark.queue_manager.sender import link
from srmp_spark.srmp.forward.forwarding import forwarded
from srmp_spark.srmp.sending.outgoing_effects import Load, QueueKey
from srmp_spark.store.database.sqlite_file import check_format
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.identity.known import find_known
from srmp_spark.store.outbox.messages.packed_group import pack_group, unpack_group
from srmp_spark.store.outbox.preparing.forwarded import (
    APPLICATION,
    UNREADABLE,
    CursorMovedError,
    ForwardedBatch,
    MessageToForward,
    Unsendable,
)
from srmp_spark.store.outbox.tables.forward_place import ForwardPlace, read_to
from srmp_spark.store.outbox.tables.schema import (
    DATABASE_FILE,
    FORMAT,
    FORMAT_FORWARDED,
    FORMAT_OF_NEW,
    OUTBOX,
)

SENDER = "2744e4e1-2b48-43e8-b441-42745f280d53"
VIA = f"1.1 srmp-{QM}"


def message(number: int, *, to: str = A, stream: bool = True, **fields: object) -> Message:
    position = StreamPosition(
        StreamId(SENDER, 7), number, number - 1, number == 1, RECEIPTS if number == 1 else None
    )
    values: dict[str, object] = {
        "action": f"MSMQ:label {number}", "lineage": SENDER, "uniquifier": 1000 + number, "has_msmq": True, "source_qm": SENDER,
        "stream": position if stream else None, "durable": True, "body": b"body %d" % number, "body_type": 8,
        "first_in_transaction": True, "correlation": bytes(range(20)),
    } | fields  # fmt: skip
    return Message(to, **values)  # type: ignore[arg-type]  # fields of a message


def forward(desk: Desk, messages: list[Message | Unsendable], to: int, epoch: str = "e1") -> None:
    desk.write(prepared(desk, messages, to, epoch))


def prepared(
    desk: Desk, messages: list[Message | Unsendable], to: int, epoch: str = "e1"
) -> ForwardedBatch:
    rows = [
        each
        if isinstance(each, Unsendable)
        else MessageToForward(each, each.destination, VIA, number, b"the POST %d" % number)
        for number, each in enumerate(messages, to - len(messages) + 1)
    ]
    database = desk.outbox.database
    batch = ForwardedBatch(database, rows, read_to(database), ForwardPlace(epoch, to), NOW)
    assert batch.step()
    return batch


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_messages_and_cursor_are_one_transaction(desk: Desk, tmp_path: Path) -> None:
    assert read_to(desk.outbox.database) is None
    forward(desk, [message(1), message(2)], 2)
    prepared(desk, [message(3)], 3).abort()
    desk.close()
    again = Desk(tmp_path)
    assert read_to(again.outbox.database) == ForwardPlace("e1", 2)
    assert [stored.message.uniquifier for stored in again.read()] == [1001, 1002]


def test_a_cursor_moves_over_what_is_nothing_to_forward(desk: Desk) -> None:
    forward(desk, [], 9)
    assert read_to(desk.outbox.database) == ForwardPlace("e1", 9)
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
        assert stored.message == forwarded(each, A)._replace(
            body=each.body, extension=each.extension
        )
        assert stored.message.id == each.id


def test_receipts_are_forwarded_too(desk: Desk) -> None:
    receipt = Receipt("stream", stream_id=StreamId(SENDER, 7), last_ordinal=9)
    sent = message(
        1,
        stream=False,
        receipt=receipt,
        message_class=CLASS_ORDER_ACK,
        body=b"",
        body_type=0,
        hash_algorithm=0,
    )
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
        assert [
            (each.message.lineage, each.message.uniquifier) for each in again.read(kind="plain")
        ] == [(QM, 1), (QM, 2)]
        again.close()


def test_order_is_kept_per_destination_and_kind(desk: Desk) -> None:
    mixed = [message(n, to=A if n % 3 else B, stream=n % 4 != 0) for n in range(1, 701)]
    forward(desk, mixed, 700)
    for to in (A, B):
        for kind in ("stream", "plain"):
            chosen = [
                each
                for each in mixed
                if each.destination == to and (each.stream is not None) == (kind == "stream")
            ]
            wanted = [each.uniquifier for each in chosen]
            assert [stored.message.uniquifier for stored in desk.read(to, kind)] == wanted
    rows = desk.outbox.database.connection.execute(
        "SELECT application, batch, sum(rows) FROM parts"
    ).fetchone()
    assert rows == (APPLICATION, "e1:700", 700)


def test_a_dead_letter_keeps_the_message_as_it_came(desk: Desk) -> None:
    forward(desk, [message(1), message(2)], 2)
    desk.sender.drop(A, "stream", NOW)
    desk.save()
    assert desk.read() == []
    ((moved, letters, _),) = desk.outbox.waiting.moved_groups(0, 10)
    assert [letter.message.id for letter in letters] == [message(1).id, message(2).id]
    assert moved.reason == "dropped"


def test_an_older_version_opens_the_outbox_until_something_is_forwarded(
    desk: Desk, tmp_path: Path
) -> None:
    """It would send these as messages of its own."""

    def found() -> int:
        with sqlite3.connect(tmp_path / DATABASE_FILE) as connection:
            return check_format(connection, OUTBOX)

    desk.send([{"body": b"x"}])
    forward(desk, [], 1)
    assert found() == FORMAT_OF_NEW == 1
    forward(desk, [message(1)], 2)
    desk.close()
    assert found() == FORMAT_FORWARDED == 2
    link.check_outbox(tmp_path)
    with sqlite3.connect(tmp_path / DATABASE_FILE) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(StoreDamagedError, match="start the newer version"):
        link.check_outbox(tmp_path)


def dead(desk: Desk) -> list[tuple[str, str, int, bytes, str]]:
    """(destination, reason, identifier, body, label) of the dead letters."""
    return [
        (
            moved.destination,
            moved.reason,
            letter.message.uniquifier,
            letter.message.body,
            letter.message.label or "",
        )
        for moved, letters, _ in desk.outbox.waiting.moved_groups(0, 100)
        for letter in letters or []
    ]


@pytest.mark.parametrize(
    "bad", [{"app_specific": 2**64 - 1}, {"body_type": 2**63}, {"action": "<" * 30_000}]
)
def test_a_row_that_cannot_become_outgoing_is_a_dead_letter_and_holds_no_other(
    desk: Desk, bad: dict[str, object]
) -> None:
    forward(desk, [message(1), message(2, **bad), message(3), message(4, to=B)], 4)
    assert [stored.message.uniquifier for stored in desk.read()] == [1001, 1003]
    assert [stored.message.uniquifier for stored in desk.read(B)] == [1004]
    ((destination, reason, identifier, body, label),) = dead(desk)
    assert (destination, reason, body) == (A, UNREADABLE, b"the POST 2")
    assert label.startswith("row 2 of private$/forward$ cannot be forwarded: ")
    assert identifier not in {1, 2, 3}, "no message that goes out has that number"
    assert read_to(desk.outbox.database) == ForwardPlace("e1", 4)


def test_a_batch_of_nothing_but_such_rows_counts_too(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    forward(
        desk,
        [
            message(1, app_specific=2**64 - 1),
            message(2, to="http://"),
            Unsendable("x", 3, b"raw", "no XML"),
        ],
        3,
    )
    assert list(desk.sender) == []
    assert sorted(body for _, _, _, body, _ in dead(desk)) == [b"raw", b"the POST 1", b"the POST 2"]
    assert len({identifier for _, _, identifier, _, _ in dead(desk)}) == 3
    assert caplog.text.count("forward.unreadable") == 3
    desk.close()
    again = Desk(tmp_path)
    assert read_to(again.outbox.database) == ForwardPlace("e1", 3)


def damage(desk: Desk, number: int) -> None:
    """Make the envelope of one row, on the disk, one that cannot be read, with a checksum that fits."""
    connection = desk.outbox.database.connection
    data_id, crc, data = connection.execute("SELECT id, crc, data FROM data").fetchone()
    rows = unpack_group(crc, data, "test")
    values = rows.to_pylist()
    values[number]["envelope"] = b"<no envelope>"
    packed = pack_group(rows.from_pylist(values, rows.schema))
    connection.execute("UPDATE data SET crc = ?, data = ? WHERE id = ?", (*packed, data_id))


def test_a_row_that_cannot_be_read_again_is_told_alone(desk: Desk, tmp_path: Path) -> None:
    """An older version may have taken it. Those before it go, those to others are not concerned, and status tells it."""
    forward(desk, [message(1), message(2), message(3)], 3)
    damage(desk, 1)
    desk.close()
    desk = Desk(tmp_path)
    forward(desk, [message(4, to=B)], 4)
    key = QueueKey(A, "stream")
    assert [stored.serial for stored in desk.outbox.load(Load(key, 0, 9, 9, 1 << 20, 1))] == [1]
    with pytest.raises(
        StoreDamagedError, match=r"1 messages \(serials 2 to 2\) cannot be read: .*forwarded"
    ):
        desk.outbox.load(Load(key, 1, 9, 9, 1 << 20, 1))
    assert "wait and cannot be read" in str(desk.outbox.damage.text(key))
    assert [stored.serial for stored in desk.outbox.load(Load(key, 2, 9, 9, 1 << 20, 1))] == [3]
    assert [stored.message.uniquifier for stored in desk.read(B)] == [1004]
    desk.sender.drop(A, "stream", NOW)
    desk.save()
    assert [letters for _, letters, _ in desk.outbox.waiting.moved_groups(0, 10)][-1] is None, (
        "told as damaged, and no error"
    )


def test_a_full_disk_is_told_before_anything_is_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(f_bavail=256 * 1024 * 1024, f_frsize=1, f_blocks=1 << 40)
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(BatchError, match="bytes free") as refused:
        prepared(desk, [message(1)], 1)
    assert (refused.value.status, refused.value.code) == (503, "no-room")
    monkeypatch.undo()
    forward(desk, [message(1)], 1)
    assert len(desk.read()) == 1


def test_what_is_tried_twice_becomes_outgoing_once(desk: Desk, tmp_path: Path) -> None:
    """A retry after a commit whose end its caller did not see."""
    forward(desk, [message(1)], 1)
    database = desk.outbox.database
    with pytest.raises(CursorMovedError) as moved:
        ForwardedBatch(database, [], None, ForwardPlace("e1", 1), NOW)
    assert moved.value.stored == ForwardPlace("e1", 1)
    first, second = prepared(desk, [message(2)], 2), prepared(desk, [message(2)], 2)
    desk.write(first)
    with pytest.raises(StoreSyncError, match="was read from"):
        desk.write(second)
    desk.close()
    again = Desk(tmp_path)
    assert [stored.message.uniquifier for stored in again.read()] == [1001, 1002]


def test_the_first_of_all_is_tried_twice_and_becomes_outgoing_once(
    desk: Desk, tmp_path: Path
) -> None:
    first, second = prepared(desk, [message(1)], 1), prepared(desk, [message(1)], 1)
    desk.write(first)
    with pytest.raises(StoreSyncError, match="was read from"):
        desk.write(second)
    desk.close()
    assert len(Desk(tmp_path).read()) == 1


def test_a_key_never_names_a_forwarded_message(desk: Desk, tmp_path: Path) -> None:
    """Both have a number of a batch; after a start none is given out again."""
    forward(desk, [message(1), message(2)], 2)
    desk.close()
    again = Desk(tmp_path, first_identifier=100)
    again.send([{"body": b"mine", "key": "K"}], application="srmp-spark send", batch="x")
    numbers = again.outbox.database.connection.execute(
        "SELECT application, batch_no FROM parts ORDER BY id"
    ).fetchall()
    assert len({number for _, number in numbers}) == 2, numbers
    (found,) = find_known(
        again.outbox.database.connection, "srmp-spark send", [(QueueKey(A, "stream"), "K")]
    )
    assert found == ("waiting", 3, 100)
