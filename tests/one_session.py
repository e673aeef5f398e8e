"""One Spark session for all tests of a process.

A JVM is warm after a minute of queries, and a second JVM would begin cold.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}
"""Spark settings for queries of a few rows that run once.

Compiling such queries takes a fifth of the CPU time. Statistics and checksums save time with large
tables; with small ones they take another fifth of a commit. No code of ours is compiled by Spark.
The jobs, the notebooks and the demo, which are tested as processes of their own, run with Spark's
defaults.
"""


@contextmanager
def one_session() -> Iterator[SparkSession]:
    """Yield a local session with Delta, and stop the session afterwards.

    Workers find the package by PYTHONPATH, as after an installation.
    """
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    )
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from srmp_spark.spark.session import delta_session

    session = delta_session("tests", "local[2]")
    for setting, value in SMALL.items():
        session.conf.set(setting, value)
    yield session
    session.stop()
