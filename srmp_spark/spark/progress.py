"""Report how many rows wait for a streaming query: a listener that reads Spark's progress.

From a Python data source, Spark 4.2 carries only the offsets and ``latestOffset`` into
``StreamingQueryProgress``. Spark's ``PythonMicroBatchStream`` does not implement
``ReportsSourceMetrics``, so ``sources[].metrics`` is empty. The number of rows that wait in a queue
is the difference of ``latestOffset`` and ``endOffset``. ``latestOffset`` is as old as the last
micro-batch.

From a sink, Spark carries nothing. The metric ``srmp_sink_rows_total`` of the queue manager counts
the rows of a sink, including known rows.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from srmp_spark.errors import DataLossError
from srmp_spark.private_files import create_private
from srmp_spark.spark.reading.offsets import LogKey, Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SECONDS = 60.0
"""Default number of seconds between two log lines about a query, because people read them."""

_log = logging.getLogger(__name__)


class QueryProgress(NamedTuple):
    """The state of one streaming query after its last micro-batch.

    The query reads ``format("srmp")`` or ``format("mqrr")``.
    """

    name: str
    """Name of the query, or its id if it has no name."""
    batch: int
    rows: int
    """Rows that the query has read since the listener knows the query."""
    waiting: dict[LogKey, int]
    """Number of rows that wait in each queue after the micro-batch.

    Holes (purged or damaged rows) count as rows.
    """
    spent_ms: dict[str, float] = {}  # noqa: RUF012  # the default is never changed
    """Milliseconds that each part of the last trigger took.

    Spark's phases have Spark's names (``triggerExecution`` is the whole, ``addBatch`` the job).
    With option ``reportTimes``, the reader's own share is included as ``source.NAME``
    (:mod:`.trigger_time`).
    """

    @property
    def lag(self) -> int:
        """Return the number of rows that wait in all queues together."""
        return sum(self.waiting.values())


class SrmpListener(StreamingQueryListener):
    """Keeps, logs and exports how many rows wait for each streaming query.

    The numbers are in :attr:`progress`. The numbers are written for Prometheus if a file is given.
    """

    def __init__(
        self,
        *,
        log_seconds: float = LOG_SECONDS,
        prometheus_file: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without queries.

        ``prometheus_file`` is for the textfile collector of a node exporter. The folder of the file
        must exist.
        """
        self.progress: dict[str, QueryProgress] = {}
        """The progress of each query by the id of the query, which stays the same over restarts."""
        self._log_seconds = log_seconds
        self._file = None if prometheus_file is None else Path(prometheus_file)
        self._monotonic = monotonic
        self._logged_at: dict[str, float] = {}
        self._spent: dict[str, dict[str, float]] = {}
        """Seconds by phase since the listener knows a query, by the id of the query."""
        self._lock = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        """Do nothing, because no progress is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        """Note the number of rows that wait after a micro-batch, log it, and write the metrics.

        A query without a source of this package is ignored. A line is logged at most once in
        ``log_seconds`` for each query.
        """
        progress = event.progress
        waiting: dict[LogKey, int] = {}
        spent: dict[str, float] = {phase: float(ms) for phase, ms in progress.durationMs.items()}
        sources = [each for each in progress.sources if _is_ours(each.endOffset)]
        if not sources:
            return
        for each in sources:
            for key, rows in waiting_of(each.endOffset, each.latestOffset):
                waiting[key] = waiting.get(key, 0) + rows
            for part, ms in reader_ms(each.latestOffset):
                spent[f"source.{part}"] = spent.get(f"source.{part}", 0.0) + ms
        number = str(progress.id)
        with self._lock:
            before = self.progress.get(number)
            read = sum(each.numInputRows for each in sources) + (
                0 if before is None else before.rows
            )
            found = QueryProgress(progress.name or number, progress.batchId, read, waiting, spent)
            self.progress[number] = found
            totals = self._spent.setdefault(number, {})
            for phase, ms in spent.items():
                totals[phase] = totals.get(phase, 0.0) + ms / 1e3
            self._tell(number, found)
            self._write()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  # Spark's name
        """Do nothing, because an idle query changes no number."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark's name
        """Forget the query, and write the metrics without it."""
        with self._lock:
            self._logged_at.pop(str(event.id), None)
            self._spent.pop(str(event.id), None)
            if self.progress.pop(str(event.id), None) is not None:
                self._write()

    def _tell(self, number: str, found: QueryProgress) -> None:
        now = self._monotonic()
        if now - self._logged_at.get(number, float("-inf")) >= self._log_seconds:
            self._logged_at[number] = now
            queues = " ".join(
                f"{key.queue}@{key.queue_manager}={rows}"
                for key, rows in sorted(found.waiting.items())
            )
            spent = " ".join(f"{phase}_ms={ms:g}" for phase, ms in sorted(found.spent_ms.items()))
            _log.info(
                "query.progress query=%s batch=%d rows=%d waiting=%d %s %s",
                found.name,
                found.batch,
                found.rows,
                found.lag,
                queues,
                spent,
            )

    def _write(self) -> None:
        if self._file is None:
            return
        text = "".join(f"{line}\n" for line in _metrics(self.progress, self._spent))
        part = self._file.with_name(f".{self._file.name}.{os.getpid()}.part")
        try:
            part.unlink(missing_ok=True)
            with os.fdopen(create_private(part), "w", encoding="utf-8") as file:
                # A collector runs as another user and must read the file, which has only counts.
                os.fchmod(file.fileno(), 0o644)
                file.write(text)
            # After the rename a collector reads either the old text or the new one, never a part.
            part.replace(self._file)
        except OSError as error:
            _log.warning("query.metrics_not_written file=%s reason=%s", self._file, error)


