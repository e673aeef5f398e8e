"""Issue 5, "Lost disk": what ``srmp-spark restore`` gives back, what it holds, and what it says of the rest (ADR 0015)."""

from __future__ import annotations

import dataclasses
import json
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import outbox_kit  # found through conftest.py
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from outbox_kit import A, Desk
from restore_kit import LATER, PEER, QUEUE, Manager, srmp_record, stream_record, stream_row
from store_kit import Store

from srmp_spark.errors import ConfigurationError, StoreDamagedError, StoreError, StoreInUseError
from srmp_spark.rows.group import Record
from srmp_spark.sequences.ranges import SEQUENCE_MAX
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.srmp.receiving.history import HistoryRun
from srmp_spark.srmp.receiving.trust_domain import lineage_key
from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.store.database.lock import take_lock
from srmp_spark.store.delta.publisher import Publisher
from srmp_spark.store.delta.tables import table_specs
from srmp_spark.store.delta.tables.cycles import OlderCopyError
from srmp_spark.store.delta.tables.data_files import storage_of
from srmp_spark.store.delta.tables.state_table import PublishConflictError, StateTable
from srmp_spark.store.directory import RESTORING_FILE, DataDirectory
from srmp_spark.store.outbox.tables.sessions import NumberRun, SessionRow
from srmp_spark.store.restore.alive import LIVING_SECONDS
from srmp_spark.store.restore.outgoing import SERIALS_SKIPPED
from srmp_spark.store.restore.report import ReportLine
from srmp_spark.store.restore.restore import SEQUENCES_SKIPPED, restore
from srmp_spark.store.tables import queues, state
from tests.kit.offline_purge import purge


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manager:
    made = Manager(tmp_path)
    monkeypatch.setattr(outbox_kit, "QM", made.guid)
    return made


def of(report: list[dict[str, Any]], finding: str, what: str) -> list[dict[str, Any]]:
    return [line for line in report if (line["finding"], line["what"]) == (finding, what)]


# Rows, epochs, marks


def test_rows_come_back_under_their_epoch_and_sequence_with_all_columns(manager: Manager) -> None:
    manager.store.put(30, together=7, make=srmp_record)
    manager.publish()
    before = (
        DeltaTable(str(manager.folder / "inbox"))
        .to_pyarrow_table()
        .drop_columns(["position", "written_at"])
        .to_pylist()
    )
    manager.lose()
    report = manager.restore()
    assert manager.rows(manager.epoch) == sorted(before, key=lambda row: row["sequence"])
    (line,) = [each for each in of(report, "restored", "rows") if each["name"] == QUEUE]
    assert (line["first"], line["last"], line["count"], line["epoch"]) == (1, 30, 30, manager.epoch)


def test_the_guid_stays_the_epoch_is_new_and_serve_finds_its_own_directory(
    manager: Manager,
) -> None:
    manager.store.put(3, make=srmp_record)
    manager.publish()
    manager.lose()
    (line,) = of(manager.restore(), "restored", "queue_manager")
    with DataDirectory.open(manager.new, now=1) as directory:
        assert directory.queue_manager == manager.guid == line["name"]
        assert directory.epoch == line["epoch"] != manager.epoch
        assert directory.changed is None, "the epoch that was printed is the one that begins"


def test_new_rows_come_far_behind_and_the_gap_is_a_counted_hole_of_the_old_epoch(
    manager: Manager,
) -> None:
    manager.store.put(5, make=srmp_record)
    manager.publish()
    manager.store.put(2, make=srmp_record)  # read by somebody, and never published
    manager.lose()
    report = manager.restore()
    (queue,) = [each for each in manager.state().queues if each.name == QUEUE]
    assert queue.end == 5 + SEQUENCES_SKIPPED
    assert [first for _, first in queue.epochs] == [1, 6 + SEQUENCES_SKIPPED]
    (line,) = [each for each in of(report, "known", "rows") if each["name"] == QUEUE]
    assert (line["first"], line["last"], line["count"]) == (None, 5, 5)
    assert line["begins"] == 6 + SEQUENCES_SKIPPED
    assert "the last row was 5, and the newest restored one arrived at 2027-01-15" in line["detail"]
    assert "5 waited" in line["detail"]
    (line,) = of(report, "may_be_lost", "rows")
    assert (line["name"], line["first"], line["last"], line["count"]) == ("", None, None, None)
    assert manager.rows(manager.epoch, after=7) == [], (
        "a reader that had read 7 goes on without an error"
    )


