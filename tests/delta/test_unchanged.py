"""A cycle that compares nothing is right: nothing was committed. What follows changes shows what a whole publication shows."""

from __future__ import annotations

import logging
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from real_log_kit import ORDER_URL, RealLog, posted
from store_kit import NOW, QUEUE

from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.srmp.receiving.effects import Changes
from srmp_spark.srmp.receiving.history import HistoryChanges, HistoryRun
from srmp_spark.srmp.receiving.stream_effects import IncomingStreamRow
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.delta import publisher as publisher_module
from srmp_spark.store.delta.publisher import Publisher
from srmp_spark.store.delta.stored_log import StoredLog
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.store.stored_rows import retention
from srmp_spark.store.tables import losses, queues, state
from tests.kit.offline_purge import purge

TABLES = (
    "inbox",
    "incoming_streams",
    "queues",
    "counters",
    "message_id_history",
    "wsrm_sequences",
    "pgm_loss",
)
STEPS = 60
"""Random changes of one test; a publication follows every third or so."""


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealLog]:
    log = RealLog(tmp_path)
    yield log
    log.store.close()


def content(folder: Path) -> dict[str, list[str]]:
    """Return the rows of each table, but for what each publication says of itself."""
    found: dict[str, list[str]] = {}
    for name in TABLES:
        if not (folder / name).exists():
            continue
        rows = DeltaTable(str(folder / name)).to_pyarrow_table().to_pylist()
        shown = [
            {key: value for key, value in row.items() if key not in ("position", "written_at")}
            for row in rows
        ]
        found[name] = sorted(map(repr, shown))
    return found


class Changing:
    """A store that is changed at random, by each kind of transaction that the publisher shows."""

    def __init__(self, real: RealLog, seed: int) -> None:
        self.real = real
        self.chance = random.Random(seed)
        self.ends = {QUEUE: 0}

    def step(self) -> None:
        self.chance.choice([
            self.put, self.put, self.put, self.create, self.delete, self.pause, self.purge, self.trim, self.mark, self.stream,
            self.identifiers, self.ceiling, self.lose, self.outside,
        ])()  # fmt: skip

    def call(self, function: Any) -> None:
        self.real.store.call(function)

    def queue(self) -> str:
        return self.chance.choice(sorted(self.ends))

    def queue_id(self, transaction: Transaction, queue: str) -> int:
        return queues.queue_id_of(transaction, queue)

    def put(self) -> None:
        queue = self.queue()
        self.ends[queue] += 1
        done: list[object] = []
        self.real.store.journal.submit(
            (queue, self.ends[queue], posted(self.ends[queue])), done.append
        )
        self.real.store.loop.until(lambda: done)
        self.real.store.settle()

    def create(self) -> None:
        name = f"private$/made-{self.chance.randrange(4)}"
        self.call(lambda transaction: queues.create(transaction, name, transactional=False))
        self.ends.setdefault(name, self.real.store.journal._queues[name][1])

    def delete(self) -> None:
        name = self.queue()
        if name == QUEUE:
            return
        self.call(
            lambda transaction: queues.delete(
                transaction, name, self.real.store.directory.segments, NOW
            )
        )
        del self.ends[name]

    def pause(self) -> None:
        name, paused = self.queue(), self.chance.random() < 0.5
        self.call(lambda transaction: queues.set_paused(transaction, name, paused=paused))

    def purge(self) -> None:
        name = self.queue()
        self.call(lambda transaction: purge(transaction, name, self.real.store.directory.segments))

    def trim(self) -> None:
        name = self.queue()
        self.mark(name, self.ends[name])
        segments = self.real.store.directory.segments
        self.call(lambda transaction: retention.trim(transaction, name, self.ends[name], segments))

    def mark(self, name: str | None = None, received: int | None = None) -> None:
        queue = name or self.queue()
        to = self.chance.randint(0, self.ends[queue]) if received is None else received
        ahead = SequenceSet([(to + 2, to + 3)]) if received is None else SequenceSet()
        consumer = state.StoredConsumer(queue, "default", to, ahead, None, None, None)
        self.call(lambda t: state.save_consumer(t.connection, self.queue_id(t, queue), consumer))

    def changes(self, changes: Changes) -> None:
        self.call(lambda transaction: state.save_changes(transaction.connection, changes))

    def stream(self) -> None:
        guid = f"{self.chance.randrange(5):08x}-ec03-4d17-8f3a-001122334455"
        nothing = HistoryChanges([], [])
        if self.chance.random() < 0.3:
            self.changes(Changes([], nothing, [(QUEUE, guid)], 1))
            return
        number = self.chance.randrange(100)
        row = IncomingStreamRow(
            QUEUE,
            guid,
            7,
            number,
            number,
            ORDER_URL,
            "192.0.2.1:1",
            None,
            0,
            NOW,
            NOW + number,
            None,
        )
        self.changes(Changes([row], nothing, [], 1))

    def identifiers(self) -> None:
        first = self.chance.randrange(1000) * 10
        self.changes(
            Changes([], HistoryChanges([HistoryRun("caf195ea", first, first + 3, NOW)], []), [], 1)
        )

    def ceiling(self) -> None:
        self.call(
            lambda t: state.raise_ceiling(
                t.connection, "message_identifiers", self.chance.randrange(10_000)
            )
        )

    def lose(self) -> None:
        loss = losses.Loss(QUEUE, "239.0.0.1:8082", "192.0.2.9", "tsi", 1, 2, 2, "lost", None, NOW)
        self.call(partial(losses.store, losses=[loss]))

    def outside(self) -> None:
        """Another program writes, and leaves the journal's number as it is."""
        with sqlite3.connect(self.real.path / DATABASE_FILE) as other:
            other.execute("UPDATE ids SET ceiling = ceiling + 1")
            other.execute(
                "UPDATE queues SET options = ? WHERE name = ?",
                (f'{{"n":{self.chance.random()}}}', QUEUE),
            )
        other.close()


