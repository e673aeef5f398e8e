"""``format("mqrr")``: queues of another queue manager, over RPC ([MS-MQRR]; INTERFACE.md section 4).

    spark.read.format("mqrr").option("host", "127.0.0.1:2103").option("queue", "private$\\orders").load()

A batch is a snapshot: each queue is a task that walks it with a cursor and takes nothing. A live queue ordered by priority has
no range that could be read again, so a stream reads the log of a queue manager of ours that pulls the messages into it first
(:mod:`.mqrr_stream`); everything about it is as in ``format("srmp")``.
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
from srmp_spark.spark.chosen_columns import chosen_columns
from srmp_spark.spark.mqrr_options import RemoteOptions, parse_remote
from srmp_spark.spark.this_spark import check_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

BATCH_ROWS = 2_000
"""As of the log: smaller Arrow batches cost Spark more than the rows in them."""
BATCH_BYTES = 8 * 1024 * 1024
"""And so much is read ahead, while rows are made of the batch before."""
PIECE_MESSAGES = 64
"""Messages that the thread which reads hands over together …"""
PIECE_BYTES = 1024 * 1024
"""… or fewer large ones."""
_LOOKUP_ID = struct.Struct("<Q")


class MqrrDataSource(DataSource):
    """The data source; :data:`srmp_spark.spark.mqrr_options.MQRR_OPTIONS` lists the options."""

    @classmethod
    def name(cls) -> str:
        """``mqrr``."""
        return "mqrr"

    def schema(self) -> str:
        """The columns. Checks the options first, as ``format("srmp")`` does."""
        check_spark(self.name())
        return spark_ddl(parse_remote(dict(self.options)).columns or NAMES)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        check_spark(self.name())
        return MqrrBatchReader(parse_remote(dict(self.options)), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """For ``spark.readStream``: the log of the subscription."""
        check_spark(self.name())
        from srmp_spark.spark.mqrr_stream import MqrrStreamReader

        return MqrrStreamReader(parse_remote(dict(self.options)), schema)


@dataclass(frozen=True)
class RemotePartition(InputPartition):
    """One queue."""

    queue: str


class MqrrBatchReader(DataSourceReader):
    """A snapshot of remote queues."""

    def __init__(self, options: RemoteOptions, schema: StructType | None = None) -> None:
        """Take the options, and as ``schema`` the columns to read; None: all."""
        for name in (*options.stream, *(["mode"] if options.mode else [])):
            raise ConfigurationError(
                f"option {name} is for streams: a batch reads {options.host.text} itself, "
                "and removes nothing"
            )
        self._options = options
        self._columns = chosen_columns(schema, options.columns)

    def partitions(self) -> list[InputPartition]:
        """A task for each queue."""
        return [RemotePartition(queue) for queue in self._options.queues]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the messages of one queue, by priority and arrival. ``sequence`` is what their machine counts.

        A connection that breaks is made again, and the walk goes on behind what it had.

        Raises :class:`RemoteQueueError`, which names the queue and says what to do.
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
    """What one thread hands to the other at once: waking it for each message would cost more than reading one."""
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
    """Who has several queues wants to know which one cannot be read."""
    try:
        yield
    except SrmpSparkError as error:
        raise RemoteQueueError(f"queue {queue} of {host} cannot be read: {error}") from error


def record_of(shown: Shown, peer: str) -> Record:
    """A message as our log would hold it."""
    packet = shown.packet
    lookup_id = lookup_id_of(
        shown.sequence_id, priority=packet.priority, transactional=packet.transaction is not None
    )
    arrival = Arrival(shown.arrived_at * 1_000_000, "mqrr", peer)
    return Record(arrival, _LOOKUP_ID.pack(lookup_id) + shown.raw, _LOOKUP_ID.size, Form.PACKET)


def register(spark: SparkSession) -> None:
    """Make ``format("mqrr")`` known to a session that did not find it by itself."""
    spark.dataSource.register(MqrrDataSource)
