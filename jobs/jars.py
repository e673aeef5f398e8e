"""Fetch Delta's jars into the local Ivy cache, so that no later start has to.

The script starts a session, which works once and stops. ``make setup`` lets the JVM record the
classes that it has loaded (class data sharing: ``-XX:ArchiveClassesAtExit``). The JVMs of the tests
and the demo then map these classes instead of loading and checking them again. So the script does
what most of those JVMs do, and it waits for the end of the JVM, which writes the archive there.
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
"""Longest wait for the end of the JVM, in seconds.

The JVM writes about 100 MB of classes, which takes five seconds on an idle machine. Then the script
fails with exit code 2.
"""


def main() -> int:
    """Fetch the jars and return 0, or 2 if Java is missing or the JVM does not end in time.

    An error is one line on stderr.
    """
    try:
        spark = session.delta_session("jars", "local[1]")
    except SrmpSparkError as error:
        print(f"jars: {error}", file=sys.stderr)
        return ExitCode.USAGE
    # PySpark has no public name for the process of its JVM.
    gateway = spark.sparkContext._gateway  # noqa: SLF001
    with tempfile.TemporaryDirectory(prefix="srmp-spark-jars-") as folder:
        table = str(Path(folder) / "table")
        spark.range(10).selectExpr("id", "cast(id as string) as text").write.format("delta").save(
            table
        )
        spark.read.format("delta").load(table).groupBy("text").count().count()
    spark.stop()
    gateway.shutdown()
    # The JVM ends when its standard input is closed.
    gateway.proc.stdin.close()
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
