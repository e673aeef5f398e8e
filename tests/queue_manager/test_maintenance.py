"""What goes on beside the messages: the disk gate, clocks that jump, and when sealing waits."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srmp_spark.errors import ApiError, StoreDamagedError
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.queue_manager import maintenance
from srmp_spark.queue_manager.admission.disk_gate import SEAL_ROOM_BYTES, DiskGate
from srmp_spark.queue_manager.api.status import state_failed
from srmp_spark.queue_manager.maintenance import Maintenance
from srmp_spark.queue_manager.reader.crossing import (
    READER_COMMANDS,
    DueQueues,
    SealAnswer,
    TrimPlan,
)
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.queue_manager.srmp_port.srmp_inbox import SrmpInbox
from srmp_spark.store.database import disk_room
from srmp_spark.store.database.schema import WAL_KEPT_BYTES
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.delta.restore_watch import RestoreWatch, given_up_error
from srmp_spark.store.delta.tables.events import (
    PublisherFailed,
    PublisherRecovered,
    RowsGone,
    StateCompared,
)
from srmp_spark.store.stored_rows import retention, sealing
from tests.kit.living_manager import living_manager


class Clock:
    def __init__(self) -> None:
        self.seconds, self.wall = 1000.0, 1_790_000_000.0

    def monotonic(self) -> float:
        return self.seconds

    def utc(self) -> int:
        return int(self.wall * 1e6)

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall += seconds


def rig(directory: Path, test: Callable[[QueueManager, Maintenance, Clock], Any]) -> None:
    async def main() -> None:
        clock = Clock()
        async with living_manager(directory, clock, queue=["q"]) as manager:
            # What the log has yet to copy would count as promised
            await manager.journal.checkpoint()
            result = test(manager, Maintenance(manager), clock)
            if result is not None:
                await result

    asyncio.run(main())


def disk(monkeypatch: pytest.MonkeyPatch, free: int, total: int) -> None:
    monkeypatch.setattr(
        os, "statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=1, f_blocks=total)
    )


def test_the_gate_closes_before_the_disk_is_full_and_opens_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        least = disk_room.DISK_FREE_MIN
        disk(monkeypatch, least, 100 * least)
        maintenance_.disk.look()
        assert manager.gate.closed is None
        disk(monkeypatch, least - 1, 100 * least)
        maintenance_.disk.look()
        assert manager.gate.closed.reason == "disk-full"
        refused: list[tuple[int, str, int | None]] = []
        inbox = SrmpInbox(manager.admission, manager.acceptor, manager.receiver, manager.clock)
        connection = SimpleNamespace(
            refuse=lambda status, reason, section, retry_after: refused.append(
                (status, reason, retry_after)
            )
        )
        inbox.accept(connection, SimpleNamespace(headers={}), b"", 0)
        assert refused == [(503, "disk-full", 30)]
        disk(monkeypatch, least, 100 * least)
        maintenance_.disk.look()
        assert manager.gate.closed is None

    rig(tmp_path / "d", test)


def test_on_a_small_volume_a_share_of_it_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        disk(monkeypatch, 10 << 20, 64 << 20)
        maintenance_.disk.look()
        assert manager.gate.closed is None
        disk(monkeypatch, 3 << 20, 64 << 20)
        maintenance_.disk.look()
        assert manager.gate.closed is not None

    rig(tmp_path / "d", test)


async def until(manager: QueueManager, gate: DiskGate, condition: Callable[[], bool]) -> None:
    """Do what the clock does: the thread that copies the log may be in the middle of it, and what it has yet to copy counts."""
    for _ in range(1_000):
        await manager.journal.checkpoint()
        await gate.cut()
        gate.look()
        await gate.cut_log()
        if condition():
            return
        await asyncio.sleep(0.01)
    assert condition()


def test_room_inside_the_database_opens_it_and_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume whose queues were emptied: the file system shows nothing of it."""

    def grow(transaction: Transaction) -> None:
        transaction.connection.execute("CREATE TABLE filling AS SELECT zeroblob(24 << 20) AS body")
        transaction.written += 24 << 20

    async def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        least, gate = disk_room.DISK_FREE_MIN, maintenance_.disk
        await manager.journal.transact(grow)
        await manager.journal.checkpoint()
        disk(monkeypatch, least - 1, 100 * least)
        gate.look()
        assert gate.is_closed
        await manager.journal.transact(
            lambda transaction: transaction.connection.execute("DROP TABLE filling")
        )
        assert manager.journal.free_bytes > 20 << 20
        await until(manager, gate, lambda: not gate.is_closed)
        assert gate.gives_back
        while await gate.give_back():
            pass
        await until(manager, gate, lambda: manager.directory.database.stat().st_size < 6 << 20)
        assert manager.journal.free_bytes == disk_room.FREE_PAGES_KEPT
        assert not gate.gives_back

    rig(tmp_path / "d", test)


