"""Measure durable ingest on one core: from a POST to a synced 200.

The figures are compared with two endpoints that do nothing and with RabbitMQ's quorum queue. Bodies
have 1 KB. Each of 32 connections has one POST in flight, because an SRMP sender has no more. The
server runs on core 0, the client on core 1. Every round runs every side once. Ratios are taken
inside a round, so that a busy machine affects both sides equally. Where wrk is not installed our
own senders make the load (:mod:`benchmarks.posting`), and nothing is judged.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import (
    PEERS,
    SERVER_CORE,
    Figure,
    NotHere,
    Plan,
    QueueManager,
    beside,
    cpu_seconds,
    free_port,
    load,
    median,
    need_cores,
    quantile,
    say,
    scratch,
    start,
    stop,
    wait_port,
)
from benchmarks.peers.rabbitmq import RabbitMQ
from benchmarks.posting import Load

CONNECTIONS = 32
POST_BYTES = 2300
"""Size of one POST with head, envelope and body, as ``post.lua`` writes it, in bytes."""

SLICES = 5
SLICE_S = 0.5
UVICORN_RATIO_MIN = 0.38
RABBITMQ_RATIO_MIN = 1.5
CPU_US_MAX = 40
P99_MS_MAX = 20

Side = Callable[[], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Posts:
    """Posts to one side: first to warm up, then for the measurement."""

    load: Load
    warm_s: float
    seconds: float

    def to(self, endpoint: str, group: int) -> dict[str, float]:
        """Return rate, times, CPU for each message, and all acknowledged messages.

        The CPU is that of the process group ``group``.
        """
        warm = self.load(endpoint, CONNECTIONS, self.warm_s)
        before = cpu_seconds(group)
        got = self.load(endpoint, CONNECTIONS, self.seconds)
        cpu = (cpu_seconds(group) - before) / got["requests"] * 1e6
        return got | {"cpu_us": cpu, "all": warm["requests"] + got["requests"]}


def noop(kind: str, posts: Posts) -> dict[str, float]:
    port = free_port()
    server = start([sys.executable, str(PEERS / "noop.py"), kind, str(port)], SERVER_CORE)
    try:
        wait_port(port, server)
        return posts.to(f"http://127.0.0.1:{port}", server.pid)
    finally:
        stop(server)


def ours(posts: Posts) -> dict[str, float]:
    """Measure a fresh queue manager. Each acknowledged message must be in its log."""
    with scratch("ingest") as folder:
        server = QueueManager(folder)
        try:
            got = posts.to(server.url, server.process.pid)
            if server.end_of() < got["all"]:
                raise RuntimeError(f"{got['all']:.0f} acknowledged, {server.end_of()} in the log")
            return got
        finally:
            server.close()


def run(plan: Plan) -> Iterator[Figure]:
    need_cores(plan)
    posts = Posts(Load(plan), 0.2 if plan.quick else 1.0, 0.5 if plan.quick else 3.0)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch("rabbit"))
        rabbit = plan.peer("RabbitMQ", lambda: RabbitMQ(folder, SERVER_CORE))
        sides: dict[str, Side] = {
            "uvicorn": lambda: noop("uvicorn", posts),
            "protocol": lambda: noop("protocol", posts),
            "ours": lambda: ours(posts),
        }
        if isinstance(rabbit, RabbitMQ):
            stack.callback(rabbit.close)
            # The first messages warm the broker up.
            rabbit.send(CONNECTIONS, 2)
            broker = rabbit
            sides["rabbitmq"] = lambda: broker.send(CONNECTIONS, max(2, int(posts.seconds)))
        got = _rounds("ingest", sides, plan.rounds)
    yield from _figures(got, rabbit if isinstance(rabbit, NotHere) else None, posts.load.lacking)


def _rounds(title: str, sides: dict[str, Side], rounds: int) -> dict[str, list[dict[str, float]]]:
    got: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, side in sides.items():
            result = side()
            got[name].append(result)
            say(
                f"{title} round {number + 1} {name:9s} {result['rate']:9,.0f}/s "
                f"p50 {result['p50']:.2f} p99 {result['p99']:.2f} ms "
                f"cpu {result.get('cpu_us', 0):.1f} us load {load()}"
            )
    return got


def _figures(
    got: dict[str, list[dict[str, float]]], no_rabbit: NotHere | None, no_wrk: NotHere | None
) -> Iterator[Figure]:
    """Yield the figures.

    With ``no_wrk`` nothing is judged, because load by our own senders does not measure the servers.
    """

    def column(name: str, key: str) -> list[float]:
        return [result[key] for result in got[name]]

    rates, unit = column("ours", "rate"), "messages/s"
    uvicorn = no_wrk or column("uvicorn", "rate")
    yield beside(
        "ingest_vs_uvicorn", unit, rates, uvicorn, "uvicorn no-op", at_least=UVICORN_RATIO_MIN
    )
    rabbit = no_wrk or no_rabbit or column("rabbitmq", "rate")
    yield beside(
        "ingest_vs_rabbitmq", unit, rates, rabbit, "RabbitMQ quorum", at_least=RABBITMQ_RATIO_MIN
    )
    cpu, floor = column("ours", "cpu_us"), column("protocol", "cpu_us")
    ratio = median([a / b for a, b in zip(cpu, floor, strict=True)])
    note = str(no_wrk or "")
    yield Figure(
        name="ingest_cpu",
        value=median(cpu),
        unit="us CPU/message",
        reference=median(floor),
        reference_name="bare Protocol no-op",
        ratio=ratio,
        target=f"value <= {CPU_US_MAX}",
        ok=None if no_wrk else median(cpu) <= CPU_US_MAX,
        note=note,
    )
    p99 = median(column("ours", "p99"))
    ok = None if no_wrk else p99 <= P99_MS_MAX
    yield Figure(
        name="ack_p99_32", value=p99, unit="ms", target=f"value <= {P99_MS_MAX}", ok=ok, note=note
    )


def acknowledgement(plan: Plan) -> Iterator[Figure]:
    """Measure one connection with one POST in flight, compared with one append and fdatasync.

    The bare append writes as many bytes to the same disk. Both are measured alternately in short
    slices, because a disk that others use changes from second to second.
    """
    need_cores(plan)
    load_, seconds = Load(plan), 0.3 if plan.quick else 1.0
    values, bare = [], []
    for number in range(plan.rounds):
        with scratch("ack") as folder:
            server = QueueManager(folder)
            try:
                # The first messages warm the queue manager up.
                load_(server.url, 1, seconds)
                slices = range(plan.size(SLICES, 1))
                pairs = [
                    (_append(folder, SLICE_S), load_(server.url, 1, seconds)["p50"]) for _ in slices
                ]
            finally:
                server.close()
        bare.append(median([pair[0] for pair in pairs]))
        values.append(median([pair[1] for pair in pairs]))
        say(
            f"ack round {number + 1}: p50 {values[-1]:.3f} ms, append + fdatasync "
            f"{bare[-1]:.3f} ms load {load()}"
        )
    value, reference = median(values), median(bare)
    ok = median([a - (2 * b + 0.5) for a, b in zip(values, bare, strict=True)]) <= 0
    yield Figure(
        name="ack_p50_1",
        value=value,
        unit="ms",
        reference=reference,
        reference_name="append + fdatasync",
        ratio=value / reference,
        target="value <= 2 x reference + 0.5 ms",
        ok=None if load_.lacking else ok,
        note=str(load_.lacking or ""),
    )


def _append(folder: Path, seconds: float) -> float:
    descriptor = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    data, took = b"x" * POST_BYTES, []
    end = time.perf_counter() + seconds
    try:
        while (began := time.perf_counter()) < end:
            os.write(descriptor, data)
            os.fdatasync(descriptor)
            took.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
    return quantile(took, 0.5) * 1e3
