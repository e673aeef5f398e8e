"""A row of the store that cannot be read costs itself alone: everything else starts, and an operator is told."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager

ORDERS = "private$/orders"
GUID = "caf195ea-615c-4264-ae08-11a4e60194c0"

ITS_ID, OF_IT = "SELECT id", f"FROM queues WHERE name = '{ORDERS}'"
DAMAGE = {
    "streams": f"INSERT INTO streams VALUES ('{ORDERS}', '{GUID}', 'seven', 1, 1, "
    "'http://h/', 'p:1', NULL, 0, 1, 1, NULL)",
    "streams, a number": f"INSERT INTO streams VALUES ('{ORDERS}', 'g', '7', 'x', 1, "
    "'http://h/', 'p:1', NULL, 0, 1, 1, NULL)",
    "accepted_gaps": f"INSERT INTO accepted_gaps VALUES ('{ORDERS}', '{GUID}', 'seven', "
    "1, 1, NULL)",
    "owed_receipts": "INSERT INTO owed_receipts VALUES (1, 'delivery', 'http://h/', "
    "'p:1', '{\"kind\": 1', 1)",
    "owed_receipts, a field": "INSERT INTO owed_receipts VALUES (2, 'delivery', 'http://h/', "
    "'p:1', '{\"kind\": 1}', 1)",
    "history": f"INSERT INTO history VALUES ('{GUID}', 'one', 'two', 'three')",
    "history, a time": f"INSERT INTO history VALUES ('{GUID}', 1, 2, x'00')",
    "history, an order": f"INSERT INTO history VALUES ('{GUID}', 9, 2, 1)",
    "consumers, a lease": "UPDATE consumers SET holder = 'zzz' WHERE name = 'default'",
    "consumers, a name": f"INSERT INTO consumers {ITS_ID}, x'fffe', 0, '[]', NULL, NULL, "
    f"NULL {OF_IT}",
    "consumers, a mark": f"INSERT INTO consumers {ITS_ID}, 'c', 'x', '[]', NULL, NULL, "
    f"NULL {OF_IT}",
    "consumers": "UPDATE consumers SET ahead = '[[1' WHERE name = 'default'",
    "marks": f"INSERT INTO marks SELECT id, 'default', 7, 1, 'zzz' {OF_IT}",
    "queues": f"UPDATE queues SET options = 'journal' WHERE name = '{ORDERS}'",
}
"""Table, and how a row of it becomes one that no reader understands."""


def execute(data: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(data / "store.db")) as connection, connection:
        assert connection.execute(statement).rowcount == 1


def told(running: RunningQueueManager) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = requests.get(f"{running.api}/v1/status", timeout=30).json()[
        "set_aside"
    ]
    return found


@pytest.fixture(scope="module")
def undamaged(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[RunningQueueManager, dict[str, bytes]]:
    """A queue manager that has three rows, all of them received, and is stopped; and its files."""
    running = RunningQueueManager(tmp_path_factory.mktemp("qm") / "data", queues=[ORDERS])
    with running:
        client = QueueManagerClient(running.api)
        client.send(ORDERS, [{"label": f"order {n}", "body_base64": "aGVsbG8="} for n in range(3)])
        command = [
            sys.executable,
            "-m",
            "srmp_spark.cli",
            "receive",
            "--queue",
            ORDERS,
            "--api",
            running.api,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    return running, {
        path.name: path.read_bytes() for path in running.data_dir.iterdir() if path.is_file()
    }


@pytest.fixture
def served(undamaged: tuple[RunningQueueManager, dict[str, bytes]]) -> RunningQueueManager:
    """The same for each test: with its files as they were, and an empty log."""
    running, files = undamaged
    for path in running.data_dir.iterdir():
        if path.is_file() and path.name not in files:
            path.unlink()
    for name, content in files.items():
        (running.data_dir / name).write_bytes(content)
    running.log.write_text("")
    return running


@pytest.mark.parametrize("kind", DAMAGE)
def test_everything_else_starts_and_status_doctor_and_log_tell_of_the_row(
    served: RunningQueueManager, kind: str
) -> None:
    execute(served.data_dir, DAMAGE[kind])
    with served:
        (row,) = told(served)
        assert row["table"] == kind.partition(",")[0]
        assert row["key"]
        assert row["reason"]
        assert "store.set_aside" in served.stderr()
        client = QueueManagerClient(served.api)
        (sent,) = client.send(ORDERS, [{"label": "another", "body_base64": "aGVsbG8="}])
        assert sent["state"] == "acknowledged"
        (queue,) = (each for each in client.status()["queues"] if each["name"] == ORDERS)
        assert (queue["last"], queue["waiting"]) == (4, 1), "what was received does not come again"
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("SRMP_SPARK_")
        }
        doctor = subprocess.run(
            [sys.executable, "-m", "srmp_spark.cli", "doctor", "--api", served.api],
            capture_output=True, text=True, timeout=60, env=environment,
        )  # fmt: skip
        assert (
            f"of table {row['table']} cannot be read, and was set aside"
            in doctor.stdout + doctor.stderr
        )


def test_a_row_that_was_set_aside_keeps_its_bytes(served: RunningQueueManager) -> None:
    execute(served.data_dir, DAMAGE["streams"])
    execute(served.data_dir, DAMAGE["owed_receipts"])
    with served:
        assert {each["table"] for each in told(served)} == {"streams", "owed_receipts"}
    with contextlib.closing(sqlite3.connect(served.data_dir / "store.db")) as connection:
        assert connection.execute("SELECT stream_ordinal FROM streams").fetchall() == [("seven",)]
        assert connection.execute("SELECT payload FROM owed_receipts").fetchall() == [
            ('{"kind": 1',)
        ]


def test_a_thousand_rows_are_counted_and_a_hundred_are_told(served: RunningQueueManager) -> None:
    with (
        contextlib.closing(sqlite3.connect(served.data_dir / "store.db")) as connection,
        connection,
    ):
        connection.executemany(
            "INSERT INTO history VALUES (?, 1, 1, 'never')",
            [(f"lineage {n}",) for n in range(1000)],
        )
    with served:
        assert len(told(served)) == 100
        assert "store.set_aside further=900" in served.stderr()
