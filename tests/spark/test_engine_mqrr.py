"""``format("mqrr")`` in Spark: two queues of a real queue manager, as a snapshot and as a stream through a subscription."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ORDERS, RETURNS = r"DIRECT=OS:host1\private$\orders", r"DIRECT=OS:host1\private$\returns"


def test_a_batch_takes_nothing_and_a_stream_has_every_message_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    queues = ["private$/orders", "private$/returns"]
    with RunningQueueManager(
        tmp_path / "a", queues=queues, rpc="127.0.0.1:0", host_name=["host1"]
    ) as remote:
        client = QueueManagerClient(remote.api)
        for queue, count in (("private$/orders", 30), ("private$/returns", 5)):
            bodies = [base64.b64encode(b"%d" % n).decode() for n in range(count)]
            client.send(
                queue, [{"body_base64": body, "priority": n % 8} for n, body in enumerate(bodies)]
            )
        reader = (
            spark.read.format("mqrr")
            .option("host", remote.ready["rpc"])
            .option("queue", f"{ORDERS},{RETURNS}")
        )
        rows = reader.load().select("queue", "body_text", "priority", "lookup_id").collect()
        assert len(rows) == 35
        assert rows[0].priority == 7
        assert {row.body_text for row in rows if row.queue.endswith("returns")} == {
            str(n) for n in range(5)
        }
        assert all(int(row.lookup_id) >> 56 == 7 - row.priority for row in rows)
        assert client.queue("private$/orders")["waiting"] == 30
        with RunningQueueManager(tmp_path / "b") as ours:
            # Nobody pulls yet: the run subscribes, and has what waits there.
            stream = (
                spark.readStream.format("mqrr").option("host", remote.ready["rpc"]).option("queue", ORDERS)
                .option("queueManager", ours.api).load().select("body_text")
                .writeStream.format("memory").queryName("mqrr").option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True).start()
            )  # fmt: skip
            assert stream.awaitTermination(120)
            assert sorted(int(row.body_text) for row in spark.table("mqrr").collect()) == list(
                range(30)
            )
            missing = (
                spark.readStream.format("mqrr").option("host", remote.ready["rpc"]).option("queue", ORDERS + "x")
                .option("queueManager", ours.api).load()
                .writeStream.format("memory").queryName("missing").option("checkpointLocation", str(tmp_path / "missing"))
                .trigger(availableNow=True).start()
            )  # fmt: skip
            with pytest.raises(
                StreamingQueryException,
                match=r"ordersx of .* cannot be read: .*MQ_ERROR_QUEUE_NOT_FOUND",
            ):
                missing.awaitTermination(120)
            assert [
                each["queue"] for each in QueueManagerClient(ours.api).status()["subscriptions"]
            ] == [ORDERS]
        assert client.queue("private$/orders")["waiting"] == 0
