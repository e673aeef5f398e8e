"""A version opens what every earlier one left behind, and refuses what a later one wrote (exit code 6)."""

from __future__ import annotations

import collections
import json
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import deltalake
import pytest
from compat_fixture import LEDGER, ORDERS, QUEUES, ingest, wait_for

from srmp_spark.client.outgoing_messages import OutgoingClient
from srmp_spark.testing.queue_manager import RunningQueueManager, ServeFailedError

VERSIONS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/state.tar.gz"))


@pytest.fixture(params=VERSIONS)
def left_behind(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    with tarfile.open(Path(__file__).parent / request.param / "state.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data") if hasattr(
            tarfile, "data_filter"
        ) else tar.extractall(tmp_path)
    (tmp_path / "data").chmod(0o700)  # as that version made it: tar keeps no mode of a folder
    return tmp_path, json.loads((tmp_path / "expected.json").read_text())


def test_there_is_a_fixture_of_the_earlier_version() -> None:
    assert "0.1" in VERSIONS


@pytest.mark.spark
def test_data_directory_state_and_checkpoint_go_on(
    left_behind: tuple[Path, dict[str, Any]], jvm: dict[str, str]
) -> None:
    """The copy is a new epoch with the old GUID; the query first finishes the old epoch, then reads the new one."""
    directory, expected = left_behind
    with RunningQueueManager(
        directory / "data", queues=QUEUES, state=directory / "state", state_interval=1
    ) as running:
        assert running.ready["queue_manager"] == expected["queue_manager"]
        assert running.ready["epoch"] != expected["epoch"]
        client = OutgoingClient(running.api)
        assert client.activate()["activated"], "a copy publishes nothing before"
        ends = {queue["name"]: queue["last"] for queue in client.status()["queues"]}
        assert ends == expected["ends"]
        sent = client.send(ORDERS, [{"label": "after the update"}]) + client.send(
            LEDGER, [{"label": "entry after"}]
        )
        assert [message["state"] for message in sent] == ["acknowledged"] * 2

        old_writer = f"srmp-ingest:{LEDGER},{ORDERS}"
        claimed = deltalake.DeltaTable(directory / "table").transaction_version(old_writer)
        closing = ingest(running.api, directory, jvm)
        assert closing["rows"] == expected["unread"] + 2

        written = deltalake.DeltaTable(directory / "table")
        assert written.transaction_version(old_writer) > claimed, (
            "a job of that version that still ran has ended"
        )
        assert (
            written.transaction_version(f"{old_writer},queue-manager/{expected['queue_manager']}")
            is not None
        )
        table = written.to_pyarrow_table(columns=["epoch", "queue", "sequence", "label"])
        keys = collections.Counter(
            (row["epoch"], row["queue"], row["sequence"]) for row in table.to_pylist()
        )
        assert len(keys) == expected["ingested"] + expected["unread"] + 2
        assert set(keys.values()) == {1}
        last = max(row["sequence"] for row in table.to_pylist() if row["queue"] == ORDERS)
        assert last == ends[ORDERS] + 1

        wait_for(lambda: client.status()["state"]["lag_seconds"] == 0)
    inbox = deltalake.DeltaTable(directory / "state" / "inbox").to_pyarrow_table(
        columns=["epoch", "queue", "sequence"]
    )
    rows = collections.Counter(
        (row["epoch"], row["queue"], row["sequence"]) for row in inbox.to_pylist()
    )
    assert len(rows) == sum(ends.values()) + 2
    assert set(rows.values()) == {1}


def test_a_newer_format_is_refused_with_exit_code_6(
    left_behind: tuple[Path, dict[str, Any]],
) -> None:
    directory, _ = left_behind
    (database,) = (directory / "data").glob("*.db")
    with sqlite3.connect(database) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version + 1}")
    connection.close()
    with pytest.raises(ServeFailedError, match="start the newer version") as caught:
        RunningQueueManager(directory / "data", queues=QUEUES).start()
    assert caught.value.code == 6
