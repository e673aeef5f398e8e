"""Poison rows in the real engine: the peer gets the good rows in order, and each poison row is told of once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from test_engine_sink_real import Pair, pair_in

from srmp_spark import SrmpSink
from srmp_spark.client.api import QueueManagerClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ORDERS, FAILED = "private$/orders", "private$/failed"
COUNT = 60
POISON = {5: "bad-label", 27: "no-body", 28: "bad-destination", 33: "bad-label", 59: "no-body"}
POISONED = (
    "CASE WHEN n IN (27, 59) THEN NULL ELSE cast(n AS string) END AS body",
    "CASE WHEN n IN (5, 33) THEN repeat('l', 300) END AS label",
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair_in(tmp_path_factory.mktemp("pair")) as made:
        client = QueueManagerClient(made.here.api)
        client.put_queue(ORDERS, transactional=False)
        client.put_queue(FAILED, transactional=True)
        client.send(ORDERS, [{"label": str(n), "body_base64": ""} for n in range(COUNT)])
        yield made


def letters(pair: Pair, count: int) -> list[dict[str, Any]]:
    """Return the documents in the queue for dead letters, when there are ``count`` of them."""
    client = QueueManagerClient(pair.here.api, retry_seconds=20)
    deadline = time.monotonic() + 60
    while (bounds := client.range(FAILED)).end < count:
        assert time.monotonic() < deadline, f"{bounds.end} letters"
        time.sleep(0.05)
    stream = client.rows(FAILED, epoch=bounds.epoch, after=0, to=bounds.end)
    rows = pa.ipc.open_stream(stream.read()).read_all().to_pylist()
    return [json.loads(row["body_text"]) for row in rows]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.timeout(300)
def test_a_stream_with_poison_in_the_middle_restarts_and_a_kill(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    """The queue manager is killed when the first rows have arrived; the newest ``commits/N`` is lost; it runs again."""
    source = (
        spark.readStream.format("srmp")
        .option("queueManager", pair.here.api)
        .option("queue", ORDERS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "20")
        .option("minPartitions", "2")
        .load()
    )
    rows = (
        source.selectExpr("queue_manager", "epoch", "queue", "sequence", "int(label) AS n")
        .selectExpr("*", *POISONED)
        .selectExpr("*", f"if(n = 28, 'nowhere', '{pair.destination}') AS destination")
        .drop("n")
    )
    there = QueueManagerClient(pair.there.api)

    def kill() -> None:
        wait_for(lambda: there.range("private$/in").end > 0)
        pair.here.kill9()
        pair.here.restart()

    killer = threading.Thread(target=kill)
    killer.start()
    for attempt in range(2):
        query = (
            rows.writeStream.format("srmp")
            .option("queueManager", pair.here.api)
            .option("orderBy", "sequence")
            .option("onBadRow", "dead-letter")
            .option("deadLetterQueue", FAILED)
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(200)
        assert query.exception() is None
        if attempt == 0:
            killer.join()
            for name in ("2", ".2.crc"):
                (tmp_path / "c" / "commits" / name).unlink(missing_ok=True)
    good = [str(n).encode() for n in range(COUNT) if n not in POISON]
    assert pair.landed(len(good)) == good
    found = letters(pair, len(POISON))
    assert [letter["bad_row"] for letter in found] == [POISON[n] for n in sorted(POISON)]
    assert [letter["row"]["sequence"] for letter in found] == [n + 1 for n in sorted(POISON)]
    assert found[0]["row"]["queue"] == ORDERS
    assert found[0]["row"]["label"] == "l" * 300


def test_rows_are_skipped_and_counted_in_the_result(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    """Also one of 20 MB, a null among strings, and a row of which other content was sent."""
    spark.range(4).coalesce(1).write.parquet(str(tmp_path / "in"))
    sink = SrmpSink(
        queueManager=pair.here.api,
        destination=f"DIRECT={pair.there.listening}/msmq/private$/skipped",
        orderBy="id",
        onBadRow="skip",
        bodyFormat="xml",
        application="skips",
    )
    counts = []

    def write(batch: DataFrame, number: int) -> None:
        body = "CASE id WHEN 1 THEN repeat('x', 20000000) WHEN 2 THEN NULL ELSE 'ok' END AS body"
        sink(batch.selectExpr("id", body, "id AS key"), number)
        assert sink.result is not None
        counts.append((sink.result, sink.result.bad))
        sink(batch.where("id = 0").selectExpr("id", "'other' AS body", "id AS key"), number + 100)
        counts.append((sink.result, sink.result.bad))

    source = spark.readStream.schema("id bigint").parquet(str(tmp_path / "in"))
    query = source.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination(120)
    assert counts == [((2, 0, 0), 2), ((0, 0, 1), 0)]


def test_a_queue_for_letters_that_is_missing_is_an_error_before_a_row_is_read(
    spark: SparkSession, pair: Pair
) -> None:
    """So is one that is not transactional."""
    frame = spark.range(1).selectExpr("raise_error('a row was read') AS body")
    for queue, problem, remedy in (
        ("private$/none", "has no such queue", "queue create 'private$/none' --transactional"),
        (
            ORDERS,
            "has it as a queue that is not transactional",
            "queue create NAME --transactional",
        ),
    ):
        with pytest.raises(Exception, match="cannot take the letters") as caught:
            pair.write(
                frame.selectExpr("cast(body AS string) AS body"),
                onBadRow="dead-letter",
                deadLetterQueue=queue,
            )
        assert problem in str(caught.value)
        assert remedy in str(caught.value)
        assert "a row was read" not in str(caught.value)
