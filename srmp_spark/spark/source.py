"""``format("srmp")``: rows of message queues, and rows to message queues, as a stream and as a batch (INTERFACE.md section 4).

    spark.readStream.format("srmp")
        .option("queueManager", "http://127.0.0.1:8081").option("queue", "private$/orders")
        .load()
    df.write.format("srmp").mode("append")
        .option("queueManager", "http://127.0.0.1:8081").option("destination", "DIRECT=http://host/msmq/private$/orders")
        .save()

Spark finds the format through the module ``pyspark_srmp``; :func:`register` does the same by hand, for platforms where
modules are added after the session began. ``pushFilters`` is not implemented on purpose: Spark 4.2 returns wrong rows when a
DataFrame is used twice (reference: docs/adr), and a stream has no such thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srmp_spark.extras import missing

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType
except ModuleNotFoundError:
    raise missing("spark", "pyspark") from None

from srmp_spark.rows.columns import NAMES, spark_ddl
from srmp_spark.spark.options import SourceOptions, parse
from srmp_spark.spark.sink_options import parse_sink
from srmp_spark.spark.this_spark import check_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SrmpDataSource(DataSource):
    """The data source and sink; :data:`srmp_spark.spark.options.SOURCE_OPTIONS` and
    :data:`srmp_spark.spark.sink_options.SINK_OPTIONS` list the options.
    """

    @classmethod
    def name(cls) -> str:
        """``srmp``."""
        return "srmp"

    def schema(self) -> str:
        """The columns. Checks the options first: an exception of ``streamReader`` would reach nobody in readable form."""
        check_spark(self.name())
        return spark_ddl(self._parsed().columns or NAMES)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        check_spark(self.name())
        from srmp_spark.spark.batch_reader import SrmpBatchReader

        return SrmpBatchReader(self._parsed(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """For ``spark.readStream``. Must not fail: the rules of streams are checked by the reader's first call."""
        check_spark(self.name())
        from srmp_spark.spark.stream_reader import SrmpStreamReader

        return SrmpStreamReader(self._parsed(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``; one instance a write."""
        check_spark(self.name())
        from srmp_spark.spark.writer import SrmpWriter

        return SrmpWriter(parse_sink(dict(self.options)), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # Spark's name
        """For ``df.writeStream``; one instance a micro-batch, and another one for its commit."""
        check_spark(self.name())
        from srmp_spark.spark.writer import SrmpStreamWriter

        return SrmpStreamWriter(parse_sink(dict(self.options)), schema, overwrite=overwrite)

    def _parsed(self) -> SourceOptions:
        return parse(dict(self.options))


def register(spark: SparkSession) -> None:
    """Make ``format("srmp")`` known to a session that did not find it by itself."""
    spark.dataSource.register(SrmpDataSource)
