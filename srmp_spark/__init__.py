"""Microsoft Message Queuing (MSMQ) as a Spark Structured Streaming source and sink.

``spark.readStream.format("srmp")`` needs no import, because Spark finds :mod:`pyspark_srmp` by its
name. Where this discovery is switched off, call ``register(spark)`` instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from srmp_spark.spark.progress import SrmpListener
    from srmp_spark.spark.sink import SrmpSink

__version__ = "0.2.0"

__all__ = ["SrmpSink", "__version__", "listener", "register"]


def __getattr__(name: str) -> object:
    # The queue manager imports this package too and needs no sink: import the sink on demand.
    if name == "SrmpSink":
        from srmp_spark.spark.sink import SrmpSink

        return SrmpSink
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register(spark: SparkSession) -> None:
    """Register the format ``srmp`` with one Spark session.

    Call this function on platforms that do not discover ``pyspark_*`` modules.
    """
    # Only callers that have a session import pyspark.
    from srmp_spark.spark.source import SrmpDataSource

    spark.dataSource.register(SrmpDataSource)


def listener(
    spark: SparkSession, *, log_seconds: float = 60.0, prometheus_file: str | None = None
) -> SrmpListener:
    """Register a listener that reports how many rows wait for each streaming query of a session.

    The listener keeps these numbers in memory, logs them, and can export them. ``log_seconds`` is
    the time between two log lines of a query, in seconds. ``prometheus_file`` names a file for the
    textfile collector of a Prometheus node exporter. Return the listener.
    """
    # Only callers that have a session import pyspark.
    from srmp_spark.spark import progress

    return progress.listener(spark, log_seconds=log_seconds, prometheus_file=prometheus_file)