def test_of_an_idle_queue_manager_the_report_says_that_nothing_waited(manager: Manager) -> None:
    """One queue has no row, and one was received: no range is called lost."""
    store = manager.store
    store.call(
        lambda transaction: queues.create(transaction, "private$/empty", transactional=False)
    )
    store.put(4, make=srmp_record)
    mark = state.StoredConsumer(QUEUE, "default", 4, SequenceSet(), None, None, None)
    store.call(
        lambda transaction: state.save_consumer(transaction.connection, store.queue_id, mark)
    )
    manager.publish()
    manager.lose()
    report = manager.restore()
    found = {line["name"]: line for line in of(report, "known", "rows")}
    assert "nothing waited for the default consumer" in found[QUEUE]["detail"]
    assert found[QUEUE]["last_arrived_at"].startswith("2027-01-15")
    assert "the state has seen no row of this queue" in found["private$/empty"]["detail"]
    for line in report:
        if line["finding"] in ("lost", "may_be_lost"):
            assert line["first"] is line["last"] is None, line


def test_what_retention_had_deleted_stays_deleted(manager: Manager) -> None:
    manager.store.put(6, make=srmp_record)
    manager.publish()
    manager.store.directory.writer.execute(
        "UPDATE queues SET trimmed_to = 4 WHERE name = ?", (QUEUE,)
    )
    manager.publish()
    manager.lose()
    manager.restore()
    assert [row["sequence"] for row in manager.rows(manager.epoch, after=4)] == [5, 6]


def test_marks_purged_rows_and_kinds_of_queues_come_back(manager: Manager) -> None:
    store = manager.store
    store.call(lambda transaction: queues.create(transaction, "private$/in", transactional=True))
    store.call(lambda transaction: queues.create(transaction, "gone", transactional=False))
    store.call(lambda transaction: queues.delete(transaction, "gone", store.directory.segments, 5))
    store.put(4, make=srmp_record)
    store.call(lambda transaction: purge(transaction, QUEUE, store.directory.segments))
    store.put(3, make=srmp_record)
    audit = state.StoredConsumer(QUEUE, "audit", 5, SequenceSet([(7, 7)]), None, None, None)
    store.call(lambda transaction: state.save_consumer(transaction.connection, 1, audit))
    manager.publish()
    manager.lose()
    report = manager.restore()
    found = manager.state()
    assert {queue.name: queue.transactional for queue in found.queues} == {
        QUEUE: False,
        "private$/in": True,
    }
    marks = {
        consumer.name: (consumer.received, list(consumer.ahead.runs()))
        for consumer in found.consumers
    }
    assert marks == {"default": (4, []), "audit": (5, [(7, 7)])}
    assert [row["sequence"] for row in manager.rows(manager.epoch)] == [5, 6, 7]
    assert of(report, "lost", "rows") == [], "purged is not lost"


def test_marks_as_scattered_as_they_are_come_back(manager: Manager) -> None:
    ahead = SequenceSet((n, n) for n in range(8, 30_000, 2))
    manager.store.put(3, make=srmp_record)
    audit = state.StoredConsumer(QUEUE, "audit", 5, ahead, None, None, None)
    manager.store.call(lambda transaction: state.save_consumer(transaction.connection, 1, audit))
    manager.publish()
    manager.lose()
    manager.restore()
    (found,) = manager.state().consumers
    assert (found.received, found.ahead) == (5, ahead)


def loses_the_table(manager: Manager, name: str) -> None:
    shutil.rmtree(manager.folder / name)


