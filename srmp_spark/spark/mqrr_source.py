r"""``format("mqrr")``: queues of another queue manager, read over RPC ([MS-MQRR]).

    spark.read.format("mqrr")
        .option("host", "127.0.0.1:2103").option("queue", r"private$\orders")
        .load()

INTERFACE.md section 4 describes the format. A batch read is a snapshot: each queue is a task that
walks through the queue with a cursor and removes nothing. A live queue that is ordered by priority
has no range that could be read again. So a stream reads the log of a local queue manager, which
first pulls the messages into the log (:mod:`.mqrr_stream`). Everything else about a stream is as in
``format("srmp")``.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srmp_spark.extras import missing

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
    )
    from pyspark.sql.types import StructType
except ModuleNotFoundError:
    raise missing("spark", "pyspark") from None

from srmp_spark.client.read_ahead import ReadAhead
from srmp_spark.client.remote_queue import RemoteMachine
from srmp_spark.client.walking import Shown
from srmp_spark.client.walking_on import WalkOn
from srmp_spark.errors import ConfigurationError, RemoteQueueError, SrmpSparkError
from srmp_spark.message import Arrival, Message
from srmp_spark.mqrr.lookup_identifier import lookup_id_of
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.rows.columns import NAMES, spark_ddl
from srmp_spark.rows.group import Form, Record
from srmp_spark.spark.settings.chosen_columns import chosen_columns
from srmp_spark.spark.settings.mqrr_options import RemoteOptions, parse_remote
from srmp_spark.spark.this_spark import check_spark, refused_stream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

BATCH_ROWS = 2_000
"""Rows of one Arrow batch, as when reading a log.

Spark spends more time on a smaller Arrow batch than on its rows.
"""
BATCH_BYTES = 8 * 1024 * 1024
"""Bytes of one Arrow batch, and bytes that are read ahead while rows are made of a batch."""
PIECE_MESSAGES = 64
"""Largest number of messages that the reading thread hands over together."""
PIECE_BYTES = 1024 * 1024
"""Size in bytes at which the reading thread hands over fewer than ``PIECE_MESSAGES`` messages."""
_LOOKUP_ID = struct.Struct("<Q")


class MqrrDataSource(DataSource):
    """The data source of ``format("mqrr")``.

    :data:`srmp_spark.spark.settings.mqrr_options.MQRR_OPTIONS` lists its options.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, ``mqrr``."""
        return "mqrr"

    def schema(self) -> str:
        """Return the columns as DDL, after checking the options, as ``format("srmp")`` does.

        Raises :class:`ConfigurationError` for the first problem.
        """
        check_spark(self.name())
        return spark_ddl(parse_remote(dict(self.options)).columns or NAMES)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``.

        Raises :class:`ConfigurationError` for the first problem of the options.
        """
        check_spark(self.name())
        return MqrrBatchReader(parse_remote(dict(self.options)), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return the reader for ``spark.readStream``, which reads the log of the subscription.

        On a Spark that cannot read streams, the result is a reader whose first call raises
        :class:`ConfigurationError`. Nothing is subscribed yet.
        """
        refused = refused_stream(self.name())
        if refused is not None:
            return refused
        from srmp_spark.spark.reading.mqrr_stream import MqrrStreamReader

        return MqrrStreamReader(parse_remote(dict(self.options)), schema)


@dataclass(frozen=True)
class RemotePartition(InputPartition):
    """A task that reads one remote queue."""

    queue: str


class MqrrBatchReader(DataSourceReader):
    """Reads a snapshot of remote queues with ``spark.read``, and removes no message."""

    def __init__(self, options: RemoteOptions, schema: StructType | None = None) -> None:
        """Check the options, and choose the columns of ``schema``. ``None`` means all columns.

        Raises :class:`ConfigurationError` if an option is for streams only.
        """
        for name in (*options.stream, *(["mode"] if options.mode else [])):
            raise ConfigurationError(
                f"option {name} is for streams: a batch reads {options.host.text} itself, "
                "and removes nothing"
            )
        self._options = options
        self._columns = chosen_columns(schema, options.columns)

    def partitions(self) -> list[InputPartition]:
        """Return one task for each queue."""
        return [RemotePartition(queue) for queue in self._options.queues]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one queue as Arrow batches, on an executor.

        The order is by priority and arrival.

        ``sequence`` is the number that the remote machine counts. A lost connection is made again,
        and the read continues after the last message (:mod:`srmp_spark.client.walking_on` has the
        limits). Raises :class:`RemoteQueueError`, which names the queue and says what to do.
        """
        assert isinstance(partition, RemotePartition)
        from srmp_spark.rows.decode import rows_of

        options, host, shown_as = (
            self._options,
            self._options.host,
            partition.queue.replace("\\", "/").lower(),
        )
        waiting: list[tuple[int, Record]] = []
        messages: dict[int, Message] = {}
        size = 0
        walk = WalkOn(
            lambda: RemoteMachine.connect(host.name, host.port, options.credentials.settings(host)),
            lambda machine: machine.open(queue_format_for(host.name, partition.queue)),
        )
        with (
            _named(partition.queue, host.text),
            ReadAhead(
                _pieces(iter(walk)), size=_bytes_of, limit=BATCH_BYTES, interrupt=walk.interrupt
            ) as ahead,
        ):
            for piece in ahead:
                for shown in piece:
                    waiting.append((shown.sequence_id, record_of(shown, host.text)))
                    messages[shown.sequence_id] = message_of(shown.packet)
                size += _bytes_of(piece)
                if len(waiting) >= BATCH_ROWS or size >= BATCH_BYTES:
                    yield rows_of(
                        None, None, shown_as, waiting, messages=messages, names=self._columns
                    )
                    waiting, messages, size = [], {}, 0
        if waiting:
            yield rows_of(None, None, shown_as, waiting, messages=messages, names=self._columns)


def _pieces(walk: Iterator[Shown]) -> Iterator[list[Shown]]:
    """Yield the messages in lists that one thread hands to another at once.

    Waking the other thread for each message would cost more than reading a message.
    """
    piece: list[Shown] = []
    size = 0
    for shown in walk:
        piece.append(shown)
        size += len(shown.raw)
        if len(piece) >= PIECE_MESSAGES or size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _bytes_of(piece: list[Shown]) -> int:
    return sum(len(shown.raw) for shown in piece)


@contextlib.contextmanager
def _named(queue: str, host: str) -> Iterator[None]:
    """Turn errors of the package in the ``with`` block into :class:`RemoteQueueError`."""
    try:
        yield
    except SrmpSparkError as error:
        raise RemoteQueueError(f"queue {queue} of {host} cannot be read: {error}") from error


def record_of(shown: Shown, peer: str) -> Record:
    """Return a remote message as the record that a local log would store.

    ``peer`` is the address of the other queue manager as text.
    """
    packet = shown.packet
    lookup_id = lookup_id_of(
        shown.sequence_id, priority=packet.priority, transactional=packet.transaction is not None
    )
    arrival = Arrival(shown.arrived_at * 1_000_000, "mqrr", peer)
    return Record(arrival, _LOOKUP_ID.pack(lookup_id) + shown.raw, _LOOKUP_ID.size, Form.PACKET)


def register(spark: SparkSession) -> None:
    """Register ``format("mqrr")`` with a session that did not find it by itself."""
    spark.dataSource.register(MqrrDataSource)
