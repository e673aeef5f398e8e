"""Runs schedules through Spark, with real sockets, checkpoints and processes.

A run of a query lasts until there are no new rows (``availableNow``, or a continuous query that is
then stopped). Other runs last until the ``foreachBatch`` function fails in the first batch, after
it has the rows. Such a failure is the crash between ``read`` and ``commit``.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srmp_spark import errors
from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError
from srmp_spark.names import quote_queue_name
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.queries.inside import Processes
from tests.kit.queries.query import Asked, Life, Query
from tests.kit.queries.store import restored
from tests.kit.queries.truth import BrokenPromiseError, Log, Met
from tests.kit.queries.world import QUEUE_MANAGERS, World
from tests.kit.sim_clock import SimClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN_SECONDS = 180
"""Longest time of one ``availableNow`` run, in seconds, on a busy machine.

A longer run counts as failed.
"""
READ_STEPS = 3
"""The micro-steps begin, plan and read; a run of at most this many fails in its first batch."""


class ServedQueueManager:
    """A queue manager in its own process.

    Setting ``is_away`` kills the process or starts it again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running = RunningQueueManager(directory).start()
        self._is_away = False
        self.guid = self._running.guid
        self.url = self._running.api
        self._client = QueueManagerClient(self.url)

    @property
    def is_away(self) -> bool:
        """Return whether the process was killed and not started again."""
        return self._is_away

    @is_away.setter
    def is_away(self, is_away: bool) -> None:
        if is_away and not self._is_away:
            self._running.kill9()
        elif self._is_away and not is_away:
            self._running.restart()
        self._is_away = is_away

    def end(self, queue: str) -> int:
        """Return the last sequence of a queue."""
        return int(self._client.queue(queue)["last"])

    def marks(self, queue: str, consumer: str) -> list[tuple[int, int]]:
        """Return the received rows of a consumer as pairs of sequences, both included."""
        try:
            path = f"/v1/queues/{quote_queue_name(queue)}/consumers/{consumer}"
            # The public method would not return the whole answer.
            answer = self._client._json("GET", path)  # noqa: SLF001
        except ApiError as error:
            if error.status != 404:
                raise
            return []
        return [(1, answer["received"]), *map(tuple, answer["ahead"])]

    def restart(self) -> None:
        """Kill the process and start it again, unless the queue manager is away."""
        if not self._is_away:
            self._running.kill9()
            self._running.restart()

    def restore(self, lose: Callable[[str], int]) -> dict[str, int]:
        """Stop the process and continue with a restored data directory.

        See :func:`.store.restored` for ``lose`` and the result.
        """
        if not self._is_away:
            self._running.stop()
        lost = restored(self._directory, lose)
        if not self._is_away:
            self._running.restart()
        return lost

    def close(self) -> None:
        """Stop the process of the queue manager."""
        self._running.stop()


class SparkSurroundings:
    """A Spark session with queue managers as processes, for many schedules.

    ``directory`` is for data and checkpoints; it is removed at the end.
    """

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.clock = SimClock()
        self.processes = Processes()
        self.schedules = 0
        self.happened: Counter[str] = Counter()
        self.managers: Mapping[str, ServedQueueManager] = {
            name: ServedQueueManager(directory / name) for name in QUEUE_MANAGERS
        }

    def next_schedule(self) -> int:
        """Count the schedules up, and return the number of the next one.

        The number is a part of the names of the schedule's queues.
        """
        self.schedules += 1
        return self.schedules

    def make_query(self, world: World, name: str) -> Query:
        """Return a new query for the checkpoint ``name`` of the present schedule."""
        return SparkQuery(
            world, name, self.spark, self.directory / f"checkpoints-{self.schedules}" / name
        )

    def close(self) -> None:
        """Stop the queue managers and remove their directories."""
        for each in self.managers.values():
            each.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class _KilledError(Exception):
    """Raised in the ``foreachBatch`` function, so that the query fails on purpose."""