@pytest.mark.parametrize("inbox", ["gone", "far behind"])
@pytest.mark.parametrize("ahead", ["nothing", "a run", "packed"])
def test_the_new_epoch_begins_beyond_every_mark(manager: Manager, inbox: str, ahead: str) -> None:
    """Else `received 2000000, last 1048579`: three messages wait that count as received, and nobody ever gets them."""
    beyond = {
        "nothing": SequenceSet(), "a run": SequenceSet([(2_500_000, 2_500_010)]),
        "packed": SequenceSet((n, n) for n in range(2_100_000, 2_104_000, 2)),  # text of another form in the Delta state
    }[ahead]  # fmt: skip
    marked = beyond.last if beyond else 2_000_000
    manager.store.put(3, make=srmp_record)
    audit = state.StoredConsumer(QUEUE, "audit", 1, beyond, None, None, None)
    for consumer in (
        state.StoredConsumer(QUEUE, "default", 2_000_000, SequenceSet(), None, None, None),
        audit,
    ):
        manager.store.call(
            lambda transaction, each=consumer: state.save_consumer(transaction.connection, 1, each)
        )
    manager.publish()
    manager.lose()
    if inbox == "gone":
        loses_the_table(manager, "inbox")
    report = manager.restore()
    store = Store(manager.new)
    store.put(3, make=srmp_record)
    (queue,) = [each for each in state.load(store.directory.writer).queues if each.name == QUEUE]
    store.close()
    begins = marked + SEQUENCES_SKIPPED + 1
    assert (queue.received, queue.end, queue.epochs[-1][1]) == (2_000_000, begins + 2, begins)
    assert queue.waiting.last == begins + 2, "they wait, and are received by who receives next"
    assert [row["sequence"] for row in manager.rows(queue.epochs[-1][0], after=begins - 1)] == [
        begins,
        begins + 1,
        begins + 2,
    ]
    here = 0 if inbox == "gone" else 3
    lost = [
        (line["first"], line["last"])
        for line in of(report, "lost", "rows")
        if line["name"] == QUEUE
    ]
    assert lost == [(here + 1, marked)], "that these were given out is known by the mark alone"
    if here:
        assert [row["sequence"] for row in manager.rows(manager.epoch)] == [1, 2, 3]


def test_a_mark_that_no_queue_can_have_is_told(manager: Manager) -> None:
    far = state.StoredConsumer(QUEUE, "default", SEQUENCE_MAX, SequenceSet(), None, None, None)
    manager.store.call(lambda transaction: state.save_consumer(transaction.connection, 1, far))
    manager.publish()
    manager.lose()
    with pytest.raises(StoreDamagedError, match=r"table queues has a row for .* cannot be read"):
        manager.restore()


def test_a_queue_that_was_deleted_goes_on_beyond_all_that_it_gave_out_when_it_is_made_anew(
    manager: Manager,
) -> None:
    store = manager.store
    store.put(4, make=srmp_record)
    far = state.StoredConsumer(QUEUE, "default", 4, SequenceSet(), None, None, None)
    store.call(lambda transaction: state.save_consumer(transaction.connection, 1, far))
    store.call(lambda transaction: queues.delete(transaction, QUEUE, store.directory.segments, 5))
    manager.publish()
    manager.lose()
    loses_the_table(manager, "inbox")
    manager.restore()
    with DataDirectory.open(manager.new, now=1) as directory:
        (trimmed_to,) = directory.writer.execute(
            "SELECT trimmed_to FROM queues WHERE name = ?", (QUEUE,)
        ).fetchone()
    assert trimmed_to == 4 + SEQUENCES_SKIPPED


