"""Source and sink in a Spark Connect session: reading a queue as a batch and as a stream; writing as a batch, a stream and in
foreachBatch, and what is refused. Arguments: URL to read from, URL to write to, a folder. The last line of stdout is JSON.
"""

import fcntl
import json
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from srmp_spark import SrmpSink

source_url, sink_url, directory = sys.argv[1:]
alone = Path(tempfile.gettempdir(), "srmp-spark-connect-test.lock").open("w")  # noqa: SIM115  # held until this process ends
fcntl.flock(
    alone, fcntl.LOCK_EX
)  # Spark's own Connect server has one port: runs of the tests side by side take turns
settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
spark = SparkSession.builder.remote("local[2]").config(map=settings).getOrCreate()

# --- the source ---------------------------------------------------------------------------------------------------------------

options = {"queueManager": source_url, "queue": "private$/orders"}
rows = spark.read.format("srmp").options(**options).load()
batch = rows.where("sequence > 0").count()
stream = spark.readStream.format("srmp").options(**options, maxOffsetsPerTrigger=100).load()
writer = (
    stream.writeStream.format("parquet")
    .option("path", f"{directory}/rows")
    .option("checkpointLocation", f"{directory}/checkpoint")
)
query = writer.trigger(availableNow=True).start()
query.awaitTermination(300)
landed = spark.read.parquet(f"{directory}/rows").select("sequence").distinct().count()
batches = len(
    [file for file in Path(directory, "checkpoint", "commits").iterdir() if file.name.isdigit()]
)
every = {**options, "startingOffsets": "earliest"}
declared = spark.read.format("srmp").options(**every).schema("label STRING, sequence LONG").load()
named = spark.read.format("srmp").options(**every, columns="label,sequence").load()
whole = spark.read.format("srmp").options(**every).load().select("label", "sequence")
assert declared.columns == named.columns == ["label", "sequence"]
found = [frame.orderBy("sequence").collect() for frame in (declared, named, whole)]
assert found[0] == found[1] == found[2], found
read = {"batch": batch, "stream": landed, "batches": batches, "declared": len(found[0])}

# --- the sink -----------------------------------------------------------------------------------------------------------------

numbers = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) as body", "id as n")


def queue(name):
    return f"DIRECT=http://h/msmq/{name}"


def write(frame, name, **options):
    given = {"queueManager": sink_url, "destination": queue(name), **options}
    frame.write.format("srmp").mode("append").options(**given).save()


def error_of(what, *arguments, **options):
    try:
        what(*arguments, **options)
    except Exception as error:
        return str(error)
    return "no error"


def stream(writer, checkpoint):
    query = (
        writer.option("checkpointLocation", f"{directory}/{checkpoint}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(300)


for number in range(3):
    rows = spark.range(10 * number, 10 * number + 10).selectExpr(
        "cast(id as string) as body", "id as n"
    )
    rows.coalesce(1).write.mode("append").parquet(f"{directory}/in")
source = spark.readStream.schema("body string, n bigint").parquet(f"{directory}/in")
said = {}

write(numbers.repartition(3), "batch", orderBy="n")
stream(
    source.writeStream.format("srmp").options(
        queueManager=sink_url, destination=queue("stream"), orderBy="n"
    ),
    "stream",
)

each = SrmpSink(queueManager=sink_url, destination=queue("each"), orderBy="n", application="each")
stream(source.writeStream.foreachBatch(each), "each")
for file in Path(directory, "each", "commits").iterdir():
    file.unlink()
stream(source.writeStream.foreachBatch(each), "each")

said["made"] = error_of(SrmpSink, queueManager=sink_url, destination=queue("none"))
each._application = None
del each._options["application"]
said["called"] = error_of(stream, source.writeStream.foreachBatch(each), "none")


def fail_late(batches):
    """What the other tasks have staged by then must be deleted."""
    import time

    from pyspark import TaskContext

    for batch in batches:
        if TaskContext.get().partitionId() == 3:
            time.sleep(2)
            raise ValueError("boom")
        yield batch


bad = numbers.mapInArrow(fail_late, numbers.schema)
said["failed"] = error_of(write, bad, "none")
said["option"] = error_of(write, numbers, "none", destinaton="x")
said["column"] = error_of(write, numbers.selectExpr("body", "n as label"), "none")
keyed = numbers.selectExpr("body", "n as key")
write(keyed, "keys", application="keys")
said["conflict"] = error_of(
    write, keyed.selectExpr("'other' as body", "key"), "keys", application="keys"
)
print(json.dumps({"source": read, "sink": said}), flush=True)
spark.stop()
os._exit(0)
