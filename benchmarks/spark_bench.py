"""Compare Spark reading from the queue manager with Spark reading from Kafka, in one JVM.

The sides run alternately in every round. Without Kafka ours runs alone, and only two partitions
against one are judged.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import (
    QUEUE,
    Figure,
    NotHere,
    Plan,
    QueueManager,
    beside,
    load,
    quantile,
    say,
    scratch,
    tree_cpu_seconds,
)
from benchmarks.peers.kafka import Kafka
from benchmarks.posting import Load
from benchmarks.spark_session import jvm_of, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000_000
RATE = 100
OF_KAFKA = "queue,sequence,arrived_at,message_id,label,body,body_type"
"""The seven columns that correspond to Kafka's seven."""
TWO = "sequence,label"
"""The columns that a query reads to count messages, without the body."""
POSTER = Path(__file__).with_name("poster.py")


def _kafka(spark: SparkSession, broker: Kafka, topic: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def _srmp(spark: SparkSession, api: str, partitions: int, columns: str | None = None) -> DataFrame:
    reader = (
        spark.readStream.format("srmp")
        .option("queueManager", api)
        .option("queue", QUEUE)
        .option("readMode", "peek")
    )
    if columns is not None:
        reader = reader.option("columns", columns)
    return reader.option("startingOffsets", "earliest").option("minPartitions", partitions).load()


PROCESSES = ("Spark", "queue manager", "Kafka")
"""Processes whose CPU time is reported for a drain.

CPU time says more than rates on a machine that others use.
"""
Case = tuple[str, int]
"""Whose rows or which columns, and how many partitions."""


def drain(plan: Plan) -> Iterator[Figure]:
    """Yield the rows a second inside addBatch, with Trigger.AvailableNow.

    Rows of 1 KB are written into the noop sink.
    """
    spark = spark_session(plan)
    with scratch("drain") as folder, contextlib.ExitStack() as stack:
        broker = plan.peer("Kafka", lambda: Kafka(folder / "kafka"))
        if isinstance(broker, Kafka):
            stack.callback(broker.close)
        server = QueueManager(folder, core=None)
        stack.callback(server.close)
        Load(plan).fill(server.url, 32, plan.size(ROWS, 10_000))
        rows = server.end_of()
        say(f"drain: {rows:,} rows in the log, load {load()}")
        if not plan.quick:
            _settled(server)
        cases = _cases(spark, server, None if isinstance(broker, NotHere) else broker, rows)
        got: dict[Case, list[float]] = {case: [] for case in cases}
        pids = [
            jvm_of(spark),
            server.process.pid,
            *([broker.process.pid] if isinstance(broker, Kafka) else []),
        ]
        # The first round warms the JVM and is not counted.
        warming = plan.size(1, 0)
        for number in range(plan.rounds + warming):
            for case, make in cases.items():
                before = [tree_cpu_seconds(pid) for pid in pids]
                seen, rate = _drain_once(
                    make(), folder / f"checkpoint-{number}-{case[0]}-{case[1]}"
                )
                if seen != rows:
                    raise RuntimeError(f"{case}: {seen} rows read, {rows} are there")
                used = [
                    (tree_cpu_seconds(pid) - earlier) / rows * 1e6
                    for pid, earlier in zip(pids, before, strict=True)
                ]
                told = ", ".join(
                    f"{name} {each:.2f}" for name, each in zip(PROCESSES, used, strict=False)
                )
                side = f"drain round {number} {case[0]:5s} {case[1]} partition(s)"
                say(f"{side}: {rate:,.0f} rows/s, us of CPU a row: {told}; load {load()}")
                if number >= warming:
                    got[case].append(rate)
    yield from _drain_figures(got, broker if isinstance(broker, NotHere) else None)


def _cases(
    spark: SparkSession, server: QueueManager, broker: Kafka | None, rows: int
) -> dict[Case, Callable[[], DataFrame]]:
    """Return a function for each side that makes its frame.

    The topics are filled with as many rows.
    """
    cases: dict[Case, Callable[[], DataFrame]] = {}
    for n in (1, 2):
        if broker is not None:
            topic = broker.topic(n)
            broker.fill(topic, rows, n)
            cases["kafka", n] = lambda broker=broker, topic=topic: _kafka(spark, broker, topic)  # type: ignore[misc]
        cases["srmp", n] = lambda n=n: _srmp(spark, server.api, n)  # type: ignore[misc]
        cases["seven", n] = lambda n=n: _srmp(spark, server.api, n, OF_KAFKA)  # type: ignore[misc]
    cases["two", 1] = lambda: _srmp(spark, server.api, 1, TWO)
    return cases


def _drain_figures(got: dict[Case, list[float]], no_kafka: NotHere | None) -> Iterator[Figure]:
    unit = "rows/s"
    for n, least in ((1, 1.7), (2, 1.4)):
        kafka, theirs = f"Kafka source, {n} partition(s)", no_kafka or got["kafka", n]
        yield beside(f"spark_drain_{n}", unit, got["srmp", n], theirs, kafka, at_least=0.8)
        yield beside(f"spark_drain_seven_{n}", unit, got["seven", n], theirs, kafka, at_least=least)
    theirs = no_kafka or got["kafka", 1]
    yield beside(
        "spark_drain_two_columns",
        unit,
        got["two", 1],
        theirs,
        "Kafka source, 1 partition(s)",
        at_least=3.0,
    )
    yield beside(
        "spark_drain_two_over_one",
        unit,
        got["seven", 2],
        got["seven", 1],
        "one partition",
        at_least=1.2,
    )


SETTLE_S_MAX = 120


def _settled(server: QueueManager) -> None:
    """Wait until the queue manager has finished its background work on the backlog.

    The work is finished when no file below the data directory changes.
    """
    data = server.log.parent / "data"
    end = time.monotonic() + SETTLE_S_MAX
    before: list[tuple[str, int]] = []
    while time.monotonic() < end:
        now = sorted((str(path), path.stat().st_size) for path in data.rglob("*") if path.is_file())
        if now == before:
            return
        before = now
        time.sleep(8)


def _drain_once(frame: DataFrame, checkpoint: Path) -> tuple[int, float]:
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    rows = sum(p["numInputRows"] for p in progress)
    return rows, rows / sum(p["durationMs"]["addBatch"] for p in progress) * 1e3


def latency(plan: Plan) -> Iterator[Figure]:
    """Yield the time from birth in the sender to entry of foreachBatch.

    The sender sends 100 messages a second, and the trigger is the default. Sides: all columns,
    seven columns, Kafka, and a Python source that has nothing to read
    (:mod:`benchmarks.spark_nothing`). No source that is written in Python can be faster than the
    last.
    """
    seconds = plan.size(20, 2)
    spark = spark_session(plan)
    medians: dict[str, list[float]] = {"kafka": [], "all": [], "seven": [], "nothing": []}
    with scratch("latency") as folder, contextlib.ExitStack() as stack:
        broker = plan.peer("Kafka", lambda: Kafka(folder / "kafka", heap="512m"))
        if isinstance(broker, Kafka):
            stack.callback(broker.close)
        server = QueueManager(folder, core=None)
        stack.callback(server.close)
        for number in range(plan.rounds):
            there = None if isinstance(broker, NotHere) else broker
            sides = _latency_sides(spark, server, there, folder / "clock")
            for name, (frame, column, feed) in sides.items():
                waited = _latency_once(
                    frame, column, feed, folder / f"checkpoint-{number}-{name}", seconds
                )
                medians[name].append(quantile(waited, 0.5))
                say(
                    f"latency round {number + 1} {name:5s} p50 {medians[name][-1]:.0f} ms "
                    f"p99 {quantile(waited, 0.99):.0f} ms, "
                    f"{len(waited)} rows, load {load()}"
                )
    theirs = broker if isinstance(broker, NotHere) else medians["kafka"]
    yield beside("spark_latency_p50", "ms", medians["all"], theirs, "Kafka source", at_most=1.15)
    yield beside(
        "spark_latency_seven_p50", "ms", medians["seven"], theirs, "Kafka source", at_most=1.0
    )
    yield beside("spark_latency_nothing_p50", "ms", medians["nothing"], theirs, "Kafka source")


Feed = Callable[[int], "subprocess.Popen[bytes]"]
"""Starts a sender of as many rows as its argument."""


def _latency_sides(
    spark: SparkSession, server: QueueManager, broker: Kafka | None, clock: Path
) -> dict[str, tuple[DataFrame, str, Feed]]:
    """Return for each side its frame, the column with the time of birth, and the sender."""

    def post(count: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(POSTER), server.url, str(RATE), str(count)])

    sides: dict[str, tuple[DataFrame, str, Feed]] = {
        "all": (_latest(spark, server.api), "body", post),
        "seven": (_latest(spark, server.api, OF_KAFKA), "body", post),
        "nothing": (_nothing(spark, clock), "body", lambda count: _born(clock, count)),
    }
    if broker is None:
        return sides
    topic = broker.topic(1)
    return {
        "kafka": (
            _kafka(spark, broker, topic),
            "value",
            lambda count: broker.trickle(topic, RATE, count),
        ),
        **sides,
    }


