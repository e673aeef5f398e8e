"""Fetch Delta's jars into the local Ivy cache, so that no later start has to: a session that starts, works once and stops.

``make setup`` has its JVM write down the classes that it has loaded (class data sharing: ``-XX:ArchiveClassesAtExit``), which
the JVMs of the tests and the demo then map instead of loading and checking them again. So the work is what most of them do,
and the JVM's end is waited for: it writes the archive there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from srmp_spark.errors import SrmpSparkError
from srmp_spark.interface import ExitCode
from srmp_spark.spark import session

ARCHIVE_SECONDS = 120.0
"""For a JVM to end: it writes some 100 MB of classes, five seconds on a machine that does nothing else."""


def main() -> int:
    """0, or 2 with one line when Java is missing or its end cannot be waited for."""
    try:
        spark = session.delta_session("jars", "local[1]")
    except SrmpSparkError as error:
        print(f"jars: {error}", file=sys.stderr)
        return ExitCode.USAGE
    gateway = spark.sparkContext._gateway  # noqa: SLF001  # PySpark has no public name for the process of its JVM
    with tempfile.TemporaryDirectory(prefix="srmp-spark-jars-") as folder:
        table = str(Path(folder) / "table")
        spark.range(10).selectExpr("id", "cast(id as string) as text").write.format("delta").save(
            table
        )
        spark.read.format("delta").load(table).groupBy("text").count().count()
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # what ends it
    try:
        gateway.proc.wait(ARCHIVE_SECONDS)
    except subprocess.TimeoutExpired:
        print(
            f"jars: Spark's JVM did not end within {ARCHIVE_SECONDS:.0f} s; try again on "
            "a less busy machine",
            file=sys.stderr,
        )
        return ExitCode.USAGE
    return ExitCode.DONE


if __name__ == "__main__":
    raise SystemExit(main())
