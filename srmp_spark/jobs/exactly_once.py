"""Write rows exactly once into a Delta table, by (queue_manager, epoch, queue, sequence).

The promise holds whatever happens to the checkpoint, to the job, or in a second job.

Theory of operation. ``foreachBatch`` may run a batch again. With a damaged checkpoint the batch of
the same number may hold **other** rows, because its end was planned anew while more messages had
arrived. So no decision uses the number of a batch (a sink with ``txnVersion = batchId`` loses rows
in this case). Three rules take its place:

1. *The table itself says which rows it holds*, so the answer cannot disagree with the data. For
   each log the job asks for the runs of sequences after the place where the batch starts. The place
   comes from the checkpoint (``offsets/N-1``), which makes the query cheap: Delta skips the files
   below it. Without the place the job asks about the whole table. Within one run of a query batches
   follow each other, so the job asks about a log once. Rows inside a known run are counted and
   filtered out. Normally no row is, and the batch is appended unchanged and in its order.
2. *One job may write.* Each job claims the table for its queues and queue managers with an empty
   commit. The commit has a Delta transaction identifier (``txnAppId``) and a number higher than any
   before, and each batch uses the next number. An older job that resumes, on whatever host, finds
   its numbers used: Delta skips or refuses its append, the job sees that its commit is not in the
   history, and the job ends. A job whose queue names may mean the same queues (``private$/orders``
   and ``private$/*``) is ended the same way, because the claim uses up its numbers too. So no other
   job can make the answer of rule 1 outdated, and jobs that can never bring the same row share a
   table (:mod:`.table_writers`).
3. *A job claims with its first batch.* By then the reader of the query holds the leases of its
   queues. So of two jobs with one consumer the queue manager refuses the second, which never
   touches the table. A batch with rows of a queue manager outside the claim (which did not answer
   before) makes a new claim, and the job asks the table again.

Every writer is recorded in the table's snapshot (:func:`transactions`), one entry a name.
Checkpoints of the Delta log keep these entries, so neither the length nor the cleanup of the log
matters. The history is read only to find the commit that was just made.
docs/adr/0008-exactly-once-into-a-delta-table.md gives the reasons and the limits.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from pyspark.sql import functions as F  # noqa: N812  # the usual name
from pyspark.sql.window import Window

from srmp_spark.errors import ConfigurationError, DataLossError, SrmpSparkError, TakenOverError
from srmp_spark.jobs.table_writers import TableWriter
from srmp_spark.rows.columns import KINDS, NAMES, spark_ddl
from srmp_spark.spark.reading.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = ("queue_manager", "epoch", "queue")
RUN = "queue_manager string, epoch string, queue string, first long, last long"
HISTORY_LOOK_BACKS = (20, 200)
"""Numbers of newest commits among which the job looks for its own commit.

Other commits (OPTIMIZE, jobs of other queues or queue managers) may have been made since. If the
first look fails, the second, longer one follows: with many jobs on one table each commits once a
second. A commit that is not found counts as refused.
"""
ATTEMPTS = 5
"""Most attempts of one commit that conflicts with others.

An attempt takes a second or two. Then :class:`SrmpSparkError` is raised.
"""
CONFLICTS = (
    ConcurrentAppendException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
"""Errors that Delta raises when another commit came first.

The last two are raised when two jobs create the table at once.
"""
EXPIRY = "delta.setTransactionRetentionDuration"
RUNS_SHOWN = 10
"""Most log lines about rows that the table already holds.

