"""Send a batch as outgoing messages: tasks stage rows, and the driver commits them.

These are the two steps of the sink, and the sink's own code makes the stages. The job, not Spark,
calls the commit, because the job reports how many rows are new and how many the queue manager
already knew.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from srmp_spark.client.outbox_batches import CommitAnswer, OutboxClient
from srmp_spark.errors import ConfigurationError
from srmp_spark.jobs.done import DoneBatches, default_path, scope_of
from srmp_spark.jobs.selection import POSITION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from srmp_spark.spark.settings.sink_options import SinkOptions

SENT = (
    "body",
    "label",
    "priority",
    "correlation_id",
    "app_specific",
    "body_type",
    "response_queue",
    "extension",
)
"""Columns that are sent again.

Times are not sent, because they are over. ``admin_queue`` is not sent, because no application waits
there any longer.
"""
ORIGINAL = "original"
"""Value of ``--delivery`` that keeps the delivery of each row."""
CORRELATION_BYTES = 20
"""Length of every correlation identifier, in bytes. A value of another length is not sent."""

_log = logging.getLogger("jobs")


class JobSending:
    """Sends for one job: one application and one destination at one queue manager."""

    def __init__(self, options: SinkOptions) -> None:
        from srmp_spark.spark.staging import client_of

        assert options.application is not None
        assert options.destination is not None
        self.options = options
        self.application: str = options.application
        self.destination: str = options.destination
        self.client: OutboxClient = client_of(options)

    def done(self, path: Path | None) -> DoneBatches:
        """Return the record of the batches that earlier runs have committed.

        ``path`` is the file; ``None`` means the default file. A file that cannot be written is
        logged, and the record is then kept in memory. Raises :class:`ApiUnreachableError` if the
        queue manager does not answer.
        """
        status = self.client.status()
        names = {"queue_manager": str(status["queue_manager"]), "epoch": str(status["epoch"])}
        scope = scope_of(application=self.application, destination=self.destination, **names)
        path = path or default_path(scope)
        try:
            return DoneBatches(path, scope)
        except OSError as error:
            _log.warning(
                "%s cannot be kept (%s): a second start would stage everything again, and "
                "send nothing twice",
                path,
                error,
            )
            return DoneBatches(None, scope)

    def send_frame(self, batch: str, rows: DataFrame) -> CommitAnswer:
        """Send all rows of a frame as one batch, ordered by ``sequence``, and return the answer.

        All rows become outgoing messages at once, or none does. Raises :class:`ConfigurationError`
        for columns that do not fit, and the errors of the queue manager.
        """
        from srmp_spark.spark.settings.sink_columns import plan
        from srmp_spark.spark.settings.sink_options import Target
        from srmp_spark.spark.staging import stage_partition

        stage_plan = plan(self.options, rows.schema)
        target = Target(self.application, batch)

        def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow

            staged = stage_partition(stage_plan, batches, target)
            yield pyarrow.RecordBatch.from_arrays(
                [pyarrow.array([staged.stage], pyarrow.string())], names=["stage"]
            )

        answers = rows.mapInArrow(stage, "stage string").collect()
        stages = [answer["stage"] for answer in answers if answer["stage"] is not None]
        return self._commit(batch, stages) if stages else CommitAnswer(0, 0)

    def send_table(self, batch: str, rows: pa.Table) -> CommitAnswer:
        """Send all rows of an Arrow table as one batch, in their order, and return the answer.

        All rows become outgoing messages at once, or none does. Raises the errors of the queue
        manager.
        """
        import pyarrow

        from srmp_spark.spark.settings.sink_columns import stage_metadata

        rows = rows.append_column("destination", pyarrow.repeat(self.destination, rows.num_rows))
        rows = rows.replace_schema_metadata(stage_metadata(self.options))
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        content = memoryview(sink.getvalue())
        staged = self.client.stage(
            self.application,
            batch,
            partition=0,
            attempt=secrets.randbits(62),
            content=lambda: iter([content]),
        )
        return self._commit(batch, [staged.stage])

    def _commit(self, batch: str, stages: list[str]) -> CommitAnswer:
        answer = self.client.commit(
            self.application,
            batch,
            stages,
            on_key_conflict=self.options.on_key_conflict,
            allow_loop=self.options.allow_loop,
        )
        if answer.bad:
            _log.warning(
                "sink.bad_rows application=%s batch=%s rows=%s: they can never be sent "
                "(--on-bad-row %s). The first: %s",
                self.application,
                batch,
                answer.bad,
                self.options.on_bad_row,
                answer.first_bad,
            )
        return answer


def outgoing_columns(rows: DataFrame, delivery: str) -> DataFrame:
    """Return the columns of ``rows`` that are sent, with the source position.

    ``delivery`` is the value of ``--delivery``. Raises :class:`ConfigurationError` for ``original``
    if the rows lack the column ``delivery``.
    """
    from pyspark.sql import functions as F  # noqa: N812  # the usual name

    if delivery == ORIGINAL and "delivery" not in rows.columns:
        raise ConfigurationError(
            "--delivery original needs the column delivery, which the rows do not have: "
            "give --delivery transactional, "
            "recoverable or express"
        )

    columns = [F.col(name) for name in POSITION]
    for name in SENT:
        if name not in rows.columns:
            continue
        column = F.col(name)
        if name == "body":
            column = F.coalesce(column, F.lit(b""))
        elif name == "correlation_id":
            column = F.when(F.octet_length(name) == CORRELATION_BYTES, column)
        columns.append(column.alias(name))
    # The comment replaces the one of the source. The sink ignores a column ``delivery`` whose
    # comment says how a message arrived.
    as_it_came = F.col("delivery").alias(
        "delivery", metadata={"comment": "of the message that goes out"}
    )
    columns.append(as_it_came if delivery == ORIGINAL else F.lit(delivery).alias("delivery"))
    return rows.select(*columns)
