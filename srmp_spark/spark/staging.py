"""The part of one task in a batch: its Arrow batches become the body of one ``POST stage``.

**Memory.** No partition is held as a whole. A batch of rows is converted to the form of the stage,
written as one message of an Arrow IPC stream, and sent in a chunked body while Spark makes the next
batch. Everything that was sent is kept too (:class:`Spool`): a few megabytes in memory, the rest in
an unnamed file of the executor's local disk. Spark gives a task its rows only once, and a queue
manager that restarts in the middle of a body must be sent all of it again.

**Attempts.** A stage is identified by (application, batch, partition, attempt). The attempt is
Spark's number of the task attempt, which is unique among retries and speculative copies of one
Spark application, with 32 random bits below it. So a task that a dead driver left running can never
replace a stage of its successor.
"""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from srmp_spark.client.outbox_batches import OutboxClient
from srmp_spark.errors import RowError, SrmpSparkError
from srmp_spark.rows.body_formats import as_bodies
from srmp_spark.rows.row_names import row_name
from srmp_spark.spark.settings.sink_columns import StagedColumn, StagePlan
from srmp_spark.spark.settings.sink_options import SinkOptions, Target

SPOOL_MEMORY_BYTES = 8 * 1024 * 1024
"""Bytes of its stage that a task keeps in memory. Most micro-batches never use the disk."""
PIECE_BYTES = 16 * 1024 * 1024
"""Largest size of the rows in one Arrow message, in bytes, unless one row has more.

Spark makes batches of about 64 MB, the queue manager accepts no larger ones, and a body format may
double their size.
"""
CHUNK_BYTES = 1024 * 1024
"""Bytes of the body that are sent at once. The HTTP client copies each chunk once."""
CUT_BYTES = 8 * 1024 * 1024
"""Bytes that are sent of each value of a row that is too large to be a message.

A message has at most half of this. The queue manager finds such a row too large all the same, and
``onBadRow`` decides about the row; a row of more than 64 MB would end its stage.
"""
RETRY_SECONDS = 60.0
"""Longest time, in seconds, that a task or the driver waits for a queue manager that restarts.

After that the task or the commit fails.
"""

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""The bytes that end an Arrow IPC stream."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StagedPartition(WriterCommitMessage):
    """The result of a task that has staged its rows; Spark passes the result to the driver."""

    target: Target
    stage: str | None
    """Identifier of the stage, or ``None`` if the partition had no rows."""
    rows: int
    warning: str | None = None
    """The queue manager's warning about the options, or ``None``."""
    bad: int = 0
    """Number of rows that can never be sent, and were taken out (option ``onBadRow``)."""
    first_bad: str = ""
    """Text that names the first of these rows, and its problem."""


