"""Spark imports every top-level ``pyspark_*`` module and registers its ``DefaultSource``: this is ``format("mqrr")``.

As in ``pyspark_srmp`` a problem in our own package turns into "format not found", and never into an exception at import time.
"""

try:
    from srmp_spark.spark.mqrr_source import MqrrDataSource as DefaultSource
except ImportError:  # an incomplete installation must not break other people's formats
    pass
else:
    __all__ = ["DefaultSource"]
