"""Choose rows of a table by time, version, queue, label or SQL.

Times are **half-open**: ``--from T`` includes a row that arrived at T, ``--to T`` does not. So
10:00 to 11:00 and 11:00 to 12:00 are two adjacent hours, and no row belongs to both. The column is
``arrived_at``, the time when the queue manager accepted the message. A time without a zone is UTC.
A date alone means its first moment, so ``--from 2026-11-01 --to 2026-12-01`` is November.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import local_queue_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POSITION = ("queue_manager", "epoch", "queue", "sequence")
"""The columns that identify a row of a message table. The row is sent under this identity."""


_ELSEWHERE = {"PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"}
"""Environment variables of clusters (the first is set by spark-submit).

With one of them a path without a scheme may belong to another file system.
"""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
"""Pattern of a path with a scheme.

``dbfs:/x`` counts like ``s3a://bucket/x``: Hadoop's paths need one slash.
"""


def parse_time(text: str) -> datetime:
    """Return the time that ``text`` names, in UTC. ``text`` is RFC 3339 or a part of it.

    Examples are ``2026-11-22``, ``2026-11-22T10:00``, ``2026-11-22 10:00:00.5Z`` and ``…+01:00``. A
    text without a zone is in UTC. Raises :class:`ConfigurationError` for any other text.
    """
    written = text.strip()
    if written[-1:] in ("Z", "z"):
        written = written[:-1] + "+00:00"
    head, point, rest = written.partition(".")
    # Python 3.10 accepts only three or six digits of a fraction.
    if point:
        digits = rest[
            : next((index for index, each in enumerate(rest) if not each.isdigit()), len(rest))
        ]
        written = f"{head}.{digits[:6]:0<6}{rest[len(digits) :]}"
    try:
        time = datetime.fromisoformat(written)
    except ValueError:
        raise ConfigurationError(
            f"not a time: {text!r}; expected RFC 3339, for example 2026-11-22T10:00:00Z "
            "(without a zone it is UTC)"
        ) from None
    return (
        time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time.astimezone(timezone.utc)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rows that the flags of ``replay`` choose."""

    table: str
    begin: datetime | None = None
    end: datetime | None = None
    version: int | None = None
    queues: tuple[str, ...] = ()
    label: str | None = None
    where: str | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Selection:
        """Return the selection of parsed flags.

        Raises :class:`ConfigurationError` if a time, the version or a queue name is wrong.
        """
        begin = parse_time(args.begin) if args.begin else None
        end = parse_time(args.end) if args.end else None
        if begin is not None and end is not None and begin >= end:
            raise ConfigurationError(
                f"--from {args.begin} is not before --to {args.end}: the first moment "
                "belongs to the rows, the last does not"
            )
        if args.version is not None and args.version < 0:
            raise ConfigurationError(
                f"--version {args.version}: versions of a Delta table count from 0"
            )
        queues = (
            tuple(local_queue_name(name) for name in args.queue.split(",")) if args.queue else ()
        )
        return cls(
            table=args.table,
            begin=begin,
            end=end,
            version=args.version,
            queues=queues,
            label=args.label,
            where=args.where,
        )

    def check_path(self) -> None:
        """Check that the table exists, before Spark starts, if it can only be on this machine.

        Raises :class:`ConfigurationError` if the path is no Delta table.
        """
        here = not _SCHEME.match(self.table) and not os.environ.keys() & _ELSEWHERE
        if here and not Path(self.table, "_delta_log").is_dir():
            raise ConfigurationError(no_table(self.table))

    def rows(self, spark: SparkSession, *, receipts: bool = False) -> DataFrame:
        """Return the chosen rows, always of one version of the table.

        So the rows that are counted are the rows that are sent. Without ``receipts`` the rows that
        are receipts are left out, because no application sent them. Raises
        :class:`ConfigurationError` if the table is no Delta table or lacks columns.
        """
        from pyspark.sql import functions as F  # noqa: N812  # the usual name

        version = self.version if self.version is not None else newest_version(spark, self.table)
        rows = spark.read.format("delta").option("versionAsOf", version).load(self.table)
        self._check(set(rows.columns))
        if self.begin is not None:
            rows = rows.where(F.col("arrived_at") >= F.lit(self.begin))
        if self.end is not None:
            rows = rows.where(F.col("arrived_at") < F.lit(self.end))
        if self.queues:
            rows = rows.where(F.col("queue").isin(list(self._queues_of(rows))))
        if self.label is not None:
            rows = rows.where(F.col("label") == self.label)
        if self.where is not None:
            rows = rows.where(self.where)
        if not receipts and "receipt_kind" in rows.columns:
            rows = rows.where(F.col("receipt_kind").isNull())
        return rows

    def _queues_of(self, rows: DataFrame) -> Iterable[str]:
        """Return the queues of the table that ``--queue`` names.

        A glob matches no order queue, as in the source.
        """
        from srmp_spark.names import is_glob, queue_matches

        if not any(map(is_glob, self.queues)):
            return self.queues
        present = [row["queue"] for row in rows.select("queue").distinct().collect()]
        return [name for name in present if queue_matches(name, self.queues)]

    def _check(self, columns: set[str]) -> None:
        wanted = {"body", *POSITION}
        if self.begin is not None or self.end is not None:
            wanted.add("arrived_at")
        if self.label is not None:
            wanted.add("label")
        missing = sorted(wanted - columns)
        if missing:
            raise ConfigurationError(
                f"the table {self.table} has no column {', '.join(missing)}: this job "
                "sends tables as jobs/ingest.py writes "
                "them. Send others with df.write.format('srmp').mode('append') and a column key"
            )


def no_table(table: str) -> str:
    """Return the error text for a path that is no Delta table."""
    return f"{table} is not a Delta table; give the path that jobs/ingest.py --table has"


def newest_version(spark: SparkSession, table: str) -> int:
    """Return the present version of the table.

    Raises :class:`ConfigurationError` if ``table`` is no Delta table. The version comes from
    Delta's snapshot, because reading the history takes a second, and longer for a long history.
    """
    # PySpark has no public name for its JVM.
    jvm: Any = spark._jvm  # noqa: SLF001
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, table)  # noqa: SLF001
    nothing = jvm.scala.Option.empty()
    # The first argument says whether a stale snapshot is acceptable. It is not.
    version = int(log.update(False, nothing, nothing).version())
    if version < 0:
        raise ConfigurationError(no_table(table))
    return version
