"""Nonsense of every type in every column of every table: ``serve`` starts, logs no traceback, and reports it."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
import requests
from nonsense_kit import NONSENSE, OUTBOX, STORE, put

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.tables import decisions, state, wsrm_sequences
from srmp_spark.testing.queue_manager import RunningQueueManager

ORDERS = "private$/orders"
MOVED = (
    "queue_epochs", "holes", "garbage", "undecided", "decisions", "decided_receipts", "told", "moves", "pgm_loss",
)  # fmt: skip
WAIT_S = 30.0


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with rows of its own."""
    data = tmp_path_factory.mktemp("template") / "data"
    with RunningQueueManager(data, queues=[ORDERS, "private$/t:transactional"]) as running:
        QueueManagerClient(running.api).send(
            ORDERS, [{"label": f"{n}", "body_base64": ""} for n in range(3)]
        )
        end = time.monotonic() + WAIT_S
        while "sender.ready" not in running.stderr():
            assert time.monotonic() < end
            time.sleep(0.05)
    return data


def copied(template: Path, to: Path) -> Path:
    to.mkdir(parents=True, mode=0o700)
    for name in ("store.db", "outbox.db"):
        with (
            contextlib.closing(sqlite3.connect(template / name)) as source,
            contextlib.closing(sqlite3.connect(to / name)) as target,
        ):
            source.backup(target)
        (to / name).chmod(0o600)
    return to


@pytest.mark.parametrize("kind", NONSENSE)
@pytest.mark.parametrize("table", STORE)
def test_no_reader_of_a_table_fails(template: Path, tmp_path: Path, table: str, kind: str) -> None:
    data = copied(template, tmp_path / "data")
    columns = [*STORE[table]]
    taken = put(data / "store.db", table, STORE[table], columns, NONSENSE[kind])
    assert taken
    with DataDirectory.open(data, now=1) as directory:
        found = state.load(directory.writer)
        told = [*found.unreadable, *wsrm_sequences.load(directory.writer).unreadable]
        list(state.load_history(directory.writer, told))
        assert all(queue.epochs for queue in found.queues)
        transaction = Transaction(directory.writer, 1, directory.epoch_id)
        while decisions.expand(transaction).more:
            pass
        for lane in decisions.lanes(directory.writer, decisions.NO_LANE, 100):
            decisions.owed(directory.writer, lane, 100)
        if table in MOVED and (kind in ("text", "blob") or kind.startswith("no UTF-8")):
            assert any(each.table == table for each in told)
        if (
            table in ("streams", "accepted_gaps", "decided_receipts", "undecided")
            and kind == "long"
        ):
            reasons = [each.reason for each in told if each.table == table]
            assert any("characters" in each or "guid" in each for each in reasons), (
                "a GUID of a thousand characters"
            )
        assert all(len(each.key) <= 250 and len(each.reason) <= 250 for each in told)


@pytest.mark.parametrize("kind", ["blob", "no UTF-8"])
@pytest.mark.parametrize("table", MOVED)
def test_a_row_that_is_moved_aside_keeps_its_bytes_and_good_ones_stay(
    template: Path, tmp_path: Path, table: str, kind: str
) -> None:
    data = copied(template, tmp_path / "data")
    column = next(
        each
        for each in STORE[table]
        if each not in ("id", "queue_id", "first", "sequence", "number")
    )
    put(data / "store.db", table, STORE[table], [column], NONSENSE[kind])
    good = {
        **STORE[table],
        ("id" if "id" in STORE[table] else "first" if "first" in STORE[table] else "sequence"): 77,
    }
    if "last" in good:
        good["last"] = 78
    if table == "queue_epochs":
        good["first"] = 1
    if table == "pgm_loss":
        good["number"] = 77
    put(data / "store.db", table, good, [column], good[column])
    for _ in range(2):
        with DataDirectory.open(data, now=1) as directory:
            db = directory.writer
            ((name, content),) = db.execute("SELECT name, content FROM set_aside").fetchall()
            assert (name, '{"base64": "//4="}' in content) == (table, True)
            assert db.execute(f"SELECT 1 FROM {table}").fetchone() is not None
            assert [each.table for each in state.load(db).unreadable] == [table]


@pytest.mark.parametrize("kind", ["text", "blob", "long", "negative", "no UTF-8"])
def test_serve_starts_and_reports_nonsense_in_every_table(
    template: Path, tmp_path: Path, kind: str
) -> None:
    data = copied(template, tmp_path / "data")
    for name, tables in (("store.db", STORE), ("outbox.db", OUTBOX)):
        for table, row in tables.items():
            put(data / name, table, row, [*row], NONSENSE[kind])
    running = RunningQueueManager(
        data,
        queues=[ORDERS, "private$/t:transactional"],
        listen_wsrm="127.0.0.1:0",
        allow_url=["http://127.0.0.1/*"],
    )
    with running:
        status: dict[str, Any] = {}
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end and not status.get("set_aside"):
            status = requests.get(f"{running.api}/v1/status", timeout=WAIT_S).json()
        assert status["set_aside"]
        client = QueueManagerClient(running.api)
        (sent,) = client.send(ORDERS, [{"label": "another", "body_base64": "aGVsbG8="}])
        assert sent["state"] == "acknowledged"
        time.sleep(1.0)  # what begins in the background has begun
    assert "Traceback" not in running.stderr(), running.stderr()[-3_000:]
    assert "store.set_aside" in running.stderr()
