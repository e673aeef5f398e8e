"""The entry point by which Spark finds ``format("srmp")``.

Spark imports every top-level ``pyspark_*`` module and registers its ``DefaultSource``. One failing
import here would switch off discovery for every data source on the machine. A problem in our own
package therefore leads to the error "format not found", which the troubleshooting table explains,
and never to an exception during the import.
"""

try:
    from srmp_spark.spark.source import SrmpDataSource as DefaultSource
except ImportError:
    # An incomplete installation must not break the formats of other packages.
    pass
else:
    __all__ = ["DefaultSource"]
