"""docs/INTERFACE.md section 4, State tables: ``outgoing_queue``, ``outgoing_streams``, dead letters and journal."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

import pytest
from outbox_kit import NOW, QM, A, B
from outgoing_kit import STREAM, TABLES, Sending

from srmp_spark.errors import StoreDamagedError
from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.store.delta.outgoing import outgoing_layout
from srmp_spark.store.delta.outgoing.outgoing_publisher import OutgoingPublisher
from srmp_spark.store.delta.tables import table_specs
from srmp_spark.store.delta.tables.state_table import PublishConflictError
from srmp_spark.store.outbox.messages.live import LiveQueue, SentRun, write_live
from srmp_spark.store.outbox.tables.which_file import WHICH_FILE

INTERFACE = Path(__file__).parents[2] / "docs" / "INTERFACE.md"
AT = datetime.fromtimestamp(NOW / 1e6, timezone.utc)


@pytest.fixture
def sending(tmp_path: Path) -> Sending:
    return Sending(tmp_path)


@pytest.mark.parametrize("name", TABLES)
def test_the_columns_are_those_of_the_interface(sending: Sending, name: str) -> None:
    text = INTERFACE.read_text()
    text = text[text.index("**State tables**") : text.index("## 5.")]

    def listed(table: str, end: str) -> list[str]:
        part = text[text.index(f"`{table}` (") :].split(":", 1)[1]
        part = re.sub(r"\([^)]*\)", "", part[: part.index(end)])
        return re.findall(r"`(\w+)`", part)

    expected = listed("outgoing_streams", "`outgoing_queue`")
    if name != "outgoing_streams":
        expected = listed("outgoing_queue", "`dead_letter_queue`")
    if name in ("dead_letter_queue", "journal_queue"):
        expected += ["reason", "moved_at", "target"]
    sending.put(1)
    sending.publisher().publish_once()
    table = sending.table(name)
    later = re.findall(
        r"`(\w+)`",
        re.search(r"`outgoing_queue` also has (.*?);", INTERFACE.read_text(), re.DOTALL)[1],
    )  # type: ignore[index]  # it is there
    of_streams = re.findall(
        r"`(\w+)`",
        re.search(r"`outgoing_streams` also has (.*?);", INTERFACE.read_text(), re.DOTALL)[1],
    )  # type: ignore[index]  # it is there
    later = {"outgoing_queue": later, "outgoing_streams": of_streams}.get(name, [])
    assert [field.name for field in table.schema().fields] == [
        "queue_manager",
        *expected,
        "position",
        "written_at",
        *later,
    ]
    assert table.metadata().configuration["srmp.format"] == "1"
    assert table.metadata().partition_columns == ["queue_manager"]
    assert (
        table.metadata().configuration["delta.appendOnly"]
        == str(name in ("dead_letter_queue", "journal_queue")).lower()
    )


def test_the_types_are_those_of_the_interface() -> None:
    queue = table_specs.outgoing_queue().schema
    kinds = {
        name: str(queue.field(name).type)
        for name in ("stream_sequence", "attempts", "body", "enqueued_at", "priority")
    }
    assert kinds == {
        "stream_sequence": "int64", "attempts": "int32", "body": "binary", "enqueued_at": "timestamp[us, tz=UTC]",
        "priority": "int32",
    }  # fmt: skip
    streams = table_specs.outgoing_streams().schema
    assert [str(streams.field(name).type) for name in ("unread", "resend_interval_index")] == [
        "int64",
        "int32",
    ]


def test_a_message_that_waits_is_a_row_with_its_place_in_the_stream(sending: Sending) -> None:
    sending.put(
        1, label="L", key="k", body_type=8, app_specific=7, correlation_id=b"c" * 20, response_queue="http://r/msmq/r",
        admin_queue="http://a/msmq/a", extension=b"x", time_to_reach_queue=AT,
    )  # fmt: skip
    sending.put(1)
    write_live(
        sending.data_dir,
        sending.desk.outbox.database.fence,
        {STREAM: LiveQueue("Disconnected", held_to=0)},
    )
    sending.publisher().publish_once()
    first, second = sorted(sending.read(), key=lambda row: row["stream_sequence"])
    row = sending.desk.outbox.queue_rows()[0]
    stream = f"uid:{QM}\\{row.stream_ordinal}"
    del first["written_at"]
    reliable = ("soap_action", "wsrm_version", "soap_version", "wsa_version")
    names = (
        "serial",
        "delivery",
        "journal",
        "dead_letter",
        "to",
        "envelope",
        "via",
        "destination_list",
        *reliable,
    )
    later = {name: first.pop(name) for name in names}
    assert later == {
        "serial": 1, "delivery": "transactional", "journal": False, "dead_letter": False, "to": None, "envelope": None,
        "via": None, "destination_list": None, **dict.fromkeys(reliable),
    }  # fmt: skip
    assert (first.pop("first_in_transaction"), first.pop("last_in_transaction")) == (None, None), (
        "each row is its own"
    )
    assert first == {
        "queue_manager": QM, "destination": A, "message_id": f"{{{QM}}}\\1", "application": "app", "key": "k",
        "state": "queued", "stream_id": stream, "stream_sequence": 1, "stream_previous": 0, "attempts": 0, "enqueued_at": AT,
        "first_sent_at": None, "last_sent_at": None, "last_status": None, "label": "L", "body": b"1.0", "body_type": 8,
        "extension": b"x", "priority": 0, "correlation_id": b"c" * 20, "app_specific": 7, "response_queue": "http://r/msmq/r",
        "admin_queue": "http://a/msmq/a", "expires_at": AT, "position": sending.desk.outbox.database.position,
    }  # fmt: skip
    assert (second["message_id"], second["stream_sequence"], second["stream_previous"]) == (
        f"{{{QM}}}\\2",
        2,
        1,
    )
    assert (second["label"], second["key"], second["body_type"], second["extension"]) == (
        "",
        None,
        0,
        None,
    )


def test_where_messages_stand(sending: Sending) -> None:
    sending.put(6)
    sending.release(5)
    publisher = sending.publisher()

    def states() -> list[str]:
        publisher.publish_once()
        return [
            row["state"] for row in sorted(sending.read(), key=lambda row: row["stream_sequence"])
        ]

    assert states() == ["in_doubt"] * 5 + ["queued"], (
        "nobody says more than that they may have left"
    )
    fence = sending.desk.outbox.database.fence
    live = LiveQueue("Connected", held_to=3, doubtful=(4,), unacknowledged=3, resend_at=NOW, failed=(4, 503),
                     sent=(SentRun(1, 3, 1, NOW - 9, NOW - 9), SentRun(4, 4, 2, NOW - 8, NOW - 7)))  # fmt: skip
    write_live(sending.data_dir, fence, {STREAM: live})
    assert states() == ["awaiting_stream_receipt"] * 3 + ["in_doubt", "queued", "queued"]
    rows = sorted(sending.read(), key=lambda row: row["stream_sequence"])
    assert [(row["attempts"], row["last_status"]) for row in rows] == [(1, 200)] * 3 + [
        (2, 503),
        (0, None),
        (0, None),
    ]
    assert (rows[3]["last_sent_at"] - rows[3]["first_sent_at"]).microseconds == 1
    (stream,) = sending.read("outgoing_streams")
    names = ("state", "unacknowledged", "sequence_number", "resend_at")
    assert [stream[name] for name in names] == ["Connected", 3, 6, AT]
    write_live(sending.data_dir, fence - 1, {STREAM: live})
    assert states() == ["in_doubt"] * 5 + ["queued"], "another owner's memory says nothing"


def test_previous_bridges_a_message_that_died_in_another_file(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing_layout, "FILE_GROUPS", 1)
    sending.put(256)
    sending.put(3)
    publisher = sending.publisher()
    publisher.publish_once()
    assert len(sending.files()) == 2
    sending.bury(256, 256)
    publisher.publish_once()
    previous = {row["stream_sequence"]: row["stream_previous"] for row in sending.read()}
    assert previous[257] == 255
    assert previous[258] == 257


def test_a_backlog_is_not_written_again_at_each_interval(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing_layout, "FILE_ROWS", 512)
    sending.put(5_000)
    publisher = sending.publisher()
    publisher.publish_once()
    whole = sending.files()
    assert len(whole) == 10
    publisher.publish_once()
    assert sending.files() == whole
    assert sending.bodies() == sorted(sending.waiting())

    sending.finish(1, 1_100)  # two files are finished, one is cut
    publisher.publish_once()
    assert len(sending.files() - whole) == 1
    assert len(whole - sending.files()) == 3
    assert sending.bodies() == sorted(sending.waiting())

    before = sending.files()
    sending.put(10, destination=B)
    publisher.publish_once()
    assert before < sending.files()
    assert len(sending.files()) == len(before) + 1
    assert sending.bodies() == sorted(sending.waiting() | sending.waiting(QueueKey(B, "stream")))


def test_small_files_are_joined(sending: Sending) -> None:
    publisher = sending.publisher()
    for n in range(outgoing_layout.SMALL_FILES_MAX + 2):
        sending.put(1, destination=A if n % 3 else B)
        publisher.publish_once()
        assert len(sending.files()) <= outgoing_layout.SMALL_FILES_MAX
    assert sending.bodies() == sorted(sending.waiting() | sending.waiting(QueueKey(B, "stream")))


def test_many_destinations_are_a_few_files(sending: Sending) -> None:
    rows = [{"body": b"%d" % n, "destination": f"http://h{n}/msmq/q"} for n in range(2_000)]
    sending.desk.send(rows)
    sending.publisher().publish_once()
    assert len(sending.files()) < 10
    assert sending.bodies() == sorted(row["body"] for row in rows)
    assert len(sending.read("outgoing_streams")) == 2_000


def test_dead_letters_and_journal_copies_keep_their_content(sending: Sending) -> None:
    sending.put(4, key=None, journal=True, label="J")
    sending.put(4)
    publisher = sending.publisher()
    publisher.publish_once()
    sending.finish(1, 2)
    sending.bury(3, 3, "refused", in_doubt=True)
    sending.bury(5, 5, "expired", status=None)
    sending.bury(6, 6, "not-received", status=None, message_class=0xC001)
    sending.bury(7, 7, "not-received", status=None, message_class=0x8077)
    publisher.publish_once()
    dead = {row["body"]: row for row in sending.read("dead_letter_queue")}
    assert {
        body: (row["reason"], row["last_status"], row["state"], row["target"])
        for body, row in dead.items()
    } == {
        b"1.2": ("400", 400, "in_doubt", "deadxact$"),
        b"2.0": ("MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT", None, "queued", "deadxact$"),
        b"2.1": ("MQMSG_CLASS_NACK_Q_PURGED", None, "awaiting_final_stream_receipt", "deadxact$"),
        b"2.2": ("0x8077", None, "awaiting_final_stream_receipt", "deadxact$"),
    }
    assert dead[b"1.2"]["moved_at"] == AT
    assert (dead[b"1.2"]["stream_sequence"], dead[b"1.2"]["message_id"]) == (3, f"{{{QM}}}\\3")
    journal = sending.read("journal_queue")
    assert sorted((row["body"], row["label"], row["reason"], row["target"]) for row in journal) == [
        (b"1.0", "J", "MQMSG_CLASS_ACK_REACH_QUEUE", "journal$"), (b"1.1", "J", "MQMSG_CLASS_ACK_REACH_QUEUE", "journal$"),
    ]  # fmt: skip
    assert sending.bodies() == sorted(sending.waiting())


def test_what_moved_is_appended_once_across_restarts_copies_and_a_new_outbox(
    sending: Sending,
) -> None:
    sending.put(6)
    sending.bury(1, 2)
    sending.publisher().publish_once()
    sending.reopen(epoch="a copy")
    sending.bury(3, 3)
    sending.publisher().publish_once()
    assert sending.bodies("dead_letter_queue") == [b"1.0", b"1.1", b"1.2"]
    sending.desk.close()
    for path in [*sending.data_dir.glob("outbox.db*"), sending.data_dir / WHICH_FILE]:
        path.unlink()
    sending.__init__(sending.data_dir.parent)  # type: ignore[misc]  # the same folders, begun anew
    sending.batch = 8
    sending.put(2)
    sending.bury(1, 1)
    sending.publisher().publish_once()
    assert sending.bodies("dead_letter_queue") == [b"1.0", b"1.1", b"1.2", b"9.0"]
    assert sending.bodies() == [b"9.1"]


def test_two_publishers_never_double_a_row(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.put(600)
    old, new = sending.publisher(), sending.publisher()
    old.publish_once()
    new.publish_once()
    sending.put(5)
    new.publish_once()
    with monkeypatch.context() as patch:  # both look, then both write
        patch.setattr(old, "_look_at_tables", lambda look: None)
        with pytest.raises(PublishConflictError):
            old.publish_once()
    sending.put(2)
    new.publish_once()
    old.publish_once()
    assert sending.bodies() == sorted(sending.waiting()), "what the other one wrote is seen"
    sending.bury(1, 1)
    old.publish_once()
    assert sending.bodies() == sorted(sending.waiting())
    assert sending.bodies("dead_letter_queue") == [b"1.0"]


def test_a_data_directory_that_was_set_back_is_refused(sending: Sending) -> None:
    sending.put(3)
    sending.reopen()
    saved = (sending.data_dir / "outbox.db").read_bytes()
    sending.bury(1, 1)
    sending.publisher().publish_once()
    sending.desk.close()
    for path in sending.data_dir.glob("outbox.db*"):
        path.unlink()
    (sending.data_dir / "outbox.db").write_bytes(saved)
    with pytest.raises(StoreDamagedError, match="older copy"):
        sending.publisher().publish_once()


def test_nothing_is_made_where_nothing_was_ever_sent(tmp_path: Path) -> None:
    publisher = OutgoingPublisher(tmp_path, str(tmp_path / "state"), QM, 1.0)
    before = publisher.as_of()
    assert publisher.publish_once() == []
    assert publisher.as_of() > before
    assert not (tmp_path / "state").exists()


def test_a_damaged_group_is_named_and_the_rest_is_published(sending: Sending) -> None:
    sending.put(300)
    sending.desk.outbox.database.connection.execute("UPDATE data SET crc = crc + 1 WHERE id = 1")
    publisher = sending.publisher()
    before = publisher.as_of()
    (error,) = publisher.publish_once()
    assert re.search(r"checksum of group \d+ of the outbox", error)
    assert publisher.as_of() == before, "the lag goes on growing"
    assert len(sending.read()) == 300 - 256
    sending.desk.outbox.database.connection.execute("UPDATE data SET crc = crc - 1 WHERE id = 1")
    assert publisher.publish_once() == []
    assert sending.bodies() == sorted(sending.waiting())


def test_lost_data_files_come_again_from_the_outbox(sending: Sending) -> None:
    sending.put(10)
    sending.bury(1, 2)
    sending.publisher().publish_once()
    sending.bury(3, 3)
    sending.publisher().publish_once()
    for name in ("outgoing_queue", "dead_letter_queue"):
        path = Path(sending.table(name).file_uris()[0])
        path.write_bytes(path.read_bytes()[:-20])
    sending.publisher().publish_once()
    assert sending.bodies() == sorted(sending.waiting())
    assert sending.bodies("dead_letter_queue") == [b"1.0", b"1.1", b"1.2"]
