"""Provide both ends of a reliable session (RM 1.1, one-way, 1 KB): Apache CXF's and ours.

Where CXF is not built, a second queue manager of ours takes its place, so that our side runs;
nothing is judged then.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import (
    CLIENT_CORE,
    QUEUE,
    ROOT,
    SERVER_CORE,
    NotHere,
    Plan,
    QueueManager,
    free_port,
    start,
    stop,
    wait_port,
)
from benchmarks.send import decide, entry, until

PEERS = ROOT / "tests" / "peers" / "wsrm"
BUILT = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    / "srmp-spark-peers"
    / "wsrm"
    / "built"
)
"""File that ``build.sh`` makes when it is done."""
JAVA = {"PEER_JAVA_OPTS": "-XX:TieredStopAtLevel=4 -Xmx512m -Dpeers.log=SEVERE"}
"""Environment of CXF: both compilers, and no warnings.

The service would write two warnings for each message.
"""
ACTION = "urn:srmp-spark:peers:wsrm:submit"
BUFFER = 4_096
"""``--wsrm-buffer`` of our service, in messages.

Our sender may have this number of rows in flight before a consumer receives any.
"""
WAIT_S = 300


def cxf(plan: Plan) -> bool:
    """Build the peers if necessary.

    Raises :class:`NotHere` where they cannot be built. A quick run does not build them, because
    that takes minutes.
    """
    if plan.quick and not BUILT.exists():
        raise NotHere("Apache CXF is not built: run tests/peers/wsrm/build.sh (Maven)")
    try:
        built = subprocess.run(
            [PEERS / "build.sh"], capture_output=True, text=True, check=False, timeout=600
        )
    except OSError as error:
        raise NotHere(f"Apache CXF cannot be built: {error}") from None
    if built.returncode != 0:
        raise NotHere(
            f"Apache CXF cannot be built: {(built.stderr or built.stdout).strip()[-300:]}"
        )
    return True


class CxfService:
    """Runs CXF's service on the server's core. It discards the messages that it delivers."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        words = [str(PEERS / "peer"), "cxf", "server", "--port", str(port), "--no-offer"]
        log = folder / "cxf.log"
        self.process = start(
            words, SERVER_CORE, log, stdout=subprocess.DEVNULL, env={**os.environ, **JAVA}
        )
        wait_port(port, self.process)
        self.url = f"http://127.0.0.1:{port}/soap12"

    def close(self) -> None:
        stop(self.process)


class OwnService:
    """Runs our queue manager on the server's core, with one queue for each sequence."""

    def __init__(self, folder: Path, sequences: int = 1) -> None:
        folder.mkdir()
        others = [f"private$/sequence{number}" for number in range(1, sequences)]
        options = ["--wsrm-buffer", str(BUFFER), "--listen-wsrm", "127.0.0.1:0"]
        self.server = QueueManager(
            folder, options=[*options, *(word for name in others for word in ("--queue", name))]
        )
        self.queues = [QUEUE, *others]
        self.urls = [f"{self.server.ready['wsrm']}/wsrm/{name}" for name in self.queues]
        self.url = self.urls[0]

    def rows(self) -> int:
        """Count the rows of all queues."""
        return sum(self.server.end_of(name) for name in self.queues)

    def close(self) -> None:
        self.server.close()


def cxf_client(url: str, sequences: int, count: int, warm: int) -> float:
    """Return the messages a second of CXF's client, which warms up by itself."""
    words = ["taskset", "-c", CLIENT_CORE, str(PEERS / "peer"), "cxf", "bench", "--url", url]
    words += ["--sequences", str(sequences), "--count", str(count), "--warm", str(warm)]
    ran = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, **JAVA},
    )
    if ran.returncode != 0:
        raise RuntimeError(f"the client failed: {ran.stdout[-300:]}{ran.stderr[-1500:]}")
    found = next(json.loads(line) for line in ran.stdout.splitlines() if '"bench"' in line)
    return float(found["per_second"])


class OwnClient:
    """Runs our queue manager and its sender process on the client's core."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.server = QueueManager(folder, CLIENT_CORE)
        self._runs = 0

    def send(self, urls: Sequence[str], count: int, warm: int) -> float:
        """Return the messages a second to services that are new to this client.

        The time is from the end of a hold until everything is acknowledged.
        """
        self._runs += 1
        destinations = [f"wsrm:{url}" for url in urls]
        _commit(self.server, destinations, warm, f"warm{self._runs}")
        _acknowledged(self.server, destinations, warm)
        for each in destinations:
            decide(self.server, each, "pause")
        _commit(self.server, destinations, count, f"rows{self._runs}")
        began = time.perf_counter()
        for each in destinations:
            decide(self.server, each, "resume")
        _acknowledged(self.server, destinations, warm + count)
        return len(urls) * count / (time.perf_counter() - began)

    def close(self) -> None:
        self.server.close()


def _acknowledged(server: QueueManager, destinations: Sequence[str], last: int) -> None:
    for each in destinations:
        until(lambda each=each: entry(server, each).get("last_acknowledged") == last)


def _commit(server: QueueManager, destinations: Sequence[str], rows: int, batch: str) -> None:
    """Stage and commit ``rows`` rows of 1 KB for each destination."""
    import pyarrow as pa
    import requests

    text = '<n:submit xmlns:n="urn:srmp-spark:peers:wsrm"><text>{:010d}{}</text></n:submit>'
    bodies = [text.format(number, "x" * 940).encode() for number in range(rows)] * len(destinations)
    table = pa.table(
        {
            "body": pa.array(bodies, pa.binary()),
            "destination": pa.array([each for each in destinations for _ in range(rows)]),
            "soap_action": pa.array([ACTION] * len(bodies)),
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=10_000)
    base = f"{server.api}/v1/outbox/bench/{batch}"
    answer = requests.post(f"{base}/stage?partition=0&attempt=0", data=sink.getvalue(), timeout=300)
    answer.raise_for_status()
    requests.post(
        f"{base}/commit", json={"stages": [answer.json()["stage"]]}, timeout=300
    ).raise_for_status()
