"""Marks, purges, deletions and registrations that cross each other; what the quota counts; what retention believes of time."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from test_maintenance import Clock

from srmp_spark.errors import ApiError
from srmp_spark.message import Arrival, StreamId
from srmp_spark.names import FORWARD_QUEUE, ORDER_QUEUE
from srmp_spark.queue_manager.api.consumers import ConsumersApi
from srmp_spark.queue_manager.api.give_up import GiveUpApi
from srmp_spark.queue_manager.api.messages import MessagesApi
from srmp_spark.queue_manager.maintenance import Maintenance
from srmp_spark.queue_manager.queues import leases
from srmp_spark.queue_manager.queues.catalogue import Queue, QueueEpoch
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.encoder import encode
from srmp_spark.srmp.receiving import receiver
from srmp_spark.srmp.receiving.effects import Refused
from srmp_spark.srmp.receiving.receipts import stream_receipt
from srmp_spark.store.stored_rows import retention
from srmp_spark.store.tables import state
from srmp_spark.testing.foreign.messages import ForeignMessage, post
from tests.kit.living_manager import living_manager

NUMBERS = itertools.count(1)
LINEAGE = "aaaaaaaa-0000-4000-8000-000000000002"
YEAR = 365 * 86_400


def rig(
    directory: Path,
    test: Callable[[QueueManager], Awaitable[None]],
    clock: Clock | None = None,
    **settings: Any,
) -> None:
    """One life of a queue manager with the queue ``q``, without ports and without a reader."""

    async def main() -> None:
        flags = {"queue": ["q"], **settings}
        async with living_manager(directory, clock or Clock(), **flags) as manager:
            await test(manager)

    asyncio.run(main())


def sent(
    manager: QueueManager, queue: str = "q", size: int = 10, host: str = "localhost"
) -> asyncio.Future[int]:
    """A message on its way; the status it is answered with."""
    answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    if queue == ORDER_QUEUE:
        receipt = stream_receipt(
            identity=LINEAGE, uniquifier=next(NUMBERS), to=f"http://localhost/msmq/{queue}", via="http://peer/msmq/a",
            stream_id=StreamId(LINEAGE, 1), last_ordinal=1, sent_at=1_790_000_000_000_000,
        )  # fmt: skip
        content_type, content = encode(receipt, boundary="MSMQ - SOAP boundary, 1")
    else:
        message = ForeignMessage(
            to=f"http://{host}/msmq/{queue}", lineage=LINEAGE, uniquifier=next(NUMBERS), sent_at=1_790_000_000,
            body=b"x" * size, durable=True,
        )  # fmt: skip
        written = post(message)
        content_type, content = written.content_type.encode(), written.content
    manager.acceptor.take(
        decode(content_type, content),
        Arrival(manager.clock.utc(), "http", "peer"),
        content,
        0,
        SimpleNamespace(
            read_at=time.perf_counter(),
            acknowledge=lambda ok: answered.set_result(200),
            refuse=lambda status, *_: answered.set_result(status),
        ),
    )
    return answered


async def put(manager: QueueManager, rows: int, queue: str = "q") -> Queue:
    assert await asyncio.gather(*(sent(manager, queue) for _ in range(rows))) == [200] * rows
    return manager.catalogue.find(queue)


async def register(manager: QueueManager, holder: str, first: int | None = None) -> None:
    await manager.leases.register(
        manager.catalogue.find("q"), "default", holder, first, asyncio.Event()
    )


async def mark(manager: QueueManager, holder: str, to: int) -> None:
    queue = manager.catalogue.find("q")
    await manager.leases.received(queue, queue.span(None), "default", holder, to, None)


async def give_up(manager: QueueManager, first: int, last: int) -> None:
    request: Any = SimpleNamespace(
        parameters={"queue": "q"},
        integer=lambda name: 1,
        required_integer=lambda name: {"first": first, "last": last}[name],
    )
    await GiveUpApi(manager).post(request)


def on_disk(manager: QueueManager) -> int:
    return state.received_by_default(manager.directory.writer, manager.catalogue.find("q").id)


class TestMarks:
    @pytest.mark.parametrize("mark", [{"to": 4}, {"to": 0, "sequences": [2, 4]}])
    def test_a_stale_checkpoint_marks_no_row_of_the_next_epoch(
        self, tmp_path: Path, mark: dict[str, Any]
    ) -> None:
        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 5)
            queue.epochs.append(QueueEpoch("next", 4))
            await register(manager, "A")
            old = queue.epochs[0].epoch

            async def received(body: dict[str, Any]) -> None:
                async def json_object(_limit: int) -> dict[str, Any]:
                    return {"holder": "A", **body}

                parameters = {"queue": "q", "consumer": "default"}
                request: Any = SimpleNamespace(parameters=parameters, json_object=json_object)
                await ConsumersApi(manager).received(request)

            with pytest.raises(ApiError) as refused:
                await received({"epoch": old, **mark})
            assert (refused.value.status, refused.value.code) == (409, "past-the-end")
            assert (queue.default.received, list(queue.default.ahead.runs())) == (0, [])
            await received({"epoch": old, "to": 3})
            assert queue.default.received == 3
            await received({"epoch": "next", "to": 5})
            assert queue.default.received == 5

        rig(tmp_path / "d", test)

    @pytest.mark.parametrize("commit", ["the same", "the next"])
    def test_a_mark_saved_beside_a_purge_does_not_undo_it(
        self, tmp_path: Path, commit: str
    ) -> None:
        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 5)
            await register(manager, "A")
            await mark(manager, "A", 2)
            late = sent(manager)  # commits with the purge
            purge = asyncio.create_task(manager.queues.purge("q"))
            if commit == "the next":
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            release = asyncio.create_task(manager.leases.release(queue, "default", "A"))
            assert await purge == 4
            await release
            await late
            assert (queue.default.received, on_disk(manager)) == (6, 6)
            assert (queue.state.count, queue.state.bytes_waiting) == (0, 0)
            await put(manager, 1)
            assert queue.state.count == 1
            assert queue.state.bytes_waiting > 0

        rig(tmp_path / "d", test)

    def test_a_mark_that_is_not_saved_yet_holds_for_a_purge(self, tmp_path: Path) -> None:
        """A row that somebody has received is not purged, and not counted so, wherever its mark stands."""

        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 10)
            await register(manager, "A")
            await mark(manager, "A", 2)
            queue.default.mark_each([7, 8])  # in memory; its save is still on the way
            purge = asyncio.create_task(manager.queues.purge("q"))
            await asyncio.sleep(0)
            marking = asyncio.create_task(mark(manager, "A", 4))
            assert (await purge, on_disk(manager)) == (6, 10)
            await marking
            holes = manager.directory.writer.execute(
                "SELECT first, last FROM holes ORDER BY first"
            ).fetchall()
            assert (holes, list(queue.waiting.holes.runs())) == (
                [(3, 6), (9, 10)],
                [(3, 6), (9, 10)],
            )

        rig(tmp_path / "d", test)

    def test_waiting_counts_no_hole_before_and_after_a_restart(self, tmp_path: Path) -> None:
        async def first_life(manager: QueueManager) -> None:
            queue = await put(manager, 10)
            other = queue.consumer("other")
            await give_up(manager, 3, 4)
            await register(manager, "A", 6)
            await mark(manager, "A", 7)
            assert queue.state.count == 6
            await give_up(manager, 2, 5)
            assert (
                queue.state.count,
                queue.waiting_for(queue.default),
                queue.waiting_for(other),
            ) == (4, 4, 6)
            await put(manager, 2)
            assert queue.state.count == 6

        async def second_life(manager: QueueManager) -> None:
            queue = manager.catalogue.find("q")
            assert (queue.state.count, queue.waiting_for(queue.consumer("other"))) == (6, 8)
            await mark(manager, "A", 12)
            assert (queue.state.count, list(queue.default.ahead.runs())) == (1, [(6, 12)])
            await manager.queues.purge("q")
            assert (queue.state.count, queue.waiting_for(queue.consumer("other"))) == (0, 7)

        rig(tmp_path / "d", first_life)
        rig(tmp_path / "d", second_life)

    def test_a_release_by_another_than_the_holder_changes_nothing_and_is_logged(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def test(manager: QueueManager) -> None:
            queue = manager.catalogue.find("q")
            await manager.leases.release(queue, "default", "B")
            await register(manager, "A")
            await manager.leases.release(queue, "default", "B\n")
            assert queue.default.holder == "A"
            await manager.leases.release(queue, "default", "A")
            assert queue.default.holder is None

        caplog.set_level("INFO")
        rig(tmp_path / "d", test)
        told = [
            record.getMessage()
            for record in caplog.records
            if "consumer.release_ignored" in record.getMessage()
        ]
        assert told == [
            'consumer.release_ignored queue=q consumer=default by="B" held_by="nobody"',
            'consumer.release_ignored queue=q consumer=default by="B\\n" held_by="A"',
        ]

    def test_a_mark_passes_over_what_was_given_up(self, tmp_path: Path) -> None:
        """``srmp-spark receive`` names rows; nobody names a hole, and retention waits for the mark."""

        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 8)
            await register(manager, "A")
            await give_up(manager, 3, 4)
            await manager.leases.received(
                queue, queue.span(None), "default", "A", None, [1, 2, 5, 7]
            )
            assert (queue.default.received, list(queue.default.ahead.runs()), on_disk(manager)) == (
                5,
                [(7, 7)],
                5,
            )
            await give_up(manager, 6, 6)
            await manager.leases.received(queue, queue.span(None), "default", "A", None, [8])
            assert (queue.default.received, list(queue.default.ahead.runs()), on_disk(manager)) == (
                8,
                [],
                8,
            )

        rig(tmp_path / "d", test)

    def test_a_mark_saved_beside_a_deletion_leaves_no_consumer(self, tmp_path: Path) -> None:
        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 5)
            await register(manager, "A")
            delete = asyncio.create_task(manager.queues.delete("q"))
            await asyncio.sleep(0)
            await manager.leases.release(queue, "default", "A")
            await delete
            assert manager.directory.writer.execute("SELECT name FROM consumers").fetchall() == []

        rig(tmp_path / "d", test)

    def test_who_waits_for_a_lease_gets_that_of_the_queue_that_is_there_now(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            leases, "LEASE_LOOK_SECONDS", 0.6
        )  # no look falls between deletion and creation

        async def test(manager: QueueManager) -> None:
            await put(manager, 5)
            await register(manager, "A")
            waiting = asyncio.create_task(register(manager, "B"))
            await asyncio.sleep(0.01)
            await manager.queues.delete("q")
            await manager.queues.create("q", transactional=False)
            await register(manager, "C")
            queue = await put(manager, 3)
            await mark(manager, "C", 8)
            await asyncio.sleep(0.8)
            assert not waiting.done()
            await manager.leases.release(queue, "default", "C")
            await waiting
            assert queue.default.holder == "B"
            assert (queue.default.received, on_disk(manager)) == (8, 8)

        rig(tmp_path / "d", test)

    def test_who_waits_at_a_queue_that_is_deleted_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(leases, "LEASE_LOOK_SECONDS", 0.02)

        async def test(manager: QueueManager) -> None:
            await register(manager, "A")
            waiting = asyncio.create_task(register(manager, "B"))
            await asyncio.sleep(0.01)
            await manager.queues.delete("q")
            with pytest.raises(ApiError) as refused:
                await waiting
            assert refused.value.status == 404

        rig(tmp_path / "d", test)


def test_a_queue_is_opened_with_what_its_own_transaction_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit thread may be in COMMIT on the same connection by then."""

    async def test(manager: QueueManager) -> None:
        await put(manager, 5)
        await manager.queues.delete("q")
        epoch = manager.epoch
        with monkeypatch.context() as without_directory:
            without_directory.setattr(manager, "directory", None)
            await manager.queues.create("q", transactional=False)
        queue = manager.catalogue.find("q")
        assert (queue.trimmed_to, queue.end, queue.epochs) == (5, 5, [QueueEpoch(epoch, 1)])

    rig(tmp_path / "d", test)


