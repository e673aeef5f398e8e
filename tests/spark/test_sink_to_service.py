"""The sink and a service of WS-ReliableMessaging (here one of our own): rows once and in order, by option and by column."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from srmp_spark import SrmpSink
from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
QUEUE = "private$/in"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RunningQueueManager, RunningQueueManager]]:
    with (
        RunningQueueManager(
            tmp_path / "there", queues=[QUEUE], wsrm_buffer=4096, listen_wsrm="127.0.0.1:0"
        ) as there,
        RunningQueueManager(tmp_path / "here") as here,
    ):
        yield here, there


def landed(there: RunningQueueManager, count: int, seconds: float = 120.0) -> list[dict[str, Any]]:
    """The rows of the queue, when there are so many."""
    client = QueueManagerClient(there.api)
    deadline = time.monotonic() + seconds
    while (end := client.range(QUEUE, epoch=there.epoch, after=0).end) < count:
        assert time.monotonic() < deadline, end
        time.sleep(0.1)
    with client.rows(QUEUE, epoch=there.epoch, after=0, to=end) as stream:
        return pa.ipc.open_stream(stream.as_file()).read_all().to_pylist()  # type: ignore[no-any-return]


def xml(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.range(first, first + count, 1, 3).selectExpr(
        "concat('<order xmlns=\"urn:shop\"><n>', id, '</n></order>') as body",
        "id as n",
        "id as key",
    )


def bodies(first: int, count: int) -> list[bytes]:
    return [
        f'<order xmlns="urn:shop"><n>{number}</n></order>'.encode()
        for number in range(first, first + count)
    ]


def test_the_same_batch_again_sends_the_same_rows_once(
    spark: SparkSession, pair: tuple[RunningQueueManager, RunningQueueManager]
) -> None:
    here, there = pair
    service = f"wsrm:{there.ready['wsrm']}/wsrm/{QUEUE}"
    sink = SrmpSink(
        queueManager=here.api,
        destination=service,
        soap_action="urn:shop/order",
        orderBy="n",
        application="orders",
    )
    for batch in (0, 0, 1):
        sink(xml(spark, 0 if batch == 0 else 300, 300), batch)
    found = landed(there, 600)
    assert [row["body"] for row in found] == bodies(0, 600)
    assert {row["soap_action"] for row in found} == {"urn:shop/order"}
    assert [row["wsrm_number"] for row in found] == list(range(1, 601))


def test_action_and_versions_come_from_columns_beside_rows_for_queues(
    spark: SparkSession, pair: tuple[RunningQueueManager, RunningQueueManager]
) -> None:
    here, there = pair
    service = f"wsrm:{there.ready['wsrm']}/wsrm/{QUEUE}"
    frame = xml(spark, 0, 4).selectExpr(
        "body", "n", f"if(n < 3, '{service}', 'http://127.0.0.1:9/msmq/q') as destination",
        "concat('urn:shop/', n) as soap_action", "'1.0' as wsrm_version",
    )  # fmt: skip
    frame.write.format("srmp").mode("append").options(queueManager=here.api, orderBy="n").save()
    found = landed(there, 3)
    assert [row["soap_action"] for row in found] == [f"urn:shop/{number}" for number in range(3)]
    (other,) = [
        each
        for each in QueueManagerClient(here.api).status()["outgoing"]
        if each["destination"].startswith("http")
    ]
    assert other["queued"] == 1


@pytest.mark.parametrize(
    ("options", "body", "told"),
    [
        ({}, "body", "soap_action is missing"),
        ({"soap_action": "urn:a"}, "'<a>' as body", "no content of a SOAP Body"),
        ({"soap_action": "urn:a", "wsrm_version": "2"}, "body", "option wsrm_version"),
    ],
)
def test_what_no_service_could_take_is_told_before_anything_is_sent(
    spark: SparkSession,
    pair: tuple[RunningQueueManager, RunningQueueManager],
    options: dict[str, str],
    body: str,
    told: str,
) -> None:
    here, there = pair
    service = f"wsrm:{there.ready['wsrm']}/wsrm/{QUEUE}"
    with pytest.raises(Exception, match=told):
        xml(spark, 0, 3).selectExpr(body).write.format("srmp").mode("append").options(
            queueManager=here.api, destination=service, **options
        ).save()
    assert QueueManagerClient(here.api).status()["outgoing"] == []