class SparkQuery(Query):
    """A checkpoint of Spark and the runs of its query."""

    def __init__(self, world: World, name: str, spark: SparkSession, checkpoint: Path) -> None:
        super().__init__(world, name)
        self._spark = spark
        self._checkpoint = checkpoint
        self._broken: BrokenPromiseError | None = None

    @property
    def holds(self) -> str | None:
        """Return ``None``, because the query has no leases between two runs."""
        return None

    def start(self, asked: Asked) -> None:
        """Record the options. No process is begun, because each run begins its own."""
        self.asked = asked
        # Spark makes the reader, so this life has none.
        self.life = Life(asked, None, "", bool(self.offsets))  # type: ignore[arg-type]

    def stop(self) -> None:
        """End the life; no process of the query runs between two runs."""
        self.life = None

    def crash(self) -> None:
        """End the life; no process of the query runs between two runs."""
        self.life = None

    def go(self, count: int) -> None:
        """Run the query once.

        With a ``count`` of at most READ_STEPS the run fails in its first batch.
        """
        if self.life is not None and self.asked is not None:
            self._run(self.asked, fails=count <= READ_STEPS)

    def to_the_end(self) -> bool:
        """Run the query until there are no new rows, and return whether the run succeeded.

        Return ``False`` if the query was never started.
        """
        return self.asked is not None and self._run(self.asked, fails=False)

    def _was_said(self, log: Log) -> bool:
        """Return ``True``, because the log of Spark's process cannot be read by this class."""
        return True

    # --- one run ----------------------------------------------------------------------------------

    def _run(self, asked: Asked, *, fails: bool) -> bool:
        """Run the query, judge the run, and return whether it succeeded.

        With ``fails`` the first batch fails. Raises :class:`BrokenPromiseError` if the run broke a
        promise.
        """
        world, checkpoint = self._world, self._world.truth.checkpoint(self.name)
        life = self.life = Life(asked, None, "", bool(self.offsets))  # type: ignore[arg-type]
        life.todo = "plan"
        self._must_be_told(life)
        seen = self._seen(life)
        known = dict(checkpoint.met)
        for log, each in seen.items():
            checkpoint.met.setdefault(log, each.met(self._rule(life, log, joined=True), each.marks))
        if self.begins_anew:
            self._may_leave_out_what_was_received(
                {log: each for log, each in seen.items() if log in known}
            )
        if asked.read_mode == "receive":
            checkpoint.consumers.add(asked.consumer)
        error = self._runs_of_spark(asked, fails=fails)
        self._look_at_the_logs(asked, known)
        if self._broken is not None:
            raise self._broken
        if error is not None:
            world.note(f"  {self.name} ends: {str(error).splitlines()[0][:300]}")
            if fails and "_KilledError" in str(error):
                world.happened["a query was killed in its first batch"] += 1
            else:
                self._judge_end(life, _error_of_ours(str(error)))
            return False
        self._should_have_told(life)
        if asked.read_mode == "receive":
            world.truth.planned(
                self.name, asked.consumer, {log for log in seen if asked.names(log)}
            )
        return True

    def _runs_of_spark(self, asked: Asked, *, fails: bool) -> Exception | None:
        world = self._world

        def take(batch: DataFrame, number: int) -> None:
            rows = batch.select("queue_manager", "queue", "sequence", "label").collect()
            try:
                found = [world.row(*each) for each in rows]
                world.note(
                    f"  {self.name} reads batch {number}: {', '.join(map(str, found)) or 'nothing'}"
                )
                world.truth.read(self.name, number, found)
                world.happened["rows were read"] += len(found)
            except BrokenPromiseError as error:
                self._broken = error
                raise
            if fails:
                raise _KilledError

        options = asked.spark_options(world)
        if "maxOffsetsPerTrigger" in options and not asked.available_now:
            del options["maxOffsetsPerTrigger"]
        frame = self._spark.readStream.format("srmp").options(**options).load()
        writer = frame.writeStream.foreachBatch(take).option(
            "checkpointLocation", str(self._checkpoint)
        )
        query = (writer.trigger(availableNow=True) if asked.available_now else writer).start()
        has_ended = True
        try:
            if asked.available_now:
                has_ended = bool(query.awaitTermination(RUN_SECONDS))
            else:
                query.processAllAvailable()
        # Spark wraps errors in exceptions of many types.
        except Exception as error:
            return error
        finally:
            query.stop()
        return None if has_ended else TimeoutError(f"it has not ended after {RUN_SECONDS} s")

    def _look_at_the_logs(self, asked: Asked, known: dict[Log, Met]) -> None:
        """Read Spark's offset log and commit log, and report new commits to the model.

        ``known`` are the queues that the query had met before the run.
        """
        checkpoint = self._world.truth.checkpoint(self.name)
        self.offsets = [
            _last_line(self._checkpoint / "offsets" / str(n))
            for n in _numbers(self._checkpoint / "offsets")
        ]
        for number in _numbers(self._checkpoint / "commits"):
            if number not in self.commits:
                self.commits.add(number)
                consumer = asked.consumer if asked.read_mode == "receive" else None
                self._world.truth.committed(self.name, number, consumer)
        offset = self.offsets[-1] if self.offsets else {"qm": {}}
        stands_in = {
            self._world.log_of(guid, queue)
            for guid, epochs in offset["qm"].items()
            for queues in epochs.values()
            for queue in queues
        }
        checkpoint.met = {
            log: met for log, met in checkpoint.met.items() if log in known or log in stands_in
        }


def _numbers(folder: Path) -> list[int]:
    return sorted(int(each.name) for each in folder.glob("*") if each.name.isdigit())


def _last_line(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text().splitlines()[-1])
    return found


def _error_of_ours(text: str) -> errors.SrmpSparkError:
    """Return an error of the class of srmp-spark that Spark's error text names."""
    for name in ("ConfigurationError", "DataLossError", "ApiUnreachableError"):
        if name in text:
            kind: type[errors.SrmpSparkError] = getattr(errors, name)
            return kind(text)
    return ApiError(409, "not-registered" if "not-registered" in text else "unknown", text, "")
