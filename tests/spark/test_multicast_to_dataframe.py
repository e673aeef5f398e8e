"""One DataFrame is multicast, and two queue managers read it at once: rows out by PGM, rows in by PGM."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests

from srmp_spark.testing.foreign.ports import kept_port
from srmp_spark.testing.queue_manager import RunningQueueManager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ADDRESS = "239.192.77.4:8001"
QUEUE = "private$/ticks"
ROWS = 120
WAIT_S = 60.0


def waiting(running: RunningQueueManager) -> int:
    queues = requests.get(f"{running.api}/v1/status", timeout=30).json()["queues"]
    return next((int(each["last"]) for each in queues if each["name"] == QUEUE), 0)


def test_a_dataframe_becomes_a_dataframe_at_two_queue_managers(
    spark: SparkSession, tmp_path: Path
) -> None:
    pgm = f"udp:{kept_port()}"
    listening = {"queues": [f"{QUEUE}:multicast={ADDRESS}"], "pgm": pgm}
    with (
        RunningQueueManager(tmp_path / "first", **listening) as first,
        RunningQueueManager(tmp_path / "second", **listening) as second,
        RunningQueueManager(tmp_path / "sender", pgm=pgm) as sender,
    ):
        frame = (
            spark.range(ROWS)
            .coalesce(1)
            .selectExpr("concat('tick ', id) AS body", "concat('label ', id) AS label")
        )
        (
            frame.write.format("srmp").mode("append")
            .option("queueManager", sender.api).option("destination", f"MULTICAST={ADDRESS}").save()
        )  # fmt: skip
        end = time.monotonic() + WAIT_S
        while min(waiting(first), waiting(second)) < ROWS:
            assert time.monotonic() < end, (
                f"{waiting(first)} and {waiting(second)} of {ROWS} rows came"
            )
            time.sleep(0.1)
        both = ",".join((first.api, second.api))
        rows = (
            spark.read.format("srmp").option("queueManager", both).option("queue", QUEUE).load()
            .selectExpr("queue_manager", "transport", "delivery", "CAST(body AS STRING) AS body", "label").collect()
        )  # fmt: skip
    assert {(row.transport, row.delivery) for row in rows} == {("pgm", "express")}
    for running in (first, second):
        came = sorted(
            (row.body, row.label)
            for row in rows
            if row.queue_manager == running.ready["queue_manager"]
        )
        assert came == sorted((f"tick {number}", f"label {number}") for number in range(ROWS))