def test_the_log_is_cut_when_its_length_alone_keeps_the_volume_shut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What else is on the volume leaves less than the least and that length: without a restart it would never open."""

    def grow(transaction: Transaction) -> None:
        transaction.connection.execute("CREATE TABLE filling AS SELECT zeroblob(6 << 20) AS body")
        transaction.written += 6 << 20

    async def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        least, gate, database = (
            disk_room.DISK_FREE_MIN,
            maintenance_.disk,
            manager.directory.database,
        )
        await manager.journal.transact(grow)
        await manager.journal.checkpoint()
        assert disk_room.wal_bytes(database) > 6 << 20
        shown = least + (1 << 20)

        def statvfs(_: object) -> SimpleNamespace:
            return SimpleNamespace(
                f_bavail=shown - disk_room.wal_bytes(database), f_frsize=1, f_blocks=100 * least
            )

        monkeypatch.setattr(os, "statvfs", statvfs)
        gate.look()
        assert gate.is_closed
        await until(manager, gate, lambda: not gate.is_closed)
        assert disk_room.wal_bytes(database) < 1 << 20
        kept = await manager.journal.transact(
            lambda transaction: transaction.connection.execute(
                "PRAGMA journal_size_limit"
            ).fetchone()[0]
        )
        assert kept == WAL_KEPT_BYTES, "as before"
        shown = least - (1 << 20)
        gate.look()
        commits = manager.journal.position
        await gate.cut_log()
        assert (gate.is_closed, manager.journal.position) == (True, commits), (
            "it would not help, so nothing is written"
        )

    rig(tmp_path / "d", test)


def test_the_length_of_the_log_is_the_room_in_which_pages_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The volume has not a page left, and the database is empty: nothing could be moved in it, and it would never open."""

    def grow(transaction: Transaction) -> None:
        transaction.connection.execute("CREATE TABLE filling (body)")
        transaction.connection.execute("INSERT INTO filling VALUES (zeroblob(3 << 20))")
        transaction.written += 3 << 20

    async def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        gate, database = maintenance_.disk, manager.directory.database
        filling = "INSERT INTO filling VALUES (zeroblob(3 << 20))"
        await manager.journal.transact(grow)
        for _ in range(6):
            await until(
                manager, gate, lambda: database.stat().st_size >= manager.journal.used_bytes
            )
            await manager.journal.transact(
                lambda transaction: transaction.connection.execute(filling)
            )
        await until(manager, gate, lambda: database.stat().st_size >= manager.journal.used_bytes)
        full = 100_000 + disk_room.wal_bytes(database) + database.stat().st_size

        def statvfs(_: object) -> SimpleNamespace:
            free = full - disk_room.wal_bytes(database) - database.stat().st_size
            return SimpleNamespace(f_bavail=free, f_frsize=1, f_blocks=64 << 20)

        assert disk_room.WAL_EDGE < disk_room.wal_bytes(database) < disk_room.DISK_FREE_FLOOR
        monkeypatch.setattr(os, "statvfs", statvfs)
        gate.look()
        assert gate.is_closed
        await manager.journal.transact(
            lambda transaction: transaction.connection.execute("DROP TABLE filling")
        )
        gate.look()
        assert gate.is_closed
        assert not await gate.give_back(), "it would go through the log, which may grow"

        for _ in range(1_000):
            await maintenance_._disk()
            while await gate.give_back():
                pass
            if not gate.is_closed:
                return
        pytest.fail("it never opens")

    rig(tmp_path / "d", test)


