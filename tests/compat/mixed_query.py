"""One query with a checkpoint, a batch read and a batch write, by whichever version ``PYTHONPATH`` names.

    python mixed_query.py API FOLDER QUEUE DESTINATION

The query reads what there is (``availableNow``) and goes on with its checkpoint in FOLDER. Then DESTINATION gets one message
of a batch write. The last line of stdout is JSON: the package of the driver and of a worker, the rows of the query, the rows
of a batch read (sequence and label), and the version.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import srmp_spark
from srmp_spark.spark.session import delta_session
from srmp_spark.spark.source import register

SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""For queries of a few rows that run once: compiling them takes longer than running them."""


def package_of_a_worker(_: int) -> str:
    """Return the file of the package that a task imports."""
    import srmp_spark as found

    return str(found.__file__)


def main() -> None:
    """Run the query, the batch read and the batch write."""
    api, folder, queue, destination = sys.argv[1:]
    # Workers are children of a JVM that may be there already, with another PYTHONPATH.
    spark = delta_session("mixed", "local[2]")
    spark.sparkContext.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    register(spark)
    for setting, value in SMALL.items():
        spark.conf.set(setting, value)
    found: list[list[Any]] = []

    def write(frame: DataFrame, _: int) -> None:
        found.extend(list(row) for row in frame.select("sequence", "label").collect())

    options = {"queueManager": api, "queue": queue}
    source = spark.readStream.format("srmp").options(**options, maxOffsetsPerTrigger="3").load()
    checkpoint = str(Path(folder) / "checkpoint")
    query = source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination(120)
    batch = spark.read.format("srmp").options(**options).load().select("sequence", "label")
    rows = sorted(list(row) for row in batch.collect())
    frame = spark.createDataFrame([(b"by " + srmp_spark.__version__.encode(),)], "body BINARY")
    frame.write.format("srmp").mode("append").options(
        queueManager=api, destination=destination
    ).save()
    workers = spark.sparkContext.parallelize([0], 1).map(package_of_a_worker).collect()
    print(
        json.dumps(
            {
                "packages": [str(srmp_spark.__file__), *workers],
                "version": srmp_spark.__version__,
                "query": found,
                "batch": rows,
            }
        ),
        flush=True,
    )
    spark.stop()


if __name__ == "__main__":
    main()
