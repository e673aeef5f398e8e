"""The streaming source on a real queue manager: killed under a query, embedded in one, read by two consumers."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.spark import embedded
from srmp_spark.spark.settings.options import parse
from srmp_spark.testing.queue_manager import RunningQueueManager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark
QUEUE = "private$/orders"


def start(
    spark: SparkSession, checkpoint: Path, labels: list[str], **options: Any
) -> StreamingQuery:
    def keep(batch: DataFrame, _: int) -> None:
        labels.extend(row.label for row in batch.orderBy("sequence").select("label").collect())

    frame = spark.readStream.format("srmp").options(**{"queue": QUEUE, **options}).load()
    return (
        frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)).start()
    )


def send(api: str, labels: range) -> list[str]:
    sent = [str(n) for n in labels]
    QueueManagerClient(api).send(QUEUE, [{"label": label} for label in sent])
    return sent


def eventually(what: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def entry(api: str) -> dict[str, Any]:
    [found] = [each for each in QueueManagerClient(api).status()["queues"] if each["name"] == QUEUE]
    return found


def test_kill_9_under_a_query(spark: SparkSession, tmp_path: Path) -> None:
    """The query goes on by itself, each message once and in order; two consumers see every row once each."""
    first: list[str] = []
    audit: list[str] = []
    with RunningQueueManager(tmp_path / "data", queues=[QUEUE]) as qm:
        queries = [
            start(spark, tmp_path / "1", first, queueManager=qm.api),
            start(spark, tmp_path / "2", audit, queueManager=qm.api, consumer="audit"),
        ]
        sent = send(qm.api, range(100))
        for begin in (100, 200):
            eventually(lambda most=begin - 100: len(first) > most)  # type: ignore[misc]  # bound now
            qm.kill9()
            time.sleep(0.5)
            qm.restart()
            sent += send(qm.api, range(begin, begin + 100))
        eventually(lambda: first == sent and audit == sent)
        eventually(
            lambda: (
                {c["name"]: c["received"] for c in entry(qm.api)["consumers"]}
                == {"default": 300, "audit": 300}
            )
        )
        holders = [consumer["holder"] for consumer in entry(qm.api)["consumers"]]
        assert all("Spark query" in holder for holder in holders)
        for query in queries:
            query.stop()
        eventually(
            lambda: [consumer["holder"] for consumer in entry(qm.api)["consumers"]] == [None, None],
            10,
        )
    assert first == audit == sent


def test_an_embedded_queue_manager_lives_as_long_as_its_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, labels = tmp_path / "data", []  # type: ignore[var-annotated]  # a list of texts
    flags = {"dataDir": str(data), "listen": "127.0.0.1:0", "queues": QUEUE}
    query = start(spark, tmp_path / "checkpoint", labels, **flags)
    eventually((data / "endpoint.json").exists)
    endpoint = json.loads((data / "endpoint.json").read_text())
    sent = send(endpoint["api"], range(20))
    eventually(lambda: labels == sent)
    query.stop()
    assert QueueManagerClient(endpoint["api"]).is_ready(), "it outlives the query for a minute"
    batch = (
        spark.read.format("srmp").options(**flags, queue=QUEUE, startingOffsets="earliest").load()
    )
    assert batch.count() == 20
    os.kill(endpoint["pid"], signal.SIGTERM)


def test_an_embedded_queue_manager_outlives_a_trigger_that_is_longer_than_its_limit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that peeks holds no lease, and calls once in a trigger."""
    monkeypatch.setattr(embedded, "UNUSED_SECONDS", 8)
    data, labels = tmp_path / "data", []  # type: ignore[var-annotated]  # a list of texts
    flags = {"dataDir": str(data), "listen": "127.0.0.1:0", "queues": QUEUE, "readMode": "peek"}
    api = embedded.locate(parse(flags)).urls[0]
    client = QueueManagerClient(api)
    pid = json.loads((data / "endpoint.json").read_text())["pid"]
    sent = send(api, range(5))
    rows = spark.readStream.format("srmp").options(**flags).load()
    writer = rows.writeStream.foreachBatch(
        lambda batch, _: labels.extend(row["label"] for row in batch.collect())
    )
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="20 seconds")
        .start()
    )
    try:
        eventually(
            lambda: client.range(QUEUE).end == 5 and labels == sent
        )  # the test keeps it in use until then
        for first in (5, 10):  # the second one comes a whole trigger after the one before
            sent += send(api, range(first, first + 5))
            eventually(lambda so_far=[*sent]: labels == so_far)  # type: ignore[misc]  # bound now
        assert json.loads((data / "endpoint.json").read_text())["pid"] == pid
    finally:
        query.stop()
        os.kill(json.loads((data / "endpoint.json").read_text())["pid"], signal.SIGTERM)
