"""Two messages for each row of a source, by two sinks in one function: refused in words, and sent with each remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from srmp_spark import SrmpSink
from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.outbox_reader import OutboxReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ORDERS = "private$/orders"
NOWHERE = "http://127.0.0.1:9/msmq/private$/nowhere"
COUNT = 20


class Orders:
    """A queue with :data:`COUNT` orders, and what waits to be sent for a destination that is away."""

    def __init__(self, spark: SparkSession, running: RunningQueueManager, directory: Path) -> None:
        self.spark, self.running, self.directory = spark, running, directory
        QueueManagerClient(running.api).send(
            ORDERS, [{"label": str(n), "body_base64": ""} for n in range(COUNT)]
        )

    def run(self, write: Callable[[DataFrame, int], None], checkpoint: str = "c") -> None:
        """Run the query once over what is there."""
        source = (
            self.spark.readStream.format("srmp")
            .option("queueManager", self.running.api)
            .option("queue", ORDERS)
        )
        rows = source.option("startingOffsets", "earliest").option("minPartitions", "2").load()
        writer = rows.writeStream.foreachBatch(write).option(
            "checkpointLocation", str(self.directory / checkpoint)
        )
        writer.trigger(availableNow=True).start().awaitTermination(120)

    def sink(self, **options: Any) -> SrmpSink:
        return SrmpSink(
            queueManager=self.running.api, destination=NOWHERE, orderBy="sequence", **options
        )

    def waiting(self) -> Counter[str]:
        """How many messages of each kind wait."""
        entries = QueueManagerClient(self.running.api).status()["outgoing"]
        queued = sum(entry["queued"] for entry in entries if entry["destination"] == NOWHERE)
        with OutboxReader(self.running.data_dir) as reader:
            found = [stored for key in reader.queues() for stored in reader.waiting(_key(key))]
        assert len(found) == queued
        return Counter(row.message.body.decode().split()[0] for row in found)

    def letters(self) -> Counter[str]:
        with OutboxReader(self.running.data_dir) as reader:
            return Counter(
                stored.message.body.decode().split()[0]
                for moved in reader.moved()
                for stored in moved.messages or []
            )


def _key(row: Any) -> Any:
    from srmp_spark.srmp.sending.outgoing_effects import QueueKey

    return QueueKey(row.destination, row.kind)


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> Iterator[Orders]:
    with RunningQueueManager(tmp_path / "qm", queues=[ORDERS]) as running:
        yield Orders(spark, running, tmp_path)


def made(rows: DataFrame, what: str, *, keyed: bool = False) -> DataFrame:
    """One message for each row: ``what`` and the label of the order."""
    position = ["queue_manager", "epoch", "queue", "sequence"]
    key = [f"concat('{what} ', label) as key"] if keyed else []
    return rows.selectExpr(*position, f"concat('{what} ', label) as body", *key)


@pytest.mark.timeout(300)
def test_two_sinks_in_one_function_lose_nothing_unsaid(orders: Orders) -> None:
    """40 rows are written: 20 queued and an error in words; with an application each, or with keys, all 40."""
    both = orders.sink(), orders.sink()

    def write(rows: DataFrame, number: int) -> None:
        both[0](made(rows, "ack"), number)
        both[1](made(rows, "note"), number)

    for _ in range(
        2
    ):  # the second time the first sink's rows are known, and the second sink's are refused again
        with pytest.raises(Exception, match="position-conflict") as caught:
            orders.run(write)
        said = str(caught.value)
        assert f"{COUNT} rows of the batch" in said
        assert "an application of its own" in said
        assert orders.waiting() == {"ack": COUNT}

    own = orders.sink(application="acks"), orders.sink(application="notes")

    def write_apart(rows: DataFrame, number: int) -> None:
        own[0](made(rows, "a"), number)
        own[1](made(rows, "n"), number)

    for checkpoint in ("apart", "apart again"):  # a checkpoint that is lost: the batch is run again
        orders.run(write_apart, checkpoint)
        assert orders.waiting() == {"ack": COUNT, "a": COUNT, "n": COUNT}
    assert [each.result for each in own] == [(0, COUNT, 0)] * 2, (
        "new, known, conflicts: the rows were sent before"
    )

    def write_keyed(rows: DataFrame, number: int) -> None:
        both[0](made(rows, "k", keyed=True), number)
        both[1](made(rows, "l", keyed=True), number)

    orders.run(write_keyed, "keyed")
    assert orders.waiting() == {"ack": COUNT, "a": COUNT, "n": COUNT, "k": COUNT, "l": COUNT}
    assert both[0].result == (COUNT, 0, 0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["ignore", "dead-letter"])
def test_a_query_goes_on_past_conflicts(orders: Orders, mode: str) -> None:
    """Each value of the option, also where the batch is run again."""
    sinks = [orders.sink(application="app", onKeyConflict=mode) for _ in range(2)]

    def write(rows: DataFrame, number: int) -> None:
        sinks[0](made(rows, "ack"), number)
        sinks[1](made(rows, "note"), number)

    for checkpoint in ("first", "second"):
        orders.run(write, checkpoint)
        assert orders.waiting() == {"ack": COUNT}
        assert orders.letters() == ({} if mode == "ignore" else {"note": COUNT}), "each once"
    log = orders.running.stderr()
    assert log.count(f"rows={COUNT} on_key_conflict={mode}: their key or source position") == 2, (
        "the queue manager's, too"
    )


@pytest.mark.timeout(300)
def test_the_option_of_a_write_and_of_a_stream(orders: Orders) -> None:
    """``format("srmp")`` has it as ``SrmpSink`` does."""
    frame = orders.spark.createDataFrame([("a", "k")], "body string, key string")
    options = {"queueManager": orders.running.api, "destination": NOWHERE, "application": "w"}

    def write(body: str, **more: str) -> None:
        frame.selectExpr(f"'{body}' as body", "key").write.format("srmp").mode("append").options(
            **options, **more
        ).save()

    write("a")
    with pytest.raises(Exception, match="key-conflict"):
        write("b")
    write("b", onKeyConflict="ignore")
    write("b", onKeyConflict="dead-letter")
    write("b", ONKEYCONFLICT="dead-letter")
    assert (orders.waiting(), orders.letters()) == ({"a": 1}, {"b": 1})

    source = (
        orders.spark.readStream.format("srmp")
        .option("queueManager", orders.running.api)
        .option("queue", ORDERS)
    )
    rows = made(source.option("startingOffsets", "earliest").load(), "s")
    for body, mode in (("s", "fail"), ("t", "dead-letter")):
        stream = rows.selectExpr(
            "* except (body)", f"replace(body, 's ', '{body} ') as body"
        ).writeStream.format("srmp")
        stream = stream.options(**options, onKeyConflict=mode).option(
            "checkpointLocation", str(orders.directory / body)
        )
        stream.trigger(availableNow=True).start().awaitTermination(120)
    assert orders.waiting() == {"a": 1, "s": COUNT}
    assert orders.letters() == {"b": 1, "t": COUNT}
