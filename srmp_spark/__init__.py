"""Microsoft Message Queuing (MSMQ) as a Spark Structured Streaming source and sink.

``spark.readStream.format("srmp")`` needs no import: Spark finds :mod:`pyspark_srmp` by its name. ``register(spark)`` does
the same by hand where discovery is switched off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from srmp_spark.spark.progress import SrmpListener
    from srmp_spark.spark.sink import SrmpSink

__version__ = "0.1.0"

__all__ = ["SrmpSink", "__version__", "listener", "register"]


def __getattr__(name: str) -> object:
    if name == "SrmpSink":  # the queue manager imports this package too, and has no sink
        from srmp_spark.spark.sink import SrmpSink

        return SrmpSink
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register(spark: SparkSession) -> None:
    """Register the format ``srmp`` with one session, for platforms that do not discover ``pyspark_*`` modules."""
    from srmp_spark.spark.source import (
        SrmpDataSource,
    )  # pyspark is imported only by those who have a session

    spark.dataSource.register(SrmpDataSource)


def listener(
    spark: SparkSession, *, log_seconds: float = 60.0, prometheus_file: str | None = None
) -> SrmpListener:
    """Register a listener that keeps, logs and exports how many rows wait for each streaming query of a session.

    ``log_seconds``: how often a query is logged. ``prometheus_file``: a file for the textfile collector of a node exporter.
    """
    from srmp_spark.spark import progress  # pyspark is imported only by those who have a session

    return progress.listener(spark, log_seconds=log_seconds, prometheus_file=prometheus_file)
