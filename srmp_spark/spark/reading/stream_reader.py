"""The streaming reader of ``format("srmp")``.

Spark builds this object several times. One object is in a process that lives as long as the query.
This object is the *driver-side reader*, and Spark calls its ``initialOffset``, ``latestOffset``,
``partitions`` and ``commit``. Another object is in a planning process, from where it is pickled to
the executors for ``read``. So ``__init__`` only stores options. Connections, leases and threads
belong to :class:`_Driver`, which the driver-side reader makes at its first call. ``read`` sees
nothing of :class:`_Driver`.

Spark does not call ``stop()`` when a query ends, but sends SIGTERM. A handler turns the signal into
``SystemExit``, after which Spark's runner does call ``stop()``. Leases are released there. If the
process is killed, the queue manager itself notices that.
"""

from __future__ import annotations

import atexit
import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError, ConfigurationError
from srmp_spark.spark.embedded import KeptInUse, locate
from srmp_spark.spark.reading.admission import Delay, pieces_of, shares, split_range
from srmp_spark.spark.reading.elsewhere import Elsewhere
from srmp_spark.spark.reading.logs import LogFacts, Logs, LogStep
from srmp_spark.spark.reading.marks import Marks
from srmp_spark.spark.reading.offsets import AT_THE_FIRST, Began, LogKey, Offsets, Position
from srmp_spark.spark.reading.parallel import THREADS_MAX, gather
from srmp_spark.spark.reading.partitions import (
    ReadColumns,
    SrmpPartition,
    clipped,
    read_columns,
    read_partition,
)
from srmp_spark.spark.reading.spark_progress import SparkProgress
from srmp_spark.spark.reading.starting import (
    began_at,
    check_starting,
    of_newcomer,
    starting_position,
)
from srmp_spark.spark.reading.trigger_time import TriggerPart, TriggerTime
from srmp_spark.spark.settings.options import SourceOptions, Starting, check_stream

if TYPE_CHECKING:
    import pyarrow as pa

IDLE_WAIT_SECONDS = 0.15
"""Seconds that ``latestOffset`` waits in the queue manager if there is nothing new.

With the default trigger Spark asks again at once (every 10 ms, measured). The wait is short,
because a stopping query waits for it.
"""

_log = logging.getLogger(__name__)


class SrmpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads rows of queue logs as a stream. The module explains its theory of operation."""

    def __init__(self, options: SourceOptions, schema: StructType | None = None) -> None:
        """Store the options, and as ``schema`` the columns to read. ``None`` means all columns."""
        self._options = options
        self._schema = schema
        self._driver: _Driver | None = None

    def __repr__(self) -> str:
        return f"<SrmpStreamReader queues={','.join(self._options.queues)}>"

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the offset at which a new query begins, and acquire the leases of its logs.

        Spark calls this method twice, and gets the same answer. Raises :class:`ConfigurationError`
        if the options do not fit the logs, and :class:`ApiError` if another receiver holds a lease.
        """
        return self._here().initial().as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return the row limit, or the byte limit if there is no row limit.

        If there are both, :meth:`latestOffset` also applies the byte limit.
        """
        self._check()
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the offset at which the next batch ends, or ``start`` if there is nothing new.

        The call also sends the received mark of the batch that ended at ``start``, adds new queues,
        and waits up to IDLE_WAIT_SECONDS if there is nothing new.
        """
        return self._here().latest(Offsets.from_dict(start), limit).as_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """Return the ends of the logs as last seen, and the reader's times if they are requested.

        Return ``None`` if no log was read yet. :mod:`.trigger_time` describes the times. Spark
        calls this method after every ``latestOffset``, so it calls no queue manager.
        """
        return None if self._driver is None else self._driver.report()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Make the present ends of the logs the goal of this run."""
        self._here().set_goal()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of the batch (start, end], which follow from the two offsets alone.

        Raises :class:`DataLossError` if rows of the batch are gone, and
        :class:`ApiUnreachableError` if they may be at a queue manager that does not answer.
        """
        return self._here().plan(Offsets.from_dict(start), Offsets.from_dict(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, on an executor."""
        assert isinstance(partition, SrmpPartition)
        return read_partition(partition, self._options, self._check())

    def commit(self, end: dict[str, Any]) -> None:
        """Send the received mark of a batch, if ``latestOffset`` has not sent it."""
        self._here().commit(Offsets.from_dict(end))

    def stop(self) -> None:
        """Release the leases, and stop the calls that keep an embedded queue manager alive."""
        if self._driver is not None:
            self._driver.close()

    def _check(self) -> ReadColumns:
        """Check the options, and return the columns to read.

        Raises :class:`ConfigurationError` for the first problem. The constructor does not check
        them, because Spark would lose its error.
        """
        check_stream(self._options)
        return read_columns(self._schema, self._options)

    def _here(self) -> _Driver:
        """Return the driver side, and make it when it is first needed.

        The driver side is never made in a planning process or on an executor.
        """
        if self._driver is None:
            self._check()
            _end_on_sigterm()
            self._driver = _Driver(self._options)
            atexit.register(self._driver.close)
        return self._driver


def _end_on_sigterm() -> None:
    """Turn SIGTERM into ``SystemExit``, so that ``finally`` and ``atexit`` run."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit)


def _exit(*_: object) -> None:
    # Spark may send a second signal, which would interrupt the last calls.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(0)


class _Driver:
    """The state of the driver-side reader.

    The state consists of the connected logs, the leases, the marks and the goal of AvailableNow.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._place = locate(options)
        self._logs = Logs(options, self._place.urls)
        self._elsewhere = Elsewhere(options.queues, fails=options.fail_on_queue_in_use)
        self._marks = (
            None
            if options.read_mode == "peek"
            else Marks(self._logs, options.consumer, self._elsewhere)
        )
        self._delay = Delay(options.min_rows, options.max_delay_s)
        self._progress = SparkProgress()
        self._time = TriggerTime()
        self._initial: Offsets | None = None
        self._retained: dict[LogKey, int] = {}
        """Sequence of the first kept row of each log at the call of ``initialOffset``."""
        self._goal: Mapping[LogKey, LogFacts] | None = None
        self._ends: dict[LogKey, Position] = {}
        self._looked: set[str] = set()
        """GUIDs of the queue managers whose logs were compared with the logs of the checkpoint."""
        self._goal_of: set[str] = set()
        """GUIDs of the queue managers that the goal covers.

        The others were away, and belong to the next run.
        """
        self._use = (
            KeptInUse(self._place.urls[0], options) if options.data_dir is not None else None
        )

    def initial(self) -> Offsets:
        """Return the offsets at which a new query begins, after acquiring the leases of its logs.

        Later calls return the same offsets.
        """
        if self._initial is None:
            self._logs.managers.check_all_are_here()
            found = self._logs.discover(now=True)
            self._retained = {key: facts.first for key, facts in found.items()}
            starting = self._options.starting
            check_starting(starting, self._logs, found)
            entered = gather(
                [
                    partial(self._enter, key, facts, starting, self._logs.client(key))
                    for key, facts in found.items()
                ]
            )
            places = {
                key: place for key, place in zip(found, entered, strict=True) if place is not None
            }
            self._initial = Offsets(
                {key: position for key, (position, _) in places.items()},
                {key: began for key, (_, began) in places.items()},
            )
            _log.info("query.started at=%s", self._initial)
        return self._initial

    def _enter(
        self, key: LogKey, facts: LogFacts, starting: Starting, client: QueueManagerClient
    ) -> tuple[Position, Began] | None:
        """Acquire the lease of a log that the query has never read; return (position, beginning).

        The position is that before the first row, and the beginning (:class:`.Began`) is to be
        noted in the offsets. Return ``None`` if the log is one of a glob and another receiver holds
        its consumer, or if the log was deleted a moment ago.
        """
        try:
            received = facts.received if self._marks is None else self._marks.begin(key)
        except ApiError as error:
            self._elsewhere.note(key, error)
            return None
        position = starting_position(key, facts, starting, received, client)
        began = began_at(key, position, starting, self._options.consumer, client)
        if self._marks is not None:
            self._marks.begin(key, began.first)
        return position, began

    def set_goal(self) -> None:
        """Make the present ends of all logs the goal of this run of AvailableNow.

        Later rows belong to the next run.
        """
        self._progress.triggers_available_now()
        self._goal = dict(self._logs.discover(None, now=True))
        self._goal_of = set(self._logs.managers.here)

    def commit(self, offsets: Offsets) -> None:
        """Mark the rows up to ``offsets`` as received, because Spark has committed the batch."""
        self._progress.commits(offsets)
        with self._time.of(TriggerPart.COMMIT):
            self._mark(offsets)

    def _mark(self, offsets: Offsets) -> None:
        """Acquire missing leases, and mark the batch that ended at ``offsets`` if it is committed.

        A query in ``readMode`` peek does nothing.
        """
        if self._marks is not None:
            self._marks.resume(offsets)
            self._marks.send(offsets if self._progress.is_committed(offsets) else Offsets({}))

    def _is_marked(self, key: LogKey, position: Position) -> bool:
        """Return whether the query sends no marks, or sent those of a log up to ``position``."""
        return self._marks is None or self._marks.are_sent(key, position)

    def report(self) -> dict[str, Any] | None:
        """Return the value of ``reportLatestOffset``: the ends of the logs.

        With option ``reportTimes`` the value also has the times since the last report, as ``ms``.
        Return ``None`` if no log was read yet.
        """
        if not self._ends:
            return None
        times = {"ms": self._time.reported()} if self._options.report_times else {}
        return Offsets(self._ends).as_dict() | times

    def close(self) -> None:
        """Release the leases, and let an embedded queue manager end.

        This method may be called more than once.
        """
        if self._use is not None:
            self._use.stop()
        if self._marks is not None:
            self._marks.release()

    # --- planning ---------------------------------------------------------------------------------

    def latest(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return the offsets after one step of every log, within the limits.

        The call also marks the batch that ended at ``start``, adds new logs, and may wait for new
        rows.
        """
        self._logs.managers.look()
        with self._time.of(TriggerPart.MARKS):
            self._mark(start)
        with self._time.of(TriggerPart.QUEUES):
            newcomers = self._newcomers(start)
        positions = {**start, **{key: position for key, (position, _) in newcomers.items()}}
        began = {**start.began, **{key: where for key, (_, where) in newcomers.items()}}
        keys = [
            key
            for key in start
            if key not in self._elsewhere
            and self._logs.is_read(key, start[key])
            and self._belongs_to_this_run(key)
        ]
        ends_now = self._goal is not None or len(positions) > len(start)
        with self._time.of(TriggerPart.RANGE):
            steps = self._steps(
                keys, positions, limit, None if ends_now or len(keys) != 1 else IDLE_WAIT_SECONDS
            )
            if (
                not ends_now
                and len(keys) > 1
                and all(steps[key].reached == positions[key] for key in keys)
            ):
                self._wait_for_any(keys, positions)
                steps = self._steps(keys, positions, limit, None)
        if self._goal is None and self._delay.holds(
            sum(_backlog(steps, positions).values()), time.monotonic()
        ):
            steps = {
                key: step._replace(reached=_without_rows(positions[key], step))
                for key, step in steps.items()
            }
            # Wait here, because Spark asks again at once.
            time.sleep(IDLE_WAIT_SECONDS)
        for key, step in steps.items():
            reached = step.reached
            if step.anew:
                began[key] = Began(reached.sequence + 1)
            elif (
                key in began
                and reached.sequence > start[key].sequence
                and self._is_marked(key, start[key])
            ):
                began[key] = began[key].beyond(start[key].sequence)
            positions[key] = reached
            self._ends[key] = Position(reached.epoch, max(step.end, reached.sequence))
        return Offsets(positions, began)

    def _belongs_to_this_run(self, key: LogKey) -> bool:
        """Return whether this run of the query reads a log.

        A run of AvailableNow reads a log only if it saw where the log ended when the run began.
        """
        return self._goal is None or key.queue_manager in self._goal_of

    def _newcomers(self, start: Offsets) -> dict[LogKey, tuple[Position, Began]]:
        """Acquire the leases of logs that the query has never seen; return where each begins.

        Logs of queue managers that are away, or that another receiver holds, are left out and join
        later. A new log enters before its first row, and is read from the next batch on. A queue
        that was added to the options before a restart, or that another receiver held, begins as
        ``startingOffsets`` says. A queue that is made while the query runs has no rows from before
        the query, and is read from its first row.
        """
        # A new query has entered every queue that existed at its beginning.
        if start == self._initial:
            self._looked |= set(self._logs.managers)
        here = set(self._logs.managers.here)
        joined = here - self._looked
        known = (
            self._logs.discover(start, now=bool(here - self._looked))
            if self._goal is None
            else self._goal
        )
        if here - self._looked:
            self._logs.check_names(start)
        self._looked |= here
        new = [
            key
            for key in known
            if key not in start and self._elsewhere.may_be_asked(key, known[key].holder)
        ]
        # If this process asked for the beginning of the query, the query entered the queues that
        # existed then. Of these, only queues that another receiver held are new now.
        met_late = {
            key
            for key in new
            if (key.queue_manager in joined if self._initial is None else key in self._retained)
        }
        # The calls run in parallel, because each may wait until another receiver renews its lease.
        entered = gather(
            [partial(self._newcomer, key, known[key], is_restart=key in met_late) for key in new]
        )
        return {key: place for key, place in zip(new, entered, strict=True) if place is not None}

    def _newcomer(
        self, key: LogKey, facts: LogFacts, *, is_restart: bool
    ) -> tuple[Position, Began] | None:
        """Acquire the lease of one new log; return its position and beginning (:class:`.Began`).

        Return ``None`` if its queue manager is away, the log is gone, or another receiver holds it.
        Then the log joins later.
        """
        has_joined = is_restart or key in self._elsewhere
        starting = of_newcomer(
            key, self._options.starting, self._logs.client(key), joined=has_joined
        )
        entered = self._logs.managers.ask(
            key.queue_manager, partial(self._enter, key, facts, starting)
        )
        if entered is not None:
            self._elsewhere.joined(key)
            how = f"{starting.keyword or 'startingOffsets'}, of rows {facts.first} to {facts.end}"
            # A warning, because rows may be skipped.
            level = logging.WARNING if has_joined else logging.INFO
            _log.log(
                level,
                "log.%s log=%s first=%s (%s)",
                "joined" if has_joined else "appeared",
                key,
                entered[1].first,
                how,
            )
        return entered

    def _steps(
        self,
        keys: Sequence[LogKey],
        positions: Mapping[LogKey, Position],
        limit: ReadLimit,
        wait: float | None,
    ) -> dict[LogKey, LogStep]:
        max_rows, max_bytes = self._limits(limit)

        def step(key: LogKey, rows: int | None, size: int | None) -> LogStep:
            return self._to_goal(
                key,
                positions[key],
                self._logs.advance(key, positions[key], max_rows=rows, max_bytes=size, wait=wait),
            )

        first = gather([partial(step, key, max_rows, max_bytes) for key in keys])
        steps = dict(zip(keys, first, strict=True))
        backlog = _backlog(steps, positions)
        if len(backlog) < 2 or (max_rows is None and max_bytes is None):
            return steps
        turn = sum(position.sequence for position in positions.values())
        total = sum(backlog.values())
        rows = shares(max_rows if max_rows is not None else total, backlog, turn)
        share_of = {
            key: max(1, (max_bytes or 0) * count // total) for key, count in backlog.items()
        }
        for key in backlog:
            if key not in rows:
                steps[key] = LogStep(positions[key], steps[key].end)
        again = list(rows)
        cut = gather(
            [partial(step, key, rows[key], share_of[key] if max_bytes else None) for key in again]
        )
        steps.update(zip(again, cut, strict=True))
        return steps

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """Return the limits of one batch as (rows, bytes); ``None`` in a place means no limit.

        Raises :class:`ConfigurationError` for a limit that this version does not know.
        """
        if isinstance(limit, ReadAllAvailable):
            if self._options.max_rows is not None or self._options.max_bytes is not None:
                _log.info(
                    "limits.ignored: Trigger.Once asks for everything; use availableNow "
                    "to keep the limits"
                )
            return None, None
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self._options.max_bytes
        if isinstance(limit, ReadMaxBytes):
            return self._options.max_rows, limit.max_bytes
        raise ConfigurationError(
            f"Spark asked for a read limit that format('srmp') does not know: {limit}"
        )

    def _to_goal(self, key: LogKey, before: Position, step: LogStep) -> LogStep:
        """Return ``step``, cut so that it goes no further than the goal of AvailableNow."""
        goal = None if self._goal is None else self._goal.get(key)
        if goal is None or step.reached.epoch != before.epoch:
            return step
        if step.reached.sequence <= goal.end:
            return step._replace(end=min(step.end, max(goal.end, step.reached.sequence)))
        return LogStep(
            Position(before.epoch, max(before.sequence, goal.end)), min(step.end, goal.end)
        )

    def _wait_for_any(self, keys: Sequence[LogKey], positions: Mapping[LogKey, Position]) -> None:
        """Wait until one of the first THREADS_MAX logs has something new, or the time is over.

        The time is :data:`IDLE_WAIT_SECONDS`.
        """
        # The other logs are checked right after the wait.
        turn = keys[:THREADS_MAX]

        def is_new(key: LogKey) -> bool:
            return (
                self._logs.advance(key, positions[key], wait=IDLE_WAIT_SECONDS).reached
                != positions[key]
            )

        gather([partial(is_new, key) for key in turn], enough=bool)

    def plan(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return the tasks of a batch.

        The tasks are ordered by queue manager, queue and sequence.
        """
        with self._time.of(TriggerPart.PLAN):
            return self._planned(start, end)

    def _planned(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        self._progress.plans(start, end)
        if self._marks is not None:
            self._marks.resume(key for key in end if key in start)
        begins = self._beginnings(start, end)
        sizes = {
            key: end[key].sequence - first + 1
            for key, (first, _) in begins.items()
            if end[key].sequence >= first
            and self._logs.can_be_planned(key, Position(end[key].epoch, first - 1))
        }
        for key in sizes:
            self._elsewhere.check(key)
        pieces = pieces_of(sizes, self._options.min_partitions, self._options.rows_per_partition)
        return [
            SrmpPartition(
                self._logs.client(key).url,
                key,
                end[key].epoch,
                after,
                to,
                self._place.host,
                tuple(clipped(begins[key].left_out, after, to)),
                socket.gethostname(),
            )
            for key in sizes
            for after, to in split_range(begins[key].first - 1, end[key].sequence, pieces[key])
        ]

    def _beginnings(self, start: Offsets, end: Offsets) -> dict[LogKey, Began]:
        """Return for each log where the query began, and the rows that a batch leaves out.

        Each is a :class:`.Began`. The first batch of a query is in no offset except its own. When
        the batch runs again after a crash, Spark asks for the initial offset again. By then
        ``latest`` is after the batch, and the options may name other queues or another beginning.
        So the batch's own offset says where the query began. If it does not say so, the query began
        at the first row.
        """
        if start != self._initial:
            return {
                key: Began(start[key].sequence + 1, start.began.get(key, AT_THE_FIRST).left_out)
                for key, to in end.items()
                if key in start and start[key].epoch == to.epoch
            }
        for key in end:
            if (
                key not in end.began
                and key in start
                and start[key].sequence >= max(1, self._retained.get(key, 1))
            ):
                _log.warning(
                    "log.read_again log=%s: the first batch of the query runs again as it "
                    "was, with rows up to %d, which "
                    "its consumer has received meanwhile, or before a query of version 0.1 began",
                    key,
                    start[key].sequence,
                )
        return {key: end.began.get(key, Began(max(1, self._retained.get(key, 1)))) for key in end}


def _backlog(
    steps: Mapping[LogKey, LogStep], positions: Mapping[LogKey, Position]
) -> dict[LogKey, int]:
    """Return the number of rows that wait in each log, for logs whose step reads rows."""
    return {
        key: each.end - positions[key].sequence
        for key, each in steps.items()
        if each.reached.epoch == positions[key].epoch
        and each.reached.sequence > positions[key].sequence
    }


def _without_rows(before: Position, step: LogStep) -> Position:
    """Return the position of a step that moves into another epoch, else ``before``.

    Both positions are reached without reading a row.
    """
    return before if step.reached.epoch == before.epoch else step.reached
