"""Spark reading from the queue manager beside Spark reading from Kafka, in one JVM, side by side in every round."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import (
    QUEUE,
    Figure,
    QueueManager,
    beside,
    load,
    need,
    quantile,
    say,
    scratch,
    wrk,
)
from benchmarks.peers.kafka import Kafka, spark_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000_000
RATE = 100
OF_KAFKA = "queue,sequence,arrived_at,message_id,label,body,body_type"
"""The seven columns that say what Kafka's seven say."""
TWO = "sequence,label"
"""What a query reads that counts messages: no body."""
POSTER = Path(__file__).with_name("poster.py")


@contextlib.contextmanager
def spark_session(*, kafka: bool = True) -> Iterator[SparkSession]:
    """``kafka``: with the jars of Spark's Kafka source."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("srmp-spark benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.jars", spark_jars() if kafka else "")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()


def _kafka(spark: SparkSession, broker: Kafka, topic: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def _srmp(spark: SparkSession, api: str, partitions: int, columns: str | None = None) -> DataFrame:
    reader = spark.readStream.format("srmp").option("queueManager", api).option("queue", QUEUE).option("readMode", "peek")
    if columns is not None:
        reader = reader.option("columns", columns)
    return reader.option("startingOffsets", "earliest").option("minPartitions", partitions).load()


def drain(rounds: int, *, quick: bool) -> Iterator[Figure]:
    """Rows of 1 KB into the noop sink with Trigger.AvailableNow: rows per second inside addBatch."""
    need("wrk")
    wanted = ROWS // 20 if quick else ROWS
    with scratch("drain") as folder, contextlib.ExitStack() as stack:
        (folder / "kafka").mkdir()
        broker = Kafka(folder / "kafka")
        stack.callback(broker.close)
        server = QueueManager(folder, core=None)
        stack.callback(server.close)
        while server.end_of() < wanted:
            wrk(server.target, 32, 2 if quick else 10)
            say(f"drain: {server.end_of():,} rows in the log, load {load()}")
        rows = server.end_of()
        _settled(server)
        topics = {n: broker.topic(n) for n in (1, 2)}
        for partitions, topic in topics.items():
            broker.fill(topic, rows, partitions)
        spark = stack.enter_context(spark_session())
        cases: dict[tuple[str, int], Callable[[], DataFrame]] = {}
        for n in (1, 2):
            cases["kafka", n] = lambda n=n: _kafka(spark, broker, topics[n])  # type: ignore[misc]
            cases["srmp", n] = lambda n=n: _srmp(spark, server.api, n)  # type: ignore[misc]
            cases["seven", n] = lambda n=n: _srmp(spark, server.api, n, OF_KAFKA)  # type: ignore[misc]
        cases["two", 1] = lambda: _srmp(spark, server.api, 1, TWO)
        got: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
        for number in range(rounds + 1):  # the first round warms the JVM and is not counted
            for case, make in cases.items():
                seen, rate = _drain_once(make(), folder / f"checkpoint-{number}-{case[0]}-{case[1]}")
                if seen != rows:
                    raise RuntimeError(f"{case}: {seen} rows read, {rows} are there")
                say(f"drain round {number} {case[0]:5s} {case[1]} partition(s): {rate:,.0f} rows/s load {load()}")
                if number:
                    got[case].append(rate)
    unit = "rows/s"
    for n in (1, 2):
        kafka = f"Kafka source, {n} partition(s)"
        yield beside(f"spark_drain_{n}", unit, got["srmp", n], got["kafka", n], kafka, at_least=0.8)
        least = 1.7 if n == 1 else 1.4
        yield beside(f"spark_drain_seven_{n}", unit, got["seven", n], got["kafka", n], kafka, at_least=least)
    yield beside("spark_drain_two_columns", unit, got["two", 1], got["kafka", 1], "Kafka source, 1 partition(s)", at_least=3.0)
    yield beside("spark_drain_two_over_one", unit, got["seven", 2], got["seven", 1], "one partition", at_least=1.2)


SETTLE_S_MAX = 120


def _settled(server: QueueManager) -> None:
    """Let the queue manager finish its background work on the backlog: no file below the data directory changes."""
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
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    rows = sum(p["numInputRows"] for p in progress)
    return rows, rows / sum(p["durationMs"]["addBatch"] for p in progress) * 1e3


def latency(rounds: int, *, quick: bool) -> Iterator[Figure]:
    """From birth in the sender to entry of foreachBatch, 100 messages a second, default trigger."""
    seconds = 6 if quick else 20
    ours: list[float] = []
    theirs: list[float] = []
    with scratch("latency") as folder, contextlib.ExitStack() as stack:
        (folder / "kafka").mkdir()
        broker = Kafka(folder / "kafka", heap="512m")
        stack.callback(broker.close)
        server = QueueManager(folder, core=None)
        stack.callback(server.close)
        spark = stack.enter_context(spark_session())
        for number in range(rounds):
            topic = broker.topic(1)
            for name, frame, column, medians in (
                ("kafka", _kafka(spark, broker, topic), "value", theirs),
                ("srmp", _latest(spark, server.api), "body", ours),
            ):

                def feed(name: str = name, topic: str = topic) -> subprocess.Popen[bytes]:
                    return broker.trickle(topic, RATE, RATE * seconds) if name == "kafka" else _post(server, RATE * seconds)

                waited = _latency_once(frame, column, feed, folder / f"checkpoint-{number}-{name}", seconds)
                medians.append(quantile(waited, 0.5))
                say(
                    f"latency round {number + 1} {name:5s} p50 {medians[-1]:.0f} ms p99 {quantile(waited, 0.99):.0f} ms, "
                    f"{len(waited)} rows, load {load()}"
                )
    yield beside("spark_latency_p50", "ms", ours, theirs, "Kafka source", at_most=1.3)


def _latest(spark: SparkSession, api: str) -> DataFrame:
    reader = spark.readStream.format("srmp").option("queueManager", api).option("queue", QUEUE)
    return reader.option("readMode", "peek").option("startingOffsets", "latest").load()


def _post(server: QueueManager, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(POSTER), server.url, str(RATE), str(count)])


def _latency_once(
    frame: DataFrame, column: str, feed: Callable[[], subprocess.Popen[bytes]], checkpoint: Path, seconds: float
) -> list[float]:
    seen: list[tuple[int, float]] = []

    def each(batch: Any, number: int) -> None:
        now = time.time()  # the rows are readable from here on
        births = batch.selectExpr(f"cast(substring({column}, 1, 20) as string) as birth").collect()
        seen.extend((number, (now - int(row.birth) / 1e6) * 1e3) for row in births)

    query = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint)).start()
    time.sleep(8)  # the first batch starts Python workers
    feeder = feed()
    try:
        if feeder.wait(seconds + 60):
            raise RuntimeError(f"the sender ended with {feeder.returncode}")
        time.sleep(2)
    finally:
        query.stop()
    if not seen:
        raise RuntimeError(f"no row arrived: {query.exception()}")
    numbers = sorted({number for number, _ in seen})
    first = numbers[len(numbers) // 4]  # the first quarter: warming up
    return [waited for number, waited in seen if number >= first]