def test_what_is_refused_says_what_there_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        gate, floor = maintenance_.disk, disk_room.DISK_FREE_FLOOR
        disk(monkeypatch, floor + 500, 64 << 20)
        manager.gate.unwritten_bytes = 501
        gate.look()
        told = (
            f"only {floor + 500} bytes are free below the data directory, 501 of them "
            "reserved for messages that were accepted"
        )
        assert manager.gate.closed.message.startswith(told), (
            "less than the least, although more are free"
        )
        manager.gate.unwritten_bytes = 0
        disk(monkeypatch, floor - 7, 64 << 20)
        gate.look()
        assert manager.gate.closed.message.startswith(
            f"only {floor - 7} bytes are free below the data directory, 0 in its"
        )

    rig(tmp_path / "d", test)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_step_that_finds_the_volume_full_is_postponed_and_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    async def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        tried = asyncio.Event()

        async def step() -> None:
            tried.set()
            raise OSError(code, "refused")

        maintenance_._every(0.0, step)
        await asyncio.wait_for(tried.wait(), 10)
        await asyncio.sleep(0)
        await maintenance_.stop()

    rig(tmp_path / "data", test)
    is_full = code == errno.ENOSPC
    assert ("maintenance.postponed step=step" in caplog.text) is is_full
    assert ("Traceback" in caplog.text) is not is_full


def test_nothing_is_sealed_while_there_is_no_room_for_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        reader = Reader(set())
        manager.reader = cast("Any", reader)
        manager.catalogue.find("q").end = 10_000
        manager.catalogue.grown.add("q")
        disk(monkeypatch, (8 << 20) + SEAL_ROOM_BYTES - 1, 64 << 20)
        maintenance_.disk.look()
        await maintenance_._seal()
        assert reader.asked == []
        disk(monkeypatch, (8 << 20) + SEAL_ROOM_BYTES, 64 << 20)
        maintenance_.disk.look()
        await maintenance_._seal()
        assert ("seal", "q") in reader.asked

    rig(tmp_path / "d", test)


