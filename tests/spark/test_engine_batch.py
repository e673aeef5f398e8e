"""The batch source in the real engine: always a peek."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from fake_queue_manager import FakeQueueManager

from srmp_spark.rows.columns import KINDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
Fake = Callable[..., FakeQueueManager]


def read(spark: SparkSession, *managers: FakeQueueManager, **options: Any) -> DataFrame:
    urls = ",".join(each.url for each in managers)
    return (
        spark.read.format("srmp")
        .options(**{"queueManager": urls, "queue": "private$/orders", **options})
        .load()
    )


def sequences(frame: DataFrame) -> list[int]:
    return [row.sequence for row in frame.select("sequence").collect()]


def test_the_schema_is_interface_md(spark: SparkSession, fake: Fake) -> None:
    """The format is found by itself: nothing is registered here."""
    frame = read(spark, fake(orders=1))
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        (name, kind.replace("long", "bigint")) for name, kind in KINDS.items()
    ]


def test_a_batch_marks_nothing_and_may_be_run_twice(spark: SparkSession, fake: Fake) -> None:
    qm = fake(orders=5_000)
    frame = read(spark, qm)
    assert frame.count() == frame.count() == 5_000
    assert sequences(frame) == list(range(1, 5_001))
    assert [path for method, path in qm.calls if method != "GET"] == []


def test_a_filter_does_not_stick_to_a_frame(spark: SparkSession, fake: Fake) -> None:
    """Pitfall: with pushFilters Spark 4.2 filters the second use of a DataFrame like the first."""
    frame = read(spark, fake(orders=100))
    assert frame.where("sequence <= 10").count() == 10
    assert frame.count() == 100


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(31, 101)),
        ({"startingOffsets": "earliest"}, range(11, 101)),
        (
            {
                "startingOffsets": '{"private$/orders": 90}',
                "endingOffsets": '{"private$/orders": 95}',
            },
            range(90, 96),
        ),
        ({"endingOffsets": '{"private$/orders": 5}'}, range(0)),
        ({"consumer": "audit", "minPartitions": 3}, range(11, 101)),
    ],
)
def test_from_where_to_where(
    spark: SparkSession, fake: Fake, options: dict[str, Any], expected: range
) -> None:
    qm = fake(orders=100)
    qm.logs["private$/orders"].first = 11
    qm.consumer("private$/orders").received = 30
    assert sequences(read(spark, qm, **options)) == list(expected)


def test_all_epochs_are_read(spark: SparkSession, fake: Fake) -> None:
    qm = fake(orders=10)
    old = qm.epoch
    new = qm.new_epoch()
    qm.add("private$/orders", 5)
    rows = read(spark, qm, startingOffsets="earliest").select("epoch", "sequence").collect()
    assert [(row.epoch, row.sequence) for row in rows] == [(old, n) for n in range(1, 11)] + [
        (new, n) for n in range(11, 16)
    ]


def test_in_sql_by_a_temporary_view(spark: SparkSession, fake: Fake) -> None:
    """Pitfall: `CREATE TABLE … USING srmp` drops the options; a temporary view keeps them."""
    qm = fake(orders=7)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders USING srmp OPTIONS (queueManager "
        f"'{qm.url}', queue 'private$/orders')"
    )
    assert spark.sql("SELECT max(sequence) AS last FROM orders").collect()[0]["last"] == 7


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queues": "x"}, "belongs to an embedded queue manager"),
        ({"readMode": "receive"}, "it only peeks"),
        ({"maxOffsetsPerTrigger": 5}, "maxOffsetsPerTrigger has no effect here"),
        ({"queue": "private$/orderz"}, "did you mean 'private$/orders'?"),
        ({"endingOffsets": '{"private$/orders": 101}'}, "ends at 100"),
    ],
)
def test_a_wrong_option_is_said_in_words(
    spark: SparkSession, fake: Fake, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(Exception) as error:
        read(spark, fake(orders=100), **options).count()
    assert says in str(error.value)
