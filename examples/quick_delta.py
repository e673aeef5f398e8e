"""Read XML orders from a queue, keep each one once in a Delta table, and answer it.

Copy this file, then change ORDER, KEY and REASON for your own messages. It runs until Ctrl-C;
--once reads what is there and ends. The next start goes on where this one stopped, also by kill -9.
"""

import sys

from delta import DeltaTable, configure_spark_with_delta_pip
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from srmp_spark import SrmpSink

QUEUE_MANAGER = "http://127.0.0.1:8081"  # the API of `srmp-spark serve`
QUEUE = "private$/orders"
REPLIES = "DIRECT=http://127.0.0.1:8080/msmq/private$/replies"  # or a queue of a Windows machine
ORDERS, QUARANTINE, CHECKPOINT = "./lake/orders", "./lake/quarantine", "./lake/checkpoint"

# Written down, because a schema that Spark infers changes with the messages. The text of an order
# that does not fit it is in the column `unreadable`.
ORDER = "id STRING, customer STRING, quantity INT, price DECIMAL(10,2), unreadable STRING"
XML = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "unreadable"}
KEY = "id"  # the table has one row for each, that of the newest message
# These four columns identify a message for ever: in the table, in the quarantine, for the reply.
MESSAGE = ["queue_manager", "epoch", "queue", "sequence"]

# Why a message cannot be an order; null if it is one. Without this check a single bad message ends
# the query, and ends it again after each restart.
REASON = """CASE WHEN body_text IS NULL THEN 'the body is not text'
    WHEN xml.unreadable IS NOT NULL THEN 'not the XML of an order'
    WHEN xml.id IS NULL THEN 'no id'
    WHEN xml.quantity <= 0 THEN 'no positive quantity' END"""

spark = configure_spark_with_delta_pip(
    SparkSession.builder.appName("quick_delta")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.shuffle.partitions", "2")  # these two are for one machine
    .config("spark.databricks.delta.snapshotPartitions", "2")
).getOrCreate()

# `application` stays the same for ever: by it a reply is known, even if the checkpoint is lost.
reply = SrmpSink(
    queueManager=QUEUE_MANAGER, destination=REPLIES, orderBy="sequence", application="quick-delta"
)


def merge(path: str, rows: DataFrame, key: list[str], newer: str = "false") -> None:
    """Insert rows whose key the table lacks. Replace a known row if the condition `newer` holds."""
    if not DeltaTable.isDeltaTable(spark, path):
        rows.limit(0).write.format("delta").save(path)
    same = " AND ".join(f"table.{name} = new.{name}" for name in key)
    merging = DeltaTable.forPath(spark, path).alias("table").merge(rows.alias("new"), same)
    merging.withSchemaEvolution().whenMatchedUpdateAll(newer).whenNotMatchedInsertAll().execute()


def write(batch: DataFrame, number: int) -> None:
    """Write one micro-batch. Spark runs it again after a crash, so each step may happen twice."""
    rows = batch.withColumn("xml", F.from_xml("body_text", ORDER, XML))
    rows = rows.withColumn("reason", F.expr(REASON)).persist()  # the XML is parsed once
    orders = rows.where("reason IS NULL").select("xml.*", *MESSAGE, "arrived_at").drop("unreadable")
    poison = rows.where("reason IS NOT NULL").drop("xml")
    # MERGE by key and not append with txnVersion = number: with a new checkpoint the numbers begin
    # again at 0, and Delta would skip the rows of new batches. For each id, MERGE takes one row.
    last = orders.groupBy(KEY).agg(F.max_by(F.struct(orders.columns), "sequence").alias("order"))
    # The same message again, or an older one, changes nothing.
    newer = "new.epoch <> table.epoch OR new.sequence > table.sequence"
    merge(ORDERS, last.select("order.*"), [KEY], newer)
    merge(QUARANTINE, poison, MESSAGE)
    # The reply comes last: whoever receives it can rely on the table.
    body = F.to_xml(F.struct(KEY, F.lit("accepted").alias("state")), {"rowTag": "reply"})
    reply(orders.select(*MESSAGE, body.alias("body"), F.col(KEY).alias("label")), number)
    print(f"batch {number}: orders {orders.count()}, quarantine {poison.count()}", flush=True)
    rows.unpersist()


messages = (
    spark.readStream.format("srmp")
    .option("queueManager", QUEUE_MANAGER)
    .option("queue", QUEUE)
    .option("columns", ",".join([*MESSAGE, "arrived_at", "label", "body", "body_text"]))
    .option("maxOffsetsPerTrigger", 10_000)  # a backlog becomes many batches and not one huge one
    .load()
)
when = {"availableNow": True} if "--once" in sys.argv else {"processingTime": "2 seconds"}
query = (
    messages.writeStream.foreachBatch(write)
    .option("checkpointLocation", CHECKPOINT)  # one for each query, and not on a temporary disk
    .trigger(**when)
    .start()
)
try:
    query.awaitTermination()
except KeyboardInterrupt:
    query.stop()
spark.read.format("delta").load(ORDERS).drop(*MESSAGE[:3], "arrived_at").orderBy(KEY).show()
spark.read.format("delta").load(QUARANTINE).select("sequence", "reason").show(truncate=False)
spark.stop()