def test_what_was_taken_counts_before_the_disk_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fast sender fills a small volume between two looks of the clock."""

    def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        floor, gate = disk_room.DISK_FREE_FLOOR, manager.gate
        disk(monkeypatch, floor + 10_000, 64 << 20)
        maintenance_.disk.look()
        assert gate.closed is None
        assert gate.room == 5_000, "the next look comes after these bytes, whatever the clock says"
        gate.unwritten_bytes = 10_001
        maintenance_.disk.look()
        assert gate.closed is not None
        gate.unwritten_bytes = 0
        maintenance_.disk.look()
        assert gate.closed is None

    rig(tmp_path / "d", test)


class Reader:
    """A reader process that answers as it is told."""

    def __init__(self, broken: set[str]) -> None:
        self.is_up = True
        self.broken = broken
        self.asked: list[tuple[str, str]] = []
        self.looks: list[str] = []
        self.due: list[str] = ["a", "b", "c"]

    async def ask(self, command: Any, kind: type[Any]) -> SealAnswer | TrimPlan:
        self.asked.append((READER_COMMANDS.name_of(command), command.queue))
        if command.queue in self.broken:
            raise ApiError(409, "damaged", f"rows 1 to 3 of {command.queue} cannot be read")
        return SealAnswer(None, later=False) if kind is SealAnswer else TrimPlan(None)

    async def ask_long(self, command: Any, kind: type[Any], *, seconds: float) -> DueQueues:
        """Name all that have rows, as if each were due."""
        name = READER_COMMANDS.name_of(command)
        self.looks.append(name)
        if name in self.broken:
            raise ApiError(503, "internal", "database disk image is malformed")
        return DueQueues(self.due)


def test_a_damaged_queue_stops_neither_sealing_nor_retention_of_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        for name in ("a", "b", "c"):
            await manager.queues.create(name, transactional=False)
            manager.catalogue.find(name).end = 10_000
        reader = manager.reader = Reader({"a"})
        for _ in range(3):
            await maintenance_._seal()
            await maintenance_._retain()
        assert reader.asked.count(("seal", "a")) == 1, "left alone for a while"
        assert {name for op, name in reader.asked if op == "seal"} == {"a", "b", "c"}
        assert {name for op, name in reader.asked if op == "trim"} == {"a", "b", "c"}
        clock.pass_by(maintenance.QUEUE_RETRY_SECONDS + 1)
        await maintenance_._seal()
        assert reader.asked.count(("seal", "a")) == 2
        assert caplog.text.count("maintenance.queue_failed step=seal queue=a") == 1, "told once"
        reader.broken = set()
        clock.pass_by(maintenance.QUEUE_RETRY_SECONDS + 1)
        await maintenance_._seal()
        assert "maintenance.queue_recovered step=seal queue=a" in caplog.text
        reader.is_up = False
        with pytest.raises(ApiError, match="restarted"):
            await maintenance_._retain()

    caplog.set_level("INFO")
    rig(tmp_path / "d", test)


def test_sealing_looks_at_queues_that_grew_and_now_and_then_at_those_with_old_rows(
    tmp_path: Path,
) -> None:
    """With ten thousand queues at rest, a second of the clock costs nothing."""

    async def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        for name in ("a", "b", "c"):
            await manager.queues.create(name, transactional=False)
        reader = manager.reader = Reader(set())
        reader.due = ["b"]
        await maintenance_._seal()
        assert reader.asked == [("seal", "b")], "the reader named it: its rows are old"
        reader.asked.clear()
        for _ in range(5):
            clock.pass_by(1)
            await maintenance_._seal()
        assert (reader.asked, reader.looks) == ([], ["to-seal"]), "nothing came: nothing is asked"
        queue = manager.catalogue.find("a")
        queue.stored(1, sealing.SEAL_ROWS_MIN - 1, 100, clock.utc())
        await maintenance_._seal()
        assert reader.asked == [], "too few for a segment"
        queue.stored(sealing.SEAL_ROWS_MIN, sealing.SEAL_ROWS_MIN, 100, clock.utc())
        manager.rows_committed += 1_000_000
        await maintenance_._seal()
        assert reader.asked == [], "messages come first"
        await maintenance_._seal()
        await maintenance_._seal()
        assert reader.asked == [("seal", "a")], "it was not forgotten, and is asked once"
        manager.catalogue.find("c").stored(1, 1, sealing.SEAL_BYTES_MIN, clock.utc())
        reader.due = []
        clock.pass_by(maintenance.SEAL_IDLE_SECONDS)
        await maintenance_._seal()
        assert reader.asked == [("seal", "a"), ("seal", "c")]
        assert reader.looks == ["to-seal", "to-seal"]
        manager.outgoing = cast("Any", SimpleNamespace(receipts_noted=0))
        for name in ("a", "b", "c", ORDER_QUEUE):
            manager.catalogue.find(name).end = 9
        reader.asked.clear()
        await maintenance_._retain()
        assert reader.asked == [("trim", ORDER_QUEUE)], "which has limits of its own"
        reader.due = ["c"]
        await maintenance_._retain()
        assert ("trim", "c") in reader.asked

    rig(tmp_path / "d", test)


def test_a_database_of_which_no_look_at_all_queues_succeeds_is_asked_queue_by_queue(
    tmp_path: Path,
) -> None:
    async def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        for name in ("a", "b"):
            await manager.queues.create(name, transactional=False)
            manager.catalogue.find(name).end = 10
        reader = manager.reader = Reader({"to-seal", "to-trim"})
        await maintenance_._seal()
        await maintenance_._retain()
        assert {name for op, name in reader.asked if op == "seal"} >= {"a", "b"}
        assert {name for op, name in reader.asked if op == "trim"} >= {"a", "b"}

    rig(tmp_path / "d", test)


def test_an_older_copy_closes_the_gate_for_good_and_stops_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        manager.state.on_event(PublisherFailed("inbox", "the store is away", "look"))
        assert manager.gate.closed is None
        manager.state.on_event(
            PublisherFailed("inbox", "it is an older copy", "look", fatal=True, older_copy=True)
        )
        assert manager.stop.is_set()
        assert manager.gate.closed.reason == "older-copy"
        disk(monkeypatch, 1 << 40, 1 << 41)
        maintenance_.disk.look()
        assert manager.gate.closed.reason == "older-copy", "a free disk opens only its own gate"
        manager.config = dataclasses.replace(manager.config, state="s")
        with pytest.raises(StoreDamagedError, match="older copy"):
            await maintenance_.compare_state()

    rig(tmp_path / "d", test)


def test_what_the_watch_of_restores_finds_ends_the_process_although_no_publisher_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given_up(_: RestoreWatch) -> None:
        raise given_up_error("the state")

    monkeypatch.setattr(RestoreWatch, "look", given_up)

    def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        RestoreWatch(tmp_path, str(tmp_path / "state"), "G", 5.0).run(
            threading.Event(), manager.state.on_event
        )
        assert manager.stop.is_set()
        assert manager.gate.closed.reason == "older-copy"
        found = state_failed(manager)
        assert found is not None
        assert (found["of"], found["ended"]) == ("inbox", True)

    rig(tmp_path / "d", test)


def test_what_is_in_the_way_of_the_state_is_told_until_its_publisher_goes_on(
    tmp_path: Path,
) -> None:
    def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        def fail(of: str, error: str, **more: Any) -> None:
            manager.state.on_event(PublisherFailed(of, error, f"mend {of}", **more))

        assert state_failed(manager) is None
        fail("inbox", "no room")
        since = state_failed(manager)
        clock.pass_by(60)
        fail("inbox", "no room")
        assert state_failed(manager) == since, "it has been so for a minute"
        fail("sending", "a damaged table", fatal=True)
        found = state_failed(manager)
        assert found is not None
        assert (found["of"], found["remedy"], found["ended"]) == (
            "sending",
            "mend sending",
            True,
        ), "what has ended comes first"
        manager.state.on_event(PublisherRecovered("inbox"))
        assert list(manager.state.lag.failures) == ["sending"]
        fail("inbox", "rows 1 to 2 cannot be read", queue="q")
        assert list(manager.state.lag.failures) == ["sending"], "a damaged queue is told as such"
        manager.state.on_event(RowsGone("inbox", [("e", "q", 2, 5)] * 101, 9))
        assert (
            manager.state.lag.rows_gone
            == [{"epoch": "e", "queue": "q", "first": 2, "last": 5}] * 100
        )
        assert manager.gate.closed is None

    rig(tmp_path / "d", test)


def test_a_state_that_is_away_does_not_keep_messages_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        monkeypatch.setattr(maintenance, "STATE_COMPARE_SECONDS", 0.05)
        manager.config = dataclasses.replace(manager.config, state="s")
        await maintenance_.compare_state()
        manager.state.on_event(StateCompared())
        monkeypatch.setattr(maintenance, "STATE_COMPARE_SECONDS", 60.0)
        await asyncio.wait_for(maintenance_.compare_state(), 5)

    rig(tmp_path / "d", test)


def test_a_clock_set_forward_is_told_and_lets_nothing_expire_early(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        clock.pass_by(100)
        begun = clock.utc()
        clock.wall += 10 * 365 * 86_400
        for _ in range(3):
            await maintenance_._clock()
        assert caplog.text.count("clock.jumped") == 1
        assert maintenance_._trusted_utc() == begun
        clock.wall -= 20 * 365 * 86_400
        await maintenance_._clock()
        assert caplog.text.count("clock.jumped") == 2
        assert maintenance_._trusted_utc() == clock.utc(), (
            "set back: nothing is older than the wall clock says"
        )

    rig(tmp_path / "d", test)


@pytest.mark.parametrize(("state", "synced_to"), [(None, 7), ("s", 2)], ids=["no state", "a state"])
def test_of_our_order_queue_what_was_read_is_what_may_go(
    tmp_path: Path, state: str | None, synced_to: int
) -> None:
    """Strangers may fill it: what was read and published, if it is published, is kept up to a cap."""

    def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        manager.config = dataclasses.replace(manager.config, state=state)
        manager.outgoing = cast("Any", SimpleNamespace(receipts_noted=5))
        manager.state.synced = {ORDER_QUEUE: 2}
        orders, ours = manager.catalogue.find("q"), manager.catalogue.find(ORDER_QUEUE)
        ours.end = 7
        assert maintenance_._limits_of(orders, 9) == retention.RetentionLimits(9)
        capped = retention.RetentionLimits(
            before=9,
            synced_to=synced_to,
            bytes_max=retention.ORDER_QUEUE_BYTES_MAX,
            read_to=5,
            unsynced_max=retention.ORDER_QUEUE_UNPUBLISHED_MAX,
        )
        assert maintenance_._limits_of(ours, 9) == capped
        maintenance_.disk.is_tight = True
        assert maintenance_._limits_of(orders, 9).bytes_max == 0
        assert maintenance_._limits_of(ours, 9) == capped._replace(bytes_max=0)

    rig(tmp_path / "d", test)


def test_receipts_that_go_before_the_delta_state_has_them_are_counted_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def test(manager: QueueManager, maintenance_: Maintenance, clock: Clock) -> None:
        manager.state.synced = {ORDER_QUEUE: 2}
        orders, ours = manager.catalogue.find("q"), manager.catalogue.find(ORDER_QUEUE)
        maintenance_._count_left_out(ours, 5)
        assert manager.state.lag.receipts_left_out == 0, "without --state nothing is missing"
        manager.state.lag.uri = "s"
        maintenance_._count_left_out(orders, 5)
        maintenance_._count_left_out(ours, 2)
        assert manager.state.lag.receipts_left_out == 0
        maintenance_._count_left_out(ours, 5)
        ours.trimmed(5)
        maintenance_._count_left_out(ours, 6)
        assert manager.state.lag.receipts_left_out == 4
        assert caplog.text.count("state.receipts_left_out") == 2

    rig(tmp_path / "d", test)
