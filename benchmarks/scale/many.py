"""Measure what must not grow with the number of queues and streams.

The figures are the CPU of an idle queue manager, its start, and its answers about itself. They are
measured with ``--state``, at the second start, when the tables exist. CPU time comes from /proc,
for all processes of the queue manager: it stays comparable on a machine that others use too.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.common import Figure, Plan, QueueManager, cpu_seconds, load, median, say, scratch
from benchmarks.memory import Memory
from benchmarks.scale.many_prefill import fill

QUEUES = 10_000
IDLE_SECONDS = 40.0
"""Seconds of idleness. They include a run of retention and eight intervals of the publisher."""
IDLE_MAX = 0.03
"""Largest share of a core that an idle queue manager may use."""
START_MAX_S = 10.0
SUMMARY_MAX_MS = 50.0
HEALTH_MAX_MS = 100.0
"""Longest allowed answer of /healthz while the largest answers are made, in milliseconds.

Without slices /healthz would wait for the end of each large answer.
"""
SUMMARIES = 20
LARGE = ("/v1/status", "/metrics", "/v1/queues")
PUBLISHED_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The measured values of one queue manager."""

    start_s: float
    start_cpu_s: float
    idle: float
    """CPU of all processes, as a share of a core."""
    summary_ms: list[float]
    summary_bytes: int
    summary_cpu_ms: float
    """CPU of all processes for one summary, without the client."""
    health_ms: float
    large_ms: dict[str, float]
    memory: str


class Api:
    """Calls the API as one client, over one connection."""

    def __init__(self, server: QueueManager) -> None:
        parts = urlsplit(server.api)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)

    def get(self, path: str) -> tuple[bytes, float]:
        """Return the body of the answer, and its time in milliseconds."""
        began = time.perf_counter()
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {body[:200]!r}")
        return body, (time.perf_counter() - began) * 1000

    def close(self) -> None:
        """Close the connection to the API."""
        self._connection.close()

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[QueueManager]:
    """Provide a queue manager with the data directory and the Delta state below ``folder``."""
    server = QueueManager(folder, core=None, options=("--state", str(folder / "state")))
    try:
        yield server
    finally:
        server.close()


def measure(server: QueueManager, start_s: float, idle_seconds: float) -> Found:
    """Measure a queue manager that has just started."""
    group = server.process.pid
    start_cpu_s = cpu_seconds(group)
    wait_until_published(server)
    before = cpu_seconds(group)
    # The queue manager is idle meanwhile, and its CPU is measured.
    time.sleep(idle_seconds)
    idle = (cpu_seconds(group) - before) / idle_seconds
    with Api(server) as api:
        before = cpu_seconds(group)
        answers = [api.get("/v1/status?summary=1") for _ in range(SUMMARIES)]
        summary_cpu_ms = (cpu_seconds(group) - before) / SUMMARIES * 1000
        health_ms, large_ms = _health(server, api)
    memory = Memory(group).by_process()
    return Found(
        start_s=start_s,
        start_cpu_s=start_cpu_s,
        idle=idle,
        summary_ms=[took for _, took in answers],
        summary_bytes=len(answers[0][0]),
        summary_cpu_ms=summary_cpu_ms,
        health_ms=health_ms,
        large_ms=large_ms,
        memory=memory,
    )


def wait_until_published(server: QueueManager) -> dict[str, Any]:
    """Wait until the Delta state holds everything that was committed, and return the summary."""
    deadline = time.monotonic() + PUBLISHED_SECONDS_MAX
    with Api(server) as api:
        while True:
            summary: dict[str, Any] = json.loads(api.get("/v1/status?summary=1")[0])
            if summary["state"]["position"] > 0 and summary["state"]["lag_seconds"] == 0:
                return summary
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"not published after {PUBLISHED_SECONDS_MAX:.0f} s: {summary['state']}"
                )
            time.sleep(0.2)


def _health(server: QueueManager, api: Api) -> tuple[float, dict[str, float]]:
    """Ask for the largest answers, and for /healthz all the time.

    Return the longest time of /healthz and the time of each large answer, in milliseconds.
    """
    over = threading.Event()
    took: list[float] = []

    def probe() -> None:
        with Api(server) as probing:
            while not over.is_set():
                took.append(probing.get("/healthz")[1])
                time.sleep(0.002)

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        large = {path: min(api.get(path)[1] for _ in range(3)) for path in LARGE}
    finally:
        over.set()
        thread.join()
    return max(took), large


def run(plan: Plan) -> Iterator[Figure]:
    """Yield the figures of many queues and streams."""
    with scratch("many") as folder:
        fill(folder / "data", plan.size(QUEUES, QUEUES // 100))
        with serving(folder) as server:
            wait_until_published(server)
        began = time.monotonic()
        with serving(folder) as server:
            found = measure(server, time.monotonic() - began, 1.0 if plan.quick else IDLE_SECONDS)
    say(
        f"many: {found.memory}; load {load()}; CPU of the start {found.start_cpu_s:.1f} "
        f"s; summary {found.summary_bytes} bytes"
    )
    for name, value, unit, most in (
        ("many_idle_cpu", found.idle * 100, "% of a core", IDLE_MAX * 100),
        ("many_start", found.start_s, "s", START_MAX_S),
        ("many_summary", median(found.summary_ms), "ms", SUMMARY_MAX_MS),
        ("many_healthz_worst", found.health_ms, "ms", HEALTH_MAX_MS),
    ):
        yield Figure(name=name, value=value, unit=unit, target=f"<= {most:g}", ok=value <= most)
    for path, took in found.large_ms.items():
        yield Figure(
            name=f"many{path.replace('/', '_')}",
            value=took,
            unit="ms",
            note="no target: it comes in slices",
        )
