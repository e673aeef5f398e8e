"""jobs/ingest.py's promise: the Delta table is complete and unique in (queue_manager, epoch, queue, sequence), whatever happens
to the checkpoint. Against a real queue manager.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pipeline_kit import Pipeline

from srmp_spark.errors import SrmpSparkError
from srmp_spark.jobs.exactly_once import EXPIRY, ExactlyOnce, TakenOverError, may_meet, transactions
from srmp_spark.testing.service import RunningQueueManager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def qm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(tmp_path_factory.mktemp("qm") / "data") as running:
        yield running


@pytest.fixture
def pipeline(spark: SparkSession, qm: RunningQueueManager, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, qm.api, tmp_path)


def test_each_row_lands_once_and_the_queue_is_received(pipeline: Pipeline) -> None:
    pipeline.send(25)
    assert pipeline.ingest() == 25
    assert pipeline.ingest() == 0
    pipeline.send(5)
    assert pipeline.ingest() == 5
    pipeline.check()
    [entry] = [each for each in pipeline.client.queues() if each["name"] == pipeline.queue]
    assert (entry["received"], entry["waiting"]) == (30, 0)


def test_a_new_checkpoint_plans_no_received_row_again_and_says_nothing_of_known_rows(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """The mark decides, not the filter: the first batch is empty, though the table holds all rows."""
    pipeline.send(26)
    assert pipeline.ingest() == 26
    shutil.rmtree(pipeline.checkpoint)
    planned: list[tuple[int, int]] = []
    sink = pipeline.sink()
    sink.claim()

    def append(batch: DataFrame, number: int) -> None:
        planned.append((batch.count(), sink.append(batch, number).left_out))

    caplog.set_level("INFO", "srmp_spark.jobs.exactly_once")
    writer = pipeline.frame().writeStream.foreachBatch(append).trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(pipeline.checkpoint)).start().awaitTermination(120)
    assert planned == [(0, 0)], "one empty batch: a new query always has a batch 0"
    assert "table.holds" in caplog.text, "the table was asked"
    assert "rows.known" not in caplog.text
    pipeline.check()


def test_rows_that_are_left_out_are_counted(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    pipeline.send(5)
    assert pipeline.ingest() == 5
    shutil.rmtree(pipeline.checkpoint)
    pipeline.send(2)
    assert pipeline.ingest(startingOffsets="earliest") == 2
    assert [record.args for record in caplog.records if record.msg.startswith("rows.known")] == [(0, 5)]
    pipeline.check()


def test_without_its_last_commit(pipeline: Pipeline) -> None:
    pipeline.send(25)
    pipeline.ingest()
    pipeline.forget("commits", pipeline.batches()[-1])
    pipeline.send(7)
    assert pipeline.ingest() == 7
    pipeline.check()


def test_without_offsets_and_commit_while_more_has_arrived(pipeline: Pipeline) -> None:
    """The batch of that number now holds 5 rows that are there and 15 that are not: skipping it by number would lose them."""
    pipeline.send(15)
    pipeline.ingest(limit=10)
    for kind in ("offsets", "commits"):
        pipeline.forget(kind, pipeline.batches()[-1] if kind == "offsets" else 1)
    pipeline.send(15)
    assert pipeline.ingest(limit=20) == 15
    pipeline.check()


def test_without_the_last_three_batches_while_more_has_arrived(pipeline: Pipeline) -> None:
    pipeline.send(45)
    pipeline.ingest()
    lost = pipeline.batches()[-3:]
    pipeline.forget("commits", *lost)
    pipeline.forget("offsets", *lost)
    pipeline.send(12)
    assert pipeline.ingest(limit=17) == 12
    pipeline.check()


def test_without_offsets_but_with_its_commit_nothing_is_doubled_and_the_file_is_named(pipeline: Pipeline) -> None:
    """Spark 4.2 runs a batch again and stops with CONCURRENT_STREAM_LOG_UPDATE."""
    from srmp_spark.jobs import ingest

    pipeline.send(25)
    pipeline.ingest()
    last = pipeline.batches()[-1]
    pipeline.forget("offsets", last)
    pipeline.send(5)
    with pytest.raises(Exception, match="CONCURRENT_STREAM_LOG_UPDATE") as error:
        pipeline.ingest()
    rows = pipeline.spark.read.format("delta").load(str(pipeline.table))
    assert rows.count() == rows.select("sequence").distinct().count() == 25
    assert f"remove {pipeline.checkpoint}/commits/{last} " in ingest.advice(error.value, str(pipeline.checkpoint))
    pipeline.forget("commits", last)
    assert pipeline.ingest() == 5
    pipeline.check()


def test_without_any_checkpoint(pipeline: Pipeline) -> None:
    pipeline.send(25)
    pipeline.ingest()
    pipeline.checkpoint = pipeline.checkpoint.with_name("new")
    pipeline.send(5)
    assert pipeline.ingest(startingOffsets="earliest") == 5
    pipeline.check()


def test_rows_below_those_that_are_there_are_not_skipped(pipeline: Pipeline) -> None:
    """Why the highest sequence alone is no position: the table began in the middle, and is filled up from the start."""
    pipeline.send(20)
    pipeline.ingest(startingOffsets=json.dumps({pipeline.queue: 11}))
    pipeline.checkpoint = pipeline.checkpoint.with_name("new")
    pipeline.send(5)
    assert pipeline.ingest(startingOffsets="earliest") == 15
    pipeline.check()


def test_holes_do_not_matter(pipeline: Pipeline) -> None:
    """Rows 4 to 6 of the table are deleted by its owner: what was read again is written again, nothing else."""
    pipeline.send(12)
    pipeline.ingest()
    pipeline.spark.sql(f"DELETE FROM delta.`{pipeline.table}` WHERE sequence BETWEEN 4 AND 6")
    pipeline.checkpoint = pipeline.checkpoint.with_name("new")
    assert pipeline.ingest(startingOffsets="earliest") == 3
    pipeline.check()


def test_an_older_job_that_wakes_up_writes_nothing(pipeline: Pipeline) -> None:
    """Two jobs, and no lease between them (another consumer): the one that started last wins."""
    pipeline.send(10)
    old = pipeline.sink()
    old.claim()
    rows = pipeline.spark.read.format("srmp").options(queueManager=pipeline.api, queue=pipeline.queue).load()
    pipeline.ingest(consumer="other")
    with pytest.raises(TakenOverError, match="another job has taken over"):
        old.append(rows, 0)
    pipeline.check()


def test_a_job_whose_glob_means_the_same_queue_ends_the_older_one(pipeline: Pipeline) -> None:
    """Other words for one queue, another consumer: without a common fence every row would come twice."""
    pipeline.send(10)
    old = pipeline.sink("private$/*")
    old.claim()
    rows = pipeline.spark.read.format("srmp").options(queueManager=pipeline.api, queue=pipeline.queue).load()
    pipeline.ingest(consumer="other")
    with pytest.raises(TakenOverError):
        old.append(rows, 0)
    pipeline.check()


@pytest.mark.parametrize(
    ("ours", "theirs", "meet"),
    [
        (["private$/a"], ["private$/a"], True),
        (["private$/a", "b"], ["c", "b"], True),
        (["private$/a"], ["private$/b"], False),
        (["private$/*"], ["private$/b"], True),
        (["private$/b"], ["private$/*"], True),
        (["b"], ["private$/*"], False),
        (["private$/a*"], ["private$/b*"], True),
    ],
)
def test_which_jobs_may_not_share_a_table(ours: list[str], theirs: list[str], meet: bool) -> None:
    assert may_meet(ours, theirs) is meet


def test_a_clock_that_was_set_back_does_not_lock_the_job_out(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.send(10)
    pipeline.ingest()
    monkeypatch.setattr("srmp_spark.jobs.exactly_once.time.time_ns", lambda: 1_000_000)
    pipeline.send(10)
    assert pipeline.ingest() == 10
    pipeline.check()


# --- a log that was checkpointed and cleaned up: the history knows nothing of who wrote --------------------------------------


def test_an_idle_job_is_ended_though_its_claim_is_gone_from_the_history(pipeline: Pipeline) -> None:
    """Thirty days without a message, then a job with other words for the same queue."""
    idle = pipeline.sink("private$/*")
    idle.claim()
    pipeline.age_the_log()
    pipeline.send(10)
    rows = pipeline.spark.read.format("srmp").options(queueManager=pipeline.api, queue=pipeline.queue).load()
    pipeline.ingest(consumer="other")
    with pytest.raises(TakenOverError):
        idle.append(rows, 0)
    pipeline.check()


def test_a_clock_that_was_set_back_over_a_cleaned_log(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number to go beyond is in no commit that is left."""
    pipeline.send(10)
    pipeline.ingest()
    pipeline.age_the_log()
    monkeypatch.setattr("srmp_spark.jobs.exactly_once.time.time_ns", lambda: 1_000_000)
    pipeline.send(10)
    assert pipeline.ingest() == 10
    pipeline.check()


