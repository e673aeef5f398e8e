"""A streaming query that writes down when it gets which row, as a program of its own.

    python -m tests.kit.failover.query API QUEUES FILE CHECKPOINT

Each row is a line of FILE: ``{"at", "epoch", "queue", "sequence"}``, with ``at`` in seconds of
``time.monotonic``. The query runs until its standard input is closed. It uses the JVM that the
environment names (:mod:`tests.one_jvm`), or one of its own.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

from srmp_spark.spark.session import delta_session
from srmp_spark.spark.source import register
from tests.one_session import SMALL

TIMEOUT = "3m"
"""Longer than a handover takes, on a busy machine, too."""


def main() -> int:
    """Run the query; return 1 if it has ended by itself."""
    api, queues, file, checkpoint = sys.argv[1:]
    spark = delta_session("failover", "local[2]")
    register(spark)
    for setting, value in SMALL.items():
        spark.conf.set(setting, value)
    with Path(file).open("a", buffering=1, encoding="utf-8") as written:

        def write(frame: DataFrame, _: int) -> None:
            rows = frame.select("epoch", "queue", "sequence").collect()
            at = time.monotonic()
            written.writelines(json.dumps({"at": at, **row.asDict()}) + "\n" for row in rows)

        source = spark.readStream.format("srmp").options(
            queueManager=api, queue=queues, queueManagerTimeout=TIMEOUT
        )
        query = (
            source.option("startingOffsets", "earliest")
            .load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        sys.stdin.read()
        failure = query.exception()
        query.stop()
    spark.stop()
    if failure is not None:
        print(failure, file=sys.stderr)
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
