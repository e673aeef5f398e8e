"""The entry point by which Spark finds ``format("mqrr")``.

Spark imports every top-level ``pyspark_*`` module and registers its ``DefaultSource``. As in
``pyspark_srmp``, a problem in our own package leads to the error "format not found" and never to an
exception during the import.
"""

try:
    from srmp_spark.spark.mqrr_source import MqrrDataSource as DefaultSource
except ImportError:
    # An incomplete installation must not break the formats of other packages.
    pass
else:
    __all__ = ["DefaultSource"]
