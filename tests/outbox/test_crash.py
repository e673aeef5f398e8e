"""A crash at any instruction: what counts is whole, what does not count leaves nothing.

Three ways to crash. A statement of SQLite fails, each of them in turn; after that the process must not write again. A child is
killed with -9 at random moments. And the disk is full before we begin. Short here, with every third statement; ``make long``
takes every one.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from outbox_kit import NOW, QM, A, B, Desk, bodies

from srmp_spark.errors import StoreInUseError, StoreSyncError
from srmp_spark.queue_manager.sender.link import check_outbox
from srmp_spark.srmp.sending.outgoing_effects import Send, SerialRun
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.limits import DISK_RESERVE_BYTES
from srmp_spark.store.outbox.outbox import Outbox
from srmp_spark.store.outbox.preparing import preparation
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from srmp_spark.store.outbox.tables import writes
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE

FULL = os.environ.get("SRMP_SPARK_CRASH") == "full"
TABLES = ("batches", "parts", "groups", "data", "stages", "scopes", "identities", "identity_log", "sources", "positions",
          "position_contents")  # fmt: skip


def counts(desk: Desk) -> dict[str, int]:
    execute = desk.outbox.database.connection.execute
    return {table: execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}


def assert_nothing_invisible(desk: Desk) -> None:
    """Every row of every table belongs to something that counts."""
    execute = desk.outbox.database.connection.execute
    for what, query in {
        "uncommitted batches": "SELECT no FROM batches WHERE NOT committed",
        "parts without a queue": "SELECT id FROM parts WHERE queue_id IS NULL",
        "groups without a part": "SELECT id FROM groups WHERE id >> 24 NOT IN (SELECT id FROM "
        "parts)",
        "data of nobody": "SELECT id FROM data WHERE id NOT IN (SELECT data_id FROM groups "
        "UNION SELECT data_id FROM moved)",
        "groups without data": "SELECT id FROM groups WHERE data_id NOT IN (SELECT id FROM data)",
        "identities of nobody": "SELECT hash FROM identities WHERE batch_no NOT IN (SELECT no "
        "FROM batches WHERE committed)",
        "identities without a scope": "SELECT hash FROM identities WHERE scope_id NOT IN (SELECT id "
        "FROM scopes)",
        "a log of nobody": "SELECT id FROM identity_log WHERE batch_no NOT IN (SELECT no "
        "FROM batches WHERE committed)",
        "scopes of nobody": "SELECT id FROM scopes WHERE id NOT IN "
        "(SELECT scope_id FROM identities UNION SELECT scope_id FROM positions)",
        "contents of nobody": "SELECT block FROM position_contents WHERE batch_no NOT IN "
        "(SELECT no FROM batches WHERE committed)",
        "serials above end": "SELECT parts.id FROM parts JOIN queues ON queues.id = queue_id "
        "WHERE last > end",
    }.items():
        assert execute(query).fetchall() == [], what
    assert not (desk.outbox.stages.folder / "sorting").exists()
    assert execute("PRAGMA integrity_check").fetchone() == ("ok",)


class Failing(sqlite3.Connection):
    """Fails at the statement number ``fail_at``; ``after`` says whether that one still had its effect."""

    fail_at = 0
    done = 0
    after = False
    broken = False

    def _count(self, statement: str) -> bool:
        if Failing.broken:
            pytest.fail(f"written again after a failure: {statement}") if not statement.startswith(
                "SELECT"
            ) else None
        reads = statement.startswith(("SELECT", "PRAGMA")) or (
            statement.startswith("WITH") and "INSERT" not in statement
        )
        if reads or not Failing.fail_at:
            return False
        Failing.done += 1
        return Failing.done == Failing.fail_at

    def execute(self, statement: str, *args: Any) -> sqlite3.Cursor:
        if self._count(statement):
            if Failing.after:
                super().execute(statement, *args)
            Failing.broken = True
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(statement, *args)

    def executemany(self, statement: str, *args: Any) -> sqlite3.Cursor:
        if self._count(statement):
            Failing.broken = True
            raise sqlite3.OperationalError("database or disk is full")
        return super().executemany(statement, *args)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[Failing]:
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: real(*a, factory=Failing, **k))
    monkeypatch.setattr(writes, "CHUNK_BYTES", 2_000)  # so that a small batch has many transactions
    monkeypatch.setattr(preparation, "CHUNK_ROWS", 4)
    Failing.fail_at = Failing.done = 0
    Failing.after = Failing.broken = False
    return Failing


POSITION = {"queue_manager": "q", "epoch": "e", "queue": "in"}


def batch(n: int) -> list[dict[str, Any]]:
    return [
        {"body": b"%d-%d" % (n, row), "destination": (A, B)[row % 2], "t": -row,
         **({"key": f"{n}-{row}"} if row % 3 else POSITION | {"sequence": n * 100 + row})}
        for row in range(12)
    ]  # fmt: skip


def plain(n: int) -> list[dict[str, Any]]:
    """A batch that goes out as it is staged, to one destination, and is therefore packed while it is scanned."""
    return [
        {"body": b"%d-%d" % (n, row), "destination": A, "key": f"{n}-{row}"} for row in range(12)
    ]


def plain_at_first(n: int) -> list[dict[str, Any]]:
    """The same, but the last row is for another destination: what was packed is taken back."""
    return [row | ({"destination": B} if row["key"].endswith("-11") else {}) for row in plain(n)]


ORDERED = (batch, {"order_by": ["t"]})


@pytest.mark.parametrize(
    ("rows", "options"),
    [ORDERED, (plain, {"record_rows": 4}), (plain_at_first, {"record_rows": 4})],
    ids=["ordered", "as staged", "not as it seemed"],
)
@pytest.mark.parametrize("after", [False, True], ids=["it had no effect", "it had its effect"])
def test_any_statement_fails(
    tmp_path: Path,
    failing: type[Failing],
    after: bool,
    rows: Callable[[int], list[dict[str, Any]]],
    options: dict[str, Any],
) -> None:
    """Stage, commit, send, finish and bury, with a failure at each statement that writes; then the next process goes on."""
    step = 1 if FULL else 3
    # Together they meet every remainder
    at = 0 if FULL else ((batch, plain, plain_at_first).index(rows) + after) % step
    while True:
        at += step
        directory = tmp_path / str(at)
        failing.fail_at = failing.done = 0
        failing.broken = False
        desk = Desk(directory)
        desk.send(batch(0), batch="0", order_by=["t"])
        failing.fail_at, failing.after = at, after
        try:
            work(desk, rows(1), options)
            failed = False
        except StoreSyncError:
            failed = True
            with pytest.raises(StoreSyncError):
                desk.outbox.write(None, NOW)
        failing.fail_at, failing.broken = 0, False
        if desk.outbox.database.connection.in_transaction:
            desk.outbox.database.connection.rollback()  # what the end of the process does
        desk.outbox._preparation = None
        desk.close()
        desk = Desk(directory, first_identifier=500)
        assert_nothing_invisible(desk)
        result = desk.send(rows(1), batch="1", **options)
        assert result in (CommitResult(12, 0), CommitResult(0, 12)), "all or nothing"
        in_order = sorted(rows(1), key=lambda row: row["t"]) if "order_by" in options else rows(1)
        for destination in (A, B):
            found = bodies(desk.read(destination))
            assert len(found) == len(set(found)), "nothing doubled"
            left = [body for body in found if body.startswith(b"1-")]
            assert left == [row["body"] for row in in_order if row["destination"] == destination]
        assert_nothing_invisible(desk)
        desk.close()
        if not failed:
            assert at > 40, "there are many statements"
            return


def work(desk: Desk, rows: Sequence[dict[str, Any]], options: dict[str, Any]) -> None:
    """A batch, and what the engine does with the one before: one message leaves and is refused, others are given up."""
    desk.send(rows, batch="1", **options)
    send = next_send(desk)
    desk.sender.answered(send, 400, 0.0, NOW)
    desk.save()
    key = send.key
    changes = desk.sender.changes()
    desk.outbox.write(changes._replace(finished=[SerialRun(key, 2, 4)]), NOW)


def next_send(desk: Desk) -> Send:
    for _ in range(20):
        for each in desk.sender.poll(0.0, desk.at):
            if isinstance(each, Send):
                return each
            desk.sender.loaded(each, desk.outbox.load(each))
        if desk.sender.has_changes:
            desk.save()
    raise AssertionError("nothing leaves")


def test_a_refused_batch_leaves_nothing(tmp_path: Path, failing: type[Failing]) -> None:
    desk = Desk(tmp_path / "data")
    desk.send(batch(0), batch="0")
    before = counts(desk)
    other = [
        row | ({"body": b"other"} if row.get("key") == "0-11" else {})
        for row in batch(1)[:11] + batch(0)[11:]
    ]
    with pytest.raises(BatchError, match="0-11"):
        desk.send(other, batch="1")
    assert counts(desk) == before | {"stages": 1}
    assert_nothing_invisible(desk)
    prepared = desk.outbox.prepare("app", "2", [desk.stage(batch(2), batch="2")], NOW)
    assert not isinstance(prepared, CommitResult)
    prepared.run()
    assert counts(desk) != before
    prepared.abort()
    prepared.abort()
    assert counts(desk) == before | {"stages": 2}
    assert_nothing_invisible(desk)


def test_others_write_between_the_steps_and_readers_see_nothing_before_the_last(
    tmp_path: Path, failing: type[Failing]
) -> None:
    desk = Desk(tmp_path / "data")
    desk.send(batch(0), batch="0")
    prepared = desk.outbox.prepare(
        "app", "1", [desk.stage(batch(1), batch="1", order_by=["t"])], NOW
    )
    assert not isinstance(prepared, CommitResult)
    while not prepared.step():
        assert len(desk.read(A)) == 6
        desk.sender.pause(A, "stream")
        desk.save()
    first = desk.sender.enqueue(A, "stream", 3, NOW, receipts_url="http://x/")
    desk.write(prepared)
    assert [stored.serial for stored in desk.read(A)] == [
        *range(1, 7),
        *range(first.last + 1, first.last + 7),
    ]


def test_the_disk_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path / "data")
    stage = desk.stage(batch(0))
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_bavail=1_000, f_frsize=1, f_blocks=1 << 40)
    )
    with pytest.raises(BatchError, match="free") as caught:
        desk.commit([stage])
    assert caught.value.status == 503
    monkeypatch.undo()
    assert desk.commit([stage]) == CommitResult(12, 0)


def test_pages_that_are_free_in_the_outbox_count_as_room_and_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume whose messages were all sent: the file keeps its length, and the file system shows no room."""
    desk = Desk(tmp_path / "data")
    stage = desk.stage(batch(0))
    full = SimpleNamespace(f_bavail=DISK_RESERVE_BYTES - (8 << 20), f_frsize=1, f_blocks=1 << 40)
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(BatchError, match="and 0 in its database"):
        desk.commit([stage])
    database = desk.outbox.database
    with database.transaction(unsynced_bytes=24 << 20) as connection:
        connection.execute("CREATE TABLE filling AS SELECT zeroblob(24 << 20) AS body")
    with database.transaction() as connection:
        connection.execute("DROP TABLE filling")
    assert desk.commit([stage]) == CommitResult(12, 0)
    while desk.outbox.sweep(NOW):
        pass
    assert database.path.stat().st_size < 8 << 20
    assert len(desk.read(A)) == 6


