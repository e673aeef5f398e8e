"""Fetch Delta's jars into the local Ivy cache, so that no later start has to: a session that starts, works once and stops."""

from __future__ import annotations

import sys

from srmp_spark.errors import SrmpSparkError
from srmp_spark.interface import ExitCode
from srmp_spark.spark import session


def main() -> int:
    """0, or 2 with one line when Java is missing."""
    try:
        spark = session.delta_session("jars", "local[1]")
    except SrmpSparkError as error:
        print(f"jars: {error}", file=sys.stderr)
        return ExitCode.USAGE
    spark.range(1).count()
    spark.stop()
    return ExitCode.DONE


if __name__ == "__main__":
    raise SystemExit(main())
