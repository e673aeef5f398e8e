"""The work of one task: a contiguous range of one log, read as Arrow batches on an executor.

Spark builds another reader for the tasks, pickles it and sends it, so nothing of the driver's
reader is visible in this module. So a partition states everything: the address, the epoch and the
sequences. The answer is checked against the plan. The answer must have the exact schema, ascending
sequences, no row outside the range, and no missing row except counted holes.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from srmp_spark.client.api import QueueManagerClient, is_loopback
from srmp_spark.client.read_ahead import ReadAhead
from srmp_spark.client.rows_stream import RowsStream
from srmp_spark.errors import (
    ApiError,
    ApiUnreachableError,
    DataLossError,
    SrmpSparkError,
    StoreDamagedError,
)
from srmp_spark.interface import ARROW_STREAM, DENSE_STREAM, PAST_THE_END, TRIMMED, UNKNOWN_EPOCH
from srmp_spark.rows.columns import arrow_schema, with_sequence
from srmp_spark.sequences.ranges import Range
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.spark.reading.offsets import LogKey
from srmp_spark.spark.settings.chosen_columns import chosen_columns, fills_envelope
from srmp_spark.spark.settings.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from srmp_spark.rows import dense

BATCH_ROWS_MIN = 2_000
"""Number of rows at which an Arrow batch is handed to Spark.

Spark spends more time on a smaller batch than on its rows (docs: performance). Only the last batch
and batches of large bodies are smaller.
"""
BATCH_ROWS_MAX = 5_000
"""Largest number of rows in an Arrow batch.

Measured with 59 columns, 2,000 to 5,000 rows are fastest. Larger batches do not fit into the
processor's cache.
"""
BATCH_BYTES_MAX = 32 << 20
"""Largest size of an Arrow batch, in bytes, unless one row has more.

Spark's JVM holds each batch in direct memory.
"""
READ_AHEAD_BYTES = 4 << 20
"""Bytes that are read while the JVM takes rows.

This is less than a segment of small messages. So one segment is in use, one is held and one is
being read.
"""
CLIENTS_MAX = 8
"""Largest number of clients whose connections one Python worker keeps.

A client is for one queue manager and one token. At the limit the client that was used longest ago
is evicted.
"""
RESUME_SECONDS = 60.0
"""Longest time without a row, in seconds, for which a broken read is resumed after its last row.

A read breaks if the queue manager restarts. After this time, or ``queueManagerTimeout`` if that is
longer, the task fails.
"""
RESUME_PAUSE_SECONDS = 0.5
DAMAGED = "damaged"
"""Code of ``GET rows`` for rows that the queue manager has but cannot read.

Only its operator may skip such rows.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SrmpPartition(InputPartition):
    """One task: the range (after, to] of one epoch of one log."""

    url: str
    key: LogKey
    epoch: str
    after: int
    to: int
    host: str | None = None
    """The only host on which the API of an embedded queue manager can be reached, else ``None``."""
    left_out: tuple[Range, ...] = ()
    """Ranges of rows that the query leaves out, ascending."""
    planned_on: str | None = None
    """Name of the host on which the driver runs."""


@dataclass(frozen=True)
class ReadColumns:
    """The columns that a read returns, and whether ``envelope`` is filled."""

    chosen: tuple[str, ...]
    """The columns that Spark gets, in its order."""
    envelope: bool
    """Whether the column ``envelope`` has values."""

    @property
    def inside(self) -> tuple[str, ...]:
        """Return the columns that are read: the chosen ones and ``sequence``."""
        return with_sequence(self.chosen)


def read_columns(schema: StructType | None, options: SourceOptions) -> ReadColumns:
    """Return the columns that a reader's schema declares. ``None`` means those of the options.

    Raises :class:`ConfigurationError` if the schema does not fit.
    """
    names = chosen_columns(schema, options.columns)
    return ReadColumns(names, fills_envelope(names, asked=options.include_envelope))


