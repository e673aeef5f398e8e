"""Compare Spark writing to the queue manager with Spark writing to Kafka and to Parquet.

All run in one session, alternately in every round. The three sides write the same cached rows: a
key, and a body of 1 KB that no other row has and that does not compress well. Our write ends when
the commit is durable and the rows have their numbers in a stream; the destination is down, so
nothing is sent. Kafka's write ends when the broker has acknowledged everything from the page cache,
as it does by default. Without Kafka the others run alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import (
    Figure,
    NotHere,
    Plan,
    QueueManager,
    beside,
    cpu_seconds,
    free_port,
    load,
    median,
    say,
    scratch,
)
from benchmarks.memory import Memory
from benchmarks.peers.kafka import Kafka
from benchmarks.send import entry
from benchmarks.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000_000
PARTITIONS = 2
"""Number of tasks that write at once, and of partitions of the topic."""
MEMORY_MB_MAX = 300


def run(plan: Plan) -> Iterator[Figure]:
    """Yield the rows a second of a whole write, and the largest memory of the queue manager."""
    rows = plan.size(ROWS, 5_000)
    spark = spark_session(plan)
    rates: dict[str, list[float]] = {"srmp": [], "kafka": [], "parquet": []}
    memory: list[float] = []
    with scratch("sink") as folder, contextlib.ExitStack() as stack:
        broker = plan.peer("Kafka", lambda: Kafka(folder / "kafka"))
        if isinstance(broker, Kafka):
            stack.callback(broker.close)
        frame = _rows(spark, rows)
        stack.callback(frame.unpersist)
        # The first round warms the JVM and is not counted.
        warming = plan.size(1, 0)
        for number in range(plan.rounds + warming):
            with _fresh(folder / f"round-{number}") as server:
                sides = _sides(
                    frame,
                    rows,
                    broker if isinstance(broker, Kafka) else None,
                    server,
                    folder / f"parquet-{number}",
                )
                # The order alternates, so that no side is always first.
                names = list(sides)[:: -1 if number % 2 else 1]
                for name in names:
                    # Unwritten data of the side before must not slow this side down.
                    os.sync()
                    with Memory(server.process.pid) as seen:
                        before = cpu_seconds(server.process.pid)
                        rate = rows / sides[name]()
                        cpu = cpu_seconds(server.process.pid) - before
                    told = (
                        f", {seen.peak_mb:.0f} MB, {cpu:.1f} s of CPU in the queue manager"
                        if name == "srmp"
                        else ""
                    )
                    say(f"sink round {number} {name:7s} {rate:,.0f} rows/s{told}, load {load()}")
                    if number >= warming:
                        rates[name].append(rate)
                        memory += [seen.peak_mb] if name == "srmp" else []
    note = (
        f"{rows:,} rows of 1 KB; df.write.parquet of the same: "
        f"{median(rates['parquet']):,.0f} rows/s"
    )
    theirs = broker if isinstance(broker, NotHere) else rates["kafka"]
    yield beside(
        "sink_stage_commit", "rows/s", rates["srmp"], theirs, "Kafka sink", at_least=1.0, note=note
    )
    peak = max(memory)
    yield Figure(
        name="sink_memory",
        value=peak,
        unit="MB",
        target=f"value <= {MEMORY_MB_MAX}",
        ok=peak <= MEMORY_MB_MAX,
        note="anonymous and shared memory of all processes of the queue manager together, "
        "the largest of all rounds",
    )


def _rows(spark: SparkSession, count: int) -> DataFrame:
    """Return cached rows, so that no side spends time to make them."""
    from pyspark.sql import functions as f

    # The body has 8 times 128 characters.
    body = f.concat(*(f.sha2(f.concat_ws("-", "id", f.lit(part)), 512) for part in range(8)))
    numbered = spark.range(0, count, 1, PARTITIONS)
    frame = numbered.select(
        f.col("id").cast("string").alias("key"), body.cast("binary").alias("body")
    ).cache()
    if frame.count() != count:
        raise RuntimeError("the rows were not made")
    return frame


def _sides(
    data: DataFrame, count: int, broker: Kafka | None, server: QueueManager, folder: Path
) -> dict[str, Callable[[], float]]:
    """Return a function for each side that writes ``data`` once.

    The function checks that all rows are there and returns the seconds of the write.
    """
    url = f"http://127.0.0.1:{free_port()}/msmq/private$/down"

    def srmp() -> float:
        options = {"queueManager": server.api, "destination": url, "application": "bench"}
        seconds = _seconds(
            lambda: data.write.format("srmp").mode("append").options(**options).save()
        )
        _all_there(entry(server, url).get("queued", 0), count)
        return seconds

    def kafka(broker: Kafka, topic: str) -> float:
        out = data.withColumnRenamed("body", "value").write.format("kafka")
        seconds = _seconds(
            lambda: (
                out.option("kafka.bootstrap.servers", broker.address).option("topic", topic).save()
            )
        )
        _all_there(broker.rows(topic, PARTITIONS), count)
        return seconds

    def parquet() -> float:
        seconds = _seconds(lambda: data.write.parquet(str(folder)))
        _all_there(data.sparkSession.read.parquet(str(folder)).count(), count)
        return seconds

    peer = {} if broker is None else {"kafka": partial(kafka, broker, broker.topic(PARTITIONS))}
    return {"srmp": srmp, **peer, "parquet": parquet}


def _seconds(write: Callable[[], None]) -> float:
    began = time.perf_counter()
    write()
    return time.perf_counter() - began


def _all_there(found: int, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"{found} rows arrived, {wanted} were written")


@contextlib.contextmanager
def _fresh(folder: Path) -> Iterator[QueueManager]:
    """Provide a queue manager for one round, and delete its data afterwards."""
    folder.mkdir()
    server = QueueManager(folder, core=None)
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(folder)
