"""A declared schema, or option ``columns``, says which columns a query reads."""

from __future__ import annotations

import base64
import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fake_queue_manager import FakeQueueManager

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError, ConfigurationError
from srmp_spark.rows.columns import NAMES, spark_ddl
from srmp_spark.spark.settings.chosen_columns import chosen_columns, fills_envelope
from srmp_spark.spark.settings.mqrr_options import parse_remote
from srmp_spark.spark.settings.options import parse
from srmp_spark.store.directory import DATABASE_FILE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Fake = Callable[..., FakeQueueManager]
SRMP = {"queueManager": "http://127.0.0.1:1", "queue": "private$/q"}
MQRR = {"host": "127.0.0.1:2103", "queue": "private$\\q"}


@pytest.mark.parametrize(
    "columns_of",
    [
        lambda text: parse({**SRMP, "columns": text}),
        lambda text: parse_remote({**MQRR, "columns": text}),
    ],
    ids=["srmp", "mqrr"],
)
def test_the_option_names_columns_in_an_order(columns_of: Callable[[str], Any]) -> None:
    assert columns_of("label, sequence").columns == ("label", "sequence")
    for text, words in (
        ("sequnce", "did you mean 'sequence'"), ("label,label", "twice"), ("", "no column"), ("Label", "did you mean 'label'"),
        ("*", "known: queue_manager, epoch"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=words):
            columns_of(text)


def schema_of(ddl: str) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromDDL(ddl)


@pytest.mark.spark
def test_a_schema_that_is_no_choice_of_columns_is_refused_in_words(spark: SparkSession) -> None:
    assert chosen_columns(schema_of("body BINARY, sequence BIGINT")) == ("body", "sequence")
    assert chosen_columns(schema_of(spark_ddl())) == NAMES
    assert chosen_columns(None) == NAMES
    for ddl, words in (
        ("sequnce LONG", "did you mean 'sequence'"),
        ("sequence INT", "sequence INT: that column is LONG; declare it so, and cast"),
        ("arrived_at TIMESTAMP_NTZ", "that column is TIMESTAMP"),
        ("body STRING", "that column is BINARY"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            chosen_columns(schema_of(ddl))
    with pytest.raises(ConfigurationError, match="give one of them"):
        chosen_columns(schema_of("label STRING"), ("sequence",))


def test_the_envelope_is_filled_where_it_was_chosen() -> None:
    assert fills_envelope(("sequence", "envelope"), asked=False)
    assert not fills_envelope(NAMES, asked=False)
    assert fills_envelope(NAMES, asked=True)
    with pytest.raises(ConfigurationError, match="includeEnvelope has no effect"):
        fills_envelope(("sequence",), asked=True)


def frame(reader: Any, qm: FakeQueueManager, **options: str) -> DataFrame:
    return reader.format("srmp").options(
        **{"queueManager": qm.url, "queue": "private$/orders", **options}
    )


@pytest.mark.spark
def test_a_batch_has_the_declared_columns(spark: SparkSession, fake: Fake) -> None:
    qm = fake(orders=50)
    declared = frame(spark.read, qm).schema("label STRING, sequence LONG").load()
    named = frame(spark.read, qm, columns="label,sequence").load()
    whole = frame(spark.read, qm).load().select("label", "sequence").collect()
    assert declared.columns == named.columns == ["label", "sequence"]
    assert declared.collect() == named.collect() == whole
    assert frame(spark.read, qm, columns="label").load().count() == 50, "sequence is read inside"


@pytest.mark.spark
def test_in_sql(spark: SparkSession, fake: Fake) -> None:
    qm = fake(orders=5)
    spark.sql(
        f"CREATE TEMPORARY VIEW chosen (sequence BIGINT, label STRING) USING srmp "
        f"OPTIONS (queueManager '{qm.url}', queue 'private$/orders')"
    )
    assert [
        row.sequence for row in spark.sql("SELECT * FROM chosen ORDER BY sequence").collect()
    ] == [1, 2, 3, 4, 5]
    spark.catalog.dropTempView("chosen")


@pytest.mark.spark
def test_a_stream_may_go_on_with_other_columns(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    qm = fake(orders=30)

    def run(**options: str) -> list[Any]:
        seen: list[Any] = []
        rows = frame(spark.readStream, qm, **options).load()
        writer = rows.writeStream.foreachBatch(lambda batch, _: seen.extend(batch.collect()))
        query = (
            writer.option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        return seen

    assert [tuple(row) for row in run(columns="sequence")] == [(n,) for n in range(1, 31)]
    qm.add("private$/orders", 10)
    rest = run(columns="label,sequence,queue")
    assert [(row.sequence, row.queue) for row in rest] == [
        (n, "private$/orders") for n in range(31, 41)
    ]


@pytest.mark.spark
def test_a_wrong_column_fails_before_the_query_starts(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    qm = fake(orders=5)
    with pytest.raises(Exception, match="did you mean 'sequence'"):
        frame(spark.readStream, qm, columns="sequnce").load()
    with pytest.raises(Exception, match="that column is LONG"):
        frame(spark.read, qm).schema("sequence INT").load().collect()
    rows = frame(spark.readStream, qm).schema("sequence INT").load()
    with pytest.raises(
        Exception, match="that column is LONG"
    ):  # in start(), or of the query before its first batch
        rows.writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path / "c")
        ).start().awaitTermination(60)
    assert qm.consumer("private$/orders").received == 0
    assert not any(path.endswith("/register") for _, path in qm.calls)


def test_a_reader_that_needs_no_bodies_moves_none(tmp_path: Path) -> None:
    """A thousand bodies of 1 KB, sealed: what comes over HTTP with and without them."""
    from srmp_spark.rows import dense
    from srmp_spark.testing.queue_manager import RunningQueueManager

    with RunningQueueManager(tmp_path / "data", queues=["private$/orders"]) as running:
        client = QueueManagerClient(running.api)
        bodies = [base64.b64encode(b"%d " % n + b"x" * 700).decode() for n in range(3_000)]
        client.send(
            "private$/orders",
            [{"body_base64": body, "label": str(n)} for n, body in enumerate(bodies)],
        )
        epoch = running.ready["epoch"]

        def received(*columns: str) -> tuple[int, set[bytes], list[Any]]:
            with client.rows(
                "private$/orders", epoch=epoch, after=0, to=3_000, dense=True, columns=columns
            ) as stream:
                frames = list(dense.frames(stream.as_file()))
            batches = dense.batches(frames, "qm", "private$/orders", 0, 3_000, names=columns)
            rows = [row for batch in batches for row in batch.to_pylist()]
            return sum(each.size for each in frames), {each.kind for each in frames}, rows

        deadline = time.monotonic() + 60
        while (kinds := received("sequence", "body")[1]) != {
            dense.SEGMENT
        } and time.monotonic() < deadline:
            time.sleep(0.2)
        assert kinds == {dense.SEGMENT}, "the rows were sealed"
        size, kinds, rows = received("sequence", "label")
        assert kinds == {dense.NARROW}
        assert rows == [{"sequence": n, "label": str(n - 1)} for n in range(1, 3_001)]
        assert size < received("sequence", "body")[0] / 10

        for plain in (
            ("label",),
            ("message_id", "sequence"),
            ("queue", "body_text"),
        ):  # the form for everybody
            with client.rows(
                "private$/orders", epoch=epoch, after=10, to=20, columns=plain
            ) as stream:
                table = pa.ipc.open_stream(stream.as_file()).read_all()
            assert (table.column_names, table.num_rows) == (list(plain), 10)
        for wrong in (("sequnce",), ("label", "label"), ("",)):
            with pytest.raises(ApiError, match="columns names"):
                client.rows("private$/orders", epoch=epoch, after=10, to=20, columns=wrong)
        assert "Traceback" not in running.stderr()

        running.stop()
        with contextlib.closing(sqlite3.connect(tmp_path / "data" / DATABASE_FILE)) as database:
            database.execute("UPDATE wide_parts SET wide_begin = 'nonsense'")
            database.commit()
        running.restart()
        client = QueueManagerClient(running.api)
        size, kinds, again = received("sequence", "label")
        assert (kinds, again) == ({dense.SEGMENT}, rows), (
            "what cannot be believed costs bytes and no row"
        )
