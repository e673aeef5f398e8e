"""Exactly once into a Delta table: each row at most once by (queue_manager, epoch, queue, sequence), whatever happens to the
checkpoint, the job, or a second job.

Theory of operation. ``foreachBatch`` may run a batch again, and with a damaged checkpoint the batch of the same number may hold
**other** rows (its end was planned anew while more had arrived). So nothing is ever decided by a batch's number
(reference: a sink with ``txnVersion = batchId`` loses rows then). Two things are done instead:

1. *What is there already* is asked of the table itself, so it can never disagree with the data: the runs of sequences that the
   table holds behind the place where the batch starts, for each log. The place comes from the checkpoint (``offsets/N-1``),
   which makes the question cheap (Delta skips the files below it); without it the whole table is asked. Within one
   run of a query batches follow each other, so a log is asked about once. Rows inside a known run are counted and filtered
   out; normally there are none, and the batch is appended as it came, in its order.
2. *Who may write*: each job claims the table for its queues and queue managers with an empty commit under a Delta transaction
   identifier (``txnAppId``) and a number higher than any before; each batch takes the next number. An older job that wakes
   up, on whatever host, finds its numbers used: Delta passes its append over or refuses it, the job sees that its commit is
   not in the history, and ends. A job with other queue names that may mean the same queues (``private$/orders`` and
   ``private$/*``) is ended the same way: the claim takes its numbers too. So the answer of (1) cannot grow stale behind the
   back of the job that acts on it, and jobs that can never bring the same row share a table in peace
   (:mod:`.table_writers`).
3. *When it claims*: with its first batch. The reader of the query has the leases of its queues by then, so of two jobs with one
   consumer the second is refused by the queue manager and never touches the table. A batch with rows of a queue manager that
   is not in the claim (it was away before) claims anew, and asks the table anew.

Who ever wrote stands in the table's snapshot (:func:`transactions`), one entry a name: checkpoints of the log carry it on, so
neither the log's length nor its cleanup matters. The history is read only for the commit that was just made. Why it is so, and
what it does not cover: docs/adr/0008-exactly-once-into-a-delta-table.md.
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
from pyspark.sql import functions as F  # noqa: N812  # as everybody writes it
from pyspark.sql.window import Window

from srmp_spark.errors import ConfigurationError, DataLossError, SrmpSparkError, TakenOverError
from srmp_spark.jobs.table_writers import Writer
from srmp_spark.rows.columns import KINDS, NAMES, spark_ddl
from srmp_spark.spark.reading.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = ("queue_manager", "epoch", "queue")
RUN = "queue_manager string, epoch string, queue string, first long, last long"
HISTORY_LOOK_BACKS = (20, 200)
"""Commits in which we look for our own: others (OPTIMIZE, jobs of other queues or queue managers) may have come since. Who is
not among the first is looked for once more: of many jobs of one table each commits in a second."""
ATTEMPTS = 5
"""A commit that crosses another one begins again; each attempt takes a second or two."""
CONFLICTS = (
    ConcurrentAppendException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
"""What Delta raises when somebody else's commit came between; the last two when two jobs create the table at once."""
EXPIRY = "delta.setTransactionRetentionDuration"
RUNS_SHOWN = 10
"""Lines in the log about rows that are there already: one a queue, more only where rows are missing in between."""

_log = logging.getLogger(__name__)


class Appended(NamedTuple):
    """What a batch did."""

    rows: int
    """Rows that were written."""
    left_out: int
    """Rows of the batch that the table held already."""


