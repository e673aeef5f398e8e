"""One Spark session for all tests of this folder (starting one takes ten seconds), and queue managers to read from."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fake_queue_manager import FakeQueueManager
from reading import stop_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}
"""For queries of a few rows that run once: compiling them takes a fifth of the CPU. Statistics and checksums of tables, which
save time where tables are large, take another fifth of a commit. Nothing of ours is compiled code, and
the jobs, notebooks and the demo, which are tested as processes of their own, run with Spark's defaults."""


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    """Local, with Delta. Workers find the package by PYTHONPATH, as after an installation."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from srmp_spark.spark.session import delta_session

    session = delta_session("tests", "local[2]")
    for setting, value in SMALL.items():
        session.conf.set(setting, value)
    yield session
    session.stop()


@pytest.fixture
def fake() -> Iterator[Callable[..., FakeQueueManager]]:
    """Makes queue managers in memory: ``fake(orders=1000)`` has ``private$/orders`` with 1,000 rows."""
    made: list[FakeQueueManager] = []

    def make(**queues: int) -> FakeQueueManager:
        made.append(FakeQueueManager(**queues))
        return made[-1]

    yield make
    stop_all()
    for each in made:
        each.close()
