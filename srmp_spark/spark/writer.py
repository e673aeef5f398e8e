"""``df.write.format("srmp")`` and ``df.writeStream.format("srmp")``: tasks stage, the driver commits (DESIGN: two steps).

What Spark 4.2 does, and what follows from it:

- ``write()`` runs once for every attempt of every task, speculative copies included. So it only stages; its answer names the
  stage, and Spark gives the driver exactly one answer a partition. What the others staged is never named by a commit.
- A batch writer is made once a write and pickled, so it carries the name of its batch. A stream writer is made anew for
  every batch, in the tasks, and again for its commit: batch and query are local properties of a task, and travel to
  the commit in the messages.
- ``abort()`` follows a failed job, and also a failed ``commit()``, of which only the answer may be lost: deleting takes
  stages that no commit has named, and nothing else. ``abort()`` of a stream may hear of no task although some have staged.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from srmp_spark.client.outbox_batches import CommitAnswer, OutboxClient
from srmp_spark.errors import ConfigurationError, SrmpSparkError
from srmp_spark.spark.sink_columns import plan
from srmp_spark.spark.sink_options import SinkOptions, Target, check_stream_sink, target_of
from srmp_spark.spark.staging import StagedPartition, client_of, stage_partition

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
"""Local properties of a task of a streaming query."""
_WARNED: set[str] = set()
"""Warnings of the queue manager that were told; one for each queue that this process has named."""

_log = logging.getLogger(__name__)


class SrmpWriter(DataSourceArrowWriter):
    """``df.write.format("srmp").mode("append").options(…).save()``.

    All rows of the frame become outgoing messages at once, or none does. A write that failed and is run again is
    another write: it takes ``application``, and a ``key`` or a source position in every row, to be exactly once.
    Options: :data:`srmp_spark.spark.sink_options.SINK_OPTIONS`; columns: :data:`srmp_spark.spark.sink_columns.SINK_COLUMNS`.
    Raises :class:`ConfigurationError` for options, columns and types that do not fit.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError(
                "a queue cannot be overwritten, messages are only added to it: write "
                ".mode('append')"
            )
        self._plan = plan(options, schema)
        new = str(uuid.uuid4())
        self._target = Target(options.application or new, options.batch or new)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: stage its rows."""
        return stage_partition(self._plan, iterator, self._target)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the driver: make the staged rows outgoing messages."""
        _commit(self._plan.options, self._target, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the driver, after a failure: drop what was staged."""
        _delete(client_of(self._plan.options), self._target)


class SrmpStreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("srmp").option("checkpointLocation", …).options(…).start()``.

    A micro-batch that is run again sends nothing twice: its rows are known by ``key``, source position, or content
    (INTERFACE.md section 4). ``application`` is the query id unless given. Options and columns as for :class:`SrmpWriter`.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        check_stream_sink(options)
        if overwrite:
            raise ConfigurationError(
                "outputMode complete writes all rows again in every batch, and a message "
                "cannot be taken back: "
                "use outputMode append or update"
            )
        self._plan = plan(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: stage its rows."""
        context = TaskContext.get()
        assert context is not None, "runs in a Spark task"
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise SrmpSparkError(
                f"Spark has set no {_QUERY_ID} or {_BATCH_ID} in this task; use "
                "foreachBatch(SrmpSink(…, application=…))"
            )
        return stage_partition(
            self._plan, iterator, target_of(self._plan.options.application, query, batch)
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """In the driver: make the staged rows outgoing messages."""
        staged = _staged(messages)
        if staged:
            _commit(self._plan.options, staged[0].target, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """In the driver, after a failure: drop what was staged."""
        target = next(
            (
                cast("StagedPartition", message).target
                for message in messages
                if message is not None
            ),
            None,
        )
        if target is None and (query := query_id(self._plan.options.checkpoint)) is not None:
            target = target_of(self._plan.options.application, query, str(batchId))
        if target is None:
            _log.warning(
                "sink.stages_left batch=%s: the query is not known; the queue manager "
                "drops them in time",
                batchId,
            )
            return
        _delete(client_of(self._plan.options), target)


def query_id(checkpoint: str | None) -> str | None:
    """The id of the query of a local checkpoint; ``None`` if it is elsewhere. Spark tells ``abort()`` of no query."""
    url = urlsplit(checkpoint or "")
    if not url.path or url.scheme not in ("", "file"):
        return None
    try:
        return str(
            json.loads(Path(unquote(url.path) if url.scheme else url.path, "metadata").read_text())[
                "id"
            ]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPartition]:
    """Those that have rows."""
    return [
        message
        for message in cast("Sequence[StagedPartition]", messages)
        if message.stage is not None
    ]


def _commit(
    options: SinkOptions, target: Target, staged: list[StagedPartition]
) -> CommitAnswer | None:
    """Make the rows messages, and warn of those that are none; ``None``: there are no rows."""
    if not staged:
        return None
    for warning in sorted({each.warning for each in staged if each.warning is not None} - _WARNED):
        _WARNED.add(warning)
        _log.warning("%s", warning)
    stages = [cast("str", each.stage) for each in staged]
    client = client_of(options)
    result = client.commit(
        target.application,
        target.batch,
        stages,
        on_key_conflict=options.on_key_conflict,
        allow_loop=options.allow_loop,
    )
    _log.info(
        "sink.committed application=%s batch=%s new=%s known=%s conflicts=%s", *target, *result
    )
    warn_of_rest(target, result, options)
    return result


def warn_of_rest(target: Target, result: CommitAnswer, options: SinkOptions) -> None:
    """Warn of the rows of a committed batch that are no new messages, with their number."""
    if result.known:
        _log.warning(
            "sink.known application=%s batch=%s rows=%s: they were sent before with the "
            "same content, and are not sent again. "
            "A batch that is run again has such rows. If another sink of the query has "
            "sent them, give this sink alone an "
            "application of its own, or its rows a key",
            *target,
            result.known,
        )
    if result.conflicts:
        fate = "became dead letters" if options.on_key_conflict == "dead-letter" else "are not sent"
        _log.warning(
            "sink.conflicts application=%s batch=%s rows=%s: their key or source position "
            "was sent with another content, and "
            "they %s (onKeyConflict=%s). If two sinks of the query write these rows, give "
            "this one alone an application",
            *target,
            result.conflicts,
            fate,
            options.on_key_conflict,
        )


def _delete(client: OutboxClient, target: Target) -> None:
    try:
        client.delete(target.application, target.batch)
    except SrmpSparkError as error:  # the failure that led here is the one to be told; the queue manager drops stages in time
        _log.warning("sink.stages_left application=%s batch=%s reason=%s", *target, error)