def test_without_the_last_batches_of_the_checkpoint_over_a_cleaned_log(pipeline: Pipeline) -> None:
    pipeline.send(35)
    pipeline.ingest()
    pipeline.age_the_log()
    last = pipeline.batches()[-2:]
    pipeline.forget("commits", *last)
    pipeline.forget("offsets", *last)
    pipeline.send(12)
    assert pipeline.ingest(limit=17) == 12
    pipeline.check()


def test_a_claim_reads_none_of_the_history(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of 100,000 commits costs what a new one costs: the snapshot, and the newest commits to find our own."""
    asked: list[int | None] = []
    history = ExactlyOnce._history
    monkeypatch.setattr(ExactlyOnce, "_history", lambda sink, commits: asked.append(commits) or history(sink, commits))
    pipeline.sink().claim()
    pipeline.sink("private$/*").claim()
    assert len(asked) == 3, "one for each of the claims, and one for the job that was ended"
    assert all(commits is not None and commits <= 20 for commits in asked)


def test_two_jobs_that_start_at_once_on_a_new_table(pipeline: Pipeline) -> None:
    """Both claim, in whatever order; afterwards one of them writes at most, and no row comes twice."""
    pipeline.send(10)
    jobs = [pipeline.sink(), pipeline.sink("private$/*")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(ExactlyOnce.claim, jobs))
    rows = pipeline.spark.read.format("srmp").options(queueManager=pipeline.api, queue=pipeline.queue).load()
    ended = 0
    for job in jobs:
        try:
            job.append(rows, 0)
        except TakenOverError:
            ended += 1
    assert ended >= 1
    written = pipeline.spark.read.format("delta").load(str(pipeline.table)).count()
    assert written == (10 if ended == 1 else 0)
    assert pipeline.ingest() == 10 - written
    pipeline.check()


def test_the_transactions_of_strangers_do_not_matter(pipeline: Pipeline) -> None:
    pipeline.sink().claim()
    empty = pipeline.spark.read.format("delta").load(str(pipeline.table))
    stranger = empty.write.format("delta").mode("append").option("txnAppId", "nightly, 'x' -> y").option("txnVersion", 7)
    stranger.save(str(pipeline.table))
    pipeline.sink("private$/*").claim()
    assert transactions(pipeline.spark, str(pipeline.table))["nightly, 'x' -> y"] == 7


def test_a_table_that_forgets_who_wrote_it_is_refused(pipeline: Pipeline) -> None:
    pipeline.sink().claim()
    pipeline.spark.sql(f"ALTER TABLE delta.`{pipeline.table}` SET TBLPROPERTIES ('{EXPIRY}' = 'interval 30 days')")
    with pytest.raises(SrmpSparkError, match=f"UNSET TBLPROPERTIES .'{EXPIRY}'"):
        pipeline.sink().claim()
