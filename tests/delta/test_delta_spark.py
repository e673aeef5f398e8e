"""delta-spark reads and streams the state tables while the publisher writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from delta_state_kit import MemoryLog, State
from outgoing_kit import TABLES, Sending
from pyspark.sql import SparkSession

from srmp_spark.store.delta.log_source import HistoryRow
from srmp_spark.store.delta.tables import state_table

pytestmark = pytest.mark.spark


def test_delta_spark_reads_every_row_and_type(
    spark: SparkSession, state: State, log: MemoryLog
) -> None:
    log.put("private$/orders", 50)
    log.history[:] = [HistoryRow(log.guid, 1, 50, 1_795_000_000_000_000)]
    state.publisher(log).publish_once()
    rows = spark.read.format("delta").load(str(state.folder / "inbox"))
    assert rows.count() == 50
    assert dict(rows.dtypes)["lookup_id"] == "decimal(20,0)"
    assert dict(rows.dtypes)["arrived_at"] == "timestamp"
    found = {(r["epoch"], r["queue"], r["sequence"], bytes(r["body"])) for r in rows.collect()}
    assert found == set(log.expected())
    # data skipping by the statistics that the publisher wrote itself
    assert rows.where("sequence = 50 AND arrived_at >= timestamp'2026-01-01'").count() == 1
    history = spark.read.format("delta").load(str(state.folder / "message_id_history")).collect()
    assert [(r["uniquifier_first"], r["uniquifier_last"]) for r in history] == [(1, 50)]


def test_delta_spark_reads_the_tables_of_sending(spark: SparkSession, tmp_path: Path) -> None:
    sending = Sending(tmp_path)
    publisher = sending.publisher()
    sending.put(300, journal=True)
    publisher.publish_once()
    sending.finish(1, 100)
    sending.bury(101, 102)
    publisher.publish_once()
    found = {name: spark.read.format("delta").load(str(sending.folder / name)) for name in TABLES}
    assert {name: rows.count() for name, rows in found.items()} == {
        "outgoing_streams": 1, "outgoing_queue": 198, "dead_letter_queue": 2, "journal_queue": 100,
    }  # fmt: skip
    types = dict(found["outgoing_queue"].dtypes)
    names = ("stream_sequence", "attempts", "body", "expires_at")
    assert [types[name] for name in names] == ["bigint", "int", "binary", "timestamp"]
    bodies = {
        bytes(row["body"])
        for row in found["outgoing_queue"].where("stream_sequence > 200").collect()
    }
    assert bodies == {b"1.%d" % n for n in range(200, 300)}


def test_delta_spark_streams_the_inbox_once_through_compaction_and_checkpoints(
    spark: SparkSession,
    state: State,
    log: MemoryLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_table, "COMPACT_FILES_MIN", 3)
    monkeypatch.setattr(state_table, "CHECKPOINT_COMMITS", 4)
    publisher = state.publisher(log)
    log.put("private$/orders", 5)
    publisher.publish_once()
    for _ in range(3):
        query = (
            spark.readStream.format("delta").load(str(state.folder / "inbox")).writeStream.format("delta")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(str(tmp_path / "copy"))
        )  # fmt: skip
        for _ in range(4):
            log.put("private$/orders", 5)
            publisher.publish_once()
        query.awaitTermination()
    spark.readStream.format("delta").load(str(state.folder / "inbox")).writeStream.format(
        "delta"
    ).option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(
        str(tmp_path / "copy")
    ).awaitTermination()
    copy = spark.read.format("delta").load(str(tmp_path / "copy"))
    sequences = sorted(row["sequence"] for row in copy.select("sequence").collect())
    assert sequences == list(range(1, 66))
