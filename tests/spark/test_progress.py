"""What waits for a streaming query: the listener, with Spark's own events and with the engine."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fake_queue_manager import FakeQueueManager

import srmp_spark
from srmp_spark.spark.progress import QueryProgress, SrmpListener, waiting_of
from srmp_spark.spark.reading.offsets import LogKey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUID = "caf195ea-615c-4264-ae08-11a4e60194c0"
ORDERS = LogKey(GUID, "private$/orders")


def offset(sequence: int, epoch: str = "e1") -> str:
    return json.dumps({"qm": {GUID: {epoch: {"private$/orders": sequence}}}, "v": 1})


def event(
    number: str, end: str, latest: str | None, rows: int = 5, name: str | None = None, **ms: int
) -> Any:
    source = SimpleNamespace(endOffset=end, latestOffset=latest, numInputRows=rows)
    return SimpleNamespace(
        progress=SimpleNamespace(id=number, name=name, batchId=7, sources=[source], durationMs=ms)
    )


@pytest.mark.parametrize(
    ("end", "latest", "waits"),
    [
        (offset(10), offset(25), [(ORDERS, 15)]),
        (offset(10), offset(25, "e2"), [(ORDERS, 15)]),
        (offset(10), offset(10), [(ORDERS, 0)]),
        (offset(10), "null", []),
        (offset(10), None, []),
        (offset(10), '{"logOffset":3}', []),
    ],
)
def test_what_waits_lies_between_two_offsets(
    end: str, latest: str | None, waits: list[tuple[LogKey, int]]
) -> None:
    assert list(waiting_of(end, latest)) == waits


def test_queries_are_kept_logged_and_written_until_they_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = [0.0]
    file = tmp_path / "srmp.prom"
    told = SrmpListener(log_seconds=10, prometheus_file=str(file), monotonic=lambda: clock[0])
    number = str(uuid.uuid4())
    for at, end in ((0.0, 10), (5.0, 15), (11.0, 20)):
        clock[0] = at
        told.onQueryProgress(event(number, offset(end), offset(30), name='a "query"'))
    told.onQueryProgress(event("other", '{"logOffset":3}', None))
    assert told.progress == {number: QueryProgress('a "query"', 7, 15, {ORDERS: 10})}
    assert told.progress[number].lag == 10
    lines = [each for each in caplog.messages if each.startswith("query.progress")]
    assert [line.split()[-2:] for line in lines] == [
        ["waiting=20", f"private$/orders@{GUID}=20"], ["waiting=10", f"private$/orders@{GUID}=10"]
    ]  # fmt: skip
    labels = f'query="a \\"query\\"",queue_manager="{GUID}",queue="private$/orders"'
    assert f"srmp_query_waiting_rows{{{labels}}} 10\n" in file.read_text()
    assert 'srmp_query_rows_total{query="a \\"query\\""} 15\n' in file.read_text()
    told.onQueryTerminated(SimpleNamespace(id=number))  # type: ignore[arg-type]  # all that it looks at
    assert told.progress == {}
    assert "} " not in file.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["srmp.prom"]


def test_where_the_time_of_a_trigger_went_is_kept_and_added_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "srmp.prom"
    told = SrmpListener(prometheus_file=str(file))
    latest = json.dumps({**json.loads(offset(9)), "ms": {"range": 20.5, "plan": 1.5}})
    told.onQueryProgress(event("1", offset(9), latest, triggerExecution=130, addBatch=90))
    told.onQueryProgress(event("1", offset(9), latest, triggerExecution=170, addBatch=110))
    assert told.progress["1"].lag == 0, "an offset with times is an offset"
    assert told.progress["1"].spent_ms == {
        "triggerExecution": 170,
        "addBatch": 110,
        "source.range": 20.5,
        "source.plan": 1.5,
    }
    assert (
        "addBatch_ms=90 source.plan_ms=1.5 source.range_ms=20.5 triggerExecution_ms=130"
        in caplog.text
    )
    assert (
        'srmp_query_phase_seconds_total{query="1",phase="triggerExecution"} 0.300\n'
        in file.read_text()
    )
    assert (
        'srmp_query_phase_seconds_total{query="1",phase="source.range"} 0.041\n' in file.read_text()
    )
    told.onQueryTerminated(SimpleNamespace(id="1"))  # type: ignore[arg-type]  # all that it looks at
    assert "} " not in file.read_text()


def test_a_file_that_cannot_be_written_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = SrmpListener(prometheus_file=str(tmp_path / "missing" / "srmp.prom"))
    told.onQueryProgress(event("1", offset(1), offset(2)))
    assert told.progress["1"].lag == 1
    assert "query.metrics_not_written" in caplog.text


@pytest.mark.spark
def test_the_engine_tells_what_waits(
    spark: SparkSession, fake: Callable[..., FakeQueueManager], tmp_path: Path
) -> None:
    """``sources[].latestOffset`` is carried; ``sources[].metrics`` is empty for a Python data source (Spark 4.2)."""
    qm = fake(orders=100)
    told = srmp_spark.listener(spark)
    frame = (
        spark.readStream.format("srmp").option("queueManager", qm.url).option("queue", "private$/orders")
        .option("maxOffsetsPerTrigger", 30).load()
    )  # fmt: skip
    query = (
        frame.writeStream.queryName("orders").foreachBatch(lambda batch, number: None)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="1 hour").start()
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while str(query.id) not in told.progress:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        found = told.progress[str(query.id)]
        assert (found.name, found.batch, found.waiting) == (
            "orders",
            0,
            {LogKey(qm.guid, "private$/orders"): 70},
        )
        progress = query.lastProgress
        assert progress is not None
        assert not progress["sources"][0]["metrics"]
    finally:
        query.stop()
        spark.streams.removeListener(told)