def test_one_owner(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    with pytest.raises(StoreInUseError):
        Desk(tmp_path / "data")
    other = sqlite3.connect(desk.outbox.database.path)
    other.execute("UPDATE head SET fence = fence + 1")
    other.commit()
    other.close()
    with pytest.raises(StoreSyncError, match="taken over"):
        desk.outbox.write(None, NOW)


# Killed with -9


CHILD = Path(__file__).with_name("kill_child.py")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
LIVES = 4
"""Kills in one test; SRMP_SPARK_KILLS says more (``make long``: 40)."""


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_moment(tmp_path: Path, seed: int) -> None:
    """A child stages and commits the same batches in each life, sends and finishes; it is killed at a random moment.

    Whatever it reported as committed is there, each row once, in order, with the numbers it had in an earlier life.
    """
    rng = random.Random(seed)
    data, report = tmp_path / "data", tmp_path / "report"
    for life in range(int(os.environ.get("SRMP_SPARK_KILLS", LIVES))):
        child = subprocess.Popen(
            [sys.executable, str(CHILD), str(data), str(report), str(seed), str(life)],
            env=ENVIRONMENT,
        )
        deadline = time.monotonic() + 20
        while not report.exists() or f'"life": {life}' not in report.read_text():  # it is up
            assert child.poll() is None, "the child failed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(rng.random() * 0.4)
        child.send_signal(signal.SIGKILL)
        child.wait()
        check(data, report)
    last = subprocess.run(
        [sys.executable, str(CHILD), str(data), str(report), str(seed), "last"],
        check=False,
        timeout=60,
        env=ENVIRONMENT,
    )
    assert last.returncode == 0
    check(data, report, complete=True)


def check(data: Path, report: Path, *, complete: bool = False) -> None:
    events = [json.loads(line) for line in report.read_text().splitlines() if line.endswith("}")]
    committed = {event["batch"] for event in events if "committed" in event}
    finished: dict[str, int] = {}
    numbers: dict[str, list[int]] = {}
    for event in events:
        if "finished" in event:
            finished[event["destination"]] = max(
                finished.get(event["destination"], 0), event["finished"]
            )
        if "sent" in event:
            for body, *at in event["sent"]:
                assert numbers.setdefault(body, at) == at, (
                    f"{body} went out as {numbers[body]} and as {at}"
                )
    desk = Desk(data)
    assert_nothing_invisible(desk)
    identifiers = [
        stored.message.uniquifier for destination in (A, B) for stored in desk.read(destination)
    ]
    assert len(identifiers) == len(set(identifiers)), "an identifier was given out twice"
    for destination in (A, B):
        found = desk.read(destination)
        serials = [stored.serial for stored in found]
        assert serials == sorted(set(serials))
        for stored in found:
            assert numbers.setdefault(stored.message.body.decode(), [stored.serial, stored.message.uniquifier]) == [
                stored.serial, stored.message.uniquifier,
            ]  # fmt: skip
        done = finished.get(
            destination, 0
        )  # it was about to be written: up to here they are there, or not
        assert len(found) == len({stored.message.body for stored in found}), "doubled"
        there = [stored.message.body.decode() for stored in found if stored.serial > done]
        for number in committed:
            wanted = [
                body
                for body in expected(int(number), destination)
                if numbers.get(body, [done + 1])[0] > done
            ]
            assert [body for body in there if body.startswith(f"{number}:")] == wanted, (
                "whole and in order"
            )
    if complete:
        assert committed == {str(n) for n in range(BATCHES)}
    desk.close()


BATCHES = 6
ROWS = 400


def is_ordered(number: int) -> bool:
    """Whether the commit puts the rows of a batch in order; else they go out as they are staged."""
    return number % 3 == 0


def destination_of(number: int, row: int) -> str:
    """Batches for two destinations in turns; for one; and such where the second is met after half of the rows."""
    return (A, B)[{0: row % 2, 1: 0, 2: int(row < ROWS // 2)}[number % 3]]


def expected(number: int, destination: str) -> list[str]:
    """Bodies of a batch for a destination in the order of ``t``, which falls with the row."""
    return [
        f"{number}:{row}"
        for row in reversed(range(ROWS))
        if destination_of(number, row) == destination
    ]


IN_THE_FIRST_TRANSACTION = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # spills: what is not committed is in the file
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE TABLE head(id)")
for _ in range(2000):
    connection.execute("INSERT INTO head VALUES (?)", ("x" * 500,))
os.kill(os.getpid(), 9)
"""


def test_killed_before_the_outbox_had_its_wal_the_queue_manager_starts_again(
    tmp_path: Path,
) -> None:
    """What is left is a rollback journal, which nobody rolls back who may only read."""
    path = tmp_path / DATABASE_FILE
    subprocess.run([sys.executable, "-c", IN_THE_FIRST_TRANSACTION, str(path)], check=False)
    assert path.with_name(path.name + "-journal").exists(), "else nothing is tested"
    with (
        pytest.raises(sqlite3.OperationalError, match="readonly"),
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection,
    ):
        connection.execute("PRAGMA user_version")
    check_outbox(tmp_path)
    Outbox.open(tmp_path, queue_manager=QM, epoch="e", at=NOW).close()