One line a queue is usual; more appear only where rows are missing in between.
"""

_log = logging.getLogger(__name__)


class Appended(NamedTuple):
    """The result of one batch."""

    rows: int
    """Number of rows that were written."""
    left_out: int
    """Number of rows of the batch that the table already held."""


class ExactlyOnce:
    """Appends the batches of one streaming query to one Delta table.

    Pass the method :meth:`append` to ``foreachBatch``. ``queues`` are the names and globs that the
    query reads. ``queue_managers`` are the GUIDs of the queue managers that the query is known to
    read; a batch with rows of others adds them. Of jobs that may bring the same rows, only one can
    write to the table. ``columns`` are the columns of the batches and must include
    ``queue_manager``, ``epoch``, ``queue`` and ``sequence``. A table that does not exist is created
    with ``columns``.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: str,
        checkpoint: str,
        queues: Iterable[str],
        queue_managers: Iterable[str] = (),
        columns: Sequence[str] = NAMES,
    ) -> None:
        assert {*LOG, "sequence"} <= {*columns}, "a row is known by these"
        self._spark = spark
        self._table = table
        self._checkpoint = checkpoint.rstrip("/")
        self._queues = tuple(sorted(queues))
        self._queue_managers = frozenset(queue_managers)
        self._columns = tuple(columns)
        self._writer: TableWriter | None = None
        """Identity of this job in the table. ``None`` until the job has claimed the table."""
        self._version = 0
        self._asked: set[tuple[str, str, str]] | None = set()
        """Logs for which the job has asked the table.

        ``None``: the job has asked about the whole table.
        """
        self._runs: list[tuple[str, str, str, int, int]] = []
        self._read: dict[int, Offsets] = {}
        """Offsets of the newest batches, by batch number, as read from the checkpoint."""

    def claim(self, queue_managers: Iterable[str] = ()) -> None:
        """Create the table if it does not exist, and become its only writer for these queues.

        Without ``queue_managers`` the claim is for the queues of every queue manager. Raises
        :class:`SrmpSparkError` if Delta does not accept the claim or the table forgets its writers.
        Raises :class:`ConfigurationError` if the table lacks columns of the batches.
        """
        self._check_columns()
        empty = self._spark.createDataFrame([], spark_ddl(self._columns))
        writer = TableWriter(self._queues, frozenset(queue_managers))
        # The claim comes first, because it creates the table.
        version = self._take(empty, writer.name)
        if transactions_expire(self._spark, self._table):
            raise SrmpSparkError(
                f"the table {self._table} drops the names of its writers after some time, so an "
                "old job could write rows twice. Keep the names: "
                f"ALTER TABLE delta.`{self._table}` UNSET TBLPROPERTIES ('{EXPIRY}')"
            )
        for name in transactions(self._spark, self._table):
            other = TableWriter.of(name)
            if other is not None and other != writer and writer.may_meet(other):
                _log.info("writer.ended table=%s writer=%s", self._table, name)
                self._take(empty, name)
        self._writer, self._version = writer, version
        # Answers from before the claim may be outdated.
        self._asked, self._runs = set(), []

    def _check_columns(self) -> None:
        """Raise :class:`ConfigurationError` if the table lacks columns of the batches.

        A table that does not exist is accepted.
        """
        there = columns_of(self._spark, self._table)
        missing = [name for name in self._columns if name.lower() not in there] if there else []
        if missing:
            declared = ", ".join(f"{name} {KINDS[name].upper()}" for name in missing)
            raise ConfigurationError(
                f"the table {self._table} has no column {', '.join(missing)}: name the "
                "columns that it has with --columns, or "
                f"add them: ALTER TABLE delta.`{self._table}` ADD COLUMNS ({declared})"
            )

    def _claim_for(self, batch: DataFrame, batch_id: int) -> TableWriter | None:
        """Return the writer of this batch.

        A new claim is made first if the present claim does not cover the batch. ``None`` means that
        no claim was made yet and the batch has no rows.
        """
        writer = self._writer
        if writer is not None and not writer.queue_managers:
            # The claim is for every queue manager.
            return writer
        claimed = self._queue_managers if writer is None else writer.queue_managers
        wanted = claimed | self._queue_managers_of(batch, batch_id)
        if wanted and (writer is None or wanted != writer.queue_managers):
            self.claim(wanted)
        return self._writer

    def _queue_managers_of(self, batch: DataFrame, batch_id: int) -> frozenset[str]:
        """Return the queue managers whose rows the batch may have.

        The checkpoint tells them; without the checkpoint the rows of the batch are read. A queue
        manager that the query no longer reads stays in the offsets but does not move, so it is not
        in the result.
        """
        end = self._offsets(batch_id)
        if end is None:
            return frozenset(
                row["queue_manager"] for row in batch.select("queue_manager").distinct().collect()
            )
        start = self._offsets(batch_id - 1) or Offsets({})
        return frozenset(
            key.queue_manager for key, position in end.items() if start.get(key) != position
        )

    def _take(self, empty: DataFrame, name: str) -> int:
        """Make an empty commit under the next number of ``name``, and return the number.

        A job that held the name until now can no longer write. Raises :class:`SrmpSparkError` if
        :data:`ATTEMPTS` commits conflict with others.
        """
        version = time.time_ns() // 1000
        for _ in range(ATTEMPTS):
            version += 1
            try:
                if self._commit(empty, name, version) is not None:
                    return version
            except CONFLICTS as error:
                _log.info(
                    "claim.crossed table=%s writer=%s reason=%s",
                    self._table,
                    name,
                    type(error).__name__,
                )
            # The clock was set back since the last job, or another job was faster.
            version = max(version, transactions(self._spark, self._table).get(name, 0))
        raise SrmpSparkError(
            f"the table {self._table} does not accept commits of {name}: is another job "
            "being started?"
        )

    def append(self, batch: DataFrame, batch_id: int) -> Appended:
        """Append the rows of ``batch`` that the table lacks, as the table's only writer.

        Return how many rows were written and left out. Raises :class:`TakenOverError` if another
        job has claimed the table, and the errors of :meth:`claim`.
        """
        writer = self._claim_for(batch, batch_id)
        if writer is None:
            return Appended(0, 0)
        self._ask(batch_id)
        left_out = 0
        known = self._runs_in(batch_id)
        if known:
            runs = F.broadcast(self._spark.createDataFrame(known, RUN)).alias("run")
            inside = [F.col(f"row.{name}") == F.col(f"run.{name}") for name in LOG]
            inside.append(F.col("row.sequence").between(F.col("run.first"), F.col("run.last")))
            rows_and_runs = batch.alias("row")
            left_out = rows_and_runs.join(runs, inside, "left_semi").count()
            if left_out:
                _log.warning(
                    "rows.known batch=%s rows=%s: the table holds them, not written again",
                    batch_id,
                    left_out,
                )
                batch = rows_and_runs.join(runs, inside, "left_anti")
        rows = self._commit_again_and_again(batch, writer.name)
        if rows is None:
            raise TakenOverError(
                f"another job has taken over these queues in {self._table}: this one "
                "wrote nothing more. Run one ingest job "
                "for a queue and a table"
            )
        return Appended(rows, left_out)

    # --- rows that the table holds ----------------------------------------------------------------

    def _ask(self, batch_id: int) -> None:
        """Read from the table which sequences it holds for the logs of this batch.

        Only sequences after the start of the batch are asked for. Each log is asked about once.
        """
        if self._asked is None:
            return
        start = self._offsets(batch_id - 1)
        if start is None:
            self._asked = None
            self._runs = self._runs_where([])
            return
        new = [
            (key, position)
            for key, position in start.items()
            if (key.queue_manager, position.epoch, key.queue) not in self._asked
        ]
        if new:
            behind = [
                (F.col("queue_manager") == key.queue_manager)
                & (F.col("epoch") == position.epoch)
                & (F.col("queue") == key.queue)
                & (F.col("sequence") > position.sequence)
                for key, position in new
            ]
            self._runs += self._runs_where(behind)
            self._asked |= {(key.queue_manager, position.epoch, key.queue) for key, position in new}

    def _runs_where(self, conditions: list[Any]) -> list[tuple[str, str, str, int, int]]:
        """Return the runs of sequences among the rows that fulfil at least one of ``conditions``.

        Without conditions all rows count. A run is (queue manager, epoch, queue, first, last).
        """
        rows = self._spark.read.format("delta").load(self._table).select(*LOG, "sequence")
        if conditions:
            rows = rows.where(_any(conditions))
        sizes = rows.groupBy(*LOG).agg(
            F.min("sequence").alias("first"),
            F.max("sequence").alias("last"),
            F.count("*").alias("rows"),
        )
        found = sizes.collect()
        if all(row["rows"] == row["last"] - row["first"] + 1 for row in found):
            runs = [tuple(row)[:5] for row in found]
        else:
            # Sequences are missing in between. Within a run, sequence minus rank is constant.
            rank = F.dense_rank().over(Window.partitionBy(*LOG).orderBy("sequence"))
            islands = rows.withColumn("island", F.col("sequence") - rank).groupBy(*LOG, "island")
            ends = islands.agg(F.min("sequence").alias("first"), F.max("sequence").alias("last"))
            runs = [tuple(row) for row in ends.select(*LOG, "first", "last").collect()]
        for run in runs[:RUNS_SHOWN]:
            _log.info("table.holds queue_manager=%s epoch=%s queue=%s first=%s last=%s", *run)
        return runs

    def _runs_in(self, batch_id: int) -> list[tuple[str, str, str, int, int]]:
        """Return the known runs that may hold rows of this batch, judged by its start and end.

        A run is (queue manager, epoch, queue, first, last). Where the checkpoint lacks the start or
        the end, no run is excluded by it. The result only saves work: a batch with such runs is
        read twice, to count the rows that are left out.
        """
        if not self._runs:
            return []
        start, end = self._offsets(batch_id - 1), self._offsets(batch_id)
        after = (
            {}
            if start is None
            else {
                (key.queue_manager, at.epoch, key.queue): at.sequence for key, at in start.items()
            }
        )
        upto = (
            None
            if end is None
            else {(key.queue_manager, at.epoch, key.queue): at.sequence for key, at in end.items()}
        )
        return [
            run
            for run in self._runs
            if run[4] > after.get(run[:3], 0)
            and (upto is None or (run[:3] in upto and run[3] <= upto[run[:3]]))
        ]

    def _offsets(self, batch_id: int) -> Offsets | None:
        """Return the offsets where the batch ends, as the checkpoint has them.

        Return ``None`` if the checkpoint lacks the batch or is damaged.
        """
        if batch_id < 0:
            return None
        if batch_id in self._read:
            return self._read[batch_id]
        path = f"{self._checkpoint}/offsets/{batch_id}"
        try:
            if "://" in path:
                lines = [
                    row["value"] for row in self._spark.read.text(path, wholetext=False).collect()
                ]
            else:
                lines = Path(path.removeprefix("file:")).read_text(encoding="utf-8").splitlines()
            found = Offsets.from_text(lines[2])
        except (OSError, IndexError, DataLossError) as error:
            _log.info("offsets.unread path=%s reason=%s", path, error)
            return None
        self._read = dict([*self._read.items(), (batch_id, found)][-2:])
        return found

    # --- commits ----------------------------------------------------------------------------------

    def _commit_again_and_again(self, rows: DataFrame, name: str) -> int | None:
        """Commit like :meth:`_commit` under the next number, again after each conflict.

        Return the number of rows written, or ``None`` if Delta skipped the append. Conflicts come
        from ``ALTER TABLE`` or another job's claim. Every attempt uses the same number. A job that
        has taken the name over has used that number or a higher one, so Delta then skips this
        append. Raises :class:`SrmpSparkError` after :data:`ATTEMPTS` conflicts.
        """
        self._version += 1
        for _ in range(ATTEMPTS):
            try:
                return self._commit(rows, name, self._version)
            # An attempt takes a second, so the cost of try in a loop does not count.
            except CONFLICTS as error:  # noqa: PERF203
                _log.info(
                    "append.crossed table=%s writer=%s reason=%s",
                    self._table,
                    name,
                    type(error).__name__,
                )
        raise SrmpSparkError(
            f"the table {self._table} was changed by others during each of {ATTEMPTS} "
            "attempts to append; start the job again "
            "when they are done"
        )

    def _commit(self, rows: DataFrame, name: str, version: int) -> int | None:
        """Append ``rows`` under ``name`` and ``version``, and return the number of rows written.

        Return ``None`` if Delta skipped the append because ``version`` was used before.
        """
        mark = json.dumps({"writer": name, "version": version, "commit": str(uuid.uuid4())})
        append = rows.write.format("delta").mode("append").option("userMetadata", mark)
        append.option("txnAppId", name).option("txnVersion", version).save(self._table)
        for look_back in HISTORY_LOOK_BACKS:
            for commit in self._history(look_back):
                if commit["userMetadata"] == mark:
                    return int((commit["operationMetrics"] or {}).get("numOutputRows", 0))
        return None

    def _history(self, commits: int) -> Iterable[Any]:
        from delta.tables import DeltaTable

        history = DeltaTable.forPath(self._spark, self._table).history(commits)
        return history.select("userMetadata", "operationMetrics").collect()


