"""Reliable sessions out: rows for ``wsrm:URL`` (RM 1.1, one-way, 1 KB) to CXF's service, beside CXF's own client to the same.

The service on core 0, whoever sends on core 1: our queue manager with its sender process, or CXF's client. Both have one
sequence with one message on the wire at a time. Ours has each number on the disk before it leaves and each acknowledgement
after it came; CXF's client keeps nothing. Both are warmed up by 500 messages; then ours is from the end of a hold until
everything is acknowledged, CXF's from the first call until everything is acknowledged.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import (
    CLIENT_CORE,
    ROOT,
    SERVER_CORE,
    Figure,
    NotHere,
    QueueManager,
    beside,
    free_port,
    load,
    need_cores,
    say,
    scratch,
    start,
    stop,
    wait_port,
)
from benchmarks.send import decide, entry, until

PEERS = ROOT / "tests" / "peers" / "wsrm"
ROWS = 5_000
WARM = 500
JAVA = {"PEER_JAVA_OPTS": "-XX:TieredStopAtLevel=4 -Xmx512m"}
ACTION = "urn:srmp-spark:peers:wsrm:submit"
WAIT_S = 300


def build() -> None:
    """The peers, or :class:`NotHere`."""
    try:
        built = subprocess.run([PEERS / "build.sh"], capture_output=True, text=True, check=False, timeout=600)
    except OSError as error:
        raise NotHere(f"CXF cannot be built: {error}") from None
    if built.returncode != 0:
        raise NotHere(f"CXF cannot be built: {(built.stderr or built.stdout).strip()[-300:]}")


class Service:
    """CXF's, on the server's core; what it delivers it writes to nowhere."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        words = [str(PEERS / "peer"), "cxf", "server", "--port", str(port), "--no-offer"]
        log = folder / "cxf.log"
        self.process = start(words, SERVER_CORE, log, stdout=subprocess.DEVNULL, env={**os.environ, **JAVA})
        wait_port(port, self.process)
        self.url = f"http://127.0.0.1:{port}/soap12"


def commit(server: QueueManager, url: str, rows: int, batch: str) -> None:
    """So many rows of 1 KB become outgoing."""
    import pyarrow as pa
    import requests

    text = '<n:submit xmlns:n="urn:srmp-spark:peers:wsrm"><text>{:010d}{}</text></n:submit>'
    bodies = [text.format(number, "x" * 940).encode() for number in range(rows)]
    table = pa.table({
        "body": pa.array(bodies, pa.binary()), "destination": pa.array([f"wsrm:{url}"] * rows),
        "soap_action": pa.array([ACTION] * rows),
    })  # fmt: skip
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=10_000)
    base = f"{server.api}/v1/outbox/bench/{batch}"
    answer = requests.post(f"{base}/stage?partition=0&attempt=0", data=sink.getvalue(), timeout=300)
    answer.raise_for_status()
    requests.post(f"{base}/commit", json={"stages": [answer.json()["stage"]]}, timeout=300).raise_for_status()


def ours(folder: Path, rows: int, warm: int) -> float:
    """Messages a second."""
    folder.mkdir()
    service = Service(folder)
    server = QueueManager(folder, CLIENT_CORE)
    destination = f"wsrm:{service.url}"
    try:
        commit(server, service.url, warm, "warm")
        until(lambda: entry(server, destination).get("last_acknowledged") == warm)
        decide(server, destination, "pause")
        commit(server, service.url, rows, "rows")
        began = time.perf_counter()
        decide(server, destination, "resume")
        until(lambda: entry(server, destination).get("last_acknowledged") == warm + rows)
        return rows / (time.perf_counter() - began)
    finally:
        server.close()
        stop(service.process)


def theirs(folder: Path, rows: int, warm: int) -> float:
    """CXF's client, which warms up by itself."""
    service = Service(folder)
    try:
        words = ["taskset", "-c", CLIENT_CORE, str(PEERS / "peer"), "cxf", "bench", "--url", service.url]
        words += ["--sequences", "1", "--count", str(rows), "--warm", str(warm)]
        ran = subprocess.run(
            words, capture_output=True, text=True, timeout=WAIT_S, check=False, env={**os.environ, **JAVA}
        )  # fmt: skip
        if ran.returncode != 0:
            raise RuntimeError(f"the client failed: {ran.stdout[-300:]}{ran.stderr[-1500:]}")
        found = next(json.loads(line) for line in ran.stdout.splitlines() if '"bench"' in line)
        return float(found["per_second"])
    finally:
        stop(service.process)


def run(rounds: int, *, quick: bool) -> Iterator[Figure]:
    need_cores()
    build()
    rows, warm = (300, 50) if quick else (ROWS, WARM)
    mine: list[float] = []
    other: list[float] = []
    with scratch("wsrm-out") as folder:
        for number in range(rounds):
            mine.append(ours(folder / str(number), rows, warm))
            other.append(theirs(folder, rows, warm))
            say(f"wsrm_out {number + 1}/{rounds}: {mine[-1]:,.0f}/s; CXF's client {other[-1]:,.0f}/s; load {load()}")
    yield beside("wsrm_out", "messages/s", mine, other, "CXF client", at_least=0.5)
