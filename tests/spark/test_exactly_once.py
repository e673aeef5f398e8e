"""jobs/ingest.py's promise: the Delta table is complete and unique in (queue_manager, epoch, queue, sequence), whatever happens
to the checkpoint. Against a real queue manager.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest
from delta.exceptions import ConcurrentTransactionException
from pipeline_kit import Pipeline

from srmp_spark.errors import SrmpSparkError, TakenOverError
from srmp_spark.interface import ExitCode
from srmp_spark.jobs.exactly_once import EXPIRY, ExactlyOnce, transactions
from srmp_spark.jobs.ingest import Ingest
from srmp_spark.jobs.ingest import arguments as ingest_arguments
from srmp_spark.rows.columns import spark_ddl
from srmp_spark.spark.reading.offsets import LogKey, Offsets, Position
from srmp_spark.spark.session import explain
from srmp_spark.testing.queue_manager import RunningQueueManager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def qm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(tmp_path_factory.mktemp("qm") / "data") as running:
        yield running


@pytest.fixture
def pipeline(spark: SparkSession, qm: RunningQueueManager, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, qm.api, tmp_path)


@pytest.fixture(scope="module")
def kept() -> list[Pipeline]:
    """The pipeline that tests hand on."""
    return []


@pytest.fixture
def used(
    kept: list[Pipeline], spark: SparkSession, qm: RunningQueueManager, tmp_path: Path
) -> Iterator[Pipeline]:
    """The pipeline of the test before, if each row was in its table once in the end; a new one with a batch otherwise.

    A query that only makes rows and batches to be damaged takes eight seconds of CPU: a job that goes on has them already.
    """
    if not kept:
        kept.append(Pipeline(spark, qm.api, tmp_path))
        kept[0].fill()
    pipeline = kept.pop()
    pipeline.clean = False
    yield pipeline
    if pipeline.clean:
        kept.append(pipeline)


def test_each_row_lands_once_and_the_queue_is_received(used: Pipeline) -> None:
    used.send(25)
    assert used.ingest() == 25
    assert used.ingest() == 0
    used.send(5)
    assert used.ingest() == 5
    used.check()
    [entry] = [each for each in used.client.queues() if each["name"] == used.queue]
    assert (entry["received"], entry["waiting"]) == (used.sent, 0)


@pytest.mark.long
def test_without_its_last_commit(used: Pipeline) -> None:
    used.forget("commits", *used.last_batches(1))
    used.send(7)
    assert used.ingest() == 7
    used.check()


@pytest.mark.long
def test_without_offsets_and_commit_while_more_has_arrived(used: Pipeline) -> None:
    """The batch of that number now holds rows that are there and 15 that are not: skipping it by number would lose them."""
    last = used.last_batches(1)
    there = used.sizes[last[0]]
    for kind in ("offsets", "commits"):
        used.forget(kind, *last)
    used.send(15)
    assert used.ingest(limit=there + 15) == 15
    assert used.sizes[last[0]] == there + 15
    used.check()


def test_without_offsets_but_with_its_commit_nothing_is_doubled_and_the_file_is_named(
    used: Pipeline,
) -> None:
    """Spark 4.2 runs a batch again and stops with CONCURRENT_STREAM_LOG_UPDATE."""
    from srmp_spark.jobs import ingest

    [last] = used.last_batches(1)
    before = used.sent
    used.forget("offsets", last)
    used.send(5)
    with pytest.raises(Exception, match="CONCURRENT_STREAM_LOG_UPDATE") as error:
        used.ingest()
    rows = used.spark.read.format("delta").load(str(used.table))
    assert rows.count() == rows.select("sequence").distinct().count() == before
    assert f"remove {used.checkpoint}/commits/{last} " in ingest.advice(
        error.value, str(used.checkpoint)
    )
    used.forget("commits", last)
    assert used.ingest() == 5
    used.check()


def test_a_clock_that_was_set_back_does_not_lock_the_job_out(
    used: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    used.fill()
    monkeypatch.setattr("srmp_spark.jobs.exactly_once.time.time_ns", lambda: 1_000_000)
    used.send(10)
    assert used.ingest() == 10
    used.check()


@pytest.mark.long
def test_holes_do_not_matter(used: Pipeline) -> None:
    """Rows 4 to 6 of the table are deleted by its owner: what was read again is written again, nothing else."""
    used.fill()
    used.spark.sql(f"DELETE FROM delta.`{used.table}` WHERE sequence BETWEEN 4 AND 6")
    used.new_checkpoint()
    assert used.ingest(limit=used.sent, startingOffsets="earliest") == 3
    used.check()


def test_rows_that_are_left_out_are_counted(
    used: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    used.fill()
    before = used.sent
    used.new_checkpoint()
    used.send(2)
    assert used.ingest(limit=used.sent, startingOffsets="earliest") == 2
    assert [record.args for record in caplog.records if record.msg.startswith("rows.known")] == [
        (0, before)
    ]
    used.check()


def test_a_new_checkpoint_plans_no_received_row_again_and_says_nothing_of_known_rows(
    used: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """The mark decides, not the filter: the first batch is empty, though the table holds all rows."""
    pipeline = used
    pipeline.fill()
    pipeline.new_checkpoint()
    planned: list[tuple[int, int]] = []
    sink = pipeline.sink()
    sink.claim()

    def append(batch: DataFrame, number: int) -> None:
        planned.append((batch.count(), sink.append(batch, number).left_out))

    caplog.set_level("INFO", "srmp_spark.jobs.exactly_once")
    writer = pipeline.frame().writeStream.foreachBatch(append).trigger(availableNow=True)
    assert (
        writer.option("checkpointLocation", str(pipeline.checkpoint)).start().awaitTermination(120)
    )
    assert planned == [(0, 0)], "one empty batch: a new query always has a batch 0"
    assert "table.holds" in caplog.text, "the table was asked"
    assert "rows.known" not in caplog.text
    pipeline.check()


@pytest.mark.long
def test_without_any_checkpoint(used: Pipeline) -> None:
    used.fill()
    used.new_checkpoint()
    used.send(5)
    assert used.ingest(limit=used.sent // 3, startingOffsets="earliest") == 5
    used.check()


def test_without_the_last_three_batches_while_more_has_arrived(pipeline: Pipeline) -> None:
    pipeline.send(45)
    pipeline.ingest()
    lost = pipeline.batches()[-3:]
    pipeline.forget("commits", *lost)
    pipeline.forget("offsets", *lost)
    pipeline.send(12)
    assert pipeline.ingest(limit=17) == 12
    pipeline.check()


def test_rows_below_those_that_are_there_are_not_skipped(pipeline: Pipeline) -> None:
    """Why the highest sequence alone is no position: the table began in the middle, and is filled up from the start."""
    pipeline.send(20)
    pipeline.ingest(startingOffsets=json.dumps({pipeline.queue: 11}))
    pipeline.new_checkpoint()
    pipeline.send(5)
    assert pipeline.ingest(startingOffsets="earliest") == 15
    pipeline.check()


def test_an_older_job_that_wakes_up_writes_nothing(pipeline: Pipeline) -> None:
    """Two jobs, and no lease between them (another consumer): the one that started last wins."""
    pipeline.send(10)
    old = pipeline.sink()
    old.claim()
    rows = (
        pipeline.spark.read.format("srmp")
        .options(queueManager=pipeline.api, queue=pipeline.queue)
        .load()
    )
    pipeline.ingest(consumer="other")
    with pytest.raises(TakenOverError, match="another job has taken over"):
        old.append(rows, 0)
    pipeline.check()


def test_a_job_whose_glob_means_the_same_queue_ends_the_older_one(pipeline: Pipeline) -> None:
    """Other words for one queue, another consumer: without a common fence every row would come twice."""
    pipeline.send(10)
    old = pipeline.sink("private$/*")
    old.claim()
    rows = (
        pipeline.spark.read.format("srmp")
        .options(queueManager=pipeline.api, queue=pipeline.queue)
        .load()
    )
    pipeline.ingest(consumer="other")
    with pytest.raises(TakenOverError):
        old.append(rows, 0)
    pipeline.check()


def test_two_queue_managers_write_one_table_at_once(pipeline: Pipeline) -> None:
    """Their rows are never the same ones, so neither ends the other, whatever the queues are called."""
    jobs = {
        name: ExactlyOnce(pipeline.spark, str(pipeline.table), "", ["private$/*"], [name])
        for name in ("a", "b")
    }
    for name, job in jobs.items():
        job.claim([name])
    for number in range(2):
        for name, job in jobs.items():
            rows = [
                {"queue_manager": name, "epoch": "e", "queue": "private$/q", "sequence": number + 1}
            ]
            assert job.append(pipeline.spark.createDataFrame(rows, spark_ddl()), number).rows == 1
    both = ExactlyOnce(pipeline.spark, str(pipeline.table), "", ["private$/q"], ["b"])
    both.claim(["b"])
    empty = pipeline.spark.createDataFrame([], spark_ddl())
    assert jobs["a"].append(empty, 2).rows == 0
    with pytest.raises(TakenOverError):
        jobs["b"].append(empty, 2)


def test_a_job_claims_with_its_first_batch_and_not_before(pipeline: Pipeline) -> None:
    """The query has its leases by then: who gets none never touches the table."""
    sink = pipeline.sink()
    assert not pipeline.table.exists()
    pipeline.send(3)
    pipeline.run(lambda batch, number: sink.append(batch, number) and None, 13)
    guid = pipeline.client.status()["queue_manager"]
    assert list(transactions(pipeline.spark, str(pipeline.table))) == [
        f"srmp-ingest:{pipeline.queue},queue-manager/{guid}"
    ]
    pipeline.check()


def test_the_writer_of_version_0_1_is_ended_and_its_table_goes_on(pipeline: Pipeline) -> None:
    """Its name says no queue manager, so it may read ours."""
    pipeline.send(5)
    old = pipeline.sink()
    old.claim()
    assert list(transactions(pipeline.spark, str(pipeline.table))) == [
        f"srmp-ingest:{pipeline.queue}"
    ]
    rows = (
        pipeline.spark.read.format("srmp")
        .options(queueManager=pipeline.api, queue=pipeline.queue)
        .load()
    )
    assert old.append(rows, 0).rows == 5
    pipeline.send(5)
    assert pipeline.ingest(startingOffsets="earliest") == 5
    with pytest.raises(TakenOverError):
        old.append(rows, 1)
    pipeline.check()


def test_a_queue_manager_that_joins_is_claimed_before_its_first_row(pipeline: Pipeline) -> None:
    """The table is claimed anew, and asked anew: another job may have written those rows meanwhile."""
    sink = pipeline.sink()
    offsets = pipeline.checkpoint / "offsets"
    offsets.mkdir(parents=True)
    reached = {"a": (0, 1, 2), "b": (0, 0, 2)}
    for number in range(3):
        positions = {
            LogKey(name, pipeline.queue): Position("e", at[number]) for name, at in reached.items()
        }
        (offsets / str(number)).write_text(f"v1\n{{}}\n{Offsets(positions)}\n")

    def rows(*of: tuple[str, int]) -> DataFrame:
        keys = ("queue_manager", "epoch", "queue", "sequence")
        return pipeline.spark.createDataFrame(
            [dict(zip(keys, (name, "e", pipeline.queue, n), strict=True)) for name, n in of],
            spark_ddl(),
        )

    assert sink.append(rows(("a", 1)), 1).rows == 1
    other = ExactlyOnce(pipeline.spark, str(pipeline.table), "", [pipeline.queue], ["b"])
    other.claim(["b"])
    assert other.append(rows(("b", 1)), 0).rows == 1
    assert sink.append(rows(("a", 2), ("b", 1), ("b", 2)), 2) == (2, 1)
    with pytest.raises(TakenOverError):
        other.append(rows(("b", 3)), 1)


def test_a_running_query_that_is_taken_over_ends_in_one_sentence(pipeline: Pipeline) -> None:
    """As ``ingest.py`` tells it: not in Delta's words, and with an exit code of its own kind."""
    pipeline.send(30)
    sink, other = pipeline.sink(), pipeline.sink("private$/*")

    def append(batch: DataFrame, number: int) -> None:
        if number == 1:
            other.claim()
        sink.append(batch, number)

    with pytest.raises(Exception, match="another job has taken over") as error:
        pipeline.run(append, 13)
    code, text = explain(error.value)
    assert code is ExitCode.IN_USE
    assert text == (
        f"another job has taken over these queues in {pipeline.table}: this one wrote "
        "nothing more. Run one ingest job for a "
        "queue and a table"
    )
    assert pipeline.ingest() == 17
    pipeline.check()