def _nothing(spark: SparkSession, clock: Path) -> DataFrame:
    from benchmarks import spark_nothing

    spark_nothing.be_born(clock, 0, RATE)
    spark.dataSource.register(spark_nothing.Nothing)
    reader = spark.readStream.format(spark_nothing.NAME).option("rate", RATE)
    return reader.option("clock", str(clock)).load()


def _born(clock: Path, rows: int) -> subprocess.Popen[bytes]:
    from benchmarks import spark_nothing

    spark_nothing.be_born(clock, rows, RATE)
    return subprocess.Popen(["sleep", str(rows / RATE)])


def _latest(spark: SparkSession, api: str, columns: str | None = None) -> DataFrame:
    reader = spark.readStream.format("srmp").option("queueManager", api).option("queue", QUEUE)
    if columns is not None:
        reader = reader.option("columns", columns)
    return reader.option("readMode", "peek").option("startingOffsets", "latest").load()


WARM_ROWS = 5
WARM_LOOK_S = 3.0
WARM_S_MAX = 60.0


def _latency_once(
    frame: DataFrame, column: str, feed: Feed, checkpoint: Path, seconds: int
) -> list[float]:
    seen: list[tuple[int, float]] = []
    arrived = threading.Event()

    def each(batch: Any, number: int) -> None:
        # From here on the rows can be read.
        now = time.time()
        births = batch.selectExpr(f"cast(substring({column}, 1, 20) as string) as birth").collect()
        seen.extend((number, (now - int(row.birth) / 1e6) * 1e3) for row in births)
        # The first batch of a query that begins at the end is empty.
        if births:
            arrived.set()

    query = (
        frame.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint)).start()
    )
    try:
        end = time.monotonic() + WARM_S_MAX
        # The first batch starts Python workers, and a query from latest misses earlier rows.
        while not arrived.is_set():
            if time.monotonic() > end or not query.isActive:
                raise RuntimeError(f"no row arrived: {query.exception() or query.status}")
            _fed(feed, WARM_ROWS)
            arrived.wait(WARM_LOOK_S)
        query.processAllAvailable()
        warm = max(number for number, _ in seen)
        _fed(feed, RATE * seconds)
        query.processAllAvailable()
    finally:
        query.stop()
    numbers = sorted({number for number, _ in seen if number > warm})
    if not numbers:
        raise RuntimeError("no row of the measurement arrived")
    # The first quarter of the batches warms up.
    first = numbers[len(numbers) // 4]
    return [waited for number, waited in seen if number >= first]


def _fed(feed: Feed, rows: int) -> None:
    feeder = feed(rows)
    if feeder.wait(rows / RATE + 60):
        raise RuntimeError(f"the sender ended with {feeder.returncode}")