def listener(
    spark: SparkSession, *, log_seconds: float = LOG_SECONDS, prometheus_file: str | None = None
) -> SrmpListener:
    """Register a :class:`SrmpListener` with a session, and return it.

    ``spark.streams.removeListener`` removes it again.
    """
    made = SrmpListener(log_seconds=log_seconds, prometheus_file=prometheus_file)
    spark.streams.addListener(made)
    return made


def waiting_of(end: str | None, latest: str | None) -> Iterator[tuple[LogKey, int]]:
    """Yield (log, number of waiting rows) for each queue between two offsets of a progress.

    ``end`` and ``latest`` are the texts ``endOffset`` and ``latestOffset``. Nothing is yielded if
    Spark has no ``latestOffset``.
    """
    if end is None or latest is None or not _is_ours(latest):
        return
    ends, here = Offsets.from_text(latest), Offsets.from_text(end)
    for key, position in here.items():
        # Sequences continue from one epoch to the next, so their difference counts rows.
        if key in ends:
            yield key, max(0, ends[key].sequence - position.sequence)


def _is_ours(offset: str | None) -> bool:
    try:
        value: Any = json.loads(offset or "null")
        return isinstance(value, dict) and "qm" in value and Offsets.from_dict(value) is not None
    except (ValueError, DataLossError):
        return False


def reader_ms(latest: str | None) -> Iterator[tuple[str, float]]:
    """Yield each part of a trigger that the reader of this package measured, in milliseconds.

    Each item is (name of the part, milliseconds). :mod:`.trigger_time` lists the parts.
    """
    if latest is not None and _is_ours(latest):
        for part, ms in json.loads(latest).get("ms", {}).items():
            yield part, float(ms)


class ListenerMetric(NamedTuple):
    """One metric that the listener writes for a textfile collector."""

    name: str
    kind: str
    """``gauge`` or ``counter``."""
    labels: tuple[str, ...]
    text: str


WAITING = ListenerMetric(
    "srmp_query_waiting_rows",
    "gauge",
    ("query", "queue_manager", "queue"),
    "Rows of a queue that wait for a streaming query.",
)
ROWS = ListenerMetric(
    "srmp_query_rows_total", "counter", ("query",), "Rows that a streaming query has read."
)
PHASES = ListenerMetric(
    "srmp_query_phase_seconds_total",
    "counter",
    ("query", "phase"),
    "Seconds of triggers by phase: Spark's phases, and those of the reader as source.*.",
)
METRICS = (WAITING, ROWS, PHASES)
"""The metrics of the listener, in the order of the file."""


def _metrics(
    progress: dict[str, QueryProgress], spent: dict[str, dict[str, float]]
) -> Iterator[str]:
    yield from _head(WAITING)
    for found in progress.values():
        for key, rows in sorted(found.waiting.items()):
            yield _sample(WAITING, (found.name, key.queue_manager, key.queue), str(rows))
    yield from _head(ROWS)
    for found in progress.values():
        yield _sample(ROWS, (found.name,), str(found.rows))
    yield from _head(PHASES)
    for number, totals in spent.items():
        for phase, seconds in sorted(totals.items()):
            yield _sample(PHASES, (progress[number].name, phase), f"{seconds:.3f}")


def _head(metric: ListenerMetric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.text}"
    yield f"# TYPE {metric.name} {metric.kind}"


def _sample(metric: ListenerMetric, values: tuple[str, ...], number: str) -> str:
    return f"{metric.name}{_labels(dict(zip(metric.labels, values, strict=True)))} {number}"


def _labels(labels: dict[str, str]) -> str:
    pairs = (
        '{}="{}"'.format(name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for name, value in labels.items()
    )
    return "{" + ",".join(pairs) + "}"
