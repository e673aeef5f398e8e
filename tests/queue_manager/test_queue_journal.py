"""The journal of a queue (``--queue NAME:journal``, read as ``NAME;journal``): what an application received."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer_kit import Peer
from test_maintenance import Clock
from test_marks_and_queues import mark, put, register, rig, sent

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.queue_manager.configuration.queue_spec import QueueSpec
from srmp_spark.queue_manager.queues.catalogue import NoSuchQueueError, Queue, QueueEpoch
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.stored_rows import retention
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.tables import state
from srmp_spark.testing.queue_manager import RunningQueueManager

ON = {"queue": ["q:journal"]}


def journal(manager: QueueManager) -> Queue:
    return manager.catalogue.find("q;JOURNAL")


async def receive_journal(manager: QueueManager, to: int) -> None:
    queue = journal(manager)
    await manager.leases.register(queue, "default", "J", None, asyncio.Event())
    await manager.leases.received(queue, queue.span(None), "default", "J", to, None)


class TestTheSwitch:
    @pytest.mark.parametrize(
        ("text", "spec"),
        [
            ("private$/q:journal", ("private$/q", False, True)),
            ("q:JOURNAL:transactional", ("q", True, True)),
            ("q:transactional:journal", ("q", True, True)),
            ("q", ("q", False, False)),
        ],
    )
    def test_the_suffix(self, text: str, spec: tuple[str, bool, bool]) -> None:
        assert QueueSpec.parse(text)[:3] == spec

    def test_it_is_kept_until_it_is_switched_off(self, tmp_path: Path) -> None:
        async def on(manager: QueueManager) -> None:
            assert journal(manager).end == 0

        async def off(manager: QueueManager) -> None:
            assert journal(manager).name == "q;journal", "serve --queue q leaves it as it is"
            await manager.queues.create("q", transactional=None, journal=False)
            assert manager.catalogue.get("q;journal") is None

        async def gone(manager: QueueManager) -> None:
            with pytest.raises(ApiError, match="there is no queue q;journal") as refused:
                journal(manager)
            assert isinstance(refused.value, NoSuchQueueError)
            told = manager.catalogue.explained(refused.value, lambda queue: True)
            assert (told.status, "q keeps no journal" in told.hint) == (404, True)
            for unseen in ("q;journal", "qq;journal", "q;journa", "qq"):
                unknown = NoSuchQueueError(unseen)
                told = manager.catalogue.explained(unknown, lambda queue: queue != "q")
                assert told is unknown, (
                    "nothing is told of a queue that the caller's token is not for"
                )

        rig(tmp_path / "d", on, **ON)
        rig(tmp_path / "d", off)
        rig(tmp_path / "d", gone)

    def test_no_queue_has_the_name_of_a_journal_and_our_order_queue_keeps_none(
        self, tmp_path: Path
    ) -> None:
        async def test(manager: QueueManager) -> None:
            with pytest.raises(ApiError, match="is the name of a journal"):
                await manager.queues.create("x;journal", transactional=False)
            with pytest.raises(ApiError, match="cannot keep a journal"):
                await manager.queues.create(ORDER_QUEUE, transactional=None, journal=True)

        rig(tmp_path / "d", test)

    def test_a_queue_that_was_deleted_comes_back_without_one(self, tmp_path: Path) -> None:
        async def test(manager: QueueManager) -> None:
            await put(manager, 3)
            await register(manager, "A")
            await mark(manager, "A", 3)
            await manager.queues.delete("q")
            assert manager.catalogue.get("q;journal") is None
            await manager.queues.create("q", transactional=False)
            assert manager.catalogue.get("q;journal") is None
            await manager.queues.create("q", transactional=None, journal=True)
            assert (
                journal(manager).trimmed_to,
                journal(manager).end,
                journal(manager).state.count,
            ) == (3, 3, 0)

        rig(tmp_path / "d", test, **ON)


class TestWhatIsInIt:
    def test_what_the_default_consumer_received_and_nothing_else(self, tmp_path: Path) -> None:
        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 5)
            assert journal(manager).end == 0
            await manager.leases.register(queue, "other", "B", None, asyncio.Event())
            await manager.leases.received(queue, queue.span(None), "other", "B", 5, None)
            assert journal(manager).end == 0, "another consumer decides nothing"
            await register(manager, "A")
            await mark(manager, "A", 3)
            found = journal(manager)
            assert (found.end, found.state.count) == (3, 3)
            assert 0 < found.held_bytes <= 3 * queue.waiting.bytes

        rig(tmp_path / "d", test, **ON)

    def test_a_row_that_was_received_out_of_turn_waits_for_those_before_it(
        self, tmp_path: Path
    ) -> None:
        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 4)
            await register(manager, "A", 1)
            await manager.leases.received(queue, queue.span(None), "default", "A", None, [2, 4])
            assert journal(manager).end == 0
            await manager.leases.received(queue, queue.span(None), "default", "A", None, [1])
            assert journal(manager).end == 2

        rig(tmp_path / "d", test, **ON)

    def test_purged_rows_were_never_received(self, tmp_path: Path) -> None:
        async def test(manager: QueueManager) -> None:
            await put(manager, 5)
            await register(manager, "A")
            await mark(manager, "A", 2)
            assert await manager.queues.purge("q") == 3
            assert (journal(manager).end, journal(manager).state.count) == (5, 2), "three holes"
            assert journal(manager).held_bytes > 0

        async def again(manager: QueueManager) -> None:
            assert (journal(manager).end, journal(manager).state.count) == (5, 2)

        rig(tmp_path / "d", test, **ON)
        rig(tmp_path / "d", again)

    def test_it_begins_when_it_is_switched_on(self, tmp_path: Path) -> None:
        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 4)
            await register(manager, "A")
            await mark(manager, "A", 2)
            await manager.queues.create("q", transactional=None, journal=True)
            assert (
                journal(manager).trimmed_to,
                journal(manager).end,
                journal(manager).held_bytes,
            ) == (2, 2, 0)
            await mark(manager, "A", 4)
            assert (journal(manager).end, journal(manager).state.count) == (4, 2)
            assert journal(manager).held_bytes > queue.held_bytes == 0

        async def again(manager: QueueManager) -> None:
            assert (
                journal(manager).trimmed_to,
                journal(manager).end,
                journal(manager).state.count,
            ) == (2, 4, 2)

        rig(tmp_path / "d", test)
        rig(tmp_path / "d", again)

    def test_an_epoch_ends_in_it_when_its_last_row_was_received(self, tmp_path: Path) -> None:
        """A reader that were told of the next epoch before would leave the rows between out."""

        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 5)
            old = queue.epochs[0].epoch
            queue.epochs.append(QueueEpoch("next", 4))
            await register(manager, "A")
            await mark(manager, "A", 4)  # marks of the present epoch begin at its first row
            queue.default.stored_received, journal(manager).end = 2, 0
            queue.marks_moved()
            assert journal(manager).span(None)[:1] + journal(manager).span(None)[3:] == (
                old,
                2,
                None,
            )
            assert journal(manager).span("next")[2:] == (4, 3, None), "nothing of it yet"
            queue.default.stored_received = 3
            queue.marks_moved()
            assert journal(manager).span(old)[3:] == (3, "next")
            assert journal(manager).span(None).epoch == "next"
            queue.default.stored_received = 5
            queue.marks_moved()
            assert journal(manager).span("next")[3:] == (5, None)

        rig(tmp_path / "d", test, **ON)


class TestConsumersOfIt:
    def test_they_are_its_own_and_survive_a_restart(self, tmp_path: Path) -> None:
        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 4)
            await register(manager, "A")
            await mark(manager, "A", 3)
            await receive_journal(manager, 2)
            assert (
                queue.default.received,
                journal(manager).default.received,
                journal(manager).state.count,
            ) == (3, 2, 1)
            with pytest.raises(ApiError, match="ends at 3, not 4"):
                await receive_journal(manager, 4)

        async def again(manager: QueueManager) -> None:
            queue = manager.catalogue.find("q")
            assert sorted(queue.consumers) == ["default"]
            assert (
                queue.default.received,
                journal(manager).default.received,
                journal(manager).state.count,
            ) == (3, 2, 1)
            await manager.queues.create("q", transactional=None, journal=False)
            await manager.queues.create("q", transactional=None, journal=True)
            assert journal(manager).default.received == 3, (
                "who read it before is forgotten: it begins anew"
            )

        rig(tmp_path / "d", test, **ON)
        rig(tmp_path / "d", again)

    def test_a_purge_takes_what_waits_in_it_and_leaves_the_queue_alone(
        self, tmp_path: Path
    ) -> None:
        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 4)
            await register(manager, "A")
            await mark(manager, "A", 3)
            assert await manager.queues.purge("q;journal") == 3
            assert (journal(manager).state.count, queue.state.count, queue.default.received) == (
                0,
                1,
                3,
            )

        async def again(manager: QueueManager) -> None:
            assert journal(manager).state.count == 0

        rig(tmp_path / "d", test, **ON)
        rig(tmp_path / "d", again)

    def test_a_lease_of_it_keeps_an_embedded_queue_manager_alive(self, tmp_path: Path) -> None:
        async def test(manager: QueueManager) -> None:
            await manager.leases.register(journal(manager), "default", "J", None, asyncio.Event())
            held = manager.catalogue.held_leases(manager.clock.monotonic())
            assert [queue.name for queue, _ in held] == ["q;journal"]

        rig(tmp_path / "d", test, **ON)

    def test_retention_waits_for_it_once_somebody_receives_from_it(self, tmp_path: Path) -> None:
        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 4)
            await register(manager, "A")
            await mark(manager, "A", 4)
            writer = manager.directory.writer
            assert state.kept_after(writer, queue.id) == 4, "nobody: time alone decides"
            await receive_journal(manager, 1)
            assert state.kept_after(writer, queue.id) == 1
            trim = lambda t: retention.trim(t, "q", 4, manager.directory.segments)  # noqa: E731  # short
            assert await manager.journal.transact(trim) == 1
            await receive_journal(manager, 4)
            assert await manager.journal.transact(trim) == 5
            queue.trimmed(4)
            assert (journal(manager).trimmed_to, journal(manager).state.count) == (4, 0)

        rig(tmp_path / "d", test, Clock(), **ON)


class TestRetentionBehindIt:
    """The journal's mark begins where the journal does and passes over what is no more: else nothing is deleted any more."""

    @staticmethod
    def deletable(manager: QueueManager) -> int | None:
        """Up to where rows may be deleted, were all of them past their time."""
        with Log(manager.directory.database, manager.directory.segments) as log:
            return retention.plan(log, "q", retention.RetentionLimits(before=2**62))

    @staticmethod
    async def received(
        manager: QueueManager, first: int | None, to: int | None, sequences: list[int] | None
    ) -> None:
        queue = journal(manager)
        await manager.leases.register(queue, "default", "J", first, asyncio.Event())
        await manager.leases.received(queue, queue.span(None), "default", "J", to, sequences)

    @pytest.mark.parametrize("how", ["Spark", "receive"])
    def test_of_a_journal_that_was_switched_on_late(self, tmp_path: Path, how: str) -> None:
        async def test(manager: QueueManager) -> None:
            await put(manager, 3)
            await register(manager, "A")
            await mark(manager, "A", 3)
            await manager.queues.create("q", transactional=None, journal=True)
            await put(manager, 2)
            await mark(manager, "A", 5)
            span = journal(manager).span(None)
            assert (span.first, span.end) == (4, 5)
            if how == "Spark":  # it registers what it is going to plan
                await self.received(manager, span.first, 5, None)
            else:
                await self.received(manager, None, 5, [5])
                await self.received(manager, None, 4, [4])
            assert (journal(manager).default.received, len(journal(manager).default.ahead)) == (
                5,
                0,
            )
            assert self.deletable(manager) == 5

        rig(tmp_path / "d", test)

    def test_where_retention_was_before_the_first_reader(self, tmp_path: Path) -> None:
        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 3)
            await register(manager, "A")
            await mark(manager, "A", 3)
            trim = lambda t: retention.trim(t, "q", 3, manager.directory.segments)  # noqa: E731  # short
            assert await manager.journal.transact(trim) == 4
            queue.trimmed(3)
            await put(manager, 2)
            await mark(manager, "A", 5)
            await self.received(manager, 4, 5, None)
            assert self.deletable(manager) == 5

        rig(tmp_path / "d", test, Clock(), **ON)

    def test_beyond_what_was_purged(self, tmp_path: Path) -> None:
        async def test(manager: QueueManager) -> None:
            await put(manager, 5)
            await register(manager, "A")
            await mark(manager, "A", 2)
            await manager.queues.purge("q")
            await put(manager, 2)
            await mark(manager, "A", 7)
            await self.received(
                manager, None, 7, [1, 2, 6, 7]
            )  # `srmp-spark receive` names the rows that it printed
            assert (journal(manager).default.received, journal(manager).state.count) == (7, 0)
            assert self.deletable(manager) == 7

        rig(tmp_path / "d", test, **ON)

    def test_of_a_mark_that_an_earlier_build_left_behind(self, tmp_path: Path) -> None:
        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 3)
            await register(manager, "A")
            await mark(manager, "A", 3)
            await manager.queues.create("q", transactional=None, journal=True)
            await put(manager, 2)
            await mark(manager, "A", 5)
            left = state.StoredConsumer(
                "q", ";journal/default", 0, SequenceSet([(4, 5)]), 4, None, None
            )
            await manager.journal.transact(
                lambda t: state.save_consumer(t.connection, queue.id, left)
            )
            assert self.deletable(manager) is None

        async def again(manager: QueueManager) -> None:
            await manager.leases.register(journal(manager), "default", "J", None, asyncio.Event())
            assert self.deletable(manager) == 5

        rig(tmp_path / "d", test)
        rig(tmp_path / "d", again)


