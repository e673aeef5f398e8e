"""``df.writeStream`` to a queue, by format and by foreachBatch: a micro-batch that is run again sends nothing twice."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_queue_manager import FakeQueueManager

from srmp_spark import SrmpSink
from srmp_spark.errors import ConfigurationError
from tests.kit.outbox_server import OutboxServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark
Fake = Callable[..., FakeQueueManager]
QUEUE = "DIRECT=http://host/msmq/private$/orders"
OTHER = "DIRECT=http://host/msmq/private$/other"
SINKS = ("format", "foreachBatch")


@pytest.fixture
def qm() -> Iterator[OutboxServer]:
    with OutboxServer() as server:
        yield server


class Pipeline:
    """From a queue to a queue, in micro-batches of at most a hundred rows; or from files, which have no positions."""

    def __init__(self, spark: SparkSession, qm: OutboxServer, directory: Path, how: str) -> None:
        self.spark, self.qm, self.how = spark, qm, how
        self.checkpoint = directory / "checkpoint"
        self.options: dict[str, Any] = {"queueManager": qm.url, "destination": QUEUE}

    def rows(self, source: FakeQueueManager) -> DataFrame:
        options = {
            "queueManager": source.url,
            "queue": "private$/orders",
            "maxOffsetsPerTrigger": "100",
            "minPartitions": "2",
        }
        return self.spark.readStream.format("srmp").options(**options).load()

    def run(self, frame: DataFrame) -> StreamingQuery:
        if self.how == "format":
            writer = frame.writeStream.format("srmp").options(**self.options)
        else:
            writer = frame.writeStream.foreachBatch(SrmpSink(**self.options))
        query = (
            writer.option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return query

    def batches(self) -> list[int]:
        return sorted(
            int(file.name)
            for file in (self.checkpoint / "commits").iterdir()
            if file.name.isdigit()
        )

    def forget(self, kinds: tuple[str, ...], last: int) -> None:
        """Checkpoint surgery: as after a crash of a machine whose file system had not written its newest files."""
        for number in self.batches()[-last:]:
            for kind in kinds:
                (self.checkpoint / kind / str(number)).unlink(missing_ok=True)
                (self.checkpoint / kind / f".{number}.crc").unlink(missing_ok=True)


def labels(first: int, last: int) -> list[str]:
    return [f"label {n}" for n in range(first, last + 1)]


def sent(qm: OutboxServer, destination: str = QUEUE) -> list[str]:
    return [row["label"] for row in qm.model.outgoing[destination]]


@pytest.mark.parametrize("how", SINKS)
def test_a_stream_goes_out_in_order(
    spark: SparkSession, qm: OutboxServer, fake: Fake, tmp_path: Path, how: str
) -> None:
    """A row's identity is its source position; the application is the id of the query."""
    pipeline = Pipeline(spark, qm, tmp_path, how)
    query = pipeline.run(pipeline.rows(fake(orders=250)))
    assert sent(qm) == labels(1, 250)
    assert {path.split("/")[3] for path, _, _ in qm.named("commit")} == {str(query.id)}
    assert [path.split("/")[4] for path, _, _ in qm.named("commit")] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("how", "kinds", "last"),
    [
        ("format", ("commits",), 1),
        ("foreachBatch", ("offsets", "commits"), 1),
        ("format", ("offsets", "commits"), 3),
        pytest.param("foreachBatch", ("commits",), 1, marks=pytest.mark.long),
        pytest.param("format", ("offsets", "commits"), 1, marks=pytest.mark.long),
        pytest.param("foreachBatch", ("offsets", "commits"), 3, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_checkpoint_surgery(
    spark: SparkSession,
    qm: OutboxServer,
    fake: Fake,
    tmp_path: Path,
    how: str,
    kinds: tuple[str, ...],
    last: int,
) -> None:
    """A batch that is planned again may hold other rows than before: it is never skipped by its number."""
    source = fake(orders=350)
    pipeline = Pipeline(spark, qm, tmp_path, how)
    pipeline.run(pipeline.rows(source))
    pipeline.forget(kinds, last)
    source.add("private$/orders", 130)
    pipeline.run(pipeline.rows(source))
    assert sent(qm) == labels(1, 480)


@pytest.mark.parametrize("how", SINKS)
def test_rows_known_by_their_content(
    spark: SparkSession, qm: OutboxServer, tmp_path: Path, how: str
) -> None:
    """Without key and position, equal rows of one batch are counted: a replay that shuffles them anew adds none."""
    spark.createDataFrame([("a",), ("b",), ("a",), ("a",)], "body string").write.parquet(
        str(tmp_path / "in")
    )
    pipeline = Pipeline(spark, qm, tmp_path, how)
    for shuffled in (2, 3):
        frame = spark.readStream.schema("body string").parquet(str(tmp_path / "in"))
        pipeline.run(frame.repartition(shuffled))
        pipeline.forget(("commits",), 1)
    assert sorted(qm.model.bodies(QUEUE)) == [b"a", b"a", b"a", b"b"]


@pytest.mark.parametrize("how", SINKS)
def test_a_new_checkpoint_with_the_same_application_sends_no_key_twice(
    spark: SparkSession, qm: OutboxServer, fake: Fake, tmp_path: Path, how: str
) -> None:
    source = fake(orders=120)
    for number in (1, 2):
        pipeline = Pipeline(spark, qm, tmp_path / str(number), how)
        pipeline.options |= {"application": "forwarder", "orderBy": "sequence"}
        source.consumers.clear()  # the new query begins at the first row again
        pipeline.run(
            pipeline.rows(source).selectExpr("body", "label", "sequence", "sequence as key")
        )
        source.add("private$/orders", 30)
    assert sent(qm) == labels(1, 150)


@pytest.mark.parametrize("how", SINKS)
def test_a_new_checkpoint_with_the_same_application_loses_no_row_without_identity(
    spark: SparkSession, qm: OutboxServer, tmp_path: Path, how: str
) -> None:
    """Its batches count from 0 again: rows like those of the old batch 0 are new ones."""
    spark.createDataFrame([(b"a",)], "body binary").coalesce(1).write.parquet(str(tmp_path / "in"))
    frame = spark.readStream.schema("body binary").parquet(str(tmp_path / "in"))
    for number in (1, 2):
        pipeline = Pipeline(spark, qm, tmp_path / str(number), how)
        pipeline.options |= {"application": "plc"}
        for _ in range(2):
            pipeline.run(frame)
            pipeline.forget(("commits",), 1)
        assert qm.model.bodies(QUEUE) == [b"a"] * number


@pytest.mark.parametrize("how", SINKS)
def test_a_batch_that_fails_for_good(
    spark: SparkSession, qm: OutboxServer, fake: Fake, tmp_path: Path, how: str
) -> None:
    """Nothing of it is committed, its stages are deleted; what was before it stays, and it goes out when it can."""
    pipeline = Pipeline(spark, qm, tmp_path, how)
    source = fake(orders=250)
    with pytest.raises(Exception, match="boom"):
        pipeline.run(failing(pipeline.rows(source), 190, qm, tmp_path))
    assert sent(qm) == labels(1, 100)
    assert qm.model.stages == {}
    pipeline.run(pipeline.rows(source).select(*POSITION, "body", "label"))
    assert sent(qm) == labels(1, 250)


STAGED_QUIET_S = 1.5
"""Nobody has staged anything for so long: all that will have."""
STAGED_WAIT_S = 60.0
POSITION = ("queue_manager", "epoch", "queue", "sequence")


def failing(rows: DataFrame, sequence: int, qm: OutboxServer, tmp_path: Path) -> DataFrame:
    """One task fails when the others have staged: a stage that comes after the abort would stay until the sweep."""
    have_staged = str(tmp_path / "the others have staged")

    def watch() -> None:
        seen, since = 0, time.monotonic()
        while not seen or time.monotonic() - since < STAGED_QUIET_S:
            if len(qm.model.stages) != seen:
                seen, since = len(qm.model.stages), time.monotonic()
            time.sleep(0.02)
        Path(have_staged).touch()

    def fail_late(batches: Any) -> Any:
        for batch in batches:
            if sequence in batch.column("sequence").to_pylist():
                time.sleep(2)  # what is seen before may be the stages of an earlier batch
                end = time.monotonic() + STAGED_WAIT_S
                while not os.path.exists(have_staged) and time.monotonic() < end:  # noqa: PTH110  # as a worker has it
                    time.sleep(0.05)
                raise ValueError("boom")
            yield batch

    threading.Thread(target=watch, daemon=True).start()

    found = rows.select(*POSITION, "body", "label")
    return found.mapInArrow(fail_late, found.schema)


@pytest.mark.parametrize("how", SINKS)
def test_the_first_batch_of_a_query_fails(
    spark: SparkSession, qm: OutboxServer, fake: Fake, tmp_path: Path, how: str
) -> None:
    """Spark may tell abort() of no task that has staged: the query is found by its checkpoint."""
    pipeline = Pipeline(spark, qm, tmp_path, how)
    with pytest.raises(Exception, match="boom"):
        pipeline.run(failing(pipeline.rows(fake(orders=100)), 100, qm, tmp_path))
    assert len(qm.named("DELETE")) == 1
    assert (qm.model.stages, qm.model.outgoing) == ({}, {})


def test_two_sinks(spark: SparkSession, qm: OutboxServer, fake: Fake, tmp_path: Path) -> None:
    """Of one function, to two queues; and two queries on one frame to one queue: each is an application of its own."""
    first, second = (
        SrmpSink(queueManager=qm.url, destination=QUEUE),
        SrmpSink(queueManager=qm.url, destination=OTHER),
    )
    pipeline = Pipeline(spark, qm, tmp_path, "foreachBatch")

    def both(batch: DataFrame, number: int) -> None:
        first(batch, number)
        second(batch.where("sequence % 2 = 0"), number)

    frame = pipeline.rows(fake(orders=150))
    for _ in range(2):
        query = frame.writeStream.foreachBatch(both).option(
            "checkpointLocation", str(pipeline.checkpoint)
        )
        query.trigger(availableNow=True).start().awaitTermination(120)
        pipeline.forget(("commits",), 1)
    assert sent(qm) == labels(1, 150)
    assert sent(qm, OTHER) == labels(1, 150)[1::2]


def test_empty_batches_say_nothing(
    spark: SparkSession, qm: OutboxServer, fake: Fake, tmp_path: Path
) -> None:
    pipeline = Pipeline(spark, qm, tmp_path, "format")
    pipeline.run(pipeline.rows(fake(orders=150)).where("sequence > 100"))
    assert sent(qm) == labels(101, 150)
    assert len(qm.named("commit")) == 1


def test_what_a_stream_cannot_be(
    spark: SparkSession, qm: OutboxServer, fake: Fake, tmp_path: Path
) -> None:
    rows = Pipeline(spark, qm, tmp_path, "format").rows(fake(orders=10))
    counted = rows.groupBy("label").count().selectExpr("label as body")
    options = {
        "queueManager": qm.url,
        "destination": QUEUE,
        "checkpointLocation": str(tmp_path / "c"),
    }
    query = counted.writeStream.format("srmp").options(**options).outputMode("complete").start()
    with pytest.raises(Exception, match="use outputMode append or update"):
        query.processAllAvailable()
    query = rows.writeStream.format("srmp").options(**options, batch="1").start()
    with pytest.raises(Exception, match="option batch has no effect"):
        query.processAllAvailable()
    assert qm.calls == []


def test_srmp_sink_outside_of_a_query(spark: SparkSession, qm: OutboxServer) -> None:
    frame = spark.createDataFrame([("a",)], "body string")
    with pytest.raises(
        ConfigurationError, match="not called by a streaming query: give application"
    ):
        SrmpSink(queueManager=qm.url, destination=QUEUE)(frame, 0)
    SrmpSink(queueManager=qm.url, destination=QUEUE, application="by hand")(frame, 0)
    assert qm.model.bodies(QUEUE) == [b"a"]


def test_rows_that_came_do_not_go_back_by_themselves(
    spark: SparkSession, qm: OutboxServer, fake: Fake, tmp_path: Path
) -> None:
    """Spark keeps the comment of the source's columns through whatever leaves them as they are."""
    pipeline = Pipeline(spark, qm, tmp_path, "format")
    del pipeline.options["destination"]
    rows = pipeline.rows(fake(orders=3)).filter("sequence > 0")
    with pytest.raises(Exception, match="is that of the received message"):
        pipeline.run(rows)
    pipeline.run(rows.selectExpr("body", "label", f"'{OTHER}' as destination"))
    assert len(qm.model.bodies(OTHER)) == 3
