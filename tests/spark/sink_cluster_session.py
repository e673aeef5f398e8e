"""Tasks that fail after writing, and speculative copies: a session whose executors are processes of their own.

``local[N]`` knows neither. Arguments: master, URL of the outbox, a folder. The last line of stdout is JSON.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

master, url, directory = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.speculation": "true",
    "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms", "spark.executor.memory": "512m", "spark.executor.cores": "2",
    "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.driver.host": "127.0.0.1",
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # Executors take their classes mapped from a file too, if `make test` names one.
    "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
}  # fmt: skip
builder = SparkSession.builder.master(master)
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()


def write(frame, destination, **options):
    frame.write.format("srmp").mode("append").options(
        queueManager=url, destination=destination, **options
    ).save()


numbers = spark.range(0, 400, 1, 4).selectExpr("cast(id as string) as body", "id as n")
write(numbers, "DIRECT=http://h/msmq/killed", application="killed")


def slow_once(batches):
    """The first attempt of partition 3 takes its time after it has read everything; its copy does not."""
    import time

    from pyspark import TaskContext

    context = TaskContext.get()
    yield from batches
    if context.partitionId() == 3:
        Path(directory, str(context.taskAttemptId())).touch()
        if context.attemptNumber() == 0:
            time.sleep(100)


slow = numbers.mapInArrow(slow_once, numbers.schema)
write(slow, "DIRECT=http://h/msmq/copied", application="copied")
failed = ""
try:
    write(numbers, "DIRECT=http://h/msmq/refused", application="refused")
except Exception as error:
    failed = str(error)
print(json.dumps({"failed": failed, "copies": len(list(Path(directory).iterdir()))}))
spark.stop()