class TestQuota:
    def test_rows_received_beyond_a_gap_do_not_fill_it(self, tmp_path: Path) -> None:
        """A query that began at ``latest`` over old rows: only those count, before and after a restart."""

        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 2)
            old = queue.state.bytes_waiting
            await register(manager, "A", 3)
            for n in range(3, 40):
                assert await sent(manager, size=500) == 200
                await mark(manager, "A", n)
            assert queue.state.count == 2
            assert old <= queue.state.bytes_waiting < 2 * old, (
                "in proportion, within one entry of neighbours"
            )

        async def again(manager: QueueManager) -> None:
            queue = manager.catalogue.find("q")
            assert queue.state.count == 2
            assert queue.state.bytes_waiting < 20_000
            assert await sent(manager) == 200

        rig(tmp_path / "d", test, queue_quota_bytes=20_000)
        rig(tmp_path / "d", again, queue_quota_bytes=20_000)

    def test_the_order_queue_is_exempt_and_retention_empties_it(self, tmp_path: Path) -> None:
        async def test(manager: QueueManager) -> None:
            queue = await put(manager, 30, ORDER_QUEUE)
            assert queue.waiting.bytes > 10_000
            queue.trimmed(29)
            assert 0 < queue.waiting.bytes < 2_000
            queue.trimmed(30)
            assert (queue.waiting.bytes, queue.state.count) == (0, 0)

        async def again(manager: QueueManager) -> None:
            assert manager.catalogue.find(ORDER_QUEUE).waiting.bytes > 10_000, (
                "the trimming above was not made durable"
            )
            assert await sent(manager, ORDER_QUEUE) == 200

        rig(tmp_path / "d", test, queue_quota_bytes=10_000)
        rig(tmp_path / "d", again, queue_quota_bytes=10_000)

    def test_receipts_count_until_the_sender_process_has_read_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By its mark alone, whatever a consumer has; after a restart all count until it has said how far it is."""
        monkeypatch.setattr(receiver, "ORDER_QUEUE_UNREAD_MAX", 10_000)

        async def test(manager: QueueManager) -> None:
            queue = manager.catalogue.find(ORDER_QUEUE)
            rows = 0
            while (status := await sent(manager, ORDER_QUEUE)) == 200:
                rows += 1
            assert (status, rows > 5) == (503, True)
            assert 10_000 <= queue.held_bytes == queue.state.unread_bytes < 12_000
            assert queue.state.bytes_waiting == 0, "the quotas do not count it"
            queue.default.received = rows
            queue.marks_moved()
            assert await sent(manager, ORDER_QUEUE) == 503
            queue.was_read(rows)
            assert queue.held_bytes == 0
            assert await sent(manager, ORDER_QUEUE) == 200
            queue.was_read(1)
            assert queue.held_bytes < 2_000, "a mark does not go back"
            assert await sent(manager) == 200

        async def again(manager: QueueManager) -> None:
            queue = manager.catalogue.find(ORDER_QUEUE)
            assert await sent(manager, ORDER_QUEUE) == 503
            queue.was_read(queue.end)
            assert await sent(manager, ORDER_QUEUE) == 200

        rig(tmp_path / "d", test)
        rig(tmp_path / "d", again)


class TestRetentionAndTheClock:
    def test_a_start_under_a_clock_years_ahead_makes_no_row_old(self, tmp_path: Path) -> None:
        clock = Clock()
        wall = clock.utc()

        async def first(manager: QueueManager) -> None:
            await put(manager, 3)

        async def jumped(manager: QueueManager) -> None:
            maintenance = Maintenance(manager)
            assert maintenance._trusted_utc() <= wall + 1_000_000
            clock.pass_by(100)
            assert wall + 90_000_000 <= maintenance._trusted_utc() <= wall + 120_000_000
            await put(
                manager, 1
            )  # it arrives in the future: the next start must not believe it either

        async def once_more(manager: QueueManager) -> None:
            assert Maintenance(manager)._trusted_utc() <= wall + 120_000_000

        rig(tmp_path / "d", first, clock)
        clock.wall += 10 * YEAR
        rig(tmp_path / "d", jumped, clock)
        rig(tmp_path / "d", once_more, clock)

    def test_without_any_identifier_the_newest_row_says_where_to_begin(
        self, tmp_path: Path
    ) -> None:
        clock = Clock()
        wall = clock.utc()

        async def first(manager: QueueManager) -> None:
            await put(manager, 3)
            await manager.journal.transact(lambda t: t.connection.execute("DELETE FROM history"))
            assert retention.newest_arrival(manager.directory.writer) == wall

        async def jumped(manager: QueueManager) -> None:
            assert Maintenance(manager)._trusted_utc() <= wall + 1_000_000

        rig(tmp_path / "d", first, clock)
        clock.wall += 10 * YEAR
        rig(tmp_path / "d", jumped, clock)

    def test_a_new_directory_begins_at_the_wall_clock(self, tmp_path: Path) -> None:
        clock = Clock()

        async def test(manager: QueueManager) -> None:
            assert Maintenance(manager)._trusted_utc() == clock.utc()

        rig(tmp_path / "d", test, clock)


def test_a_purge_of_what_is_to_be_forwarded_wakes_who_reads_it(tmp_path: Path) -> None:
    """So that its cursor passes the holes at once, and not with the next message."""

    async def test(manager: QueueManager) -> None:
        woken: list[str] = []
        manager.outgoing.forward_came = lambda: woken.append("forward")  # type: ignore[method-assign]
        await manager.queues.purge("q")
        assert woken == []
        await manager.queues.purge(FORWARD_QUEUE)
        assert woken == ["forward"]

    rig(tmp_path / "d", test, store_and_forward="true", allow_url=["http://other.example"])


def test_no_start_renews_the_limit_of_what_is_forwarded(tmp_path: Path) -> None:
    """What waits since before it is for destinations that the sender process alone can count."""

    async def take(manager: QueueManager, queue: str) -> int:
        return await sent(manager, queue, host="other.example")

    async def first(manager: QueueManager) -> None:
        assert await take(manager, "a") == 200, "nothing came before"

    async def second(manager: QueueManager) -> None:
        assert await take(manager, "b") == 503
        manager.receiver.forward_room.update({}, [], begins=True)
        await manager.leases.forwarded(manager.epoch, 0)
        assert await take(manager, "b") == 503, "it has not read the log"
        manager.receiver.forward_room.update(
            {"http://other.example/msmq/a": "peer"}, [], begins=False
        )
        await manager.leases.forwarded(manager.epoch, 1)
        assert await take(manager, "b") == 200

    for test in (first, second):
        rig(tmp_path / "d", test, store_and_forward="true", allow_url=["http://other.example"])


def test_behind_a_message_that_is_refused_nothing_of_a_call_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a stream it would stand behind a gap: answered 200, told as stored, and nowhere."""

    async def test(manager: QueueManager) -> None:
        monkeypatch.setattr(
            "srmp_spark.queue_manager.queues.identifiers.Identifiers.take", _numbered()
        )
        judge, calls = manager.receiver._not_now, itertools.count(1)
        full = Refused(503, "quota", "full", "[MC-MQSRM] 3.1.5.1.12", 1)
        monkeypatch.setattr(
            manager.receiver, "_not_now", lambda *given: full if next(calls) == 3 else judge(*given)
        )

        async def pieces(_limit: int) -> list[bytes]:
            return [json.dumps([{"label": f"{n}"} for n in range(5)]).encode()]

        request: Any = SimpleNamespace(parameters={"queue": "t"}, pieces=pieces)
        with pytest.raises(ApiError) as refused:
            await MessagesApi(manager).post(request)
        assert refused.value.status == 503
        assert (
            refused.value.message
            == "message 3 of 5: the queue refuses the message: quota (2 were stored)"
        )
        assert manager.catalogue.find("t").end == 2
        assert len(json.loads(cast("bytes", (await MessagesApi(manager).post(request)).body))) == 5
        assert manager.catalogue.find("t").end == 7, (
            "all of them were sent again, and none stands behind a gap"
        )

    rig(tmp_path / "d", test, queue=["q", "t:transactional"], host_name=["h"])


def _numbered() -> Callable[[object], Awaitable[int]]:
    async def take(_: object) -> int:
        return next(NUMBERS)

    return take
