"""The sink in a session of its own: what only a cluster does to tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_proxy import kill_peer

from srmp_spark.testing.foreign.ports import kept_port
from tests.kit.outbox_model import RefusedError, Slot
from tests.kit.outbox_server import OutboxServer

pytestmark = pytest.mark.spark
HERE = Path(__file__).resolve().parent


def run(script: str, *arguments: str, seconds: float = 240) -> dict[str, Any]:
    """A session in a process of its own; what its last line says."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_GATEWAY")
    }
    environment |= {
        "PYTHONPATH": str(HERE.parents[1]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A stand-alone cluster of two workers. Each has an address of its own: Spark starts no copy of a task on the same host."""
    import pyspark

    url = f"spark://127.0.0.1:{kept_port()}"
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_NO_DAEMONIZE": "1",
    }
    environment["SPARK_DAEMON_JAVA_OPTS"] = os.environ.get("SPARK_SUBMIT_OPTS", "")
    roles = [
        [
            "master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            url.rpartition(":")[2],
            "--webui-port",
            "0",
        ]
    ]
    for number in (1, 2):
        work = [
            "--host",
            f"127.0.0.{number + 1}",
            "-c",
            "2",
            "-m",
            "1g",
            "-d",
            str(tmp_path / f"worker{number}"),
            "--webui-port",
            "0",
        ]
        roles.append(["worker.Worker", *work, url])
    running = []
    for role, *arguments in roles:
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
        running.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
    yield url
    for process in running:
        process.terminate()
    for process in running:
        process.wait(30)


class Faults:
    """Kills the worker whose stage of partition 1 was just kept; refuses every stage of the application ``refused``."""

    def __init__(self) -> None:
        self.killed = threading.Event()

    def __call__(self, slot: Slot, port: int) -> None:
        if slot.application == "killed" and slot.partition == 1 and not self.killed.is_set():
            self.killed.set()
            kill_peer(port)
            time.sleep(0.5)
        if slot.application == "refused" and slot.partition == 2:
            raise RefusedError(400, "bad-stage", "partition 2 is refused")


@pytest.mark.long  # six JVMs; what a batch that is run again sends is in test_engine_sink_stream.py
def test_what_happens_to_tasks(master: str, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    with OutboxServer() as qm:
        faults = qm.on_staged = Faults()
        answer = run("sink_cluster_session.py", master, qm.url, str(tmp_path / "copies"))
        expected = [str(n).encode() for n in range(400)]
        stages = [
            (path.split("/")[3], query["partition"], query["attempt"], code)
            for path, query, code in qm.named("stage")
        ]
        assert faults.killed.is_set()
        assert qm.model.bodies("DIRECT=http://h/msmq/killed") == expected
        killed = [
            attempt
            for application, partition, attempt, _ in stages
            if (application, partition) == ("killed", "1")
        ]
        assert len(set(killed)) == 2, "kept of the one that was killed, and of its successor"

        assert qm.model.bodies("DIRECT=http://h/msmq/copied") == expected
        assert answer["copies"] >= 2, "Spark started a speculative copy"

        assert "partition 2 is refused" in answer["failed"]
        tried = [
            attempt
            for application, partition, attempt, _ in stages
            if (application, partition) == ("refused", "2")
        ]
        assert len(set(tried)) >= 4, "spark.task.maxFailures"
        assert [path for path, _, _ in qm.named("commit") if "/refused/" in path] == []
        assert [path for path, _, _ in qm.named("DELETE") if "/refused/" in path] != []
        assert qm.model.outgoing.keys() == {
            "DIRECT=http://h/msmq/killed",
            "DIRECT=http://h/msmq/copied",
        }