def transactions(spark: SparkSession, table: str) -> dict[str, int]:
    """Return the transaction identifiers of the present table, each with its highest number.

    Every job that ever wrote to the table is among them. The history would not be enough, because
    Delta cuts it after ``delta.logRetentionDuration``. Delta's Python API does not show the
    identifiers; its JVM API does.
    """
    found = _snapshot(spark, table).setTransactions()
    return {
        found.apply(index).appId(): int(found.apply(index).version())
        for index in range(found.size())
    }


def transactions_expire(spark: SparkSession, table: str) -> bool:
    """Return whether the table drops transaction identifiers that were not used for some time.

    The table property :data:`EXPIRY` turns this on.
    """
    return bool(_snapshot(spark, table).metadata().configuration().contains(EXPIRY))


def columns_of(spark: SparkSession, table: str) -> frozenset[str]:
    """Return the column names of the table in lower case; empty if the table does not exist."""
    snapshot = _snapshot(spark, table)
    return (
        frozenset(name.lower() for name in snapshot.schema().fieldNames())
        if snapshot.version() >= 0
        else frozenset()
    )


def _snapshot(spark: SparkSession, table: str) -> Any:  # noqa: ANN401  # an object of the JVM
    # PySpark has no public name for its JVM.
    jvm: Any = spark._jvm  # noqa: SLF001
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, table)  # noqa: SLF001
    nothing = jvm.scala.Option.empty()
    # The first argument says whether a stale snapshot is acceptable. It is not.
    return log.update(False, nothing, nothing)


def _any(conditions: list[Any]) -> Any:  # noqa: ANN401  # a Column, of either kind of session
    result = conditions[0]
    for condition in conditions[1:]:
        result = result | condition
    return result