class ExactlyOnce:
    """Appends the batches of one streaming query to one Delta table; give it to ``foreachBatch`` (:meth:`append`).

    ``queues`` are the names and globs that the query reads, ``queue_managers`` the GUIDs of the queue managers that it is known
    to read; a batch with rows of others adds them. Of jobs that may bring the same rows, the table has one living writer.
    ``columns`` are those of the batches, ``queue_manager``, ``epoch``, ``queue`` and ``sequence`` among them: a table that does
    not exist is created with them.
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
        self._writer: Writer | None = None
        """Who this job is in the table; ``None``: it has not claimed the table."""
        self._version = 0
        self._asked: set[tuple[str, str, str]] | None = set()
        """Logs about which the table was asked; ``None``: it was asked about everything."""
        self._runs: list[tuple[str, str, str, int, int]] = []
        self._read: dict[int, Offsets] = {}
        """The offsets of the newest batches, as they were read."""

    def claim(self, queue_managers: Iterable[str] = ()) -> None:
        """Create the table if there is none, and become its only writer for these queues; no queue managers: those of any.

        Raises :class:`SrmpSparkError` when Delta does not accept the claim, or the table forgets who wrote it, and
        :class:`ConfigurationError` when the table lacks columns of the batches.
        """
        self._check_columns()
        empty = self._spark.createDataFrame([], spark_ddl(self._columns))
        writer = Writer(self._queues, frozenset(queue_managers))
        version = self._take(empty, writer.name)  # first: it creates the table
        if transactions_expire(self._spark, self._table):
            raise SrmpSparkError(
                f"the table {self._table} forgets who wrote it, so an old job could write "
                "rows twice: "
                f"ALTER TABLE delta.`{self._table}` UNSET TBLPROPERTIES ('{EXPIRY}')"
            )
        for name in transactions(self._spark, self._table):
            other = Writer.of(name)
            if other is not None and other != writer and writer.may_meet(other):
                _log.info("writer.ended table=%s writer=%s", self._table, name)
                self._take(empty, name)
        self._writer, self._version = writer, version
        self._asked, self._runs = set(), []  # what was asked before the claim may be outdated

    def _check_columns(self) -> None:
        """Raise :class:`ConfigurationError` if the table exists without some columns of the batches."""
        there = columns_of(self._spark, self._table)
        missing = [name for name in self._columns if name.lower() not in there] if there else []
        if missing:
            declared = ", ".join(f"{name} {KINDS[name].upper()}" for name in missing)
            raise ConfigurationError(
                f"the table {self._table} has no column {', '.join(missing)}: name the "
                "columns that it has with --columns, or "
                f"add them: ALTER TABLE delta.`{self._table}` ADD COLUMNS ({declared})"
            )

    def _claim_for(self, batch: DataFrame, batch_id: int) -> Writer | None:
        """Return who writes this batch, after a claim if there is none that covers it; ``None``: the batch has no rows."""
        writer = self._writer
        if writer is not None and not writer.queue_managers:
            return writer  # it is claimed for all
        claimed = self._queue_managers if writer is None else writer.queue_managers
        wanted = claimed | self._queue_managers_of(batch, batch_id)
        if wanted and (writer is None or wanted != writer.queue_managers):
            self.claim(wanted)
        return self._writer

    def _queue_managers_of(self, batch: DataFrame, batch_id: int) -> frozenset[str]:
        """Return the queue managers whose rows a batch may have; if the checkpoint does not tell, those that it has.

        A queue manager that the query read once, and no longer reads, stays in the offsets and does not move.
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
        """Commit nothing under the next number of a name, and return the number: who held the name until now writes no more."""
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
        """Append what is new in ``batch``, as the table's only writer. Raises :class:`TakenOverError`, and as :meth:`claim`."""
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

    # --- what is there already -------------------------------------------------------------------------------------------

    def _ask(self, batch_id: int) -> None:
        """Learn what the table holds of the logs of this batch, behind the batch's start."""
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
        """The runs of sequences among the rows that fulfil one of ``conditions`` (none given: all rows)."""
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
        else:  # with holes: a run is where sequence minus rank stays the same
            rank = F.dense_rank().over(Window.partitionBy(*LOG).orderBy("sequence"))
            islands = rows.withColumn("island", F.col("sequence") - rank).groupBy(*LOG, "island")
            ends = islands.agg(F.min("sequence").alias("first"), F.max("sequence").alias("last"))
            runs = [tuple(row) for row in ends.select(*LOG, "first", "last").collect()]
        for run in runs[:RUNS_SHOWN]:
            _log.info("table.holds queue_manager=%s epoch=%s queue=%s first=%s last=%s", *run)
        return runs

    def _runs_in(self, batch_id: int) -> list[tuple[str, str, str, int, int]]:
        """The runs that rows of this batch may lie in, as far as the checkpoint tells where it starts and ends.

        Only a filter: such a batch is read twice, to say truly how many rows were left out.
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
        """Where the batch ends, as the checkpoint says; ``None`` if it does not (none yet, a damaged checkpoint)."""
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

    # --- commits ---------------------------------------------------------------------------------------------------------

    def _commit_again_and_again(self, rows: DataFrame, name: str) -> int | None:
        """As :meth:`_commit` under the next number, again where another commit crossed it: ``ALTER TABLE``, another's claim.

        The number stays: a job that took the name over has that number by now or a higher one, so Delta passes ours over.
        """
        self._version += 1
        for _ in range(ATTEMPTS):
            try:
                return self._commit(rows, name, self._version)
            except CONFLICTS as error:  # noqa: PERF203  # an attempt takes a second
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
        """Append under this number; the rows written, or ``None`` if Delta passed the append over."""
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
    """The transaction identifiers of the table as it is now, each with its highest number: whoever ever wrote with one.

    Not the history, which Delta cuts after ``delta.logRetentionDuration``. Delta's Python does not show them, its JVM does.
    """
    found = _snapshot(spark, table).setTransactions()
    return {
        found.apply(index).appId(): int(found.apply(index).version())
        for index in range(found.size())
    }


def transactions_expire(spark: SparkSession, table: str) -> bool:
    """Whether the table drops transaction identifiers that were not used for a time (:data:`EXPIRY`; off unless set)."""
    return bool(_snapshot(spark, table).metadata().configuration().contains(EXPIRY))


def columns_of(spark: SparkSession, table: str) -> frozenset[str]:
    """Return the columns of the table in lower case; none if it does not exist."""
    snapshot = _snapshot(spark, table)
    return (
        frozenset(name.lower() for name in snapshot.schema().fieldNames())
        if snapshot.version() >= 0
        else frozenset()
    )


def _snapshot(spark: SparkSession, table: str) -> Any:  # noqa: ANN401  # an object of the JVM
    jvm: Any = spark._jvm  # noqa: SLF001  # py4j's only door
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, table)  # noqa: SLF001  # as above
    nothing = jvm.scala.Option.empty()
    return log.update(False, nothing, nothing)  # "stale is acceptable": no


def _any(conditions: list[Any]) -> Any:  # noqa: ANN401  # a Column, of either kind of session
    result = conditions[0]
    for condition in conditions[1:]:
        result = result | condition
    return result
