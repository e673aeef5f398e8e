"""Measure a million messages that arrive while Spark is away, and Spark's return.

Messages keep arriving when Spark is back. Nothing may be lost or doubled. Memory must not grow with
the waiting messages, the backlog must shrink fast, and the senders must not notice.

The queue manager and its senders have core 0, Spark and its workers core 1, as if Spark were
another machine. So the figures show what reading the backlog costs acceptance inside the queue
manager (its reader process shares core 0), not which process gets a core. The senders keep one rate
throughout. Spark writes Parquet with every column. Its rows are compared with the senders' ledger,
number by number.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from benchmarks.common import (
    CLIENT_CORE,
    QUEUE,
    SERVER_CORE,
    Figure,
    Plan,
    QueueManager,
    load,
    need_cores,
    say,
    scratch,
)
from benchmarks.memory import Memory
from benchmarks.scale.senders import Ledger, p, senders
from benchmarks.spark_session import on_core, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAITING = 1_000_000
RATE = 5_000
"""Messages a second: a third to a quarter of what one core accepts, or 430 million a day."""
LINEAGES = 1_000
FIRST_NUMBER = 1_000_000_000
WARM_SHARE = 0.1
"""Share of the messages at the beginning that are not measured.

The processes have not warmed up by then, so their times and memory cannot be compared.
"""
GROWTH_MB_MAX = 50
MEMORY_MB_MAX = 300
DRAIN_MIN = 3
P99_RATIO_MAX = 2
RATE_KEPT = 0.95
"""Least share of RATE that the senders must keep while Spark drains.

Slow answers slow the senders down, which must not make the answers look fast.
"""
LOOK_S = 1.0
QUICK_LOOK_S = 0.2
SEALED_S = 5.0
"""Seconds after the first segment appeared.

