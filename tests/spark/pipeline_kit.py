"""One queue of a real queue manager, ``jobs/ingest.py``'s sink and a Delta table, driven batch by batch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.jobs.exactly_once import ExactlyOnce
from tests.kit.oracle import Oracle, Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = count(1)
Append = Callable[["DataFrame", int], None]
"""What ``foreachBatch`` takes."""


class Pipeline:
    """One queue, one table, one checkpoint."""

    def __init__(self, spark: SparkSession, api: str, directory: Path) -> None:
        self.spark = spark
        self.client = QueueManagerClient(api)
        self.api = api
        self.queue = f"private$/q{next(_numbers)}"
        self.client.put_queue(self.queue, transactional=False)
        self.table = directory / "table"
        self.checkpoint = directory / "checkpoint"
        self.sent = 0
        self.sizes: dict[int, int] = {}
        """Rows of the batches that this checkpoint has seen last, those with them that the table held already."""
        self.clean = True
        """Whether the last check found each row once, and nothing was done since."""

    def send(self, rows: int) -> None:
        self.clean = False
        labels = [{"label": str(self.sent + n + 1), "delivery": "recoverable"} for n in range(rows)]
        self.client.send(self.queue, labels)
        self.sent += rows

    def sink(self, *queues: str) -> ExactlyOnce:
        return ExactlyOnce(
            self.spark, str(self.table), str(self.checkpoint), queues=queues or [self.queue]
        )

    def ingest(self, limit: int = 13, **options: Any) -> int:
        """One run of AvailableNow; how many rows it wrote."""
        sink, written = self.sink(), []

        def append(batch: DataFrame, number: int) -> None:
            done = sink.append(batch, number)
            self.sizes[number] = done.rows + done.left_out
            written.append(done.rows)

        self.run(append, limit, **options)
        return sum(written)

    def fill(self) -> None:
        """Have rows in the table, if there are none yet."""
        if not self.sent:
            self.send(26)
            self.ingest()

    def last_batches(self, count: int) -> list[int]:
        """The numbers of the last batches of the checkpoint, all with rows in them: without such, of messages sent now."""
        if (
            not all(self.sizes.get(number) for number in (self.batches() or [-1])[-count:])
            or len(self.batches()) <= count
        ):
            self.send(13 * (count + 1))
            self.ingest()
        last = self.batches()[-count:]
        assert all(self.sizes[number] for number in last)
        return last

    def new_checkpoint(self) -> None:
        """Go on as a job that never had the old one."""
        self.clean = False
        self.checkpoint = self.checkpoint.with_name(f"checkpoint{next(_numbers)}")
        self.sizes = {}

    def run(self, append: Append, limit: int, **options: Any) -> None:
        """One run of AvailableNow into any sink. Raises what ends the query."""
        frame = self.frame(maxOffsetsPerTrigger=limit, **options)
        writer = frame.writeStream.foreachBatch(append).option(
            "checkpointLocation", str(self.checkpoint)
        )
        assert writer.trigger(availableNow=True).start().awaitTermination(280)

    def frame(self, **options: Any) -> DataFrame:
        return (
            self.spark.readStream.format("srmp")
            .options(queueManager=self.api, queue=self.queue, **options)
            .load()
        )

    def forget(self, kind: str, *batches: int) -> None:
        self.clean = False
        for number in batches:
            (self.checkpoint / kind / str(number)).unlink()
            (self.checkpoint / kind / f".{number}.crc").unlink(missing_ok=True)

    def age_the_log(self, days: int = 40) -> None:
        """Let Delta itself write a checkpoint and delete its older commits, as it does after 30 days."""
        log = self.table / "_delta_log"
        self.spark.sql(
            f"ALTER TABLE delta.`{self.table}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1')"
        )
        old = time.time() - days * 86_400
        before = commits_of(self.table)
        for file in log.iterdir():
            if file.is_file():
                os.utime(file, (old, old))
        for number in range(
            2
        ):  # the first has the older checkpoint, the second may delete what is below
            empty = self.spark.read.format("delta").load(str(self.table)).where("false")
            other = empty.write.format("delta").mode("append").option("txnAppId", "somebody else")
            other.option("txnVersion", number).save(str(self.table))
        assert not set(before) & set(commits_of(self.table)), "Delta has deleted them"

    def batches(self, kind: str = "offsets") -> list[int]:
        return sorted(
            int(file.name) for file in (self.checkpoint / kind).iterdir() if file.name.isdigit()
        )

    def verdict(self) -> Verdict:
        """The oracle over what was sent, all of it acknowledged, and the rows of the table."""
        oracle = Oracle()
        for number in range(1, self.sent + 1):
            oracle.sent(str(number))
            oracle.acknowledged(str(number))
        table = deltalake.DeltaTable(str(self.table)).to_pyarrow_table(
            columns=["sequence", "label", "queue"]
        )
        for row in table.to_pylist():
            assert (row["label"], row["queue"]) == (str(row["sequence"]), self.queue), (
                "each row is the message that was sent"
            )
            oracle.landed(row["label"])
        return oracle.verdict()

    def check(self) -> None:
        verdict = self.verdict()
        assert verdict.clean, verdict
        self.clean = True


def commits_of(table: Path) -> list[int]:
    return sorted(
        int(file.stem) for file in (table / "_delta_log").glob("*.json") if file.stem.isdigit()
    )
