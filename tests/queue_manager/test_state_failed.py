"""A Delta state that does not go on is told in ``status``, by ``doctor`` and the metrics; messages are accepted meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import requests
from deltalake import DeltaTable

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.interface import ExitCode
from srmp_spark.testing.queue_manager import RunningQueueManager

ORDERS = "private$/orders"


def doctor(api: str) -> tuple[int, list[dict[str, Any]]]:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("SRMP_SPARK_")
    }
    done = subprocess.run(
        [sys.executable, "-m", "srmp_spark.cli", "doctor", "--api", api], capture_output=True, text=True, timeout=60,
        env=environment,
    )  # fmt: skip
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def failed(client: QueueManagerClient, *, is_there: bool) -> dict[str, Any] | None:
    deadline = time.monotonic() + 30
    while True:
        found: dict[str, Any] | None = client.status()["state"]["failed"]
        if (found is not None) == is_there:
            return found
        assert time.monotonic() < deadline, f"failed is {found}"
        time.sleep(0.05)


def test_a_publisher_that_has_ended_is_told_with_the_remedy_and_readiness_stays(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    DeltaTable.create(str(state / "inbox"), pa.schema([("mine", pa.string())]))
    with RunningQueueManager(
        tmp_path / "data", queues=[ORDERS], state=state, state_interval=1
    ) as running:
        client = QueueManagerClient(running.api)
        found = failed(client, is_there=True)
        assert found is not None
        assert (found["of"], found["ended"]) == ("inbox", True)
        assert "is a Delta table but not one of srmp-spark" in found["reason"]
        assert "start the queue manager again" in found["remedy"]
        assert client.status()["ready"]
        assert requests.get(f"{running.api}/readyz", timeout=30).status_code == 200
        (sent,) = client.send(ORDERS, [{"label": "all the same", "body_base64": "aGVsbG8="}])
        assert sent["state"] == "acknowledged"
        assert "srmp_state_failed 1" in requests.get(f"{running.api}/metrics", timeout=30).text
        code, checks = doctor(running.api)
        (check,) = (each for each in checks if each["check"] == "state")
        assert code == ExitCode.CHECK_FAILED
        assert (check["ok"], check["hint"]) == (False, found["remedy"])
        assert "publishing of inbox has ended since" in check["detail"]
        (state / "inbox").rename(tmp_path / "moved away")
        running.stop()
        running.restart()
        assert failed(QueueManagerClient(running.api), is_there=False) is None
        code, checks = doctor(running.api)
        assert [(each["ok"], code) for each in checks if each["check"] == "state"] == [(True, 0)]
