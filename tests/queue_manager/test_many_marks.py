"""Marks of many consumers with many runs: what one turn of the loop does and one commit writes has an end."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from test_long_posts import turns_of_the_loop
from test_marks_and_queues import on_disk, put, register, rig, sent

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.queues import administration, leases
from srmp_spark.queue_manager.queues.catalogue import Queue
from srmp_spark.queue_manager.queues.consumer_saves import PIECES_WAITING_MAX
from srmp_spark.queue_manager.queues.consumers import Consumer
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.sequences.sequence_set import BLOCK_BYTES, BLOCK_SEQUENCES, SequenceSet
from srmp_spark.store.journal_states import JournalState
from srmp_spark.store.tables import marks, state

CONSUMERS, BLOCKS = 60, 500
TURN_SECONDS_MAX = 0.06


def scattered(queue: Queue) -> list[str]:
    """Consumers with many pieces that are not stored."""
    names = [f"c{n}" for n in range(CONSUMERS)]
    for name in names:
        queue.consumer(name).holder = "me"
        queue.consumer(name).ahead.add_each(range(10, BLOCKS * BLOCK_SEQUENCES, BLOCK_SEQUENCES))
    return names


def test_a_commit_writes_no_more_than_its_share_and_all_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: Counter[int] = Counter()
    longest = [0.0]
    save = marks.save

    async def test(manager: QueueManager) -> None:
        queue = await put(manager, 5)
        names = scattered(queue)

        def noted(
            db: sqlite3.Connection,
            queue_id: int,
            name: str,
            received: int,
            changes: marks.StoredMarks,
        ) -> None:
            written[manager.journal.position] += len(changes.pieces)
            save(db, queue_id, name, received, changes)

        monkeypatch.setattr(marks, "save", noted)
        async with turns_of_the_loop(longest):
            marking = [
                manager.leases.received(queue, queue.span(None), name, "me", None, [3])
                for name in names
            ]
            await asyncio.gather(*marking)
        for name in names:
            assert queue.consumer(name).is_stored
            stored = marks.load(manager.directory.writer, queue.id, name, 0)
            assert stored == queue.consumer(name).ahead
            assert (stored.count(1, 9), len(stored)) == (1, BLOCKS + 1)

    rig(tmp_path / "d", test)
    assert sum(written.values()) == CONSUMERS * BLOCKS
    assert max(written.values()) <= PIECES_WAITING_MAX
    assert longest[0] < TURN_SECONDS_MAX, f"{longest[0] * 1e3:.0f} ms"


def test_one_that_is_deleted_while_it_waits_does_not_come_back(tmp_path: Path) -> None:
    async def test(manager: QueueManager) -> None:
        queue = await put(manager, 5)
        names = scattered(queue)
        calls = (
            manager.leases.received(queue, queue.span(None), name, "me", None, [3])
            for name in names
        )
        marking = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0)
        last = queue.consumer(names[-1])
        last.release()
        await manager.leases.delete_consumer(queue, last.name)
        *others, refused = await marking
        assert all(isinstance(each, Consumer) for each in others)
        assert isinstance(refused, ApiError)
        assert (refused.status, refused.code) == (409, "not-registered"), (
            "its mark is stored nowhere"
        )
        found = manager.directory.writer.execute(
            "SELECT name FROM consumers WHERE name LIKE 'c%'"
        ).fetchall()
        assert {name for (name,) in found} == set(names[:-1])
        found = manager.directory.writer.execute("SELECT DISTINCT consumer FROM marks").fetchall()
        assert {name for (name,) in found} == set(names[:-1]), (
            "one of the same name would find its marks"
        )

    rig(tmp_path / "d", test)


def test_one_mark_among_a_million_runs_writes_one_piece_and_a_start_finds_all(
    tmp_path: Path,
) -> None:
    """What a commit writes does not grow with what is there: the attack was quadratic."""
    runs = SequenceSet()
    runs.add_each(range(2, 2_000_002, 2))

    async def test(manager: QueueManager) -> None:
        queue = await put(manager, 3)
        await register(manager, "A")
        queue.default.ahead.update(runs)
        await manager.saves.save(queue, queue.default)
        queue.end = 2_000_001
        bytes_written, rows = await written_by(manager, queue, [1_000_001])
        assert rows == {"consumers": 1, "marks": 1}
        assert bytes_written <= 2 * BLOCK_BYTES
        assert await pages_written_by(manager, queue, [1_500_001]) <= 8
        assert queue.default.is_stored

    async def again(manager: QueueManager) -> None:
        default = manager.catalogue.find("q").default
        runs.add_each([1_000_001, 1_500_001])
        assert default.ahead == runs
        assert default.ahead.changed == 0

    rig(tmp_path / "d", test)
    rig(tmp_path / "d", again)


async def written_by(
    manager: QueueManager, queue: Queue, sequences: list[int]
) -> tuple[int, dict[str, int]]:
    """Bytes of blobs, and rows by table, that a mark writes."""
    size = 0
    rows: Counter[str] = Counter()
    save, save_consumer = marks.save, state.save_consumer

    def noted(
        db: sqlite3.Connection, queue_id: int, name: str, received: int, changes: marks.StoredMarks
    ) -> None:
        nonlocal size
        size += sum(len(piece.bits or b"") for piece in changes.pieces)
        rows["marks"] += len(changes.pieces) + len(changes.gone)
        save(db, queue_id, name, received, changes)

    def noted_consumer(*given: Any) -> None:
        rows["consumers"] += 1
        save_consumer(*given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(marks, "save", noted)
        patched.setattr(state, "save_consumer", noted_consumer)
        await manager.leases.received(queue, queue.span(None), "default", "A", None, sequences)
    return size, dict(rows)


async def pages_written_by(manager: QueueManager, queue: Queue, sequences: list[int]) -> int:
    """Frames of the WAL that the commit of a mark adds."""
    wal = manager.directory.database.with_name("store.db-wal")
    before = wal.stat().st_size
    await manager.leases.received(queue, queue.span(None), "default", "A", None, sequences)
    return (wal.stat().st_size - before) // 8192


def test_a_call_with_many_scattered_sequences_leaves_the_loop_to_others(tmp_path: Path) -> None:
    longest = [0.0]
    each = list(range(5, 100_000 * 40, 40))

    async def test(manager: QueueManager) -> None:
        queue = await put(manager, 3)
        await register(manager, "A")
        queue.end = 4_000_001
        async with turns_of_the_loop(longest):
            await manager.leases.received(queue, queue.span(None), "default", "A", None, each)
        assert queue.default.is_stored
        assert marks.load(manager.directory.writer, queue.id, "default", 0) == SequenceSet(
            (n, n) for n in each
        )

    rig(tmp_path / "d", test)
    assert longest[0] < TURN_SECONDS_MAX, f"{longest[0] * 1e3:.0f} ms"


def test_a_purge_between_thousands_of_received_rows_is_many_commits(tmp_path: Path) -> None:
    """A hole for each row that was not received; what was received stays for other consumers."""
    longest = [0.0]

    async def test(manager: QueueManager) -> None:
        queue = await put_many(manager, 20_000)
        other = queue.consumer("other")
        await register(manager, "A")
        await manager.leases.received(
            queue, queue.span(None), "default", "A", None, list(range(2, 20_001, 2))
        )
        before = manager.journal.position
        async with turns_of_the_loop(longest):
            assert await manager.queues.purge("q") == 10_000
        assert manager.journal.position - before >= 10_000 // administration.HOLES_OF_A_COMMIT
        assert (queue.state.count, queue.state.bytes_waiting, on_disk(manager)) == (0, 0, 20_000)
        assert queue.waiting_for(other) == 10_000
        assert await manager.queues.purge("q") == 0

    async def again(manager: QueueManager) -> None:
        queue = manager.catalogue.find("q")
        assert (queue.state.count, queue.default.received, len(queue.default.ahead)) == (
            0,
            20_000,
            0,
        )
        assert queue.waiting_for(queue.consumer("other")) == 10_000
        assert manager.directory.writer.execute("SELECT count(*) FROM holes").fetchone() == (
            10_000,
        )

    rig(tmp_path / "d", test)
    rig(tmp_path / "d", again)
    assert longest[0] < TURN_SECONDS_MAX, f"{longest[0] * 1e3:.0f} ms"


def test_a_purge_spares_what_readers_have_across_its_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(administration, "HOLES_OF_A_COMMIT", 3)

    async def test(manager: QueueManager) -> None:
        queue = await put(manager, 40)
        await register(manager, "A")
        await manager.leases.received(
            queue, queue.span(None), "default", "A", None, [3, 6, 9, 30, 31]
        )
        held: list[str] = []

        def long_purge() -> Any:
            held.append("began")
            return lambda: held.append("ended")

        manager.catalogue.hold_readers = long_purge
        spared = [1, 12, 13, 29, 40]
        assert await manager.queues.purge("q", SequenceSet((n, n) for n in spared)) == 40 - 5 - 5
        assert held == ["began", "ended"]
        assert list(queue.default.ahead.gaps(1, 40)) == [(1, 1), (12, 13), (29, 29), (40, 40)]
        holes = manager.directory.writer.execute(
            "SELECT first, last FROM holes ORDER BY first"
        ).fetchall()
        gone = {n for first, last in holes for n in range(first, last + 1)}
        assert gone == set(range(1, 41)) - {3, 6, 9, 30, 31} - set(spared)
        assert queue.state.count == len(spared)
        assert (
            marks.load(manager.directory.writer, queue.id, "default", on_disk(manager))
            == queue.default.ahead
        )

    rig(tmp_path / "d", test)


async def put_many(manager: QueueManager, rows: int) -> Queue:
    for _ in range(0, rows, 1_000):
        queue = await put(manager, 1_000)
    return queue


def test_what_a_call_wrote_that_was_undone_is_written_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in one function of a commit undoes only what that function wrote."""

    async def test(manager: QueueManager) -> None:
        queue = await put(manager, 9)
        await register(manager, "A")
        queue.end = 10_000

        def fails(*_: object) -> Iterable[object]:
            raise ValueError("a bug")

        with monkeypatch.context() as broken:
            broken.setattr(manager.saves, "_note", fails)
            with pytest.raises(ValueError, match="a bug"):
                await manager.leases.received(queue, queue.span(None), "default", "A", None, [3, 5])
        assert not queue.default.is_stored
        await manager.leases.received(queue, queue.span(None), "default", "A", None, [9_000])
        stored = marks.load(manager.directory.writer, queue.id, "default", 0)
        assert list(stored.runs()) == [(3, 3), (5, 5), (9_000, 9_000)], (
            "they are in another piece than the last one"
        )

    rig(tmp_path / "d", test)