class SourceFailedError(Exception):
    """Reports that making the rows failed with ``error``, and not sending them.

    So sending must not be repeated.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def client_of(options: SinkOptions) -> OutboxClient:
    """Return a new client of the queue manager that the options of a sink name."""
    return OutboxClient(
        options.queue_manager,
        options.token,
        retry_seconds=RETRY_SECONDS,
        allow_plain_token=options.allow_plain_token,
    )


def stage_partition(
    plan: StagePlan, batches: Iterator[pa.RecordBatch], target: Target
) -> StagedPartition:
    """Send the rows of the running task to the queue manager, which keeps them as a stage.

    No row is outgoing until the driver commits. Raises :class:`RowError` for a row that cannot be a
    message, :class:`ApiError` if the queue manager refuses the stage, :class:`ApiUnreachableError`
    if it does not answer for longer than :data:`RETRY_SECONDS`, and :class:`SrmpSparkError` if it
    counted other rows.
    """
    context = TaskContext.get()
    assert context is not None, "runs in a Spark task"
    rows = Rows(plan, context.partitionId())
    spool = Spool(rows.messages(batches))
    try:
        if not spool.fill():
            return StagedPartition(target, None, 0)
        staged = client_of(plan.options).stage(
            target.application,
            target.batch,
            partition=context.partitionId(),
            attempt=context.taskAttemptId() << 32 | secrets.randbits(32),
            content=spool.content,
        )
    except SourceFailedError as failed:
        raise failed.error from None
    finally:
        spool.close()
    if staged.rows != rows.count:
        raise SrmpSparkError(
            f"the queue manager counted {staged.rows} rows of partition "
            f"{context.partitionId()}, {rows.count} were sent; "
            "nothing of the batch is committed. Is something between Spark and the queue "
            "manager changing what passes?"
        )
    return StagedPartition(
        target, staged.stage, rows.count, staged.warning, staged.bad, staged.first_bad
    )


class Rows:
    """Converts the rows of one partition to a stage: messages of an Arrow IPC stream."""

    def __init__(self, plan: StagePlan, partition: int) -> None:
        self._plan = plan
        self._partition = partition
        self._names = [column.name for column in plan.columns]
        # The others may have any length, and determine the order or the transaction of other rows.
        self._cut_columns = [
            column.source
            for column in plan.columns
            if column.source is not None
            and column.name != "transaction"
            and column.name not in plan.order_by
        ]
        self.count = 0
        """Number of rows that were converted so far."""

    def messages(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Buffer]:
        """Yield the messages of the Arrow IPC stream, or nothing if there are no rows."""
        for batch in batches:
            yield from self._messages_of(batch)
            # Release up to 64 MB before Spark hands over the next batch.
            del batch
        if self.count:
            yield pa.py_buffer(_END_OF_STREAM)

    def _messages_of(self, batch: pa.RecordBatch) -> Iterator[pa.Buffer]:
        for piece in _pieces(batch):
            staged = self._staged(self._cut(piece))
            if not self.count:
                yield staged.schema.serialize()
            yield staged.serialize()
            self.count += piece.num_rows

    def _cut(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        """Return a single row that is too large to be sent with its values cut to CUT_BYTES.

        Other pieces, and with ``onBadRow=fail`` all pieces, are returned as they are.
        """
        if (
            piece.num_rows > 1
            or piece.nbytes <= PIECE_BYTES
            or self._plan.options.on_bad_row == "fail"
        ):
            return piece
        columns = list(piece.columns)
        for index in self._cut_columns:
            (value,) = columns[index].to_pylist()
            if isinstance(value, bytes | str) and len(value) > CUT_BYTES:
                columns[index] = pa.array([value[:CUT_BYTES]], columns[index].type)
        return pa.RecordBatch.from_arrays(columns, schema=piece.schema)

    def _staged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [self._column(column, batch) for column in self._plan.columns]
        return pa.RecordBatch.from_arrays(arrays, names=self._names).replace_schema_metadata(
            self._plan.metadata
        )

    def _column(self, column: StagedColumn, batch: pa.RecordBatch) -> pa.Array:
        if column.source is None:
            return pa.repeat(column.constant, batch.num_rows)
        values = batch.column(column.source)
        return self._bodies(values, batch) if column.name == "body" else values

    def _bodies(self, values: pa.Array, batch: pa.RecordBatch) -> pa.Array:
        if values.null_count and self._plan.options.on_bad_row == "fail":
            row = pc.index(values.is_null(), pa.scalar(value=True)).as_py()
            raise RowError(
                f"column body is null in {self._name(batch, row)}: a message has a body; "
                "if it is meant to be empty, write coalesce(col('body'), "
                f"lit({'' if self._plan.text_body else b''!r}))"
            )
        if not self._plan.text_body:
            return values
        texts = values.cast(pa.string())
        bodies = as_bodies(texts.fill_null(""), self._plan.options.body_format)
        # The queue manager finds the rows without a body.
        return pc.if_else(texts.is_valid(), bodies, None) if texts.null_count else bodies

    def _name(self, batch: pa.RecordBatch, row: int) -> str:
        """Return a text that names a row of ``batch`` for people, with its place."""
        named = {
            column.name: batch.column(column.source)
            for column in self._plan.columns
            if column.source is not None
        }
        place = f"row {self.count + row} of partition {self._partition}"
        name = row_name(named, row, self._plan.order_by)
        return f"{place} (both count from 0)" if name is None else f"{name} ({place})"


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in slices of at most :data:`PIECE_BYTES`, unless a single row has more."""
    if batch.num_rows > 1 and batch.nbytes > PIECE_BYTES:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))
    elif batch.num_rows:
        yield batch


class Spool:
    """Keeps the bytes of one stage, so that they can be sent several times."""

    def __init__(self, messages: Iterator[pa.Buffer]) -> None:
        self._messages = messages
        self._file = tempfile.SpooledTemporaryFile(SPOOL_MEMORY_BYTES, dir=local_directory())  # noqa: SIM115  # closed by close()
        self._size = 0

    def fill(self) -> bool:
        """Read messages of the Arrow stream into memory, up to about SPOOL_MEMORY_BYTES.

        Return False if the partition has no rows. So a small stage is complete before it is sent.
        Spark may take minutes to make it, and no connection is held for that time.
        """
        while self._size < SPOOL_MEMORY_BYTES and self._next() is not None:
            continue
        return self._size > 0

    def content(self) -> Iterator[memoryview]:
        """Yield the whole stage from its first byte: the stored messages, then those that follow.

        Raises :class:`SourceFailedError` if making the rows fails.
        """
        sent = 0
        while sent < self._size:
            self._file.seek(sent)
            block = self._file.read(min(CHUNK_BYTES, self._size - sent))
            sent += len(block)
            yield memoryview(block)
        while (message := self._next()) is not None:
            view = memoryview(cast("Any", message))
            for start in range(0, len(view), CHUNK_BYTES):
                yield view[start : start + CHUNK_BYTES]

    def _next(self) -> pa.Buffer | None:
        try:
            message = next(self._messages, None)
            if message is not None:
                self._file.seek(self._size)
                self._file.write(cast("Any", message))
                self._size += message.size
        except Exception as error:
            # The error is wrapped, because an OSError would look like a broken connection.
            raise SourceFailedError(error) from error
        return message

    def close(self) -> None:
        """Delete the stored bytes of the stage."""
        self._file.close()


def local_directory() -> str | None:
    """Return the folder for temporary files of the executor.

    The result is Spark's folder, or ``None`` for the system's folder.
    """
    first = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return first if first and Path(first).is_dir() else None
