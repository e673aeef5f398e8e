"""Streaming queries with checkpoints and the ingest job, run by the code of the archive's version and, later, by the present.

    python spark_queries.py FOLDER made|again

``made`` begins each query and leaves it where it is worth coming back to; ``again`` starts the same ones from their
checkpoints. The last line of stdout is JSON: for each query the rows of its batches, as ``[queue, sequence]``, and how many
rows the job wrote. All of them share one session: on a busy machine each further one takes half a minute.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import whole_world as world
from pyspark.sql import DataFrame, SparkSession

from srmp_spark.jobs import ingest
from srmp_spark.spark.session import delta_session
from srmp_spark.spark.source import register

QUERIES: dict[str, dict[str, str]] = {
    "earliest": {"queue": f"{world.SPARK_A},{world.SPARK_B}", "startingOffsets": "earliest", "consumer": "q-earliest",
                 "maxOffsetsPerTrigger": "6"},
    "unreceived": {"queue": world.SPARK_B},
    "failed": {"queue": world.SPARK_A, "consumer": "q-failed", "maxOffsetsPerTrigger": "5"},
    "peek": {"queue": "private$/spark-*", "readMode": "peek"},
    "latest": {"queue": world.LATEST, "startingOffsets": "latest", "consumer": "q-latest"},
    "unplanned": {"queue": world.UNPLANNED, "startingOffsets": "latest", "consumer": "q-unplanned"},
}  # fmt: skip
"""Options of each. ``failed`` fails in its second batch, which is planned and has no commit then. ``latest`` has had a batch,
``unplanned`` has none: it began, and no row came."""

SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""For queries of a few rows that run once: compiling them takes longer than running them."""


class Batches:
    """What foreachBatch is given."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.rows: list[list[Any]] = []
        self._fails_at = fails_at

    def __call__(self, frame: DataFrame, number: int) -> None:
        rows = [list(row) for row in frame.select("queue", "sequence").collect()]
        if number == self._fails_at:
            raise RuntimeError("it fails here")
        self.rows += sorted(rows)


def run(spark: SparkSession, folder: Path, name: str, *, is_made: bool) -> list[list[Any]]:
    """One query."""
    batches = Batches(1 if is_made and name == "failed" else None)
    options = {"queueManager": f"http://{world.API}", "token": world.TOKEN, **QUERIES[name]}
    frame = spark.readStream.format("srmp").options(**options).load()
    writer = frame.writeStream.foreachBatch(batches).option(
        "checkpointLocation", str(folder / name)
    )
    begins_at_the_end = is_made and name in ("latest", "unplanned")
    query = (writer if begins_at_the_end else writer.trigger(availableNow=True)).start()
    try:
        if begins_at_the_end:
            _live(query, name, batches)
        else:
            query.awaitTermination(120)
    except Exception as error:
        if "it fails here" not in str(error):
            raise
    finally:
        query.stop()
    return batches.rows


def _live(query: Any, name: str, batches: Batches) -> None:
    """A query that begins at the end of its queue, until it has registered there, or has had a batch."""
    queue, consumer = QUERIES[name]["queue"], QUERIES[name]["consumer"]
    here = world.client()

    def is_registered() -> bool:
        assert query.exception() is None, query.exception()
        return any(each["name"] == consumer for each in here.queue(queue)["consumers"])

    world.until(is_registered, f"{name} has registered")
    if name == "latest":
        here.send(queue, [{"label": "after the beginning"}, {"label": "after the beginning"}])
        world.until(lambda: batches.rows, "a batch")
        query.processAllAvailable()


def run_ingest(folder: Path) -> int:
    """Run the job on its table and checkpoint; return how many rows it wrote. It stops the session."""
    said = io.StringIO()
    command = [
        "--queue-manager", f"http://{world.API}", "--queue", f"{world.SPARK_A},{world.LEDGER}", "--consumer", "ingest",
        "--option", f"token={world.TOKEN}", "--table", str(folder / "table"), "--checkpoint", str(folder / "ingest"),
        "--available-now", "--max-offsets-per-trigger", "7", "--master", "local[2]",
    ]  # fmt: skip
    with contextlib.redirect_stdout(said):
        code = ingest.main(command)
    closing = json.loads(said.getvalue().splitlines()[-1])
    assert (code, closing["status"]) == (0, "done"), closing
    return int(closing["rows"])


def main() -> None:
    """Run all queries, then the job."""
    folder, how = Path(sys.argv[1]), sys.argv[2]
    spark = delta_session("compat", "local[2]")
    register(spark)
    for setting, value in SMALL.items():
        spark.conf.set(setting, value)
    found: dict[str, Any] = {
        name: run(spark, folder, name, is_made=how == "made") for name in QUERIES
    }
    found["ingested"] = run_ingest(folder)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
