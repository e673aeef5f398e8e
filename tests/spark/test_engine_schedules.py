"""Random schedules of queues and queries through Spark, judged by the model (:mod:`tests.kit.queries`).

A failing seed is told with its steps. ``make model`` runs fifty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kit.queries.run import run
from tests.kit.queries.schedule import short_schedule
from tests.kit.queries.spark import SparkSurroundings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SCHEDULES = int(os.environ.get("SRMP_SPARK_SPARK_SCHEDULES", "3"))
FIRST = int(os.environ.get("SRMP_SPARK_SPARK_FIRST", "0"))


@pytest.fixture(scope="module")
def surroundings(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSurroundings]:
    made = SparkSurroundings(spark, tmp_path_factory.mktemp("schedules"))
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SCHEDULES))
def test_no_row_is_lost_through_spark(surroundings: SparkSurroundings, seed: int) -> None:
    story: list[str] = []
    broken = run(surroundings, short_schedule(seed), story.append, surroundings.make_query)
    assert broken is None, "\n".join([f"seed {seed}: {broken}", *story])


def test_the_schedules_have_read_rows_and_were_killed(surroundings: SparkSurroundings) -> None:
    """Schedules in which nothing happens prove nothing."""
    assert surroundings.happened["rows were read"] > 10
    assert surroundings.happened["a query was killed in its first batch"] > 0
