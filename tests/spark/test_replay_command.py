"""jobs/replay.py as a command, to a second queue manager of ours: python, kill -9 in the middle, spark-submit, last line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import deltalake
import pyarrow as pa
import pyspark
import pytest

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.rows.columns import arrow_schema
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.demo.two_ends import bodies_in

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "jobs" / "replay.py"
ROWS = 300
AGAIN = "private$/again"
OF_THE_JVM = "SPARK_SUBMIT_OPTS"
"""The options of each JVM: where its classes come mapped from (``make test``)."""


def environment(state: Path, **more: str) -> dict[str, str]:
    ours = ("PYSPARK_", "SRMP_SPARK_", "PYTHONPATH", "SPARK_")
    given = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(ours) or key == OF_THE_JVM
    }
    return given | {
        "XDG_STATE_HOME": str(state),
        **more,
    }


def a_table(path: Path) -> None:
    at = datetime(2026, 11, 22, 10, tzinfo=timezone.utc)
    rows = [
        {
            "queue_manager": "q",
            "epoch": "e",
            "queue": "private$/orders",
            "sequence": n,
            "arrived_at": at,
            "body": b"row %d" % n,
        }
        for n in range(1, ROWS + 1)
    ]
    deltalake.write_deltalake(str(path), pa.Table.from_pylist(rows, arrow_schema()))


@pytest.mark.long  # two JVMs; the parts without them: test_replay.py and jobs/test_sending_files.py
def test_killed_in_the_middle_and_finished_by_spark_submit_without_its_notes(
    tmp_path: Path,
) -> None:
    a_table(tmp_path / "table")
    loopback = ["http://127.0.0.1:*"]
    peer = RunningQueueManager(
        tmp_path / "peer", queues=[f"{AGAIN}:transactional"], allow_url=loopback
    )
    with RunningQueueManager(tmp_path / "ours", allow_url=loopback) as ours, peer:
        command = [
            str(JOB),
            "--table",
            str(tmp_path / "table"),
            "--queue-manager",
            ours.api,
            "--id",
            "x",
            "--yes",
        ]
        command += ["--destination", f"DIRECT={peer.listening}/msmq/{AGAIN}"]
        with (tmp_path / "killed.log").open("w") as log:
            first = subprocess.Popen(
                [sys.executable, *command, "--master", "local[2]", "--rate", "20"],
                cwd=tmp_path, env=environment(tmp_path / "state"), stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        client = QueueManagerClient(peer.api)
        deadline = time.monotonic() + 200
        while client.queue(AGAIN)["last"] < 40:
            assert first.poll() is None, (tmp_path / "killed.log").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()

        submit = [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            "--master",
            "local[2]",
        ]
        second = subprocess.run(
            [*submit, "--conf", "spark.ui.enabled=false", *command],
            cwd=tmp_path, env=environment(tmp_path / "elsewhere", PYSPARK_PYTHON=sys.executable),
            capture_output=True, text=True, timeout=250,
        )  # fmt: skip
        assert second.returncode == 0, second.stderr[-3000:]
        last = json.loads(second.stdout.splitlines()[-1])
        assert (last["job"], last["status"], last["rows"] + last["known"]) == (
            "replay",
            "done",
            ROWS,
        )
        assert 40 <= last["known"] < ROWS, "identities, not notes: they are on another machine"
        deadline = time.monotonic() + 60
        while client.queue(AGAIN)["last"] < ROWS:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert list(bodies_in(peer.api, AGAIN)) == [b"row %d" % n for n in range(1, ROWS + 1)]
