"""Spark imports every top-level ``pyspark_*`` module and registers its ``DefaultSource``: this is ``format("srmp")``.

One failing import here would switch off discovery for every data source on the machine, so a problem in our own package
turns into "format not found", which the troubleshooting table explains, and never into an exception at import time.
"""

try:
    from srmp_spark.spark.source import SrmpDataSource as DefaultSource
except ImportError:  # an incomplete installation must not break other people's formats
    pass
else:
    __all__ = ["DefaultSource"]
