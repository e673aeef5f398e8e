"""Reads a queue in a Spark Connect session, as a batch and as a stream; the last line of stdout says how many rows."""

import fcntl
import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

url, directory = sys.argv[1:]
alone = Path(tempfile.gettempdir(), "srmp-spark-connect-test.lock").open("w")  # noqa: SIM115  # held until this process ends
fcntl.flock(alone, fcntl.LOCK_EX)  # Spark's own Connect server has one port: tests that run side by side take turns
spark = SparkSession.builder.remote("local[2]").getOrCreate()
options = {"queueManager": url, "queue": "private$/orders"}
rows = spark.read.format("srmp").options(**options).load()
batch = rows.where("sequence > 0").count()
stream = spark.readStream.format("srmp").options(**options, maxOffsetsPerTrigger=100).load()
writer = (
    stream.writeStream.format("parquet")
    .option("path", f"{directory}/rows")
    .option("checkpointLocation", f"{directory}/checkpoint")
)
query = writer.trigger(availableNow=True).start()
query.awaitTermination(90)
landed = spark.read.parquet(f"{directory}/rows").select("sequence").distinct().count()
batches = len([file for file in Path(directory, "checkpoint", "commits").iterdir() if file.name.isdigit()])
print(json.dumps({"batch": batch, "stream": landed, "batches": batches}))
spark.stop()