def read_partition(
    partition: SrmpPartition, options: SourceOptions, columns: ReadColumns | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, ascending, in Arrow batches.

    The batches have ``columns``, or those of the options if ``columns`` is ``None``. Raises
    :class:`DataLossError` if planned rows are gone (``failOnDataLoss``),
    :class:`ApiUnreachableError` if no queue manager answers for :data:`RESUME_SECONDS` (or
    ``queueManagerTimeout`` if that is longer), and
    :class:`SrmpSparkError` if an embedded queue manager is on another host.
    """
    if partition.host is not None and partition.host != socket.gethostname():
        raise SrmpSparkError(f"embedded queue manager is on {partition.host}; run srmp-spark serve")
    columns = columns or read_columns(None, options)
    return (batch.select(columns.chosen) for batch in merged(_checked(partition, options, columns)))


@functools.lru_cache(maxsize=CLIENTS_MAX)
def _client(
    url: str, token: str | None, pid: int, *, allow_plain_token: bool
) -> QueueManagerClient:
    """Return the client of a queue manager, which is kept for later tasks.

    Spark keeps its Python workers, so the next task finds an open connection. ``pid`` is the
    process id, because a forked process must not share a connection.
    """
    return QueueManagerClient(url, token, allow_plain_token=allow_plain_token)


def _checked(
    partition: SrmpPartition, options: SourceOptions, columns: ReadColumns
) -> Iterator[pa.RecordBatch]:
    client = _client(
        partition.url, options.token, os.getpid(), allow_plain_token=options.allow_plain_token
    )
    after, rows = partition.after, 0
    dense = True
    progress_at = time.monotonic()
    while after < partition.to:
        try:
            with (
                client.rows(
                    partition.key.queue,
                    epoch=partition.epoch,
                    after=after,
                    to=partition.to,
                    envelope=columns.envelope,
                    columns=columns.inside,
                    dense=dense,
                    queue_manager=partition.key.queue_manager,
                ) as stream,
                # The batches are closed before the stream that they read.
                contextlib.closing(_batches(stream, partition, after, columns)) as batches,
            ):
                for batch in batches:
                    if batch.num_rows:
                        _check(batch, after, partition, columns)
                        after = batch.column("sequence")[-1].as_py()
                        rows += batch.num_rows
                        progress_at = time.monotonic()
                        yield _without(batch, partition.left_out) if partition.left_out else batch
            break
        except ApiUnreachableError as error:
            _check_loopback(partition, error)
            if time.monotonic() - progress_at > max(RESUME_SECONDS, options.timeout_s):
                raise
            _log.warning("read.resumed log=%s after=%s reason=%s", partition.key, after, error)
            time.sleep(RESUME_PAUSE_SECONDS)
        except StoreDamagedError as error:
            if not dense:
                raise
            # In the other form the queue manager checks the rows that it sends, and reports damaged
            # rows.
            dense = False
            _log.warning(
                "read.checked_again log=%s after=%s reason=%s", partition.key, after, error
            )
        except ApiError as error:
            if error.code == DAMAGED:
                raise DataLossError(f"{partition.key}: {error.message}") from error
            if error.status != 404 and error.code not in (UNKNOWN_EPOCH, TRIMMED, PAST_THE_END):
                raise
            after = _skip(client, partition, after, options, error)
    missing = partition.to - partition.after - rows
    if missing:
        _account_for(client, partition, missing, options)


def _check_loopback(partition: SrmpPartition, error: ApiUnreachableError) -> None:
    """Raise :class:`SrmpSparkError` if an executor cannot reach a loopback address.

    If the executor is on another host than the driver, it never reaches the queue manager of the
    driver at a loopback address.
    """
    host = urlsplit(partition.url).hostname or ""
    if partition.planned_on not in (None, socket.gethostname()) and is_loopback(host):
        raise SrmpSparkError(
            f"option queueManager is {partition.url}, which on this executor "
            f"({socket.gethostname()}) is not the queue manager "
            f"that the driver ({partition.planned_on}) reads: name it by an address that "
            "executors reach"
        ) from error


def _batches(
    stream: RowsStream, partition: SrmpPartition, after: int, columns: ReadColumns
) -> Generator[pa.RecordBatch, None, None]:
    import pyarrow as pa

    if stream.content_type == DENSE_STREAM:
        from srmp_spark.rows import dense

        key = partition.key
        frames = dense.frames(stream.as_file())
        with ReadAhead(
            frames, size=_bytes_of, limit=READ_AHEAD_BYTES, interrupt=stream.interrupt
        ) as ahead:
            yield from dense.batches(
                ahead,
                key.queue_manager,
                key.queue,
                after,
                partition.to,
                columns.envelope,
                names=columns.inside,
            )
        return
    if stream.content_type != ARROW_STREAM:
        raise SrmpSparkError(
            f"{partition.url} answered rows as {stream.content_type!r}, not as "
            f"{ARROW_STREAM} or {DENSE_STREAM}"
        )
    try:
        with pa.ipc.open_stream(stream) as reader:
            has_others = reader.schema.names != list(columns.inside) and set(columns.inside) <= set(
                reader.schema.names
            )
            # An older version sends all columns.
            yield from (batch.select(columns.inside) if has_others else batch for batch in reader)
    except (
        pa.ArrowInvalid,
        OSError,
    ) as error:
        # The stream was cut off. Arrow notices that before HTTP does.
        raise ApiUnreachableError(f"the stream of {partition.url} broke: {error}") from error


def clipped(taken: SequenceSet, after: int, to: int) -> Iterator[Range]:
    """Yield the parts of ``taken`` that lie in (after, to], ascending, as pairs (first, last)."""
    for first, last in taken.runs(after + 1):
        if first > to:
            return
        yield first, min(last, to)


def _without(batch: pa.RecordBatch, taken: Sequence[Range]) -> pa.RecordBatch:
    """Return the rows of ``batch`` that are in none of the ascending ranges ``taken``."""
    import numpy as np
    import pyarrow as pa

    ranges = np.asarray(taken)
    sequences = batch.column("sequence").to_numpy()
    place = np.searchsorted(ranges[:, 0], sequences, side="right") - 1
    is_taken = (place >= 0) & (sequences <= ranges[place, 1])
    return batch.filter(pa.array(~is_taken)) if is_taken.any() else batch


def _bytes_of(frame: dense.DenseFrame) -> int:
    return frame.size


def _check(
    batch: pa.RecordBatch, after: int, partition: SrmpPartition, columns: ReadColumns
) -> None:
    """Raise an error if a batch does not fit the plan.

    Spark checks only the schema of the first batch, and checks no sequences. Raises
    :class:`SrmpSparkError` for other columns and :class:`DataLossError` for wrong sequences.
    """
    if not batch.schema.equals(arrow_schema(columns.inside)):
        raise SrmpSparkError(
            f"{partition.url} sent other columns than this version reads: install one "
            "srmp-spark there and on the executors"
        )
    sequences = batch.column("sequence")
    first, last = sequences[0].as_py(), sequences[-1].as_py()
    if not after < first <= last <= partition.to or last - first + 1 < batch.num_rows:
        raise DataLossError(
            f"{partition.key}: planned {after + 1} to {partition.to}, got "
            f"{batch.num_rows} rows from {first} to {last}"
        )


def _skip(
    client: QueueManagerClient,
    partition: SrmpPartition,
    after: int,
    options: SourceOptions,
    error: ApiError,
) -> int:
    """Return the sequence up to which to skip, because rows went away since the plan was made.

    Raises :class:`DataLossError` if ``failOnDataLoss`` is true.
    """
    text = (
        f"{partition.key}: planned {after + 1} to {partition.to} of epoch "
        f"{partition.epoch}, but {error.message}"
    )
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{text}. With failOnDataLoss=false the query continues without them."
        ) from error
    goal = partition.to
    if error.code == TRIMMED:
        goal = min(partition.to, client.range(partition.key.queue, epoch=partition.epoch).first - 1)
    _log.warning("data.lost %s; failOnDataLoss=false: skips %s to %s", text, after + 1, goal)
    return goal


def _account_for(
    client: QueueManagerClient, partition: SrmpPartition, missing: int, options: SourceOptions
) -> None:
    """Check that the range has at least ``missing`` counted holes (purged or damaged rows).

    ``missing`` is the number of rows of the partition that were not received. Raises
    :class:`DataLossError` if more rows are missing than there are holes and ``failOnDataLoss`` is
    true. Otherwise the loss is logged. Raises :class:`ApiError` for another refusal of the queue
    manager.
    """
    try:
        known = client.holes(
            partition.key.queue, epoch=partition.epoch, after=partition.after, to=partition.to
        )
    except ApiError as error:
        if options.fail_on_data_loss or (
            error.status != 404 and error.code not in (UNKNOWN_EPOCH, TRIMMED, PAST_THE_END)
        ):
            raise
        # The holes of a deleted queue or epoch are unknown, and the skipped rows were logged.
        return
    if missing > known:
        text = (
            f"{partition.key}: {missing} rows of {partition.after + 1} to "
            f"{partition.to} were not received, {known} are known holes"
        )
        if options.fail_on_data_loss:
            raise DataLossError(
                f"{text}. With failOnDataLoss=false the query continues without them."
            )
        _log.warning("data.lost %s; failOnDataLoss=false: continues without them", text)


def merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of a size that suits Spark.

    A batch ends at BATCH_ROWS_MIN rows, and has at most BATCH_ROWS_MAX rows and BATCH_BYTES_MAX
    bytes, unless one row has more.
    """
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0

    def flush() -> pa.RecordBatch:
        nonlocal held_rows, held_bytes
        one = held[0] if len(held) == 1 else pa.concat_batches(held)
        held.clear()
        held_rows = held_bytes = 0
        return one

    for whole in batches:
        for batch in _cut(whole):
            if held and (
                held_rows + batch.num_rows > BATCH_ROWS_MAX
                or held_bytes + batch.nbytes > BATCH_BYTES_MAX
            ):
                yield flush()
            held.append(batch)
            held_rows += batch.num_rows
            held_bytes += batch.nbytes
            if held_rows >= BATCH_ROWS_MIN or held_bytes >= BATCH_BYTES_MAX:
                yield flush()
    if held:
        yield flush()


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    by_bytes = max(1, batch.num_rows * BATCH_BYTES_MAX // max(batch.nbytes, 1))
    size = min(BATCH_ROWS_MAX, by_bytes)
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)
