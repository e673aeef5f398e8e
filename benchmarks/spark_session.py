"""Share one Spark session among all benchmarks of a process.

A session that starts costs half a minute of CPU until its JVM is warm. A JVM outlives the session
that started it, so the benchmarks of one process share the JVM anyway.
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
    """Return the session of this process.

    It has the jars of Spark's Kafka source if the plan wants them and they are installed. Raises
    :class:`NotHere` if the plan leaves Spark out.
    """
    if not plan.with_spark:
        raise NotHere("it needs Spark, which is left out (--no-spark)")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Workers of Spark import spark_nothing, in whatever way this process was started.
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
    """Return the process id of the session's JVM."""
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
    """Keep the session's JVM and its Python workers on one core while the context lasts.

    Threads and processes inherit the cores of the process that starts them.
    """
    jvm = jvm_of(spark)
    before = os.sched_getaffinity(jvm)
    _pin(jvm, {int(core)})
    try:
        yield
    finally:
        _pin(jvm, before)


def _pin(root: int, cores: set[int]) -> None:
    """Let all threads of a process and of its descendants run on these cores only."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                waiting += [int(child) for child in (thread / "children").read_text().split()]
    for pid in found:
        # The process may have ended meanwhile.
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores)
