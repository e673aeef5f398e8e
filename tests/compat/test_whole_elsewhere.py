"""The whole archive of each version in another place: as a copy, restored from its Delta state alone, and refused if newer."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import whole_world as world
from whole_archive import ARCHIVES, Left

from srmp_spark.client.subscriptions import SubscriptionsClient
from srmp_spark.store.database.schema import INBOX
from srmp_spark.store.database.sqlite_file import Database
from srmp_spark.store.outbox.tables.schema import OUTBOX
from srmp_spark.testing.queue_manager import ServeFailedError


@pytest.fixture(autouse=True)
def _addresses() -> Iterator[None]:
    with world.addresses():
        yield


def test_there_is_a_whole_archive_of_the_earlier_version() -> None:
    assert "0.1" in ARCHIVES


def rows_are_readable(left: Left, *, without: tuple[str, ...] = ()) -> None:
    """Check that each row of the epoch of then has the same bytes in every column but these."""
    for queue, was in left.rows().items():
        names = [name for name in was.column_names if name not in without]
        found = world.rows_of(queue, left.expected["epoch"])
        assert found is not None, queue
        assert found.slice(0, was.num_rows).select(names).equals(was.select(names)), queue


def a_stream_goes_on() -> None:
    """Check that the next position of a stream makes a row of the epoch of now, and a repeat makes none."""
    before = world.client().queue(world.PAYMENTS)["last"]
    with world.Receipts() as receipts:
        for current in (5, 6, 6):
            assert world.send(world.in_stream(1, current)).status == 200
        world.until(lambda: receipts.last_ordinal(1) == 6, "its receipt")
    assert world.client().queue(world.PAYMENTS)["last"] == before + 1


def what_waits_is_held(left: Left) -> None:
    """Check that nothing leaves by itself, and that what an operator resumes leaves once and in order."""
    found = world.client().status()["outgoing"]
    waiting = {
        each["destination"]: each["state"] for each in found if each["queued"] or each["in_doubt"]
    }
    assert set(waiting.values()) == {"OnHold"}
    assert {each["destination"] for each in left.expected["outgoing_queue"]} - set(waiting) <= {
        world.PEER + "finals"
    }
    with left.peer() as peer:
        world.client().decide("resume", world.PEER + "stream-b")
        world.until(lambda: len(peer.queues.get("private$/stream-b", ())) == 5, "what was resumed")
        assert [each.body for each in peer.queues["private$/stream-b"]] == [
            b"b 0",
            b"b 1",
            b"b 2",
            b"b 3",
            b"b key",
        ]
        assert "private$/held" not in peer.queues


@pytest.mark.parametrize("version", ARCHIVES)
def test_a_copy_is_a_new_epoch_in_which_nothing_leaves_or_is_taken(
    version: str, tmp_path: Path
) -> None:
    left = Left(version, tmp_path, in_place=False)
    with left.serve() as running:
        assert running.guid == left.expected["queue_manager"]
        assert running.epoch != left.expected["epoch"]
        rows_are_readable(left)
        held = {
            each["to"]: each["held"]
            for each in SubscriptionsClient(running.api, world.TOKEN).subscriptions()
        }
        assert held == {world.STOCK: False, world.TASKS: True, world.MISSING: True}
        assert "subscribe resume" in running.stderr()
        assert world.client().status()["held_copy"] is not None
        what_waits_is_held(left)
        assert world.client().activate()["activated"]
        a_stream_goes_on()


def report_is_whole(lines: list[dict[str, Any]], left: Left) -> None:
    """Check that the report names everything that was there, and loses nothing that Delta has."""
    assert not [each for each in lines if each["finding"] == "lost"]
    counts: Counter[str] = Counter()
    for each in lines:
        if (each["finding"], each["what"]) == ("restored", "rows"):
            counts[each["name"]] += each["count"]
    for (
        queue,
        found,
    ) in left.rows().items():  # the report also counts a row that was purged once Delta had it
        assert counts[queue] >= found.num_rows, queue
    sequences = {each["wsrm_sequence"] for each in lines if each["what"] == "wsrm_sequence"}
    assert sequences == {each["identifier"] for each in left.expected["sessions"].values()}
    streams = {each["stream_id"] for each in lines if each["what"] == "incoming_stream"}
    assert streams >= {each["stream_id"] for each in left.expected["status"]["incoming_streams"]}
    in_doubt = {each["name"] for each in lines if each["finding"] == "in_doubt"}
    assert in_doubt == {each["destination"] for each in left.expected["outgoing_queue"]}


@pytest.mark.parametrize("version", ARCHIVES)
def test_the_delta_state_of_then_is_restored(version: str, tmp_path: Path) -> None:
    left = Left(version, tmp_path, in_place=True)
    shutil.rmtree(tmp_path / "data")
    command = [
        sys.executable,
        "-m",
        "srmp_spark.cli",
        "restore",
        "--state",
        "state",
        "--data-dir",
        "data",
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("SRMP_SPARK_")
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path, env=environment | left.clock
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report_is_whole([json.loads(line) for line in done.stdout.splitlines()], left)
    with left.serve() as running:
        assert running.guid == left.expected["queue_manager"]
        rows_are_readable(left, without=("envelope", "position"))
        mark = world.client().register(world.ORDERS, "default", holder="the test")
        assert (mark.received, mark.ahead) == (2095, world.AHEAD)
        a_stream_goes_on()
        session = left.session("open")
        assert session.told(session.number(4))[0] == 4
        session.close()
        what_waits_is_held(left)


@pytest.mark.parametrize("database", [INBOX, OUTBOX], ids=["store.db", "outbox.db"])
@pytest.mark.parametrize("version", ARCHIVES)
def test_a_newer_format_is_refused_with_exit_code_6(
    version: str, database: Database, tmp_path: Path
) -> None:
    left = Left(version, tmp_path, in_place=True)
    file = "outbox.db" if database is OUTBOX else "store.db"
    with sqlite3.connect(tmp_path / "data" / file) as connection:
        connection.execute(f"PRAGMA user_version = {database.format + 1}")
    connection.close()
    with pytest.raises(ServeFailedError, match="start the newer version") as caught:
        left.serve().start()
    assert caught.value.code == 6