def test_nothing_is_sent_to_it_and_nothing_done_to_it(tmp_path: Path) -> None:
    async def test(manager: QueueManager) -> None:
        assert await sent(manager, "q;journal") == 400
        for name in ("q;journal", "nobody;journal"):
            with pytest.raises(ApiError):
                manager.catalogue.find_base(name)

    rig(tmp_path / "d", test, **ON, unknown_queue="retry")


# Through the ports


def read(client: QueueManagerClient, name: str, *, after: int = 0) -> list[dict[str, Any]]:
    found = client.range(name)
    with client.rows(name, epoch=found.epoch, after=after, to=found.end) as stream:
        rows: list[dict[str, Any]] = pa.ipc.open_stream(stream.as_file()).read_all().to_pylist()
    return rows


def cli(running: RunningQueueManager, *arguments: str) -> list[dict[str, Any]]:
    line = [sys.executable, "-m", "srmp_spark.cli", *arguments, "--api", running.api]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(each) for each in done.stdout.splitlines()]


def test_received_rows_are_read_from_it_byte_for_byte_also_after_a_kill(tmp_path: Path) -> None:
    name = "private$/orders"
    with RunningQueueManager(tmp_path / "qm", queues=[f"{name}:journal"]) as running:
        client, peer = QueueManagerClient(running.api), Peer(running)
        for _ in range(5):
            assert peer.send(peer.message(name)).status == 200
        taken = cli(running, "receive", "--queue", name, "--max", "3")
        assert len(taken) == 3
        running.kill9()
        running.restart()
        in_queue = read(client, name)[:3]
        in_journal = read(client, f"{name};journal")
        assert [row["body"] for row in in_journal] == [row["body"] for row in in_queue]
        assert {row["queue"] for row in in_journal} == {f"{name};journal"}
        assert [row["sequence"] for row in in_journal] == [1, 2, 3]
        shown = cli(running, "peek", "--queue", "PRIVATE$\\Orders;JOURNAL")
        assert [row["sequence"] for row in shown] == [1, 2, 3]
        assert len(cli(running, "receive", "--queue", f"{name};journal", "--max", "2")) == 2
        (entry,) = client.queues()
        assert entry["name"] == name, "it is listed with its queue"
        assert (entry["journal"]["waiting"], entry["journal"]["received"]) == (1, 2)
        assert cli(running, "purge", "--queue", f"{name};journal") == [
            {"queue": f"{name};journal", "purged": 1}
        ]
        assert len(cli(running, "peek", "--queue", name)) == 5
        peer.close()
        refused = Peer(running)
        assert refused.send(refused.message(f"{name};journal")).status == 400
        refused.close()
        with pytest.raises(ApiError, match="read only"):
            client.pause(f"{name};journal")


def test_a_long_poll_wakes_when_something_was_received(tmp_path: Path) -> None:
    with RunningQueueManager(tmp_path / "qm", queues=["q:journal"]) as running:
        client, peer = QueueManagerClient(running.api), Peer(running)
        assert peer.send(peer.message("q")).status == 200
        epoch = client.range("q;journal").epoch
        assert client.range("q;journal").end == 0
        line = [
            sys.executable,
            "-m",
            "srmp_spark.cli",
            "receive",
            "--queue",
            "q",
            "--api",
            running.api,
        ]
        with subprocess.Popen(line, stdout=subprocess.DEVNULL) as receiver:
            found = client.range("q;journal", epoch=epoch, after=0, wait=10.0)
            while found.end == 0:  # a wait has an end
                found = client.range("q;journal", epoch=epoch, after=0, wait=10.0)
            assert found.end == 1
            assert receiver.wait(30) == 0
        peer.close()