By then the reader process has loaded what it needs for segments.
"""


def run(plan: Plan) -> Iterator[Figure]:
    """Yield the figures of one run. A run of a million messages takes about five minutes."""
    need_cores(plan)
    messages, rate = plan.size(WAITING, 10_000), RATE
    spark = spark_session(plan)
    with scratch("scale-down") as folder, contextlib.ExitStack() as stack:
        server = QueueManager(folder)
        stack.callback(server.close)
        memory = stack.enter_context(Memory(server.process.pid, 0.25))
        fleet = stack.enter_context(
            senders(
                server.url,
                folder / "ledger",
                lineages=LINEAGES,
                first=FIRST_NUMBER,
                rate=rate,
                core=SERVER_CORE,
            )
        )
        began = time.monotonic()
        warm = sealed = 0.0
        while (end := server.end_of()) < messages:
            fleet.check()
            if not warm and end >= messages * WARM_SHARE:
                warm = time.monotonic()
            if warm and not sealed and any((folder / "data" / "segments").glob("*/*")):
                # From then on all parts of the queue manager have worked once.
                sealed = time.monotonic() + SEALED_S
            time.sleep(QUICK_LOOK_S if plan.quick else LOOK_S)
        away = time.monotonic()
        say(
            f"spark_down: {end:,} rows wait after {away - began:.0f} s; "
            f"{memory.by_process()}; {_disk(folder)}; load {load()}"
        )
        stack.enter_context(on_core(spark, CLIENT_CORE))
        # Starting the session's workers is no part of the drain.
        spark.range(10).selectExpr("id + 1").collect()
        back = time.monotonic()
        waited = server.end_of()
        rows = _drain(spark, server, folder)
        drained = time.monotonic()
        say(
            f"spark_down: {rows:,} rows in {drained - back:.1f} s; {memory.by_process()}; "
            f"load {load()}"
        )
        ledger = fleet.finish(stop=True)
        rows += _drain(spark, server, folder)
        found = _numbers(folder / "parquet")
    sent = set(ledger.numbers)
    lost, doubled = len(sent.difference(found)), len(found) - len(set(found))
    if rows != len(found):
        raise RuntimeError(f"Spark counted {rows} rows and wrote {len(found)}")
    yield Figure(
        name="down_lost",
        value=lost,
        unit="messages",
        target="value <= 0",
        ok=lost == 0,
        note=f"of {len(sent):,} that were answered 200; {ledger.made - len(sent)} were "
        "not answered",
    )
    yield Figure(
        name="down_doubled", value=doubled, unit="messages", target="value <= 0", ok=doubled == 0
    )
    yield from _memory(memory, max(warm, sealed) if sealed < away else warm, away)
    arrival = sum(warm <= at < away for at in ledger.sent) / (away - warm)
    drain = waited / (drained - back)
    yield Figure(
        name="down_drain",
        value=drain,
        unit="rows/s",
        reference=arrival,
        reference_name="arrival",
        ratio=drain / arrival,
        target=f"ratio >= {DRAIN_MIN}",
        ok=drain / arrival >= DRAIN_MIN,
        note=f"{waited:,} rows waited; from the start of the query to its end",
    )
    yield _p99(ledger, (warm, away), (back, drained), rate)


def _memory(memory: Memory, warm: float, away: float) -> Iterator[Figure]:
    """Yield the growth while Spark is away, and the peak of the whole run."""
    found = [(at, mb) for at, mb in memory.samples if warm <= at < away]
    # A quick run may be too short for a sample.
    if not found:
        found = [
            max((each for each in memory.samples if each[0] < away), default=memory.samples[0])
        ]
    at_first = [mb for at, mb in found if at < warm + (away - warm) * WARM_SHARE] or [found[0][1]]
    begin = max(at_first)
    growth = max(mb for _, mb in found) - begin
    yield Figure(
        name="down_memory_growth",
        value=growth,
        unit="MB",
        reference=begin,
        reference_name="at first",
        target=f"value <= {GROWTH_MB_MAX}",
        ok=growth <= GROWTH_MB_MAX,
    )
    yield Figure(
        name="down_memory",
        value=memory.peak_mb,
        unit="MB",
        target=f"value <= {MEMORY_MB_MAX}",
        ok=memory.peak_mb <= MEMORY_MB_MAX,
    )


def _p99(
    ledger: Ledger, alone: tuple[float, float], together: tuple[float, float], rate: float
) -> Figure:
    before, during = ledger.between(*alone), ledger.between(*together)
    kept = len(during) / (together[1] - together[0]) / rate
    ratio = p(during, 0.99) / p(before, 0.99)
    return Figure(
        name="down_accept_p99",
        value=p(during, 0.99),
        unit="ms",
        reference=p(before, 0.99),
        reference_name="alone",
        ratio=ratio,
        target=f"ratio <= {P99_RATIO_MAX}",
        ok=ratio <= P99_RATIO_MAX and kept >= RATE_KEPT,
        note=f"p50 {p(during, 0.5):.2f} ms, alone {p(before, 0.5):.2f}; the senders kept "
        f"{kept:.0%} of their rate meanwhile",
    )


def _drain(spark: SparkSession, server: QueueManager, folder: Path) -> int:
    """Read everything that waits at the start, and return Spark's count of the rows."""
    reader = (
        spark.readStream.format("srmp").option("queueManager", server.api).option("queue", QUEUE)
    )
    writer = (
        reader.load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = writer.option("path", str(folder / "parquet")).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def _numbers(folder: Path) -> list[int]:
    """Return the numbers of all rows that Spark has committed to the folder."""
    import pyarrow.parquet as pq

    logs = [log for log in (folder / "_spark_metadata").iterdir() if not log.name.startswith(".")]
    lines = [line for log in logs for line in log.read_text().splitlines()[1:]]
    # A file that no batch names was discarded.
    files = {unquote(urlsplit(json.loads(line)["path"]).path) for line in lines}
    numbers: list[int] = []
    for path in files:
        numbers += pq.read_table(path, columns=["uniquifier"])["uniquifier"].to_pylist()
    return numbers


def _disk(folder: Path) -> str:
    size = sum(path.stat().st_size for path in (folder / "data").rglob("*") if path.is_file())
    return f"{size / 1e6:,.0f} MB on disk"
