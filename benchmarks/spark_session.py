"""One Spark session for all benchmarks of a process: a session that starts costs half a minute of CPU until its JVM is warm.

A JVM outlives the session that started it, so the benchmarks of one process share theirs anyway.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import NotHere, Plan
from benchmarks.peers.kafka import spark_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_session(plan: Plan) -> SparkSession:
    """Return the session of this process, with the jars of Spark's Kafka source where they are wanted and here."""
    if not plan.with_spark:
        raise NotHere("it needs Spark, which is left out (--no-spark)")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Workers of Spark import the source that has nothing to read, however this process was started.
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    from pyspark.sql import SparkSession

    jars = plan.peer("Kafka", spark_jars)
    return (
        SparkSession.builder.master("local[2]")
        .appName("srmp-spark benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.jars", "" if isinstance(jars, NotHere) else jars)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def jvm_of(spark: SparkSession) -> int:
    """Return the process of the session's JVM."""
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]


def end_session() -> None:
    """Stop the session if there is one."""
    if "pyspark" not in sys.modules:
        return
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


@contextlib.contextmanager
def on_core(spark: SparkSession, core: str) -> Iterator[None]:
    """Keep the session's JVM and its Python workers on one core: threads and processes inherit the cores of who starts them."""
    jvm = jvm_of(spark)
    before = os.sched_getaffinity(jvm)
    _pin(jvm, {int(core)})
    try:
        yield
    finally:
        _pin(jvm, before)


def _pin(root: int, cores: set[int]) -> None:
    """Give all threads of a process and of its descendants these cores."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                waiting += [int(child) for child in (thread / "children").read_text().split()]
    for pid in found:
        with contextlib.suppress(OSError):  # it ended meanwhile
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores)
