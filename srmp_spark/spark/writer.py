"""``df.write`` and ``df.writeStream`` with ``format("srmp")``: tasks stage, the driver commits.

docs/ARCHITECTURE.md describes these two steps. A *stage* is the rows of one task, which the queue
manager keeps apart until a commit names it. Spark 4.2 behaves as follows, with these consequences:

- ``write()`` runs once for every attempt of every task, including speculative copies. So it only
  stages: it sends the rows to the queue manager, which keeps them apart until a commit
  (:mod:`srmp_spark.client.outbox_batches`). The result of ``write()`` names the stage, and Spark
  gives the driver exactly one result for each partition. No commit names the stages of the other
  attempts.
- A batch writer is made once for each write and pickled, so it carries the name of its batch. A
  stream writer is made anew for every batch, in the tasks, and again for its commit. Batch and
  query are local properties of a task, and reach the commit in the messages.
- ``abort()`` is called after a failed job, and also after a failed ``commit()``, of which only the
  answer may be lost. So deleting affects only stages that no commit has named. ``abort()`` of a
  stream may get no message of a task although some tasks have staged.
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
from srmp_spark.spark.settings.letter_queues import check_letter_queue
from srmp_spark.spark.settings.sink_columns import plan
from srmp_spark.spark.settings.sink_options import SinkOptions, Target, check_stream_sink, target_of
from srmp_spark.spark.staging import StagedPartition, client_of, stage_partition

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
"""Names of local properties of a task of a streaming query."""
_WARNED: set[str] = set()
"""Warnings of the queue manager that were logged.

The set has at most one warning for each queue that this process has named.
"""

_log = logging.getLogger(__name__)


class SrmpWriter(DataSourceArrowWriter):
    """Writes a frame as messages, all at once.

        df.write.format("srmp").mode("append").options(…).save()

    All rows of the frame become outgoing messages at once, or none does. A failed write that is run
    again is another write. To be exactly once, it needs ``application``, and a ``key`` or a source
    position in every row.

    :data:`srmp_spark.spark.settings.sink_options.SINK_OPTIONS` lists the options,
    :data:`srmp_spark.spark.settings.sink_columns.SINK_COLUMNS` the columns. Raises
    :class:`ConfigurationError` for options, columns and types that do not fit.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError(
                "a queue cannot be overwritten, messages are only added to it: write "
                ".mode('append')"
            )
        self._plan = plan(options, schema)
        check_letter_queue(options)
        new = str(uuid.uuid4())
        self._target = Target(options.application or new, options.batch or new)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task to the queue manager, which keeps them; return the task's result.

        The result (:class:`.StagedPartition`) names the stage. No row is a message before
        :meth:`commit`. Raises the errors of :func:`.staging.stage_partition`.
        """
        return stage_partition(self._plan, iterator, self._target)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all staged rows of the write outgoing messages at once, in the driver.

        Without rows nothing is done. Known and conflicting rows are logged. Raises
        :class:`ApiError` if the queue manager refuses the batch, and :class:`ApiUnreachableError`
        if it does not answer.
        """
        _commit(self._plan.options, self._target, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the stages that no commit has named, in the driver, after a failure.

        An error of the call is logged, and the queue manager deletes the stages in time.
        """
        _delete(client_of(self._plan.options), self._target)


class SrmpStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream as messages, one micro-batch after another.

        df.writeStream.format("srmp").option("checkpointLocation", …).options(…).start()

    A micro-batch that is run again sends nothing twice, because its rows are identified by ``key``,
    source position or content (INTERFACE.md section 4). ``application`` is the query id unless it
    is given. Options, columns and errors are as for :class:`SrmpWriter`.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        check_stream_sink(options)
        if overwrite:
            raise ConfigurationError(
                "outputMode complete writes all rows again in every batch, and a message "
                "cannot be removed: "
                "use outputMode append or update"
            )
        self._plan = plan(options, schema)
        check_letter_queue(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task to the queue manager, which keeps them; return the task's result.

        The result (:class:`.StagedPartition`) names the stage. No row is a message before
        :meth:`commit`. Raises :class:`SrmpSparkError` if Spark has not set the query and the batch
        in the task, and the errors of :func:`.staging.stage_partition`.
        """
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
        """Make all staged rows of the micro-batch outgoing messages at once, in the driver.

        Without rows nothing is done. Errors and log lines are those of :meth:`SrmpWriter.commit`.
        """
        staged = _staged(messages)
        if staged:
            _commit(self._plan.options, staged[0].target, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Delete the stages that no commit has named, in the driver, after a failure.

        If the query is not known, the stages stay, and the queue manager deletes them in time.
        """
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
    """Read the id of the query from a local checkpoint.

    Spark does not pass the id to ``abort()``. Return ``None`` if the checkpoint is not local or
    cannot be read.
    """
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
    """Return the results of the tasks whose partitions have rows."""
    return [
        message
        for message in cast("Sequence[StagedPartition]", messages)
        if message.stage is not None
    ]


def _commit(
    options: SinkOptions, target: Target, staged: list[StagedPartition]
) -> CommitAnswer | None:
    """Make the staged rows outgoing messages, and warn of rows that are no new messages.

    Return the counts of the commit, or ``None`` if there are no rows. Raises the errors of the
    call.
    """
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
    warn_of_bad_rows(target, result, options)
    return result


def warn_of_rest(target: Target, result: CommitAnswer, options: SinkOptions) -> None:
    """Log how many rows of a committed batch are no new messages, and why."""
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


def warn_of_bad_rows(target: Target, result: CommitAnswer, options: SinkOptions) -> None:
    """Log how many rows of a committed batch can never be sent, with the first of them."""
    if not result.bad:
        return
    fate = (
        f"a letter about each is in {options.dead_letter_queue}"
        if options.on_bad_row == "dead-letter"
        else "they are skipped"
    )
    _log.warning(
        "sink.bad_rows application=%s batch=%s rows=%s: they can never be sent, and %s "
        "(onBadRow=%s). The first: %s",
        *target,
        result.bad,
        fate,
        options.on_bad_row,
        result.first_bad,
    )


def _delete(client: OutboxClient, target: Target) -> None:
    try:
        client.delete(target.application, target.batch)
    except SrmpSparkError as error:
        # The earlier failure is the one to raise. The queue manager deletes the stages in time.
        _log.warning("sink.stages_left application=%s batch=%s reason=%s", *target, error)