@pytest.mark.parametrize("seed", range(3))
def test_cycle_by_cycle_the_tables_show_what_a_whole_publication_shows(
    real: RealLog, tmp_path: Path, seed: int
) -> None:
    changing = Changing(real, seed)
    follower = real.publisher()
    for number in range(STEPS):
        changing.step()
        if changing.chance.random() < 0.4:
            follower.publish_once()
            follower.publish_once()  # it compares nothing
        if number % 20 == 19:
            follower.publish_once()
            whole = tmp_path / f"whole-{number}"
            data = real.path.parent / f"shadows-{number}"
            data.mkdir()
            anew = Publisher(
                data, str(whole), real.guid, 0.05, source=StoredLog(real.path, real.guid)
            )
            anew.publish_once()
            wanted, found = content(whole), content(real.state)
            for name in (
                "inbox",
                "pgm_loss",
            ):  # appended: what was purged since is in the follower's alone
                rows, there = wanted.pop(name, []), found.pop(name, [])
                assert set(rows) <= set(there), f"seed {seed}, step {number}, {name}"
                assert len(set(there)) == len(there), "each row once"
            assert found == wanted, f"seed {seed}, step {number}"


def test_a_cycle_without_a_commit_looks_at_nothing(
    real: RealLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    real.put(3)
    publisher = real.publisher()
    first = publisher.publish_once()
    looks: list[str] = []
    whole = StoredLog.snapshot
    monkeypatch.setattr(StoredLog, "snapshot", lambda self: looks.append("") or whole(self))
    again = publisher.publish_once()
    assert not looks
    assert replace(again, as_of=0) == replace(first, as_of=0)
    assert again.as_of > first.as_of, "it is as new as the look that found nothing"
    real.put(1)
    assert publisher.publish_once().sequences == {real.store.directory.epoch: {QUEUE: 4}}
    assert looks


def test_what_another_program_commits_is_seen(real: RealLog) -> None:
    """It leaves the journal's number as it is."""
    real.put(2)
    publisher = real.publisher()
    publisher.publish_once()
    with sqlite3.connect(real.path / DATABASE_FILE) as other:
        other.execute("UPDATE queues SET paused = 1")
    other.close()
    publisher.publish_once()
    assert [row["paused"] for row in real.landed("queues")] == [True]


def test_a_damaged_queue_is_tried_in_every_cycle(real: RealLog) -> None:
    real.put(1)
    real.store.directory.writer.execute(
        "UPDATE groups SET data = substr(data, 1, length(data) - 1)"
    )
    publisher = real.publisher()
    assert publisher.publish_once().damaged
    assert publisher._shown is None


def test_what_no_stamp_tells_is_found_by_the_whole_look(
    real: RealLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(StoredLog, "stamp", lambda self: "always the same")
    monkeypatch.setattr(publisher_module, "WHOLE_LOOK_S", 0.0)
    real.put(2)
    publisher = real.publisher()
    publisher.publish_once()
    with caplog.at_level(logging.ERROR):
        publisher.publish_once()
        assert not caplog.records, "nothing was missed"
        real.put(1)
        publisher.publish_once()
    assert "delta.missed tables=['inbox'" in caplog.text
    assert [row["sequence"] for row in real.landed()] == [1, 2, 3]
    monkeypatch.setattr(publisher_module, "WHOLE_LOOK_S", 3600.0)
    real.put(1)
    publisher.publish_once()
    assert [row["sequence"] for row in real.landed()] == [1, 2, 3, 4], (
        "no stamp is believed any more"
    )


def test_what_is_committed_while_everything_is_compared_was_not_missed(
    real: RealLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The stamp is taken before the look: of a commit between the two the next cycle would have told."""
    monkeypatch.setattr(publisher_module, "WHOLE_LOOK_S", 0.0)
    real.put(2)
    publisher = real.publisher()
    publisher.publish_once()
    look = StoredLog.snapshot

    def late(source: StoredLog) -> object:
        monkeypatch.setattr(StoredLog, "snapshot", look)
        real.put(1)
        return source.snapshot()

    monkeypatch.setattr(StoredLog, "snapshot", late)
    with caplog.at_level(logging.ERROR):
        publisher.publish_once()
    assert not caplog.records
    assert [row["sequence"] for row in real.landed()] == [1, 2, 3]
    monkeypatch.setattr(publisher_module, "WHOLE_LOOK_S", 3600.0)
    publisher.publish_once()
    looks: list[object] = []
    monkeypatch.setattr(StoredLog, "snapshot", lambda source: looks.append("") or look(source))
    publisher.publish_once()
    assert not looks, "stamps are believed as before"


def test_what_other_queue_managers_publish_in_the_same_tables_costs_no_look(
    real: RealLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbour = RealLog(tmp_path / "neighbour")
    neighbour.state = real.state
    theirs = neighbour.publisher()
    real.put(2)
    publisher = real.publisher()
    publisher.publish_once()
    whole = StoredLog.snapshot
    for _ in range(3):
        neighbour.put(1)
        theirs.publish_once()
        with monkeypatch.context() as patch:
            looks: list[object] = []
            patch.setattr(
                StoredLog, "snapshot", lambda source, looks=looks: looks.append("") or whole(source)
            )
            publisher.publish_once()
        assert not looks
    before = DeltaTable(str(real.state / "inbox")).version()
    real.put(1)
    neighbour.put(1)
    theirs.publish_once()
    publisher.publish_once()
    assert len([row for row in real.landed() if row["queue_manager"] == real.guid]) == 3
    DeltaTable(str(real.state / "inbox")).restore(before)
    publisher.publish_once()
    assert len([row for row in real.landed() if row["queue_manager"] == real.guid]) == 3, (
        "what concerns us is seen at once"
    )
    neighbour.store.close()
