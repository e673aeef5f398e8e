"""A batch read, a batch write and the ingest job, by whichever version ``PYTHONPATH`` names.

    python mixed_query.py API FOLDER QUEUE DESTINATION

DESTINATION gets one message of the batch write. The job writes what there is into the Delta table FOLDER/table and goes on
with its checkpoint in FOLDER. The last line of stdout is JSON: the package of the driver and of a worker, the version, the
rows of the batch read (sequence and label), and how many rows the job wrote.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys

import srmp_spark
from srmp_spark.jobs import ingest
from srmp_spark.spark.session import delta_session
from srmp_spark.spark.source import register

SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}
"""For queries of a few rows that run once: ``tests/one_session.py`` says why. That file is not in every version's path."""


def package_of_a_worker(_: int) -> str:
    """Return the file of the package that a task imports."""
    import srmp_spark as found

    return str(found.__file__)


def main() -> None:
    """Read and write a batch, then run the job, which stops the session."""
    api, folder, queue, destination = sys.argv[1:]
    spark = delta_session("mixed", "local[2]")
    # Workers are children of a JVM that was there before, with a PYTHONPATH of its own.
    spark.sparkContext.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    register(spark)
    for setting, value in SMALL.items():
        spark.conf.set(setting, value)
    source = spark.read.format("srmp").options(queueManager=api, queue=queue).load()
    rows = sorted(list(row) for row in source.select("sequence", "label").collect())
    frame = spark.createDataFrame([(b"by " + srmp_spark.__version__.encode(),)], "body BINARY")
    write = frame.write.format("srmp").mode("append")
    write.options(queueManager=api, destination=destination).save()
    workers = spark.sparkContext.parallelize([0], 1).map(package_of_a_worker).collect()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = ingest.main(
            ["--queue-manager", api, "--queue", queue, "--table", f"{folder}/table", "--checkpoint", f"{folder}/checkpoint",
             "--available-now", "--master", "local[2]"]
        )  # fmt: skip
    closing = json.loads(said.getvalue().splitlines()[-1])
    assert (code, closing["status"]) == (0, "done"), closing
    found = {
        "packages": [str(srmp_spark.__file__), *workers], "version": srmp_spark.__version__, "batch": rows,
        "ingested": closing["rows"],
    }  # fmt: skip
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