def test_a_queue_that_was_made_anew_after_the_table_was_written_has_its_rows(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = manager.store
    store.put(4, make=srmp_record)
    store.call(lambda transaction: queues.delete(transaction, QUEUE, store.directory.segments, 5))
    manager.publish()
    store.call(lambda transaction: queues.create(transaction, QUEUE, transactional=False))
    store.put(2, make=srmp_record)
    monkeypatch.setattr(
        Publisher, "_replace", lambda *_: None
    )  # killed between the rows and the table queues
    manager.publish()
    manager.lose()
    manager.restore()
    assert [row["sequence"] for row in manager.rows(manager.epoch, after=4)] == [5, 6]


def test_holes_of_one_kind_are_one_after_any_number_of_restores(
    manager: Manager, tmp_path: Path
) -> None:
    manager.store.put(3, make=srmp_record)
    manager.publish()
    manager.store.close()
    for number in range(3):
        manager.new = tmp_path / f"new{number}"
        manager.restore()
        Publisher(manager.new, str(manager.folder), manager.guid, 5.0).publish_once()
    with DataDirectory.open(manager.new, now=1) as directory:
        holes = directory.writer.execute("SELECT first, last, reason FROM holes").fetchall()
    assert holes == [(4, 3 + 3 * SEQUENCES_SKIPPED, "lost")]


def test_a_data_file_of_inbox_that_is_gone_is_told_by_range_and_stops_no_reader(
    manager: Manager,
) -> None:
    for _ in range(3):
        manager.store.put(2, make=srmp_record)
        manager.publish()
    files = sorted(
        (manager.folder / "inbox").rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns
    )
    files[1].unlink()
    manager.lose()
    ranges = [
        (line["first"], line["last"])
        for line in of(manager.restore(), "lost", "rows")
        if line["first"] is not None
    ]
    assert ranges == [(3, 4)]
    assert [row["sequence"] for row in manager.rows(manager.epoch)] == [1, 2, 5, 6]


# Streams and identifiers


def test_streams_go_on_where_the_newest_row_was_although_their_table_is_older(
    manager: Manager,
) -> None:
    manager.note(
        streams=[stream_row(2, sender_name="CN=peer")], history=[HistoryRun(PEER, 101, 102, 1)]
    )
    manager.publish()
    manager.store.put(
        5, make=stream_record
    )  # rows 1 to 5 with positions 1 to 5; the tables stay behind
    manager.publish()
    manager.lose()
    (line,) = of(manager.restore(), "restored", "incoming_stream")
    found = manager.state()
    (stream,) = found.streams
    assert (stream.guid, stream.stream_ordinal, stream.sequence_number) == (PEER, 7, 5)
    assert stream.sender_name == "CN=peer", "it stays its peer's"
    assert (line["sequence_number"], line["stream_id"]) == (5, f"uid:{PEER}\\7")
    assert [(run.first, run.last) for run in manager.identifiers()] == [(101, 105)]


def test_identifiers_in_rows_that_no_table_counts_are_those_of_who_sent_them(
    manager: Manager,
) -> None:
    """A table without domains may be of an older version, whose identifiers are everybody's; one with them is not."""
    alice = lineage_key(PEER, "https", "CN=alice")
    manager.note(history=[HistoryRun(PEER, 50, 50, 5)])
    manager.publish()

    def of_alice(n: int, size: int, at: int) -> Record:
        record = stream_record(n, size, at)
        return record._replace(
            arrival=record.arrival._replace(transport="https", sender_name="CN=alice")
        )

    manager.store.put(2, make=of_alice)
    manager.publish()
    manager.lose()
    manager.restore()
    assert [(run.lineage, run.first, run.last) for run in manager.identifiers()] == [
        (PEER, 50, 50),
        (alice, 101, 102),
    ]
    with DataDirectory.open(manager.new, now=1) as directory:
        assert state.undivided_until(directory.writer) == 5


def test_a_state_with_domains_is_restored_with_them(manager: Manager) -> None:
    alice = lineage_key(PEER, "https", "CN=alice")
    runs = [HistoryRun(PEER, 50, 50, 5), HistoryRun(alice, 51, 52, 6)]
    manager.note(history=runs)
    manager.publish()
    manager.lose()
    manager.restore()
    assert manager.identifiers() == runs
    with DataDirectory.open(manager.new, now=1) as directory:
        assert state.undivided_until(directory.writer) == 0


def test_a_stream_that_began_after_the_table_is_known_by_its_rows(manager: Manager) -> None:
    manager.note(streams=[stream_row(9, ordinal=6)])
    manager.publish()
    manager.store.put(3, make=stream_record)  # of ordinal 7
    manager.publish()
    manager.lose()
    manager.restore()
    (stream,) = manager.state().streams
    assert (stream.stream_ordinal, stream.sequence_number, bool(stream.send_receipts_to)) == (
        7,
        3,
        True,
    )


def test_message_identifiers_go_on_above_all_that_were_given_out(manager: Manager) -> None:
    manager.store.directory.writer.execute("INSERT INTO ids VALUES ('message_id', 5000)")
    manager.publish()
    manager.lose()
    manager.restore()
    assert manager.state().ceilings["message_id"] > 5000 + (1 << 28) - 1


# What goes out


def restored_desk(manager: Manager) -> Desk:
    """The sender process after the restore."""
    with DataDirectory.open(manager.new, now=1) as directory:
        return Desk(manager.new, epoch=directory.epoch, first_identifier=10**9)


def test_what_waited_is_held_in_doubt_with_its_identifiers_and_a_new_stream(
    manager: Manager,
) -> None:
    desk = manager.sends()
    desk.send(
        [
            {"body": b"%d" % n, "label": f"L{n}", "journal": n == 2, "transaction": "t"}
            for n in range(1, 6)
        ],
        dead_letter=True,
    )
    ids = [stored.message.uniquifier for stored in desk.read()]
    stored_before = desk.read()
    (row,) = desk.outbox.queue_rows()
    manager.publish()
    manager.lose()
    report = of(manager.restore(), "in_doubt", "outgoing")
    assert [(line["name"], line["first"], line["last"], line["state"]) for line in report] == [
        (A, 1, 1, "in_doubt"), (A, 2, 5, "queued")
    ], "what Delta says of each, and the finding is the same"  # fmt: skip
    assert {line["stream_id"] for line in report} == {f"uid:{manager.guid}\\{row.stream_ordinal}"}
    desk = restored_desk(manager)
    (after,) = desk.outbox.queue_rows()
    assert after.paused, "nothing leaves by itself"
    assert after.released_to == after.end == 5, "all of it may have left"
    assert after.stream_ordinal > row.stream_ordinal
    assert [stored.message.uniquifier for stored in desk.read()] == ids
    assert desk.read() == stored_before, "every property"
    desk.close()


def test_a_plain_message_keeps_its_delivery_and_priority(manager: Manager) -> None:
    desk = manager.sends()
    desk.send(
        [
            {"body": b"1", "delivery": "express", "priority": 6},
            {"body": b"2", "delivery": "recoverable"},
        ]
    )
    before = desk.read(A, "plain")
    manager.publish()
    manager.lose()
    manager.restore()
    desk = restored_desk(manager)
    assert desk.read(A, "plain") == before
    assert [(stored.message.durable, stored.message.priority) for stored in before] == [
        (False, 6),
        (True, 3),
    ]
    desk.close()


def test_serials_go_on_above_those_of_messages_that_were_acknowledged_long_ago(
    manager: Manager,
) -> None:
    """Nothing of them is in any table; who asks for the state of one of them must not be told of another message."""
    manager.store.directory.writer.execute("INSERT INTO ids VALUES ('message_id', 5000000)")
    manager.sends()
    manager.publish()
    manager.lose()
    manager.restore()
    desk = restored_desk(manager)
    assert desk.outbox.serials_after >= 5_000_000 + SERIALS_SKIPPED
    desk.close()


def test_a_row_for_a_service_keeps_its_action_and_versions_and_its_sequence_ends(
    manager: Manager,
) -> None:
    service = "wsrm:http://other.example/Orders.svc"
    row = {"body": b"<a/>", "destination": service, "soap_action": "urn:a"}
    desk = manager.sends()
    desk.send([row, row | {"wsrm_version": "1.0", "soap_version": "1.1", "wsa_version": "2004/08"}])
    before = desk.read(service, "plain")
    numbers = (NumberRun(1, before[0].serial, 1),)
    session = SessionRow("urn:c", "urn:s", before[0].reliable, 1, numbers, buffer_remaining=7)
    desk.outbox.write(None, desk.at, sessions={QueueKey(service, "plain"): session})
    manager.publish()
    (shown,) = DeltaTable(str(manager.folder / "outgoing_streams")).to_pyarrow_table().to_pylist()
    assert (shown["wsrm_sequence"], shown["wsrm_number"], shown["buffer_remaining"]) == (
        "urn:s",
        1,
        7,
    )
    manager.lose()
    manager.restore()
    desk = restored_desk(manager)
    assert desk.read(service, "plain") == before
    assert desk.outbox.sessions() == {}, "its next numbers may be other messages at the service"
    (after,) = desk.outbox.queue_rows()
    assert (after.paused, after.released_to) == (True, after.end), "all of it may have left"
    desk.close()


def test_a_message_to_several_queues_still_names_them_all(manager: Manager) -> None:
    desk = manager.sends()
    both = f"{A},DIRECT=http://other.example/msmq/b"
    desk.send(
        [
            {"body": b"1", "destination": both, "response_queue": both},
            {"body": b"2", "destination": A},
        ]
    )
    before = desk.read()
    assert [len(stored.message.destination_list) for stored in before] == [2, 0]
    manager.publish()
    manager.lose()
    manager.restore()
    desk = restored_desk(manager)
    assert desk.read() == before
    desk.close()


def test_a_key_that_waits_is_known_again_and_new_messages_get_new_serials(manager: Manager) -> None:
    manager.sends().send([{"body": b"1", "key": "k1"}, {"body": b"2", "key": "k2"}])
    manager.publish()
    manager.lose()
    manager.restore()
    desk = restored_desk(manager)
    result = desk.send([{"body": b"1", "key": "k1"}, {"body": b"3", "key": "k3"}], batch="2")
    assert (result.new, result.known) == (1, 1)
    assert [stored.message.body for stored in desk.read()] == [b"1", b"2", b"3"]
    assert desk.outbox.serials_after >= SERIALS_SKIPPED
    desk.close()


# Refusals


def test_a_folder_with_something_in_it_is_refused(manager: Manager) -> None:
    manager.publish()
    manager.lose()
    manager.new.mkdir(mode=0o700)
    (manager.new / "lost+found").mkdir()
    (manager.new / "store.db").write_bytes(b"x")
    with pytest.raises(ConfigurationError, match="is not empty"):
        manager.restore()
    (manager.new / "store.db").unlink()
    manager.restore()


def test_a_restore_that_was_interrupted_does_not_start_and_is_begun_again(manager: Manager) -> None:
    manager.store.put(3, make=srmp_record)
    manager.publish()
    manager.lose()
    manager.new.mkdir(mode=0o700)
    (manager.new / RESTORING_FILE).write_text("")
    (manager.new / "segments").mkdir()
    (manager.new / "segments" / "half").write_text("")
    with pytest.raises(StoreDamagedError, match="did not come to its end"):
        DataDirectory.open(manager.new, now=1)
    manager.restore()
    assert len(manager.rows(manager.epoch)) == 3


def test_a_folder_that_another_process_holds_is_refused(manager: Manager) -> None:
    manager.publish()
    manager.lose()
    manager.new.mkdir(mode=0o700)
    with take_lock(manager.new / "lock"), pytest.raises(StoreInUseError):
        manager.restore()


def test_a_state_that_was_written_a_moment_ago_needs_force(manager: Manager) -> None:
    manager.publish()
    manager.lose()
    now = {"now": lambda: datetime.now(timezone.utc)}
    with pytest.raises(ConfigurationError, match=r"may be alive.*--force"):
        manager.restore(**now)
    manager.restore(force=True, **now)


def test_a_newer_format_is_exit_6_and_nothing_is_made(manager: Manager) -> None:
    manager.publish()
    manager.lose()
    DeltaTable(str(manager.folder / "inbox")).alter.set_table_properties(
        {"srmp.format": "2"}, raise_if_not_exists=False
    )
    with pytest.raises(StoreDamagedError, match="use the newer srmp-spark"):
        manager.restore()
    assert not manager.new.exists()


def test_a_folder_without_a_state_is_told(manager: Manager, tmp_path: Path) -> None:
    manager.folder = tmp_path / "elsewhere"
    with pytest.raises(ConfigurationError, match="no state of a queue manager"):
        manager.restore()


def test_the_old_directory_ends_when_it_publishes_again(manager: Manager) -> None:
    """The disk came back, or the old process was alive all the time."""
    manager.store.put(3, make=srmp_record)
    old = Publisher(manager.path, str(manager.folder), manager.guid, 5.0)
    old.publish_once()
    manager.restore()
    manager.store.put(1, make=srmp_record)
    with pytest.raises(OlderCopyError, match="was restored"):
        old.publish_once()
    new = Publisher(manager.new, str(manager.folder), manager.guid, 5.0)
    assert new.publish_once().damaged == {}, "the restored one goes on"


def test_a_second_restore_gives_the_first_up(manager: Manager, tmp_path: Path) -> None:
    manager.store.put(3, make=srmp_record)
    manager.publish()
    manager.lose()
    manager.restore()
    first = manager.new
    manager.new = tmp_path / "second"
    manager.restore()
    assert len(manager.rows(manager.epoch)) == 3
    with pytest.raises(OlderCopyError, match="was restored"):
        Publisher(first, str(manager.folder), manager.guid, 5.0).publish_once()


def test_a_restore_itself_does_not_look_like_a_living_queue_manager(
    manager: Manager, tmp_path: Path
) -> None:
    """Its commit is in the table; the queue manager wrote nothing since."""
    manager.store.put(3, make=srmp_record)
    manager.publish()
    manager.lose()
    first = manager.restore()
    written = datetime.fromisoformat(first[-1]["as_of"].replace("Z", "+00:00"))
    manager.new = tmp_path / "second"
    second = manager.restore(
        now=lambda: written + timedelta(seconds=LIVING_SECONDS, milliseconds=1)
    )
    assert second[-1]["as_of"] == first[-1]["as_of"], "what is in the state is as old as before"


def test_of_two_restores_at_once_one_comes_to_its_end(manager: Manager, tmp_path: Path) -> None:
    """Both read how often there was one; two data directories with one number would both go on."""
    manager.store.put(3, make=srmp_record)
    manager.publish()
    manager.lose()

    def later() -> datetime:
        return datetime.now(timezone.utc) + LATER

    def other(line: ReportLine) -> None:
        if line.as_dict()["what"] == "queue_manager":
            manager.restore(now=later)

    with pytest.raises(StoreError, match="by another process meanwhile"):
        restore(str(manager.folder), tmp_path / "slower", other, now=later)
    assert len(manager.rows(manager.epoch)) == 3
    with pytest.raises(StoreDamagedError, match="did not come to its end"):
        DataDirectory.open(tmp_path / "slower", now=1)


def test_the_number_of_a_restore_is_given_once(manager: Manager, tmp_path: Path) -> None:
    manager.publish()
    first, second = (
        StateTable(
            storage_of(str(manager.folder), "inbox", {}),
            table_specs.inbox(),
            manager.guid,
            tmp_path / name,
        )
        for name in ("one", "two")
    )
    first.note_restore(1, first.appends)
    with pytest.raises(PublishConflictError):  # its handle is older
        second.note_restore(1, second.appends)
    second.refresh()
    with pytest.raises(PublishConflictError):
        second.note_restore(1, second.appends)
    second.note_restore(2, second.appends)
    assert second.restores == 2


# A state of version 0.1


def test_tables_without_the_new_columns_and_without_queues_are_read(manager: Manager) -> None:
    manager.store.put(3, make=srmp_record)
    manager.publish()
    for name in (table_specs.queues().name, table_specs.counters().name):
        for path in sorted((manager.folder / name).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (manager.folder / name).rmdir()
    manager.lose()
    report = manager.restore()
    assert [row["sequence"] for row in manager.rows(manager.epoch)] == [1, 2, 3]
    assert of(report, "may_be_lost", "consumer"), "that every row counts as not received is told"


def test_every_line_is_json(manager: Manager) -> None:
    manager.sends().send([{"body": b"1"}])
    manager.store.put(2, make=srmp_record)
    manager.publish()
    manager.lose()
    for line in manager.restore():
        assert json.loads(json.dumps(line)) == line


def test_a_table_of_before_gets_the_new_columns_at_the_first_start(manager: Manager) -> None:
    spec = table_specs.outgoing_queue()
    fields = list(spec.schema)[: spec.schema.get_field_index("serial")]
    older = dataclasses.replace(spec, schema=pa.schema(fields))
    uri = manager.folder / "outgoing_queue"
    DeltaTable.create(
        str(uri),
        older.schema,
        partition_by=["queue_manager"],
        configuration=older.configuration,
        raise_if_key_not_exists=False,
    )
    manager.sends().send([{"body": b"1"}])
    manager.publish()
    (row,) = DeltaTable(str(uri)).to_pyarrow_table().to_pylist()
    assert (row["serial"], row["delivery"]) == (1, "transactional")
    manager.lose()
    manager.restore()
    desk = restored_desk(manager)
    assert [stored.message.body for stored in desk.read()] == [b"1"]
    desk.close()


def test_a_stream_whose_name_cannot_be_read_is_told_and_everything_else_is_restored(
    manager: Manager,
) -> None:
    """As a row that a release with an error has written: the restore is the last resort, and must not stop at it."""
    manager.store.put(3, make=stream_record)
    manager.note(
        streams=[stream_row(3), stream_row(2)._replace(guid="")],
        history=[HistoryRun(PEER, 101, 103, 1)],
    )
    manager.publish()
    manager.lose()
    report = manager.restore()
    (line,) = of(report, "lost", "incoming_stream")
    assert "uid:" in line["name"]
    (stream,) = manager.state().streams
    assert (stream.guid, stream.sequence_number) == (PEER, 3)
    assert [(run.first, run.last) for run in manager.identifiers()] == [(101, 103)]
