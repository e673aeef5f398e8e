"""``format("srmp")``: read rows of message queues and send rows to them, as stream or batch.

    spark.readStream.format("srmp")
        .option("queueManager", "http://127.0.0.1:8081").option("queue", "private$/orders")
        .load()
    df.write.format("srmp").mode("append")
        .option("queueManager", "http://127.0.0.1:8081")
        .option("destination", "DIRECT=http://host/msmq/private$/orders")
        .save()

INTERFACE.md section 4 describes the format. Spark finds it through the module ``pyspark_srmp``.
:func:`register` does the same by hand, for platforms that add modules after the session began.
``pushFilters`` is deliberately not implemented: Spark 4.2 returns wrong rows when a DataFrame is
used twice (reference: docs/adr), and a stream has no filters to push.
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
from srmp_spark.spark.settings.options import SourceOptions, parse
from srmp_spark.spark.settings.sink_options import parse_sink
from srmp_spark.spark.this_spark import check_spark, refused_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SrmpDataSource(DataSource):
    """The data source and sink of ``format("srmp")``.

    :data:`srmp_spark.spark.settings.options.SOURCE_OPTIONS` and
    :data:`srmp_spark.spark.settings.sink_options.SINK_OPTIONS` list the options.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, ``srmp``."""
        return "srmp"

    def schema(self) -> str:
        """Return the columns as DDL, after checking the options.

        This method checks the options, because users could not read an exception of
        ``streamReader``. Raises :class:`ConfigurationError` for the first problem.
        """
        check_spark(self.name())
        return spark_ddl(self._parsed().columns or NAMES)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``.

        Raises :class:`ConfigurationError` for the first problem of the options.
        """
        check_spark(self.name())
        from srmp_spark.spark.reading.batch_reader import SrmpBatchReader

        return SrmpBatchReader(self._parsed(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return the reader for ``spark.readStream``.

        Spark hides the text of an error of this method. So the rules of streams are checked at the
        first call of the reader, and the options before, in :meth:`schema`. If the user declared a
        schema, Spark does not call :meth:`schema`, and a wrong option raises
        :class:`ConfigurationError` in this method. On a Spark that cannot read streams, the result
        is a reader whose first call raises :class:`ConfigurationError`.
        """
        refused = refused_stream(self.name())
        if refused is not None:
            return refused
        from srmp_spark.spark.reading.stream_reader import SrmpStreamReader

        return SrmpStreamReader(self._parsed(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for ``df.write``. Each write has one instance.

        Raises :class:`ConfigurationError` for options and columns that do not fit.
        """
        check_spark(self.name())
        from srmp_spark.spark.writer import SrmpWriter

        return SrmpWriter(parse_sink(dict(self.options)), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # Spark's name
        """Return the writer for ``df.writeStream``.

        Each micro-batch has one instance, and another one for its commit. Raises
        :class:`ConfigurationError` for options and columns that do not fit.
        """
        check_spark(self.name())
        from srmp_spark.spark.writer import SrmpStreamWriter

        return SrmpStreamWriter(parse_sink(dict(self.options)), schema, overwrite=overwrite)

    def _parsed(self) -> SourceOptions:
        return parse(dict(self.options))


def register(spark: SparkSession) -> None:
    """Register ``format("srmp")`` with a session that did not find it by itself."""
    spark.dataSource.register(SrmpDataSource)
