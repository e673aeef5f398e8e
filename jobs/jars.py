"""Fetch Delta's jars into the local Ivy cache, so that no later start has to: a Spark session that starts and stops."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession


def main() -> int:
    """Start, run one statement that needs the jar, stop."""
    builder = (
        SparkSession.builder.appName("jars")
        .master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    )
    spark = configure_spark_with_delta_pip(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(1).count()
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
