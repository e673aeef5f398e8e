"""T11 of the reliability report: files of the checkpoint are gone, while more messages have arrived.

Each case takes the last one to three of ``offsets``, of ``commits``, of both, or the whole checkpoint, and the job goes on with
another limit, so that the batch of a number that was used holds other rows. ``test_exactly_once.py`` has a test for each kind;
in ``make rollback CASES=200`` they come in any order, one damage on what the one before has left.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pipeline_kit import Pipeline

from srmp_spark.jobs import ingest
from srmp_spark.testing.queue_manager import RunningQueueManager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("SRMP_SPARK_ROLLBACKS", "0"))
"""0: only the self-check runs; each case takes ten seconds and more."""
SEED = int(os.environ.get("SRMP_SPARK_ROLLBACK_SEED", "3"))
LOST_MAX = 3
KINDS = (
    "commits",
    "offsets and commits",
    "offsets",
    "more offsets than commits",
    "everything",
    "everything, from the start",
)
CASE_SECONDS = 60


@pytest.fixture(scope="module")
def qm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(tmp_path_factory.mktemp("qm") / "data") as running:
        yield running


@pytest.fixture
def pipeline(spark: SparkSession, qm: RunningQueueManager, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, qm.api, tmp_path)


def forget(pipeline: Pipeline, kind: str, dice: random.Random) -> dict[str, str]:
    """Take files away; the options of the next start."""
    if kind.startswith("everything"):
        shutil.rmtree(pipeline.checkpoint)
        return {"startingOffsets": "earliest"} if "start" in kind else {}
    last = pipeline.batches("commits")[-dice.randint(1, LOST_MAX) :]
    if kind != "commits":
        pipeline.forget("offsets", *last)
    if kind in ("commits", "offsets and commits"):
        pipeline.forget("commits", *last)
    elif kind == "more offsets than commits":
        pipeline.forget("commits", *last[len(last) // 2 + 1 :])
    return {}


def orphans(pipeline: Pipeline) -> list[int]:
    """Commits without their offsets: with them Spark cannot go on, and says so."""
    return sorted(set(pipeline.batches("commits")) - set(pipeline.batches("offsets")))


def go_on(pipeline: Pipeline, limit: int, options: dict[str, str]) -> bool:
    """One run of the job; the files that it names are removed, and it is run again. Whether it had named some.

    Spark stops where a commit is left without its offsets, in one way or in another if no offsets are left at all.
    """
    if not (pipeline.checkpoint / "commits").exists() or not (left := orphans(pipeline)):
        pipeline.ingest(limit, **options)
        return False
    with pytest.raises(Exception, match=r"CONCURRENT_STREAM_LOG_UPDATE|assertion failed") as error:
        pipeline.ingest(limit, **options)
    assert not pipeline.verdict().doubled
    advice = ingest.advice(error.value, str(pipeline.checkpoint))
    named = [number for number in left if f"{pipeline.checkpoint}/commits/{number} " in advice]
    assert named, advice
    pipeline.forget("commits", *named)
    pipeline.ingest(limit, **options)
    return True


@pytest.mark.skipif(not CASES, reason="an hour: make rollback CASES=200")
@pytest.mark.timeout(120 + CASE_SECONDS * CASES)
def test_whatever_is_forgotten_no_row_is_lost_or_doubled(pipeline: Pipeline) -> None:
    dice = random.Random(SEED)
    done: Counter[str] = Counter()
    stopped = 0
    for case in range(CASES):
        kind = KINDS[(case + SEED) % len(KINDS)]
        pipeline.send(dice.randint(25, 40))
        pipeline.ingest(limit=dice.randint(8, 12))  # three batches and more
        assert len(pipeline.batches()) >= LOST_MAX
        options = forget(pipeline, kind, dice)
        pipeline.send(dice.randint(1, 30))
        stopped += go_on(pipeline, dice.randint(5, 50), options)
        verdict = pipeline.verdict()
        assert verdict.clean, f"seed {SEED}, case {case}, {kind}: {verdict}"
        done[kind] += 1
    print(
        f"checkpoints rolled back, seed {SEED}: {dict(done)}; {stopped} stopped until the "
        "named files were removed; 0 wrong"
    )


def test_a_sink_that_skips_by_the_number_of_the_batch_loses_rows_here(pipeline: Pipeline) -> None:
    """The self-check: ``txnVersion = batchId``, as Delta's own guide has it, does not stand what is done above."""

    def append(batch: DataFrame, number: int) -> None:
        writer = batch.write.format("delta").mode("append")
        writer.option("txnAppId", "by number").option("txnVersion", number).save(
            str(pipeline.table)
        )

    pipeline.send(25)
    pipeline.run(append, 10)
    assert pipeline.verdict().clean, "as long as nothing is forgotten"
    forget(pipeline, "offsets and commits", random.Random(0))
    pipeline.send(15)
    pipeline.run(append, 40)
    verdict = pipeline.verdict()
    assert verdict.lost, verdict
