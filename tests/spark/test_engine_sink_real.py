"""The sink on a real queue manager that sends to another one: from a DataFrame into the peer's queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from srmp_spark import SrmpSink
from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.demo.two_ends import bodies_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
QUEUE = "private$/in"


class Pair:
    """``here`` sends, ``there`` receives."""

    def __init__(self, here: RunningQueueManager, there: RunningQueueManager) -> None:
        self.here, self.there = here, there
        self.destination = f"DIRECT={there.listening}/msmq/{QUEUE}"

    def write(self, frame: DataFrame, **options: Any) -> None:
        given = {"queueManager": self.here.api, "destination": self.destination, **options}
        frame.write.format("srmp").mode("append").options(**given).save()

    def landed(self, count: int, seconds: float = 90.0) -> list[bytes]:
        """What lies in the peer's queue when it has so many messages."""
        deadline = time.monotonic() + seconds
        while QueueManagerClient(self.there.api).range(QUEUE).end < count:
            assert time.monotonic() < deadline, QueueManagerClient(self.here.api).status()[
                "outgoing"
            ]
            time.sleep(0.1)
        return list(bodies_in(self.there.api, QUEUE))


@pytest.fixture(scope="module")
def one_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """For tests that leave nothing behind."""
    with pair_in(tmp_path_factory.mktemp("pair")) as made:
        yield made


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with pair_in(tmp_path) as made:
        yield made


@contextmanager
def pair_in(tmp_path: Path) -> Iterator[Pair]:
    with (
        RunningQueueManager(
            tmp_path / "there", queues=[f"{QUEUE}:transactional"], allow_url=["http://127.0.0.1:*"]
        ) as there,
        RunningQueueManager(tmp_path / "here") as here,
    ):
        yield Pair(here, there)


def texts(count: int) -> list[bytes]:
    return [str(n).encode() for n in range(count)]


def test_a_frame_lands_in_order_and_a_second_write_of_its_keys_adds_nothing(
    spark: SparkSession, pair: Pair
) -> None:
    frame = (
        spark.range(0, 3000, 1, 3)
        .selectExpr("cast(id as string) as body", "id as n", "id as key")
        .repartition(4, "body")
    )
    pair.write(frame, orderBy="n", application="orders")
    pair.write(frame, orderBy="n", application="orders")
    pair.write(spark.createDataFrame([("last", 1)], "body string, n int"))
    assert pair.landed(3001) == [*texts(3000), b"last"]
    with pytest.raises(Exception, match="key"):
        pair.write(frame.selectExpr("'other' as body", "n", "key"), application="orders")
    assert pair.landed(3001)[-1] == b"last"


def test_the_queue_manager_is_killed_under_a_query(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    """Its batches go on when it is back, and after the loss of the newest commits/N nothing goes out twice."""
    for number in range(6):
        rows = spark.range(100 * number, 100 * number + 100).selectExpr(
            "cast(id as string) as body", "id as n", "id as key"
        )
        rows.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    source = spark.readStream.schema("body string, n bigint, key bigint").option(
        "maxFilesPerTrigger", "1"
    )
    sink = SrmpSink(queueManager=pair.here.api, destination=pair.destination, orderBy="n")

    def kill() -> None:
        time.sleep(2)
        pair.here.kill9()
        time.sleep(1)
        pair.here.restart()

    killer = threading.Thread(target=kill)
    killer.start()
    for _ in range(2):
        query = source.parquet(str(tmp_path / "in")).writeStream.foreachBatch(sink)
        query.option("checkpointLocation", str(tmp_path / "c")).trigger(
            availableNow=True
        ).start().awaitTermination(120)
        for name in ("5", ".5.crc"):
            (tmp_path / "c" / "commits" / name).unlink(missing_ok=True)
    killer.join()
    time.sleep(1)
    assert sorted(pair.landed(600), key=int) == texts(600)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["repeat('x', if(id = 7, 4194305, 1)) as body"], "BODY_MAX = 4194304"),
        (["'x' as body", "repeat('l', 250) as label"], "row 0: label has .*249 characters"),
        (
            ["'x' as body", "'expres' as delivery"],
            "delivery is none of express, recoverable, transactional",
        ),
        (["'x' as body", "9 as priority"], "priority lies between 0 and 7"),
        (
            ["'x' as body", "binary('short') as correlation_id"],
            "row 0: correlation_id has 20 bytes",
        ),
    ],
)
def test_a_row_that_cannot_be_a_message_stops_the_write(
    spark: SparkSession, one_pair: Pair, columns: list[str], told: str
) -> None:
    with pytest.raises(Exception, match=told) as error:
        one_pair.write(spark.range(0, 10, 1, 1).selectExpr(*columns))
    assert "partition 0: row" in str(error.value)
    assert QueueManagerClient(one_pair.here.api).status()["outgoing"] == []
