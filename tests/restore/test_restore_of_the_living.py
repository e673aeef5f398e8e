"""`srmp-spark restore` beside a queue manager that lives, and at the same moment as it publishes (ADR 0021)."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import outbox_kit  # found through conftest.py
import pytest
from deltalake import DeltaTable
from restore_kit import QUEUE, Manager, srmp_record

from srmp_spark.errors import ConfigurationError, StoreError
from srmp_spark.store.delta import restore_watch
from srmp_spark.store.delta.outgoing.outgoing_publisher import OutgoingPublisher
from srmp_spark.store.delta.publisher import ChunkSizes, Publisher
from srmp_spark.store.delta.restore_watch import RestoreNotes, RestoreWatch
from srmp_spark.store.delta.tables import table_specs
from srmp_spark.store.delta.tables.actions import answered_id, asked_id
from srmp_spark.store.delta.tables.cycles import OlderCopyError
from srmp_spark.store.delta.tables.data_files import storage_of
from srmp_spark.store.delta.tables.state_table import PublishConflictError, StateTable
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.restore import alive, restore
from srmp_spark.store.restore.alive import (
    ANSWER_SECONDS,
    LIVING_SECONDS,
    NETWORK_ANSWER_SECONDS,
    answer_seconds_of,
    refuse_if_written_lately,
)

HOUR = timedelta(hours=1)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manager:
    made = Manager(tmp_path)
    monkeypatch.setattr(outbox_kit, "QM", made.guid)
    made.store.put(3, make=srmp_record)
    made.publish()
    watch_of(made).look()  # its first look: from now on the state says that it answers
    return made


def watch_of(manager: Manager, data_dir: Path | None = None) -> RestoreWatch:
    return RestoreWatch(data_dir or manager.path, str(manager.folder), manager.guid, 0.05)


@contextmanager
def living(manager: Manager, data_dir: Path | None = None) -> Iterator[list[Any]]:
    """Run what a queue manager runs, but for its publisher: it has nothing to say for an hour, or was ended by damage."""
    stop, events = threading.Event(), list[Any]()
    thread = threading.Thread(target=watch_of(manager, data_dir).run, args=(stop, events.append))
    thread.start()
    try:
        yield events
    finally:
        stop.set()
        thread.join()


def inbox(manager: Manager, folder: Path) -> StateTable:
    return StateTable(
        storage_of(str(manager.folder), "inbox", {}), table_specs.inbox(), manager.guid, folder
    )


# One that lives


def test_one_that_says_nothing_for_an_hour_answers_and_is_refused(manager: Manager) -> None:
    waits: list[float] = []
    with (
        living(manager) as events,
        pytest.raises(ConfigurationError, match=r"is alive: it answered 0 s.*clean stop.*--force"),
    ):
        manager.restore(
            now=lambda: datetime.now(timezone.utc) + HOUR, answer_seconds=30.0, on_wait=waits.append
        )
    assert waits == [30.0], "who waits is told for how long"
    assert events == [], "the one that lives goes on"
    manager.store.put(1, make=srmp_record)
    manager.publish()
    assert len(DeltaTable(str(manager.folder / "inbox")).to_pyarrow_table()) == 4


@pytest.mark.parametrize("off", [-HOUR, HOUR])
def test_no_clock_decides(manager: Manager, off: timedelta) -> None:
    """That of the machine of the restore is an hour off, either way."""

    def now() -> datetime:
        return datetime.now(timezone.utc) + off

    with living(manager), pytest.raises(ConfigurationError, match="is alive"):
        manager.restore(now=now, answer_seconds=30.0)
    manager.lose()
    manager.restore(now=now)
    assert len(manager.rows(manager.epoch)) == 3


def test_one_that_publishes_and_does_not_answer_lives(manager: Manager) -> None:
    """Its watch may be slow; rows that come are an answer too."""

    def publish(_: float) -> None:
        manager.store.put(1, make=srmp_record)
        manager.publish()

    with pytest.raises(ConfigurationError, match="is alive"):
        manager.restore(answer_seconds=30.0, on_wait=publish)


def test_one_that_is_dead_is_waited_for_once_and_with_force_not_at_all(
    manager: Manager, tmp_path: Path
) -> None:
    manager.lose()
    began = time.monotonic()
    manager.restore(answer_seconds=0.5, now=lambda: datetime.now(timezone.utc))
    assert time.monotonic() - began >= 0.5
    waits: list[float] = []
    manager.new = tmp_path / "again"
    manager.restore(answer_seconds=600.0, force=True, on_wait=waits.append)
    assert waits == []


def test_a_version_that_cannot_answer_is_refused_by_the_time_of_its_last_commit() -> None:
    at = datetime(2026, 11, 26, 12, 0, tzinfo=timezone.utc)
    for age in (0.0, LIVING_SECONDS - 1):
        with pytest.raises(ConfigurationError, match=f"wrote to U {age:.0f} s ago.*may be alive"):
            refuse_if_written_lately("G", "U", at, at + timedelta(seconds=age))
    for age in (
        LIVING_SECONDS,
        -3600.0,
    ):  # a clock that was an hour ahead keeps nobody from a restore for an hour
        refuse_if_written_lately("G", "U", at, at + timedelta(seconds=age))


def test_a_question_that_nobody_waits_for_any_more_is_answered_once(manager: Manager) -> None:
    table = inbox(manager, manager.path / "delta" / "inbox")
    assert [table.ask(), table.ask()] == [1, 2]
    watch, version = watch_of(manager), DeltaTable(str(manager.folder / "inbox")).version
    watch.look()
    answered = version()
    watch.look()
    assert version() == answered
    notes = RestoreNotes(str(manager.folder), manager.guid)
    assert notes.refresh()
    assert notes.version(answered_id(manager.guid)) == notes.version(asked_id(manager.guid)) == 2


def test_an_answer_that_could_not_be_written_is_written_at_the_next_look(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = inbox(manager, manager.path / "delta" / "inbox")
    watch = watch_of(manager)
    watch.look()
    table.ask()
    with monkeypatch.context() as patch:
        patch.setattr(restore_watch, "Transaction", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            watch.look()
    watch.look()
    table.refresh()
    assert table.answered == 1


def test_with_force_one_that_lives_ends_at_its_next_look(manager: Manager) -> None:
    with living(manager) as events:
        manager.restore(force=True)
        until(lambda: events)
    (event,) = events
    assert (event.fatal, event.older_copy) == (True, True)
    assert "was restored" in event.error


def test_what_was_accepted_and_is_in_no_table_is_named(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = Publisher(manager.path, str(manager.folder), manager.guid, 5.0)
    publisher.publish_once()
    manager.store.put(2, make=srmp_record)
    manager.restore(force=True)
    for _ in range(2):
        with pytest.raises(
            OlderCopyError, match=rf"in no table.*private\$/orders 4 to 5 of epoch {manager.epoch}"
        ):
            publisher.publish_once()
    named = f"state.unpublished queue={QUEUE} epoch={manager.epoch} first=4 last=5"
    assert caplog.text.count("state.unpublished") == caplog.text.count(named) == 1


def test_the_last_message_names_also_what_was_accepted_until_the_end(manager: Manager) -> None:
    stop, events = threading.Event(), list[Any]()
    manager.restore(force=True)
    manager.store.put(1, make=srmp_record)
    publisher = Publisher(manager.path, str(manager.folder), manager.guid, 0.05)
    thread = threading.Thread(target=publisher.run, args=(stop, events.append))
    thread.start()
    until(lambda: events)
    manager.store.put(2, make=srmp_record)
    stop.set()
    thread.join(10.0)
    assert [event.older_copy for event in events] == [True, True]
    assert "4 to 4 of epoch" in events[0].error
    assert "4 to 6 of epoch" in events[1].error


def test_a_copy_that_is_started_later_is_found_whether_the_restore_is_over_or_not(
    manager: Manager, tmp_path: Path
) -> None:
    manager.store.settle()
    copy = tmp_path / "copy"
    shutil.copytree(manager.path, copy)
    manager.lose()
    with living(manager, copy), pytest.raises(ConfigurationError, match="is alive"):
        manager.restore(answer_seconds=30.0)
    manager.restore()
    with pytest.raises(OlderCopyError, match="was restored"):
        watch_of(manager, copy).look()
    with pytest.raises(OlderCopyError, match="was restored"):
        Publisher(copy, str(manager.folder), manager.guid, 5.0).publish_once()
    watch_of(manager, manager.new).look()  # the restored one goes on


def test_one_that_answers_late_refuses_the_restore_at_its_end(manager: Manager) -> None:
    """It was paused while it was waited for, or started meanwhile."""
    real = StateTable.note_restore

    def note(table: StateTable, number: int, appends: int) -> None:
        watch_of(manager).look()
        real(table, number, appends)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateTable, "note_restore", note)
        with pytest.raises(StoreError, match="while it was restored: it is alive"):
            manager.restore()
    watch_of(manager).look()  # it was not given up
    manager.restore()
    with pytest.raises(OlderCopyError, match="was restored"):
        watch_of(manager).look()
    version = DeltaTable(str(manager.folder / "inbox")).version()
    watch_of(manager, manager.new).look()
    assert DeltaTable(str(manager.folder / "inbox")).version() == version, "its question is closed"


def test_on_a_network_file_system_an_answer_may_take_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [answer_seconds_of(state) for state in ("/tmp", "s3://bucket/state")] == [
        ANSWER_SECONDS,
        ANSWER_SECONDS,
    ]
    monkeypatch.setattr(alive, "file_system_of", lambda _: ("nfs4", "/mnt"))
    assert answer_seconds_of("/mnt/state") == NETWORK_ANSWER_SECONDS
    assert answer_seconds_of("file:///mnt/state") == NETWORK_ANSWER_SECONDS


# The same moment


def test_rows_that_are_appended_while_it_is_restored_refuse_the_restore(manager: Manager) -> None:
    publisher = Publisher(manager.path, str(manager.folder), manager.guid, 5.0)
    real = StateTable.note_restore

    def note(table: StateTable, number: int, appends: int) -> None:
        """The last moment: all is read and compared, and the handle has not seen what comes now."""
        manager.store.put(1, make=srmp_record)
        publisher.publish_once()
        real(table, number, appends)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateTable, "note_restore", note)
        with pytest.raises(StoreError, match=r"while it was restored: it is alive\. Stop it"):
            manager.restore()
    publisher.publish_once()  # it was not given up
    manager.lose()
    manager.restore()
    assert [row["sequence"] for row in manager.rows(manager.epoch)] == [1, 2, 3, 4]


def test_with_force_one_that_publishes_all_the_time_is_given_up_first(manager: Manager) -> None:
    """It publishes while its rows are read, and at the moment when it is given up."""
    publisher = Publisher(manager.path, str(manager.folder), manager.guid, 5.0)
    real_note, real_run, noted, refused = (
        StateTable.note_restore,
        restore._Restore.run,
        list[int](),
        list[OlderCopyError](),
    )

    def note(table: StateTable, number: int, appends: int) -> None:
        noted.append(number)
        if len(noted) == 1:
            manager.store.put(1, make=srmp_record)
            publisher.publish_once()
        real_note(table, number, appends)

    def run(one: restore._Restore) -> None:
        real_run(one)
        manager.store.put(1, make=srmp_record)
        with pytest.raises(OlderCopyError, match=r"private\$/orders 5 to 5") as error:
            publisher.publish_once()
        refused.append(error.value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateTable, "note_restore", note)
        patch.setattr(restore._Restore, "run", run)
        manager.restore(force=True)
    assert (noted, len(refused)) == ([1, 1, 2], 1), (
        "given up at the second try, before anything is read"
    )
    assert [row["sequence"] for row in manager.rows(manager.epoch)] == [1, 2, 3, 4], (
        "all that the table has was restored"
    )
    watch_of(manager, manager.new).look()  # the restored one goes on


def test_with_force_what_was_under_way_refuses_and_the_second_run_goes_well(
    manager: Manager, tmp_path: Path
) -> None:  # fmt: skip
    real = restore._Restore.run

    def run(one: restore._Restore) -> None:
        real(one)
        storage = storage_of(str(manager.folder), "queues", {})
        StateTable(storage, table_specs.queues(), manager.guid, tmp_path / "queues").note_restores(
            1
        )  # a commit of its own

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restore._Restore, "run", run)
        with pytest.raises(
            StoreError, match="It was given up and ends within 5 s: run the command again then"
        ):
            manager.restore(force=True)
    with pytest.raises(OlderCopyError, match="was restored"):
        watch_of(manager).look()
    manager.restore(force=True)
    watch_of(manager, manager.new).look()


def test_after_the_restore_not_one_more_row_is_appended(manager: Manager) -> None:
    """It is noted between two appends of one cycle of the publisher that lives, before its next look."""
    publisher = Publisher(
        manager.path, str(manager.folder), manager.guid, 5.0, chunks=ChunkSizes(rows=1)
    )
    publisher.publish_once()
    manager.store.put(3, together=1, make=srmp_record)
    real, appended = StateTable.append_unless_restored, list[int]()

    def append(table: StateTable, *what: Any) -> int:
        if len(appended) == 1:
            manager.restore(force=True)
        appended.append(real(table, *what))
        return appended[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateTable, "append_unless_restored", append)
        with pytest.raises(PublishConflictError):
            publisher.publish_once()
    table = DeltaTable(str(manager.folder / "inbox")).to_pyarrow_table()
    assert sorted(table["sequence"].to_pylist()) == [1, 2, 3, 4]
    assert [row["sequence"] for row in manager.rows(manager.epoch)] == [1, 2, 3, 4], (
        "all that the table has was restored"
    )
    with pytest.raises(OlderCopyError, match=r"private\$/orders 5 to 6"):
        publisher.publish_once()


def test_a_handle_that_has_not_seen_the_other_one_is_refused_either_way(
    manager: Manager, tmp_path: Path
) -> None:
    one, other = inbox(manager, tmp_path / "one"), inbox(manager, tmp_path / "other")
    rows = (
        DeltaTable(str(manager.folder / "inbox"))
        .to_pyarrow_table()
        .select(table_specs.inbox().file_schema.names)
    )
    one.append_unless_restored(iter([rows.slice(0, 1)]), {("e", QUEUE): 1}, 0)
    with pytest.raises(PublishConflictError):
        other.note_restore(1, other.appends)
    other.refresh()
    with pytest.raises(
        PublishConflictError, match="appended rows meanwhile"
    ):  # since they were read
        other.note_restore(1, other.appends - 1)
    other.note_restore(1, other.appends)
    with pytest.raises(PublishConflictError):
        one.append_unless_restored(iter([rows.slice(1, 1)]), {("e", QUEUE): 2}, 0)
    one.refresh()
    with pytest.raises(PublishConflictError, match="was restored meanwhile"):
        one.append_unless_restored(iter([rows.slice(1, 1)]), {("e", QUEUE): 2}, 0)


# What waits to be sent


def test_the_publisher_of_sending_leaves_the_tables_to_the_restored_one(manager: Manager) -> None:
    """It has a thread of its own, which publishes at the start and at the end, whatever the publisher of the inbox finds."""
    desk = manager.sends()
    desk.send([{"body": b"1"}])
    old = OutgoingPublisher(manager.path, str(manager.folder), manager.guid, 5.0)
    old.publish_once()
    manager.restore(force=True)
    with DataDirectory.open(manager.new, now=1) as directory:
        outbox_kit.Desk(manager.new, epoch=directory.epoch, first_identifier=10**9).close()
    OutgoingPublisher(manager.new, str(manager.folder), manager.guid, 5.0).publish_once()
    shown = DeltaTable(str(manager.folder / "outgoing_queue")).to_pyarrow_table().to_pylist()
    desk.send([{"body": b"2"}], batch="2")
    for publisher in (
        old,
        old,
        OutgoingPublisher(manager.path, str(manager.folder), manager.guid, 5.0),
    ):
        with pytest.raises(OlderCopyError, match="was restored"):
            publisher.publish_once()
    assert (
        DeltaTable(str(manager.folder / "outgoing_queue")).to_pyarrow_table().to_pylist() == shown
    )
    desk.close()
    manager.desk = None


# The table is made anew


def test_a_table_that_was_made_anew_while_it_was_watched_is_no_trouble(manager: Manager) -> None:
    notes = RestoreNotes(str(manager.folder), manager.guid)
    for _ in range(3):
        manager.store.put(1, make=srmp_record)
        manager.publish()
    assert notes.refresh()
    shutil.rmtree(manager.folder / "inbox")
    assert not notes.refresh(), "there is none"
    manager.publish()
    assert notes.refresh()
    shutil.rmtree(manager.folder / "inbox")
    manager.publish()  # with fewer commits than the handle has seen
    inbox(manager, manager.path.parent / "asks").ask()
    notes.refresh()
    assert notes.version(asked_id(manager.guid)) == 1


def test_a_table_that_is_made_anew_says_how_often_we_were_restored(
    manager: Manager, tmp_path: Path
) -> None:
    """Otherwise the next restore gets the number of the last one, and gives nobody up."""
    manager.store.settle()
    first = tmp_path / "first"
    shutil.copytree(manager.path, first)
    manager.restore(force=True)
    DataDirectory.open(manager.new, now=1).close()
    Publisher(manager.new, str(manager.folder), manager.guid, 5.0).publish_once()
    shutil.rmtree(manager.folder / "inbox")
    Publisher(manager.new, str(manager.folder), manager.guid, 5.0).publish_once()
    with pytest.raises(OlderCopyError, match="was restored"):
        Publisher(first, str(manager.folder), manager.guid, 5.0).publish_once()
    second, manager.new = manager.new, tmp_path / "again"
    manager.restore(force=True)
    with pytest.raises(OlderCopyError, match="was restored"):
        watch_of(manager, second).look()
    watch_of(manager, manager.new).look()


def until(done: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