@pytest.mark.parametrize("deletes", ["the queue", "the consumer"])
def test_a_call_whose_consumer_goes_between_its_commits_is_not_answered_200(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletes: str
) -> None:
    monkeypatch.setattr(leases, "SEQUENCES_OF_A_COMMIT", 2)

    async def test(manager: QueueManager) -> None:
        queue = await put(manager, 10)
        consumer = queue.consumer("c")
        consumer.holder = "me"
        marking = asyncio.ensure_future(
            manager.leases.received(queue, queue.span(None), "c", "me", None, list(range(2, 11)))
        )
        while not consumer.changes or not consumer.is_stored:
            await asyncio.sleep(0)
        assert not marking.done()
        if deletes == "the queue":
            await manager.queues.delete("q")
        else:
            consumer.release()
            await manager.leases.delete_consumer(queue, "c")
        with pytest.raises(ApiError) as refused:
            await marking
        expected = (404, "unknown-queue") if deletes == "the queue" else (409, "not-registered")
        assert (refused.value.status, refused.value.code) == expected
        assert (
            manager.directory.writer.execute("SELECT 1 FROM consumers WHERE name = 'c'").fetchone()
            is None
        )

    rig(tmp_path / "d", test)


def test_a_lease_in_a_queue_that_is_deleted_meanwhile_is_not_granted(tmp_path: Path) -> None:
    async def test(manager: QueueManager) -> None:
        await put(manager, 1)
        committing = sent(manager)  # what comes now is in the commit after this one
        while manager.journal._state is not JournalState.COMMITTING:
            await asyncio.sleep(0)
        deleting = asyncio.ensure_future(manager.queues.delete("q"))
        await asyncio.sleep(0)
        assert manager.catalogue.get("q") is not None
        with pytest.raises(ApiError) as refused:
            await register(manager, "A")
        assert await committing == 200
        assert (refused.value.status, refused.value.code) == (404, "unknown-queue")
        await deleting

    rig(tmp_path / "d", test)
