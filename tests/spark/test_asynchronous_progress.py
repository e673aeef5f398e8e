"""Received marks of queries with ``asyncProgressTrackingEnabled``: none stands beyond what a restart of the query skips.

Against the real engine, whose driver is killed with -9: what it calls, and in which order, is what
``srmp_spark/spark/reading/spark_progress.py`` goes by.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fake_queue_manager import FakeQueueManager

from srmp_spark.spark.reading.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark
QUEUE = "private$/orders"
OPTIONS = {"queue": QUEUE, "maxOffsetsPerTrigger": "5"}
WAIT_SECONDS = 120.0
DRIVER = """
import sys, time
from pyspark.sql import SparkSession
url, checkpoint, queue = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.format("srmp").options(queueManager=url, queue=queue, maxOffsetsPerTrigger="5").load()
query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).option(
    "asyncProgressTrackingEnabled", "true").option("asyncProgressTrackingCheckpointIntervalMs", "3600000").start()
told = -1
while query.isActive:
    progress = query.lastProgress
    if progress and progress["batchId"] > told:
        told = progress["batchId"]
        print(progress["sources"][0]["endOffset"], flush=True)
    time.sleep(0.05)
print(query.exception(), flush=True)
"""


class Driver:
    """A driver with its JVM, to be killed."""

    def __init__(self, url: str, checkpoint: Path) -> None:
        self.output = checkpoint.with_name(f"driver-{time.monotonic_ns()}.log")
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, url, str(checkpoint), QUEUE],
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def has_run(self, sequence: int) -> bool:
        """Whether a batch that ended there has been run to its end."""
        return f":{sequence}}}" in "".join(self.output.read_text().split())

    def kill9(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def start(fake: Callable[..., FakeQueueManager]) -> Iterator[Callable[[str, Path], Driver]]:
    made: list[Driver] = []

    def make(url: str, checkpoint: Path) -> Driver:
        made.append(Driver(url, checkpoint))
        return made[-1]

    yield make
    for driver in made:
        driver.kill9()


def wait(
    condition: Callable[[], bool], why: Callable[[], str] = lambda: "it did not happen"
) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, why()
        time.sleep(0.02)


def query_state(query: StreamingQuery) -> Callable[[], str]:
    return lambda: json.dumps(query.lastProgress)


def on_disk(checkpoint: Path) -> int:
    """The sequence behind which a restart begins: the newest batch that is committed."""
    offsets, commits = (
        {int(file.name) for file in (checkpoint / kind).glob("*") if file.name.isdigit()}
        for kind in ("offsets", "commits")
    )
    newest = max(offsets & commits)
    reached = Offsets.from_text((checkpoint / "offsets" / str(newest)).read_text().splitlines()[2])
    return max(position.sequence for position in reached.values())


@pytest.mark.parametrize(
    "runs",
    [pytest.param(1, id="a new query"), pytest.param(2, id="and again", marks=pytest.mark.long)],
)
@pytest.mark.timeout(600)  # a JVM for each run
def test_no_row_that_a_restart_reads_again_counts_as_received(
    spark: SparkSession,
    fake: Callable[..., FakeQueueManager],
    start: Callable[[str, Path], Driver],
    tmp_path: Path,
    runs: int,
) -> None:
    """Retention deletes what is received: after kill -9 the query would end with rows that are gone."""
    checkpoint = tmp_path / "checkpoint"
    qm = fake(orders=5)
    for run in range(1, runs + 1):
        driver = start(qm.url, checkpoint)
        goal = run * 20
        for end in range(goal - 15, goal + 1, 5):
            wait(partial(driver.has_run, end), driver.output.read_text)
            if end < goal:
                qm.add(QUEUE, 5)
        calls = len(qm.calls)
        wait(
            lambda calls=calls: len(qm.calls) > calls + 3, driver.output.read_text
        )  # it asks on: the last batch has ended
        driver.kill9()
        assert on_disk(checkpoint) < goal, "Spark has written nothing of the last batches"
        assert 5 <= qm.consumer(QUEUE).received <= on_disk(checkpoint)
        qm.logs[QUEUE].first = qm.consumer(QUEUE).received + 1
        if run < runs:
            qm.add(QUEUE, 5)
    read: list[int] = []

    def collect(batch: DataFrame, number: int) -> None:
        read.extend(row["sequence"] for row in batch.select("sequence").collect())

    committed = on_disk(checkpoint)
    rows = spark.readStream.format("srmp").options(queueManager=qm.url, **OPTIONS).load()
    writer = (
        rows.writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    assert writer.start().awaitTermination(120)
    assert sorted(read) == list(range(committed + 1, 20 * runs + 1))
    assert qm.consumer(QUEUE).received == 20 * runs


def test_a_query_that_waits_for_its_commits_marks_each_batch_at_once(
    spark: SparkSession, fake: Callable[..., FakeQueueManager], tmp_path: Path
) -> None:
    """Its calls have another order, and the last batch is received while the stream is idle: also of a source that is read
    twice, and of one whose batches are empty while another one has rows.
    """
    qm, other = fake(orders=5), fake(orders=5)
    rows, others = (
        spark.readStream.format("srmp").options(queueManager=each.url, **OPTIONS).load()
        for each in (qm, other)
    )
    query = rows.union(rows).union(others).writeStream.format("noop").option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    ).start()  # fmt: skip
    marked = {qm: 5, other: 5}
    try:
        for one in (qm, qm, other, other, qm):
            wait(
                lambda: all(each.consumer(QUEUE).received == end for each, end in marked.items()),
                query_state(query),
            )
            marked[one] += 5
            one.add(QUEUE, 5)
        wait(
            lambda: all(each.consumer(QUEUE).received == end for each, end in marked.items()),
            query_state(query),
        )
    finally:
        query.stop()
