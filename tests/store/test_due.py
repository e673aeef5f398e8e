"""The look at all queues misses none that has something to seal or to delete."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_kit import NOW, QUEUE, Store, record

from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.database import sweeper
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.store.stored_rows import due, retention, sealing
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.stored_rows.sealing import SEAL_AGE_S, SEAL_ROWS_MIN
from srmp_spark.store.tables import queues, state
from tests.kit.offline_purge import purge

DAY_US = 86_400_000_000
OLD_US = int(SEAL_AGE_S * 1_000_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "data")
    yield opened
    opened.close()


def log(store: Store) -> Log:
    return Log(store.directory.path / DATABASE_FILE, store.directory.segments)


def put(store: Store, queue: str, rows: int, at: int) -> int:
    """Accept rows of one commit; the end of the queue."""
    end: int = store.journal._queues[queue][1]
    done: list[object] = []
    for sequence in range(end + 1, end + rows + 1):
        store.journal.submit((queue, sequence, record(sequence, at=at)), done.append)
    store.loop.until(lambda: len(done) == rows)
    store.settle()
    return end + rows


def mark(store: Store, queue: str, received: int, consumer: str = "default") -> None:
    one = state.StoredConsumer(queue, consumer, received, SequenceSet(), None, None, None)
    store.call(lambda t: state.save_consumer(t.connection, queues.queue_id_of(t, queue), one))


def seal(store: Store, queue: str, now: int) -> None:
    with log(store) as stored:
        plan = sealing.plan(stored, queue, now)
        if plan is None:
            return
        # Its files are not read here: what counts is that the groups are entered as a segment.
        for ending in (".columns.arrow", ".posts.arrow"):
            path = (
                store.directory.segments / f"{plan.queue_id}" / f"{plan.first}-{plan.last}{ending}"
            )
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"x")
    sealed = sealing.Sealed(
        plan, 1, 1, f"{plan.queue_id}/{plan.first}-{plan.last}", 1, 0, 1, 0, None, b""
    )
    assert store.call(lambda t: sealing.commit_segment(t, sealed, store.directory.segments))


@pytest.mark.parametrize("seed", range(4))
def test_every_queue_with_a_plan_is_named_and_most_others_are_not(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    names = [QUEUE, *(f"private$/q-{number}" for number in range(5))]
    for name in names[1:]:
        store.call(lambda t, name=name: queues.create(t, name, transactional=False))
    named = planned = 0
    for _ in range(40):
        name = chance.choice(names)
        now = NOW + chance.randrange(4) * OLD_US
        end = store.journal._queues[name][1]
        step = chance.choice(["put", "put", "put", "mark", "journal", "seal", "trim", "purge"])
        if step == "put":
            put(
                store,
                name,
                chance.choice([1, 1, 30, SEAL_ROWS_MIN]),
                NOW + chance.randrange(3) * OLD_US,
            )
        elif step == "mark":
            mark(store, name, chance.randint(0, end))
        elif step == "journal":
            mark(store, name, chance.randint(0, end), state.JOURNAL_CONSUMERS + "default")
        elif step == "seal":
            seal(store, name, now)
        elif step == "trim":
            with log(store) as stored:
                to = retention.plan(stored, name, retention.RetentionLimits(now))
            if to is not None:
                store.call(
                    lambda t, name=name, to=to: retention.trim(
                        t, name, to, store.directory.segments
                    )
                )
        else:
            store.call(lambda t, name=name: purge(t, name, store.directory.segments))
        while chance.random() < 0.9 and store.call(sweeper.sweep):
            continue
        with log(store) as stored:
            to_seal, to_trim = due.to_seal(stored, now), due.to_trim(stored, now)
            emptying = due.to_trim(stored, None)
            limits = retention.RetentionLimits(now, bytes_max=0, synced_to=1 << 40)
            for each in names:
                has_plan = sealing.plan(stored, each, now) is not None
                assert each in to_seal or not has_plan
                assert (each in to_trim) == (
                    retention.plan(stored, each, retention.RetentionLimits(now)) is not None
                )
                assert each in emptying or retention.plan(stored, each, limits) is None
                named, planned = named + (each in to_seal), planned + has_plan
    assert planned > 20
    assert named <= planned * 1.5, "a queue that is named in vain costs a question"


def test_a_deleted_queue_is_not_named(store: Store) -> None:
    put(store, QUEUE, 3, NOW)
    mark(store, QUEUE, 3)
    with log(store) as stored:
        assert due.to_seal(stored, NOW + 2 * OLD_US) == due.to_trim(stored, NOW + DAY_US) == [QUEUE]
    store.call(lambda t: queues.delete(t, QUEUE, store.directory.segments, NOW))
    with log(store) as stored:
        assert due.to_seal(stored, NOW + 2 * OLD_US) == due.to_trim(stored, NOW + DAY_US) == []


def test_marks_of_another_type_than_numbers_stop_nobody(store: Store) -> None:
    put(store, QUEUE, 3, NOW)
    mark(store, QUEUE, 3)
    with sqlite3.connect(store.directory.path / DATABASE_FILE) as other:
        other.execute("UPDATE consumers SET received = 'all of it'")
    other.close()
    with log(store) as stored:
        due.to_trim(stored, NOW + DAY_US)
        assert retention.plan(stored, QUEUE, retention.RetentionLimits(NOW + DAY_US)) is None
