"""Reliable sessions in: a CXF client (RM 1.1, one-way, 1 KB) sends to our queue manager, and to CXF's own service.

Server on core 0, client on core 1. A sequence of CXF has one message on the wire: with one sequence the time of an
acknowledgement counts, with eight our part is what the server's core can do. Ours acknowledges what is synced; CXF's service
has no store and writes a line for each message to nowhere. Each run is a fresh client, warmed up by 500 messages a sequence;
the clock ends when everything is acknowledged. Afterwards each message must be a row.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.common import (
    CLIENT_CORE,
    QUEUE,
    ROOT,
    SERVER_CORE,
    Figure,
    NotHere,
    QueueManager,
    beside,
    cpu_seconds,
    free_port,
    load,
    median,
    need_cores,
    say,
    scratch,
    start,
    stop,
    wait_port,
)

PEERS = ROOT / "tests" / "peers" / "wsrm"
COUNTS = {1: 3_000, 8: 1_500}
"""Messages of each sequence that are timed, by the number of sequences."""
WARM = 500
JAVA = {"PEER_JAVA_OPTS": "-XX:TieredStopAtLevel=4 -Xmx512m -Dpeers.log=SEVERE"}
"""Both compilers, and no warnings: the service has two for each message."""
WAIT_S = 300


def build() -> None:
    """The peers, or :class:`NotHere`."""
    try:
        built = subprocess.run([PEERS / "build.sh"], capture_output=True, text=True, check=False, timeout=600)
    except OSError as error:
        raise NotHere(f"CXF cannot be built: {error}") from None
    if built.returncode != 0:
        raise NotHere(f"CXF cannot be built: {(built.stderr or built.stdout).strip()[-300:]}")


def client(url: str, sequences: int, count: int, warm: int) -> float:
    """Messages a second."""
    words = ["taskset", "-c", CLIENT_CORE, str(PEERS / "peer"), "cxf", "bench", "--url", url]
    words += ["--sequences", str(sequences), "--count", str(count), "--warm", str(warm)]
    ran = subprocess.run(
        words, capture_output=True, text=True, timeout=WAIT_S, check=False,
        env={**os.environ, **JAVA},
    )  # fmt: skip
    if ran.returncode != 0:
        raise RuntimeError(f"the client failed: {ran.stdout[-300:]}{ran.stderr[-1500:]}")
    found = next(json.loads(line) for line in ran.stdout.splitlines() if '"bench"' in line)
    return float(found["per_second"])


def ours(folder: Path, sequences: int, count: int, warm: int) -> tuple[float, float]:
    """Rate, and microseconds of CPU a message."""
    folder.mkdir()
    server = QueueManager(folder, options=("--wsrm-buffer", "4096", "--listen-wsrm", "127.0.0.1:0"))
    try:
        used = cpu_seconds(server.process.pid)
        rate = client(f"{server.ready['wsrm']}/wsrm/{QUEUE}", sequences, count, warm)
        messages = sequences * (count + warm)
        if server.end_of() != messages:
            raise RuntimeError(f"{server.end_of()} rows of {messages} messages")
        return rate, (cpu_seconds(server.process.pid) - used) / messages * 1e6
    finally:
        server.close()


def theirs(folder: Path, sequences: int, count: int, warm: int) -> float:
    """CXF's service."""
    port = free_port()
    words = [str(PEERS / "peer"), "cxf", "server", "--port", str(port), "--no-offer"]
    server = start(words, SERVER_CORE, folder / "cxf.log", stdout=subprocess.DEVNULL, env={**os.environ, **JAVA})
    try:
        wait_port(port, server)
        return client(f"http://127.0.0.1:{port}/soap12", sequences, count, warm)
    finally:
        stop(server)


def run(rounds: int, *, quick: bool) -> Iterator[Figure]:
    need_cores()
    build()
    with scratch("wsrm-in") as folder:
        for sequences, count in COUNTS.items():
            warm = WARM
            if quick:
                count, warm = 100, 20
            mine: list[float] = []
            cpu: list[float] = []
            other: list[float] = []
            for number in range(rounds):
                rate, used = ours(folder / f"{sequences}-{number}", sequences, count, warm)
                mine.append(rate)
                cpu.append(used)
                other.append(theirs(folder, sequences, count, warm))
                say(
                    f"wsrm_in {sequences} {number + 1}/{rounds}: {mine[-1]:,.0f}/s, {cpu[-1]:.0f} us of CPU; "
                    f"CXF {other[-1]:,.0f}/s; load {load()}"
                )
            figure = beside(f"wsrm_in_{sequences}", "messages/s", mine, other, "CXF service", at_least=0.5)
            yield replace(figure, note=f"{median(cpu):.0f} us of CPU a message in the server")
