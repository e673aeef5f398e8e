"""Measure sending on one core: rows of the outbox until their stream receipt arrives.

The comparison is a bare loop that posts the same bytes. Bodies have 1 KB, in one stream to one
peer. The sender (queue manager and sender process) and the bare loop run on core 0, the peer on
core 1. The peer costs next to nothing, so that the sender shows. The bare loop knows all messages
beforehand, keeps nothing, and ends with the last 200. Ours ends with the receipt, which arrives
half a second after the last message.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import (
    CLIENT_CORE,
    PEERS,
    SERVER_CORE,
    Figure,
    Plan,
    QueueManager,
    beside,
    cpu_seconds,
    load,
    median,
    need_cores,
    say,
    scratch,
    start,
    stop,
)

BODY_BYTES = 1024
ROWS = 10_000
WARM = 500
WAITING = 1_000_000
STAGE_ROWS = 250_000
POLL_S = 0.02
GUID = "bbbbbbbb-0000-4000-8000-000000000001"


class Peer:
    """Runs ``peers/receiver.py`` on the client's core."""

    def __init__(self) -> None:
        self.process = start(
            [sys.executable, str(PEERS / "receiver.py")], CLIENT_CORE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.port = int(json.loads(self.process.stdout.readline())["port"])
        self.url = f"http://127.0.0.1:{self.port}/msmq/private$/in"

    def posts(self) -> int:
        """Return how many messages the peer has received.

        Raises :class:`RuntimeError` if a message arrived twice.
        """
        import requests

        found = requests.get(f"http://127.0.0.1:{self.port}/", timeout=10).json()
        if found["doubled"]:
            raise RuntimeError(f"{found['doubled']} messages came again")
        return int(found["posts"])


def commit(server: QueueManager, url: str, rows: int, batch: str) -> float:
    """Stage and commit ``rows`` rows, and return the seconds of the commit."""
    import pyarrow as pa
    import requests

    base, stages = f"{server.api}/v1/outbox/bench/{batch}", []
    for partition, first in enumerate(range(0, rows, STAGE_ROWS)):
        count = min(STAGE_ROWS, rows - first)
        body = [b"%010d" % n + b"x" * (BODY_BYTES - 10) for n in range(first, first + count)]
        table = pa.table(
            {"body": pa.array(body, pa.binary()), "destination": pa.array([url] * count)}
        )
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=10_000)
        answer = requests.post(
            f"{base}/stage?partition={partition}&attempt=0", data=sink.getvalue(), timeout=300
        )
        answer.raise_for_status()
        stages.append(answer.json()["stage"])
    began = time.perf_counter()
    answer = requests.post(f"{base}/commit", json={"stages": stages}, timeout=900)
    answer.raise_for_status()
    return time.perf_counter() - began


def entry(server: QueueManager, url: str) -> dict[str, Any]:
    """Return the entry of a destination in ``status``."""
    import requests

    found = requests.get(f"{server.api}/v1/status", timeout=30).json()["outgoing"]
    return next((each for each in found if each["destination"] == url), {})


def decide(server: QueueManager, url: str, action: str) -> None:
    """Pause or resume a destination."""
    import requests

    path = f"{server.api}/v1/outgoing/{requests.utils.quote(url, safe='')}/{action}"
    requests.post(path, timeout=30).raise_for_status()


def warm(server: QueueManager, url: str) -> None:
    """Send a few messages, so that the destination is known and connected."""
    commit(server, url, WARM, "warm")
    until(lambda: entry(server, url).get("last_acknowledged") == WARM, 120)