@pytest.mark.parametrize("is_taken", [False, True])
def test_an_append_that_another_commit_crosses(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    """It begins again; who was taken over meanwhile is told so in words, not by Delta's conflict."""
    sink, other = pipeline.sink(), pipeline.sink()
    sink.claim()
    rows = pipeline.spark.createDataFrame(
        [{"queue_manager": "a", "epoch": "e", "queue": "q", "sequence": 1}], spark_ddl()
    )
    commit, crossed = ExactlyOnce._commit, []

    def cross(job: ExactlyOnce, batch: DataFrame, name: str, version: int) -> int | None:
        if job is sink and not crossed:
            crossed.append(version)
            if is_taken:
                other.claim()
            raise ConcurrentTransactionException("another commit came first")
        return commit(job, batch, name, version)

    monkeypatch.setattr(ExactlyOnce, "_commit", cross)
    if is_taken:
        monkeypatch.setattr(
            "srmp_spark.jobs.exactly_once.time.time_ns", lambda: 1_000_000
        )  # the least number it may take
        with pytest.raises(TakenOverError, match="another job has taken over"):
            sink.append(rows, 0)
    else:
        assert sink.append(rows, 0).rows == 1
    assert crossed
    assert pipeline.spark.read.format("delta").load(str(pipeline.table)).count() == (
        0 if is_taken else 1
    )


# --- a log that was checkpointed and cleaned up: the history knows nothing of who wrote --------------------------------------


def test_an_idle_job_is_ended_though_its_claim_is_gone_from_the_history(pipeline: Pipeline) -> None:
    """Thirty days without a message, then a job with other words for the same queue."""
    idle = pipeline.sink("private$/*")
    idle.claim()
    pipeline.age_the_log()
    pipeline.send(10)
    rows = (
        pipeline.spark.read.format("srmp")
        .options(queueManager=pipeline.api, queue=pipeline.queue)
        .load()
    )
    pipeline.ingest(consumer="other")
    with pytest.raises(TakenOverError):
        idle.append(rows, 0)
    pipeline.check()


@pytest.mark.long
def test_without_the_last_batches_of_the_checkpoint_over_a_cleaned_log(used: Pipeline) -> None:
    last = used.last_batches(2)
    used.age_the_log()
    used.forget("commits", *last)
    used.forget("offsets", *last)
    used.send(12)
    assert used.ingest(limit=17) == 12
    used.check()


@pytest.mark.long
def test_a_clock_that_was_set_back_over_a_cleaned_log(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number to go beyond is in no commit that is left."""
    pipeline.send(10)
    pipeline.ingest()
    pipeline.age_the_log()
    monkeypatch.setattr("srmp_spark.jobs.exactly_once.time.time_ns", lambda: 1_000_000)
    pipeline.send(10)
    assert pipeline.ingest() == 10
    pipeline.check()


def test_a_claim_reads_none_of_the_history(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of 100,000 commits costs what a new one costs: the snapshot, and the newest commits to find our own."""
    asked: list[int | None] = []
    history = ExactlyOnce._history
    monkeypatch.setattr(
        ExactlyOnce,
        "_history",
        lambda sink, commits: asked.append(commits) or history(sink, commits),
    )
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
    rows = (
        pipeline.spark.read.format("srmp")
        .options(queueManager=pipeline.api, queue=pipeline.queue)
        .load()
    )
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
    stranger = (
        empty.write.format("delta")
        .mode("append")
        .option("txnAppId", "nightly, 'x' -> y")
        .option("txnVersion", 7)
    )
    stranger.save(str(pipeline.table))
    pipeline.sink("private$/*").claim()
    assert transactions(pipeline.spark, str(pipeline.table))["nightly, 'x' -> y"] == 7


def test_a_table_that_forgets_who_wrote_it_is_refused(pipeline: Pipeline) -> None:
    pipeline.sink().claim()
    pipeline.spark.sql(
        f"ALTER TABLE delta.`{pipeline.table}` SET TBLPROPERTIES ('{EXPIRY}' = 'interval 30 days')"
    )
    with pytest.raises(SrmpSparkError, match=f"UNSET TBLPROPERTIES .'{EXPIRY}'"):
        pipeline.sink().claim()


def test_a_table_of_chosen_columns_is_complete_and_unique_without_its_checkpoint(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--columns``: a job of fewer columns goes on with the table, and one of more is told what the table lacks."""
    monkeypatch.setattr(
        "srmp_spark.jobs.ingest.signal.signal", lambda *_: None
    )  # those of this process stay
    places = [
        "--queue-manager",
        pipeline.api,
        "--queue",
        pipeline.queue,
        "--table",
        str(pipeline.table),
        "--available-now",
    ]

    def job(*flags: str) -> Ingest:
        arguments = ingest_arguments([*places, "--checkpoint", str(pipeline.checkpoint), *flags])
        started = Ingest(arguments, pipeline.spark, frozenset())
        assert started.run() == "done"
        return started

    pipeline.send(20)
    assert job("--columns", "label,arrived_at").rows == 20
    pipeline.new_checkpoint()
    pipeline.send(5)
    assert job("--columns", "label", "--option", "startingOffsets=earliest").rows == 5
    pipeline.check()
    table = deltalake.DeltaTable(str(pipeline.table)).to_pyarrow_table().sort_by("sequence")
    assert table.column_names == [
        "queue_manager",
        "epoch",
        "queue",
        "sequence",
        "label",
        "arrived_at",
    ]
    assert [table["arrived_at"][n].is_valid for n in (0, 19, 20, 24)] == [True, True, False, False]

    pipeline.send(1)
    with pytest.raises(Exception, match="has no column body") as failed:
        job("--columns", "label,body")
    code, text = explain(failed.value)
    assert code is ExitCode.USAGE
    assert f"ALTER TABLE delta.`{pipeline.table}` ADD COLUMNS (body BINARY)" in text
