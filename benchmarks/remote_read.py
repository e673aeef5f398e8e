"""Remote read (MQRR): peeks of 4 KB messages over one connection on loopback, beside go-msrpc's and impacket's clients.

The queue manager runs on core 0 and serves all three, each client on core 1. Ours is an executor's: it walks the queue with a
cursor, a call for each message, and makes Arrow rows with all columns of it. The others make no rows: go-msrpc peeks at the
head of the queue again and again, impacket walks. What a client needs to start is not counted. Four partitions are four queues
of a quarter each, read by four processes at once, on the core of the one.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.common import CLIENT_CORE, ROOT, Figure, NotHere, QueueManager, beside, load, median, need_cores, say, scratch

BODY_BYTES = 4096
ROWS = 20_000
STARTED_S = 2.0
"""After a queue manager is ready its other processes still load what they need, on the same core."""
LOOK_S = 0.1
"""Between two looks at how much was pulled: each is a request to the puller."""
FEW = 400
"""Of the queue that impacket walks: it takes milliseconds for each."""
GO_CALLS = 3_000
ORDERS, SHORT, EMPTY = "private$/orders", "private$/short", "private$/empty"
PARTITIONS = 4
PEERS = ROOT / "tests" / "peers" / "mqrr"
WAIT_S = 600.0


def fill(server: QueueManager, queue: str, rows: int) -> None:
    """Messages of different bodies."""
    from srmp_spark.client.api import QueueManagerClient

    client = QueueManagerClient(server.api)
    client.put_queue(queue)
    for first in range(0, rows, 500):
        bodies = [b"%08d" % n + os.urandom(BODY_BYTES - 8) for n in range(first, min(first + 500, rows))]
        client.send(queue, [{"body_base64": base64.b64encode(body).decode(), "label": "a label"} for body in bodies])


def client(rpc: str, queue: str) -> dict[str, float]:
    """What an executor does with one queue: calls, seconds, CPU seconds."""
    from srmp_spark.spark.mqrr_options import parse_remote
    from srmp_spark.spark.mqrr_source import MqrrBatchReader

    reader = MqrrBatchReader(parse_remote({"host": rpc, "queue": "DIRECT=OS:machine2\\" + queue.replace("/", "\\")}))
    (partition,) = reader.partitions()
    importlib.import_module("srmp_spark.rows.decode")  # loads Arrow, which is no part of a call
    print("ready", flush=True)
    sys.stdin.readline()  # all partitions begin together
    began, used, rows = time.perf_counter(), time.process_time(), 0
    for batch in reader.read(partition):
        rows += batch.num_rows
    ended = time.perf_counter()
    return {"calls": rows, "began": began, "ended": ended, "seconds": ended - began, "cpu": time.process_time() - used}


def pull(folder: Path, rpc: str, queue: str, rows: int) -> dict[str, float]:
    """A second queue manager on the client's core takes the queue over (``move``): from the subscription to the last row.

    The messages lay here before anything was measured, as a backlog does. Each is stored twice there and removed here, with the
    syncs of both.
    """
    from srmp_spark.client.subscriptions import SubscriptionsClient

    folder.mkdir()
    puller = QueueManager(folder, CLIENT_CORE)
    try:
        time.sleep(STARTED_S)
        api = SubscriptionsClient(puller.api)
        began, used = time.perf_counter(), _cpu(puller.pid)
        api.subscribe({"host": rpc, "queue": "DIRECT=OS:machine2\\" + queue.replace("/", "\\"), "to": "private$/taken"})
        while (status := api.subscriptions()[0])["pulled"] < rows:
            if time.perf_counter() - began > WAIT_S:
                raise RuntimeError(f"{rows} messages were not pulled in {WAIT_S:g} s: {status}")
            time.sleep(LOOK_S)
        return {"seconds": time.perf_counter() - began, "cpu": _cpu(puller.pid) - used}
    finally:
        puller.close()


def _cpu(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def on_client_core(*words: str) -> str:
    """Its standard output; it must end well."""
    ran = subprocess.run(
        ["taskset", "-c", CLIENT_CORE, *words],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        cwd=ROOT,
        check=False,
        input="\n",
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{words[0]}: {ran.stdout[-500:]}{ran.stderr[-1500:]}")
    return ran.stdout


def ours(rpc: str, rows: int) -> dict[str, float]:
    found = json.loads(on_client_core(sys.executable, "-m", "benchmarks.remote_read", rpc, ORDERS).splitlines()[-1])
    if found["calls"] != rows:
        raise RuntimeError(f"{found['calls']} rows of {rows}")
    return dict(found)


def at_once(rpc: str, queues: list[str], rows: int) -> float:
    """Calls a second of as many executors together; ``rows``: of all queues."""
    started = [
        subprocess.Popen(
            ["taskset", "-c", CLIENT_CORE, sys.executable, "-m", "benchmarks.remote_read", rpc, queue], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for queue in queues
    ]  # fmt: skip
    for each in started:
        assert each.stdout is not None
        if each.stdout.readline() != "ready\n":
            raise RuntimeError("a client of a partition did not start")
    for each in started:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    found = [json.loads(each.communicate(timeout=WAIT_S)[0].splitlines()[-1]) for each in started]
    if sum(each["calls"] for each in found) != rows:
        raise RuntimeError(f"{[each['calls'] for each in found]} rows of {rows}")
    return float(rows / (max(each["ended"] for each in found) - min(each["began"] for each in found)))


def go(rpc: str, calls: int) -> float:
    """Calls a second of go-msrpc."""
    built = subprocess.run([PEERS / "build.sh"], capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise NotHere(f"go-msrpc's client cannot be built (Go 1.24.1 or newer): {built.stderr.strip()[-200:]}")
    queue = "OS:machine2\\" + ORDERS.replace("/", "\\")
    return float(
        json.loads(on_client_core(built.stdout.strip(), "bench", "-n", str(calls), "-queue", queue, rpc).splitlines()[-1])[
            "per_second"
        ]
    )


def impacket(rpc: str) -> float:
    """Calls a second of impacket: a walk of a short queue less that of an empty one."""
    if subprocess.run(
        [sys.executable, "-c", "import impacket.dcerpc.v5.transport"], capture_output=True, check=False
    ).returncode:
        raise NotHere("impacket is missing: pip install '.[interop]'")
    seconds = []
    for queue in (EMPTY, SHORT):
        began = time.perf_counter()
        on_client_core(
            sys.executable, str(PEERS / "impacket_client.py"), "peek-all", rpc, "OS:machine2\\" + queue.replace("/", "\\")
        )
        seconds.append(time.perf_counter() - began)
    return FEW / (seconds[1] - seconds[0])


def serve(folder: Path) -> tuple[QueueManager, str]:
    folder.mkdir()
    server = QueueManager(folder, options=("--rpc", "127.0.0.1:0"))
    return server, str(server.ready["rpc"])


def _beside(found: dict[str, list[float]], missing: dict[str, str], name: str, measured: Callable[[], float]) -> None:
    try:
        found[name].append(measured())
    except NotHere as why:
        missing[name] = str(why)


def run(rounds: int, *, quick: bool) -> Iterator[Figure]:
    need_cores()
    rows, calls = (2_000, 500) if quick else (ROWS, GO_CALLS)
    mine: list[float] = []
    cpu: list[float] = []
    pulled: list[float] = []
    pull_cpu: list[float] = []
    together: list[float] = []
    parts = [f"private$/part{number}" for number in range(PARTITIONS)]
    pulled_queues = [f"private$/pulled{number}" for number in range(rounds)]
    others: dict[str, list[float]] = {"go-msrpc": [], "impacket": []}
    missing: dict[str, str] = {}
    with scratch("remote-read") as folder:
        server, rpc = serve(folder / "one")
        try:
            for queue, count in (
                (ORDERS, rows),
                (SHORT, FEW),
                (EMPTY, 0),
                *((part, rows // PARTITIONS) for part in parts),
                *((queue, rows) for queue in pulled_queues),
            ):
                fill(server, queue, count)
            ours(rpc, rows)  # the page cache, the priorities
            for number in range(rounds):
                found = ours(rpc, rows)
                mine.append(rows / found["seconds"])
                cpu.append(found["cpu"] / rows * 1e6)
                together.append(at_once(rpc, parts, rows // PARTITIONS * PARTITIONS))
                taken = pull(folder / f"puller{number}", rpc, pulled_queues[number], rows)
                pulled.append(rows / taken["seconds"])
                pull_cpu.append(taken["cpu"] / rows * 1e6)
                _beside(others, missing, "go-msrpc", lambda: go(rpc, calls))
                _beside(others, missing, "impacket", lambda: impacket(rpc))
                theirs = ", ".join(f"{name} {each[-1]:,.0f}" for name, each in others.items() if each)
                say(
                    f"remote_read {number + 1}/{rounds}: {mine[-1]:,.0f}/s, {cpu[-1]:.0f} us of CPU; "
                    f"four partitions {together[-1]:,.0f}/s; "
                    f"pulled {pulled[-1]:,.0f}/s, {pull_cpu[-1]:.0f} us of CPU; {theirs}; load {load()}"
                )
        finally:
            server.close()
    rate = median(mine)
    yield Figure(name="peek_rate", value=rate, unit="calls/s", target=">= 8000", ok=rate >= 8_000,
                 note=f"row included, {median(cpu):.0f} us of CPU a call in the client")  # fmt: skip
    yield Figure(name="peek_four_partitions", value=median(together), unit="calls/s", reference=rate,
                 ratio=median([a / b for a, b in zip(together, mine, strict=True)]), reference_name="1 partition",
                 note="client processes share a core")  # fmt: skip
    ratio = median([a / b for a, b in zip(pulled, mine, strict=True)])
    yield Figure(name="pull_rate", value=median(pulled), unit="messages/s", target=">= 0.5 x peek_rate", ok=ratio >= 0.5,
                 note=f"{ratio:.2f} x peek_rate; {median(pull_cpu):.0f} us of CPU a message in the puller")  # fmt: skip
    for name, figure, least in (("go-msrpc", "peek_vs_go", 5.0), ("impacket", "peek_vs_impacket", 50.0)):
        if name in missing:
            yield Figure(name=figure, value=None, unit="calls/s", note=missing[name])
        else:
            yield beside(figure, "calls/s", mine, others[name], name, at_least=least)


if __name__ == "__main__":
    print(json.dumps(client(*sys.argv[1:])))
