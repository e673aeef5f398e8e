"""Durable ingest on one core: POST to synced 200, beside two endpoints that do nothing and RabbitMQ's quorum queue.

1 KB bodies, 32 connections with one POST in flight each (an SRMP sender has no more), server on core 0, client on core 1.
Every round runs every side once; ratios are taken inside a round, so that a busy machine spoils both sides alike.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.common import (
    PEERS,
    SERVER_CORE,
    Figure,
    NotHere,
    QueueManager,
    beside,
    cpu_seconds,
    free_port,
    load,
    median,
    need,
    need_cores,
    quantile,
    say,
    scratch,
    start,
    stop,
    wait_port,
    wrk,
)
from benchmarks.peers.rabbitmq import RabbitMQ

CONNECTIONS = 32
POST_BYTES = 2300
"""Head, envelope and body of one POST, as ``post.lua`` writes it."""

SLICES = 5
SLICE_S = 0.5
CPU_US_MAX = 60
P99_MS_MAX = 20

Side = Callable[[], dict[str, float]]


def noop(kind: str, seconds: float) -> dict[str, float]:
    port = free_port()
    server = start([sys.executable, str(PEERS / "noop.py"), kind, str(port)], SERVER_CORE)
    try:
        wait_port(port, server)
        return _measured(f"http://127.0.0.1:{port}/msmq/private$/simpleq", server.pid, seconds)
    finally:
        stop(server)


def ours(seconds: float) -> dict[str, float]:
    """A fresh queue manager for each round; what it acknowledged must be in its log."""
    with scratch("ingest") as folder:
        server = QueueManager(folder)
        try:
            got = _measured(server.target, server.process.pid, seconds)
            if server.end_of() < got["all"]:
                raise RuntimeError(f"{got['all']:.0f} acknowledged, {server.end_of()} in the log")
            return got
        finally:
            server.close()


def _measured(target: str, group: int, seconds: float) -> dict[str, float]:
    warm = wrk(target, CONNECTIONS, 1)
    before = cpu_seconds(group)
    got = wrk(target, CONNECTIONS, seconds)
    return got | {"cpu_us": (cpu_seconds(group) - before) / got["requests"] * 1e6, "all": warm["requests"] + got["requests"]}


def run(rounds: int, *, quick: bool) -> Iterator[Figure]:
    need("wrk")
    need_cores()
    seconds = 1.0 if quick else 3.0
    with scratch("rabbit") as folder:
        rabbit, lacking = None, ""
        try:
            rabbit = RabbitMQ(folder, SERVER_CORE)
            rabbit.send(CONNECTIONS, 2)  # warm
        except NotHere as reason:
            lacking = str(reason)
        sides: dict[str, Side] = {
            "uvicorn": lambda: noop("uvicorn", seconds),
            "protocol": lambda: noop("protocol", seconds),
            "ours": lambda: ours(seconds),
        }
        if rabbit:
            broker = rabbit
            sides["rabbitmq"] = lambda: broker.send(CONNECTIONS, max(2, int(seconds)))
        try:
            got = _rounds("ingest", sides, rounds)
        finally:
            if rabbit:
                rabbit.close()
    yield from _figures(got, lacking)


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


def _figures(got: dict[str, list[dict[str, float]]], lacking: str) -> Iterator[Figure]:
    def column(name: str, key: str) -> list[float]:
        return [result[key] for result in got[name]]

    rates, unit = column("ours", "rate"), "messages/s"
    yield beside("ingest_vs_uvicorn", unit, rates, column("uvicorn", "rate"), "uvicorn no-op", at_least=0.6)
    if lacking:
        yield Figure(name="ingest_vs_rabbitmq", value=median(rates), unit=unit, target="ratio >= 1.2", note=lacking)
    else:
        yield beside("ingest_vs_rabbitmq", unit, rates, column("rabbitmq", "rate"), "RabbitMQ quorum", at_least=1.2)
    cpu, floor = column("ours", "cpu_us"), column("protocol", "cpu_us")
    ratio = median([a / b for a, b in zip(cpu, floor, strict=True)])
    yield Figure(
        name="ingest_cpu",
        value=median(cpu),
        unit="us CPU/message",
        reference=median(floor),
        reference_name="bare Protocol no-op",
        ratio=ratio,
        target=f"value <= {CPU_US_MAX}",
        ok=median(cpu) <= CPU_US_MAX,
    )
    p99 = median(column("ours", "p99"))
    yield Figure(name="ack_p99_32", value=p99, unit="ms", target=f"value <= {P99_MS_MAX}", ok=p99 <= P99_MS_MAX)


def acknowledgement(rounds: int, *, quick: bool) -> Iterator[Figure]:
    """One connection, one POST in flight, against one bare append + fdatasync of as many bytes on the same disk.

    Both are measured in short slices, turn about, because a disk that others use changes from second to second.
    """
    need("wrk")
    need_cores()
    values, bare = [], []
    for number in range(rounds):
        with scratch("ack") as folder:
            server = QueueManager(folder)
            try:
                wrk(server.target, 1, 1)  # warm
                pairs = [(_append(folder, SLICE_S), wrk(server.target, 1, 1)["p50"]) for _ in range(2 if quick else SLICES)]
            finally:
                server.close()
        bare.append(median([pair[0] for pair in pairs]))
        values.append(median([pair[1] for pair in pairs]))
        say(f"ack round {number + 1}: p50 {values[-1]:.3f} ms, append + fdatasync {bare[-1]:.3f} ms load {load()}")
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
        ok=ok,
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
