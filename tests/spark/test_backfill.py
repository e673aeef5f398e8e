"""``backfill`` into a message table: each row once by its position, whatever it is started on, and one writer at a time."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from srmp_spark.errors import TakenOverError
from srmp_spark.jobs import backfill
from srmp_spark.jobs.exactly_once import ExactlyOnce
from srmp_spark.jobs.running import JobOutcome
from srmp_spark.rows.columns import NAMES, spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
AT = datetime(2026, 11, 22, 10, tzinfo=timezone.utc)


def row(queue: str, sequence: int, **more: Any) -> dict[str, Any]:
    return {"queue_manager": "qm", "epoch": "e", "queue": queue, "sequence": sequence, "arrived_at": AT,
            "body": f"{queue} {sequence}".encode(), **more}  # fmt: skip


Run = Callable[..., JobOutcome]


@pytest.fixture
def run(spark: SparkSession) -> Run:
    def job(table: Path, *flags: str) -> JobOutcome:
        parser = argparse.ArgumentParser()
        backfill.add_arguments(parser)
        return backfill.to_table(
            spark, parser.parse_args(["--table", str(table), "--id", "x", *flags])
        )

    return job


def held(spark: SparkSession, table: Path) -> list[tuple[str, int]]:
    rows = spark.read.format("delta").load(str(table)).select("queue", "sequence").collect()
    return sorted((row["queue"], row["sequence"]) for row in rows)


def test_a_table_into_a_table_that_holds_some_of_it(
    spark: SparkSession, run: Run, tmp_path: Path
) -> None:
    """Dry run, then the rest, then nothing. Receipts are rows of an inbox, and come too; other columns do not."""
    source, table = tmp_path / "inbox", tmp_path / "messages"
    rows = [row("a", n) for n in range(1, 21)] + [row("b", 1, receipt_kind="stream")]
    frame = spark.createDataFrame(rows, spark_ddl()).selectExpr("*", "7 as position")
    frame.write.format("delta").save(str(source))
    ingest = ExactlyOnce(spark, str(table), str(tmp_path / "checkpoint"), ["a"])
    ingest.claim()
    ingest.append(spark.createDataFrame([row("a", n) for n in (3, 4)], spark_ddl()), 0)
    from_table = ("--source", "table", "--from", str(source))
    dry = run(table, *from_table)
    assert (dry.rows, dry.status, dry.more["destinations"]) == (21, "dry-run", [str(table)])
    assert held(spark, table) == [("a", 3), ("a", 4)]
    done = run(table, *from_table, "--yes")
    assert (done.rows, done.more["known"], done.status) == (19, 2, "done")
    assert held(spark, table) == [*(("a", n) for n in range(1, 21)), ("b", 1)]
    assert spark.read.format("delta").load(str(table)).columns == list(NAMES)
    again = run(table, *from_table, "--yes")
    assert (again.rows, again.more["known"]) == (0, 21)
    with pytest.raises(
        TakenOverError
    ):  # the job that ran beside it cannot double what it does not know of
        ingest.append(spark.createDataFrame([row("a", 20)], spark_ddl()), 1)


def test_files_into_a_table(spark: SparkSession, run: Run, tmp_path: Path) -> None:
    """A position that stands in two files counts once; a body is placed by run, path and row."""
    folder, table = tmp_path / "files", tmp_path / "messages"
    folder.mkdir()
    lines = [
        json.dumps(
            {"queue_manager": "qm", "epoch": "e", "queue": "a", "sequence": n, "body": "eA=="}
        )
        for n in (1, 2, 3)
    ]
    (folder / "1.jsonl").write_text("\n".join(lines[:2]))
    (folder / "2.jsonl").write_text("\n".join(lines[1:]) + '\n{"body_text": "y"}\n')
    (folder / "z.bin").write_bytes(b"z")
    done = run(table, "--source", "files", "--from", str(folder), "--yes")
    assert (done.rows, done.more["known"]) == (5, 1)
    assert held(spark, table) == [("2.jsonl", 3), ("a", 1), ("a", 2), ("a", 3), ("z.bin", 1)]
    placed = (
        spark.read.format("delta")
        .load(str(table))
        .where("queue_manager = 'files'")
        .orderBy("queue")
    )
    assert [(r["epoch"], r["queue"], bytes(r["body"])) for r in placed.collect()] == [
        ("x", "2.jsonl", b"y"),
        ("x", "z.bin", b"z"),
    ]
    assert run(table, "--source", "files", "--from", str(folder), "--yes").rows == 0
