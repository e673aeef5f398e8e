"""The sink in a Spark Connect session: a batch, a stream, foreachBatch, and what is refused; the last line is JSON."""

import fcntl
import json
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from srmp_spark import SrmpSink

url, directory = sys.argv[1:]
alone = Path(tempfile.gettempdir(), "srmp-spark-connect-test.lock").open("w")  # noqa: SIM115  # held until this process ends
fcntl.flock(alone, fcntl.LOCK_EX)  # Spark's own Connect server has one port: tests that run side by side take turns
spark = SparkSession.builder.remote("local[2]").getOrCreate()
numbers = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) as body", "id as n")


def queue(name):
    return f"DIRECT=http://h/msmq/{name}"


def write(frame, name, **options):
    frame.write.format("srmp").mode("append").options(**{"queueManager": url, "destination": queue(name), **options}).save()


def error_of(what, *arguments, **options):
    try:
        what(*arguments, **options)
    except Exception as error:
        return str(error)
    return "no error"


def stream(writer, checkpoint):
    query = writer.option("checkpointLocation", f"{directory}/{checkpoint}").trigger(availableNow=True).start()
    query.awaitTermination(120)


for number in range(3):
    rows = spark.range(10 * number, 10 * number + 10).selectExpr("cast(id as string) as body", "id as n")
    rows.coalesce(1).write.mode("append").parquet(f"{directory}/in")
source = spark.readStream.schema("body string, n bigint").parquet(f"{directory}/in")
answer = {}

write(numbers.repartition(3), "batch", orderBy="n")
stream(source.writeStream.format("srmp").options(queueManager=url, destination=queue("stream"), orderBy="n"), "stream")

each = SrmpSink(queueManager=url, destination=queue("each"), orderBy="n", application="each")
stream(source.writeStream.foreachBatch(each), "each")
for file in Path(directory, "each", "commits").iterdir():
    file.unlink()
stream(source.writeStream.foreachBatch(each), "each")

answer["made"] = error_of(SrmpSink, queueManager=url, destination=queue("none"))
each._application = None
del each._options["application"]
answer["called"] = error_of(stream, source.writeStream.foreachBatch(each), "none")


def fail_late(batches):
    """What the other tasks have staged by then must be deleted."""
    import time

    from pyspark import TaskContext

    for batch in batches:
        if TaskContext.get().partitionId() == 3:
            time.sleep(5)
            raise ValueError("boom")
        yield batch


bad = numbers.mapInArrow(fail_late, numbers.schema)
answer["failed"] = error_of(write, bad, "none")
answer["option"] = error_of(write, numbers, "none", destinaton="x")
answer["column"] = error_of(write, numbers.selectExpr("body", "n as label"), "none")
keyed = numbers.selectExpr("body", "n as key")
write(keyed, "keys", application="keys")
answer["conflict"] = error_of(write, keyed.selectExpr("'other' as body", "key"), "keys", application="keys")
print(json.dumps(answer), flush=True)
spark.stop()
os._exit(0)