def until(condition: Any, seconds: float = 300.0) -> None:
    """Wait until ``condition`` is true, checking every POLL_S seconds.

    Raises :class:`RuntimeError` after ``seconds``.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"it did not happen in {seconds} s")
        time.sleep(POLL_S)


def ours(folder: Path, rows: int, down: list[str]) -> tuple[float, float]:
    """Return the seconds until everything is acknowledged, and CPU microseconds a message.

    The time begins at the end of a hold. ``down`` are destinations that do not answer meanwhile.
    """
    folder.mkdir()
    peer = Peer()
    server = QueueManager(folder)
    try:
        warm(server, peer.url)
        for number, url in enumerate(down):
            commit(server, url, rows, f"down-{number}")
        decide(server, peer.url, "pause")
        commit(server, peer.url, rows, "rows")
        before, began = cpu_seconds(server.process.pid), time.perf_counter()
        decide(server, peer.url, "resume")
        until(lambda: peer.posts() >= rows + WARM)
        until(lambda: (e := entry(server, peer.url))["queued"] + e["awaiting_stream_receipt"] == 0)
        return time.perf_counter() - began, (cpu_seconds(server.process.pid) - before) / rows * 1e6
    finally:
        server.close()
        stop(peer.process)


def bare(folder: Path, rows: int) -> float:
    """Return the seconds of a loop that posts the same bytes to the same peer."""
    from srmp_spark.message import Message, StreamId, StreamPosition
    from srmp_spark.srmp.codec.encoder import encode, http_head

    peer = Peer()
    file = folder / "requests"
    try:
        with file.open("wb") as out:
            for n in range(1, rows + 1):
                place = StreamPosition(
                    StreamId(GUID, 1), n, n - 1, n == 1, f"{peer.url}" if n == 1 else None
                )
                message = Message(
                    peer.url,
                    "MSMQ:",
                    GUID,
                    n,
                    has_msmq=True,
                    durable=True,
                    priority=0,
                    sent_at=1_790_000_000_000_000,
                    body=b"%010d" % n + b"x" * (BODY_BYTES - 10),
                    stream=place,
                    source_qm=GUID,
                    first_in_transaction=True,
                    last_in_transaction=True,
                )
                content_type, content = encode(message, boundary="MSMQ - SOAP boundary, 1")
                host = f"127.0.0.1:{peer.port}"
                request = http_head("/msmq/private$/in", host, content_type, len(content)) + content
                out.write(b"%08d" % len(request) + request)
        line = [sys.executable, str(PEERS / "receiver.py"), "bare", str(peer.port), str(file)]
        done = subprocess.run(
            ["taskset", "-c", SERVER_CORE, *line], capture_output=True, text=True, check=True
        )
        return float(json.loads(done.stdout)["seconds"])
    finally:
        stop(peer.process)


def run(plan: Plan) -> Iterator[Figure]:
    """Yield the figures of sending, alone and with destinations that are down meanwhile."""
    need_cores(plan)
    rows = plan.size(ROWS, 1_000)
    sides: dict[str, list[float]] = {"ours": [], "bare": [], "down": [], "cpu": []}
    for number in range(plan.rounds):
        with scratch("send") as folder:
            sides["bare"].append(bare(folder, rows))
            seconds, cpu = ours(folder / "a", rows, [])
            sides["ours"].append(seconds)
            sides["cpu"].append(cpu)
            with _unreachable() as urls:
                sides["down"].append(ours(folder / "b", rows, urls)[0])
        told = " ".join(f"{name} {found[-1]:.3f}" for name, found in sides.items())
        say(f"send round {number + 1} {told} load {load()}")
    rates = {
        name: [rows / seconds for seconds in found]
        for name, found in sides.items()
        if name != "cpu"
    }
    yield beside(
        "send_eoio",
        "messages/s",
        rates["ours"],
        rates["bare"],
        "bare keep-alive loop",
        at_least=0.5,
    )
    yield Figure(name="send_cpu", value=median(sides["cpu"]), unit="us CPU/message")
    yield beside("send_one_down", "s", sides["down"], sides["ours"], "all up", at_most=1.1)


@contextlib.contextmanager
def _unreachable() -> Iterator[list[str]]:
    """Provide URLs of a port without a listener, and of a port that accepts and never answers."""
    with socket.socket() as nobody, socket.socket() as mute:
        for each in (nobody, mute):
            each.bind(("127.0.0.1", 0))
        mute.listen(64)
        yield [
            f"http://127.0.0.1:{each.getsockname()[1]}/msmq/private$/down"
            for each in (nobody, mute)
        ]


def backlog(plan: Plan) -> Iterator[Figure]:
    """Yield the rate of sending with ROWS rows waiting, and with a million."""
    need_cores(plan)
    few, waiting = plan.size(ROWS, 1_000), plan.size(WAITING, 5_000)
    found: dict[int, list[float]] = {few: [], waiting: []}
    memory: list[float] = []
    for number in range(plan.rounds):
        for count, rates in found.items():
            with scratch("backlog") as folder:
                rate, resident = _rate(folder, count, few)
                rates.append(rate)
                memory.append(resident)
        told = " ".join(f"{n}: {rates[-1]:,.0f}/s" for n, rates in found.items())
        say(f"backlog round {number + 1} {told} load {load()}")
    unit = "messages/s"
    yield beside("send_backlog", unit, found[waiting], found[few], f"{few:,} waiting", at_least=0.9)
    yield Figure(
        name="send_memory",
        value=max(memory),
        unit="MB",
        target="value <= 300",
        ok=max(memory) <= 300,
    )


def _rate(folder: Path, count: int, first: int) -> tuple[float, float]:
    """Return the rows a second while the ``first`` of ``count`` rows are sent, and memory in MB.

    The memory is the largest of queue manager and sender together.
    """
    peer = Peer()
    server = QueueManager(folder)
    try:
        warm(server, peer.url)
        decide(server, peer.url, "pause")
        took = commit(server, peer.url, count, "rows")
        say(f"commit of {count:,} rows: {took:.2f} s")
        began = time.perf_counter()
        decide(server, peer.url, "resume")
        until(lambda: peer.posts() >= first + WARM)
        return first / (time.perf_counter() - began), _resident(server.pid)
    finally:
        server.close()
        stop(peer.process)


def _resident(pid: int) -> float:
    """Return VmHWM of a process and its sender process, in MB."""
    total = 0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for each in [str(pid), *children]:
        if each != str(pid) and b"sender.process" not in Path(f"/proc/{each}/cmdline").read_bytes():
            continue
        lines = Path(f"/proc/{each}/status").read_text().splitlines()
        total += int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return total / 1024
