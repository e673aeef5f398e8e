"""What a version leaves behind, and how it is made: data directory, Delta state, checkpoint and table.

    python tests/compat/compat_fixture.py tests/compat/0.1/state.tar.gz      once, by the version itself, before its release

The archive holds ``data`` (a queue with a sealed segment, an unsealed tail and a purged range; a transactional queue),
``state`` (the Delta tables), ``checkpoint`` and ``table`` (of jobs/ingest.py, some rows behind the queue) and
``expected.json``: what was in it, written by the one who made it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager

ROOT = Path(__file__).resolve().parents[2]
ORDERS, LEDGER = "private$/orders", "private$/ledger"
QUEUES = [ORDERS, f"{LEDGER}:transactional"]
SEALED, TAIL, UNREAD = 2100, 40, 7
"""Messages: enough to be sealed at once, some more that stay in groups, and those that the query has not read."""


def ingest(api: str, directory: Path, jvm: dict[str, str] | None = None) -> dict[str, Any]:
    """One run of jobs/ingest.py over what is there, in a JVM that is there if one is given; its closing line."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "jobs" / "ingest.py"), "--queue-manager", api, "--queue", f"{ORDERS},{LEDGER}",
         "--table", str(directory / "table"), "--checkpoint", str(directory / "checkpoint"),
         "--available-now", "--max-offsets-per-trigger", "1500", "--master", "local[2]"],
        capture_output=True, text=True, timeout=280, check=False, env={**os.environ, **(jvm or {})},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    closing: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return closing


def make(archive: Path) -> None:
    """Build a fixture with the code of this checkout."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with RunningQueueManager(
            directory / "data",
            queues=QUEUES,
            state=directory / "state",
            state_interval=1,
            listen="127.0.0.1:0",
        ) as running:
            client = QueueManagerClient(running.api)
            for first in range(0, SEALED, 700):
                client.send(ORDERS, [{"label": f"order {n}"} for n in range(first, first + 700)])
            client.send(LEDGER, [{"label": f"entry {n}"} for n in range(5)])
            wait_for(lambda: list((directory / "data" / "segments").rglob("*.columns.arrow")))
            client.send(ORDERS, [{"label": f"late order {n}"} for n in range(TAIL)])
            closing = ingest(running.api, directory)
            client.send(ORDERS, [{"label": f"unread {n}"} for n in range(UNREAD)])
            position = client.status()["queues"]
            wait_for(lambda: client.status()["state"]["lag_seconds"] == 0)
            expected = {
                "queue_manager": running.ready["queue_manager"],
                "epoch": running.ready["epoch"],
                "ends": {queue["name"]: queue["last"] for queue in position},
                "ingested": closing["rows"],
                "unread": UNREAD,
            }
        (directory / "expected.json").write_text(json.dumps(expected, indent=1))
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:gz") as tar:
            for part in ("data", "state", "checkpoint", "table", "expected.json"):
                tar.add(directory / part, arcname=part)


def wait_for(condition: Any, seconds: float = 60.0) -> None:  # any callable
    """Until ``condition()`` is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.2)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
