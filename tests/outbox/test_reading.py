"""The outbox read by another process: pages for the Delta state."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from outbox_kit import NOW, A, Desk

from srmp_spark.errors import StoreDamagedError
from srmp_spark.srmp.sending.outgoing_effects import DeadLetter, QueueKey, SerialRun
from srmp_spark.store.outbox.reading import OutboxReader

STREAM = QueueKey(A, "stream")


def test_pages_of_what_waits(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    desk.send([{"body": b"%d" % n, "key": f"k{n}"} for n in range(600)], application="x", batch="7")
    with OutboxReader(desk.directory) as reader:
        assert reader.position() == desk.outbox.database.position
        assert reader.queues() == desk.outbox.queue_rows()
        found, after = [], 0
        while page := reader.waiting(STREAM, after, rows_max=100):
            found += page
            after = page[-1].stored.serial
        assert [row.stored for row in found] == desk.read()
        assert [row.key for row in found] == [f"k{n}" for n in range(600)]
        assert {(row.application, row.batch, row.enqueued_at) for row in found} == {("x", "7", NOW)}
        assert reader.waiting(QueueKey("http://nobody/", "stream"), 0) == []
        changes = desk.sender.changes()._replace(
            finished=[SerialRun(STREAM, 1, 10)],
            dead_letters=[DeadLetter(SerialRun(STREAM, 20, 20), "expired", None, False)],
        )
        desk.outbox.write(changes, NOW)
        serials = {row.stored.serial for row in reader.waiting(STREAM, 0, 10_000)}
        assert serials == set(range(11, 601)) - {20}, "the next page is of now"
        ((row, (dead,), (key,)),) = reader.moved(0)
        assert (row.reason, dead.serial, dead.message.body, key) == ("expired", 20, b"19", "k19")
        assert reader.moved(row.id) == []
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._connection.execute("DELETE FROM parts")


def test_where_nothing_was_ever_sent(tmp_path: Path) -> None:
    assert not OutboxReader.exists(tmp_path)
    with pytest.raises(StoreDamagedError):
        OutboxReader(tmp_path)
