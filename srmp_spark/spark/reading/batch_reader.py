"""The batch reader of ``format("srmp")``: it reads a snapshot of the logs, always as a peek.

A batch read may run twice (a retried job, a second action on the DataFrame) and has no commit. So
it registers no consumer and marks nothing as received. The start and the end are fixed when Spark
plans the read.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from srmp_spark.spark.embedded import locate
from srmp_spark.spark.reading.admission import pieces_of, split_range
from srmp_spark.spark.reading.logs import Logs
from srmp_spark.spark.reading.partitions import SrmpPartition, clipped, read_columns, read_partition
from srmp_spark.spark.reading.starting import (
    began_at,
    check_ending,
    ending_sequence,
    starting_positions,
)
from srmp_spark.spark.settings.options import SourceOptions, check_batch

if TYPE_CHECKING:
    import pyarrow as pa


class SrmpBatchReader(DataSourceReader):
    """Reads the rows of queue logs between the start and the end that the options define."""

    def __init__(self, options: SourceOptions, schema: StructType | None = None) -> None:
        """Check the options, and choose the columns of ``schema``. ``None`` means all columns.

        Raises :class:`ConfigurationError` if an option does not fit a batch read.
        """
        check_batch(options)
        self._options = options
        self._columns = read_columns(schema, options)

    def partitions(self) -> list[InputPartition]:
        """Fix the start and the end of the read, and return its tasks.

        The tasks are ordered by queue manager, queue and sequence. Raises
        :class:`ConfigurationError` if the options do not fit the logs, and
        :class:`ApiUnreachableError` if a queue manager does not answer.
        """
        place = locate(self._options)
        logs = Logs(self._options, place.urls)
        logs.managers.check_all_are_here()
        found = logs.discover()
        starts = starting_positions(logs, found, self._options, {})
        began = {
            key: began_at(
                key, starts[key], self._options.starting, self._options.consumer, logs.client(key)
            )
            for key in found
        }
        check_ending(self._options.ending, logs, found)
        ends = {
            key: ending_sequence(key, facts, self._options.ending, logs.client(key))
            for key, facts in found.items()
        }
        ranges = {
            (key, epoch): (after, to)
            for key, facts in found.items()
            for epoch, after, to in facts.pieces(starts[key].sequence, ends[key])
        }
        sizes = {piece: to - after for piece, (after, to) in ranges.items()}
        pieces = pieces_of(sizes, self._options.min_partitions, self._options.rows_per_partition)
        return [
            SrmpPartition(
                logs.client(key).url,
                key,
                epoch,
                after,
                to,
                place.host,
                tuple(clipped(began[key].left_out, after, to)),
                socket.gethostname(),
            )
            for key, epoch in ranges
            for after, to in split_range(*ranges[key, epoch], pieces[key, epoch])
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, on an executor.

        If there are no tasks, Spark passes a partition of its own, which has no rows.
        """
        return (
            read_partition(partition, self._options, self._columns)
            if isinstance(partition, SrmpPartition)
            else iter(())
        )
