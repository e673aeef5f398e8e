"""One task's part of a batch: Arrow batches become the body of one ``POST stage``.

**Memory.** Nothing holds a partition: a batch of rows is brought into the form of the stage, written as one message of an
Arrow IPC stream, and sent in a chunked body while Spark makes the next one. What was sent is kept too (:class:`Spool`: a
few megabytes in memory, beyond that in an unnamed file of the executor's local disk), because Spark gives a task its rows
only once, and a queue manager that restarts in the middle of a body must be sent all of it again.

**Attempts.** A stage is known by (application, batch, partition, attempt). The attempt is Spark's number of the task
attempt, unique among retries and speculative copies of one Spark application, with 32 random bits below it: a task that a dead
driver left behind can never replace a stage of its successor.
"""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from srmp_spark.client.outbox import OutboxClient
from srmp_spark.errors import RowError, SrmpSparkError
from srmp_spark.rows.body_formats import as_bodies
from srmp_spark.spark.sink_columns import Staged, StagePlan
from srmp_spark.spark.sink_options import SinkOptions

SPOOL_MEMORY_BYTES = 8 * 1024 * 1024
"""What a task keeps of its stage in memory; most micro-batches never touch the disk."""
CHUNK_BYTES = 1024 * 1024
"""Of the body at a time; each is copied once by the HTTP client."""
RETRY_SECONDS = 60.0
"""How long a task or the driver waits for a queue manager that restarts, before Spark is told that it failed."""

DELIVERIES = ("express", "recoverable", "transactional")
PRIORITY_MAX = 7
"""[MC-MQSRM] 2.2.6.2."""

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Ends an Arrow IPC stream."""

_log = logging.getLogger(__name__)


class Target(NamedTuple):
    """Where the stages of a batch belong."""

    application: str
    batch: str


@dataclass(frozen=True, slots=True)
class StagedPartition(WriterCommitMessage):
    """What a task tells the driver."""

    target: Target
    stage: str | None
    """``None``: the partition had no rows."""
    rows: int


class SourceFailedError(Exception):
    """Making the rows failed with ``error``, not sending them: repeating gains nothing."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def client_of(options: SinkOptions) -> OutboxClient:
    """The queue manager of a sink."""
    return OutboxClient(options.queue_manager, options.token, retry_seconds=RETRY_SECONDS)


def stage_partition(plan: StagePlan, batches: Iterator[pa.RecordBatch], target: Target) -> StagedPartition:
    """Send the rows of the running task to the queue manager. Nothing is on its way until the driver commits.

    Raises :class:`RowError` for a row that cannot be a message, :class:`ApiError` when the queue manager refuses the stage,
    :class:`ApiUnreachableError` when it is away for longer than :data:`RETRY_SECONDS`.
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
            f"the queue manager counted {staged.rows} rows of partition {context.partitionId()}, {rows.count} were sent; "
            "nothing of the batch is committed. Is something between Spark and the queue manager changing what passes?"
        )
    return StagedPartition(target, staged.stage, rows.count)


class Rows:
    """The rows of one partition in the form of a stage."""

    def __init__(self, plan: StagePlan, partition: int) -> None:
        self._plan = plan
        self._partition = partition
        self._names = [column.name for column in plan.columns]
        self._schema: pa.Schema | None = None
        self.count = 0
        """Rows so far."""

    def messages(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Buffer]:
        """The messages of the Arrow IPC stream; none at all if there are no rows."""
        for batch in batches:
            if batch.num_rows == 0:
                continue
            staged = self._staged(batch)
            if self._schema is None:
                self._schema = staged.schema
                yield staged.schema.serialize()
            yield staged.serialize()
            self.count += batch.num_rows
        if self._schema is not None:
            yield pa.py_buffer(_END_OF_STREAM)

    def _staged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [self._column(column, batch) for column in self._plan.columns]
        return pa.RecordBatch.from_arrays(arrays, names=self._names).replace_schema_metadata(self._plan.metadata)

    def _column(self, column: Staged, batch: pa.RecordBatch) -> pa.Array:
        if column.source is None:
            return pa.repeat(pa.scalar(column.constant, column.field), batch.num_rows)
        values = batch.column(column.source)
        if column.name == "body":
            return self._bodies(values)
        if column.field is not None and values.type != column.field:
            values = values.cast(column.field)
        if column.name == "destination" and values.null_count:
            raise RowError(f"column destination is null in {self._row(values.is_null())}: name the queue in every row")
        if column.name == "delivery":
            self._check(column.name, values, pc.is_in(values, pa.array(DELIVERIES)), " or ".join(DELIVERIES))
        elif column.name == "priority":
            in_range = pc.and_(pc.greater_equal(values, 0), pc.less_equal(values, PRIORITY_MAX))
            self._check(column.name, values, in_range, f"0 to {PRIORITY_MAX}")
        return values

    def _bodies(self, values: pa.Array) -> pa.Array:
        if values.null_count:
            raise RowError(
                f"column body is null in {self._row(values.is_null())}: a message has a body; "
                f"for an empty one write coalesce(body, {_EMPTY[self._plan.text_body]})"
            )
        if not self._plan.text_body:
            return values.cast(pa.binary())
        return as_bodies(values.cast(pa.string()), self._plan.options.body_format)

    def _check(self, name: str, values: pa.Array, good: pa.Array, wanted: str) -> None:
        """Null is the default of the column; every other value must be good."""
        bad = pc.and_(values.is_valid(), pc.invert(pc.fill_null(good, fill_value=False)))
        if pc.any(bad).as_py():
            value = values.filter(bad)[0].as_py()
            raise RowError(f"column {name} is {value!r} in {self._row(bad)}: expected {wanted}")

    def _row(self, which: pa.Array) -> str:
        number = self.count + pc.index(which, pa.scalar(value=True)).as_py() + 1
        return f"row {number} of partition {self._partition} (the first row is 1)"


_EMPTY = {True: "lit('')", False: "lit(b'')"}


class Spool:
    """The bytes of a stage, to be sent as often as it takes."""

    def __init__(self, messages: Iterator[pa.Buffer]) -> None:
        self._messages = messages
        self._file = tempfile.SpooledTemporaryFile(SPOOL_MEMORY_BYTES, dir=local_directory())  # noqa: SIM115  # closed by close()
        self._size = 0

    def fill(self) -> bool:
        """Take the first message; ``False`` if there is none."""
        return self._next() is not None

    def content(self) -> Iterator[memoryview]:
        """All of the stage from its first byte: what is there already, then what comes."""
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
            raise SourceFailedError(error) from error  # an OSError would pass for a broken connection
        return message

    def close(self) -> None:
        """Forget the bytes."""
        self._file.close()


def local_directory() -> str | None:
    """Where Spark wants the executor's temporary files; ``None``: where the system has them."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return first if first and Path(first).is_dir() else None
