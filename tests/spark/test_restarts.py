"""T10 of the reliability report: the driver, or a Python process of an executor or of the source, is killed at named points.

A proxy in front of the API sees each call of the query and a look at checkpoint and table sees what lies between them; the kill
comes at that moment, and what is left behind shows whether it came at the point that was meant. Short here: only processes of
Python are killed, in the session of the tests; the driver dies at random moments in ``acceptance/test_kill_ingest.py``.
``make restarts KILLS=200`` kills ``jobs/ingest.py`` so often at each point.
"""

from __future__ import annotations

import enum
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import deltalake
import pytest
from api_proxy import ApiProxy, When, kill_peer
from pipeline_kit import Pipeline

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.demo.query import Query
from tests.kit.oracle import Oracle, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROUNDS = int(os.environ.get("SRMP_SPARK_RESTARTS", "0"))
"""Kills at each point; 0: the long version does not run."""
SEED = int(os.environ.get("SRMP_SPARK_RESTART_SEED", "1"))
JOB = Path(__file__).resolve().parents[2] / "jobs" / "ingest.py"
QUEUE = "private$/orders"
FIRST_BATCH_SECONDS = 60.0
"""From a restart to its first batch, in 99 of 100 restarts: a machine that does something else as well stalls now and then."""
ROUND_SECONDS = 240
TRIES = 4
"""A kill that came too late is not counted, and tried again so often."""
LOOK_SECONDS = 0.002
TRICK_EVERY = 5
"""So often the last file of ``commits`` is removed as well."""
CHECK_EVERY = 20


class Point(enum.Enum):
    """Where a kill finds a batch."""

    PLANNED = "offsets/N is there, no row was asked for"
    READING = "rows were asked for, Delta has none of them"
    COMMITTED = "Delta has them, commits/N is not there"
    LOGGED = "commits/N is there, the source was told nothing"
    MARKING = "the source is being told"


class Left(NamedTuple):
    """What a kill leaves behind."""

    planned: int
    logged: int
    rows: int


def highest(folder: Path) -> int:
    return max((int(file.name) for file in folder.glob("*") if file.name.isdigit()), default=-1)


class Job:
    """``jobs/ingest.py`` on one queue, through the proxy, and somebody who kills it."""

    def __init__(self, qm: RunningQueueManager, directory: Path) -> None:
        self.client = QueueManagerClient(qm.api)
        self.proxy = ApiProxy(qm.api)
        self.query = Query(JOB, directory, self.proxy.url, QUEUE)
        self.checkpoint = directory / "checkpoint"
        self.sent = 0
        self.calls: Counter[str] = Counter()
        self.first_batches: list[float] = []
        """Seconds from each start to its first batch, of those that had one."""
        self.proxy.watch = self._count

    def _count(self, when: When, path: str, port: int) -> None:
        if when == "before":
            self.calls[path.partition("?")[0].rpartition("/")[2]] += 1

    def send(self, rows: int) -> None:
        labels = [{"label": str(self.sent + n + 1), "delivery": "recoverable"} for n in range(rows)]
        self.client.send(QUEUE, labels)
        self.sent += rows

    def left(self) -> Left:
        return Left(
            highest(self.checkpoint / "offsets"),
            highest(self.checkpoint / "commits"),
            sum(1 for _ in self.labels()),
        )

    def labels(self) -> Iterator[str]:
        if deltalake.DeltaTable.is_deltatable(str(self.query.table)):
            yield from (
                deltalake.DeltaTable(str(self.query.table))
                .to_pyarrow_table(columns=["label"])["label"]
                .to_pylist()
            )

    def verdict(self) -> Verdict:
        oracle = Oracle()
        for number in range(1, self.sent + 1):
            oracle.sent(str(number))
            oracle.acknowledged(str(number))
        for label in self.labels():
            oracle.landed(label)
        return oracle.verdict()

    def start(self) -> None:
        """Start it, and see it take what is there, until the source was told of the last batch."""
        self.query.start()
        begun, before = time.monotonic(), highest(self.checkpoint / "commits")
        began = False
        while True:
            took = time.monotonic() - begun
            if not began and highest(self.checkpoint / "commits") > before:
                began = True
                self.first_batches.append(took)
            [entry] = [each for each in self.client.queues() if each["name"] == QUEUE]
            if entry["received"] == self.sent:
                break
            self.query.check()
            assert took < ROUND_SECONDS, f"not done in {took:.0f} s; see {self.query.log}"
            time.sleep(0.1)

    def slow(self) -> float:
        """What 99 of 100 starts needed at most."""
        return sorted(self.first_batches)[-1 - len(self.first_batches) // 100]

    def kill(self) -> None:
        """The driver: its Python, its JVM and all that they started."""
        assert self.query.process is not None
        os.killpg(self.query.process.pid, signal.SIGKILL)

    def ended(self) -> None:
        assert self.query.process is not None
        self.query.process.wait(ROUND_SECONDS)

    def die_at(self, point: Point, dice: random.Random) -> bool:
        """Send something and kill at ``point``; whether what is left behind shows that it was there."""
        before = self.left()
        commits = len(list((self.query.table / "_delta_log").glob("*.json")))
        self.calls.clear()
        done = threading.Event()

        def struck(strike: Callable[[], object]) -> None:
            if not done.is_set():
                done.set()
                strike()

        def watch(when: When, path: str, port: int) -> None:
            self._count(when, path, port)
            name = "/rows?" if point is Point.READING else "/received"
            if name in path and when == moment:
                struck(self.kill if driver else lambda: kill_peer(port))

        moment: When = dice.choice(("before", "after"))
        driver = point not in (Point.READING, Point.MARKING) or dice.random() < 0.5
        signs: dict[Point, Callable[[], bool]] = {
            Point.PLANNED: lambda: highest(self.checkpoint / "offsets") > before.planned,
            Point.COMMITTED: lambda: (
                len(list((self.query.table / "_delta_log").glob("*.json"))) > commits
            ),
            Point.LOGGED: lambda: highest(self.checkpoint / "commits") > before.logged,
        }
        if point not in signs:
            self.proxy.watch = watch
        self.send(dice.randint(1, 30))
        deadline = time.monotonic() + ROUND_SECONDS
        while not done.is_set():
            assert time.monotonic() < deadline, f"{point.name} never came; see {self.query.log}"
            if point in signs and signs[point]():
                struck(self.kill)
            time.sleep(LOOK_SECONDS)
        self.ended()
        self.proxy.watch = self._count
        left = self.left()
        planned, logged, landed = (
            left.planned > before.planned,
            left.logged > before.logged,
            left.rows > before.rows,
        )
        return {
            Point.PLANNED: planned and not logged and not landed and not self.calls["rows"],
            Point.READING: planned and not logged and not landed and self.calls["rows"] > 0,
            Point.COMMITTED: planned and not logged and landed,
            Point.LOGGED: logged and landed and not self.calls["received"],
            Point.MARKING: logged and landed and self.calls["received"] > 0,
        }[point]

    def forget_the_last_commit(self) -> None:
        last = highest(self.checkpoint / "commits")
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)


@pytest.mark.skipif(not ROUNDS, reason="hours: make restarts KILLS=200")
@pytest.mark.timeout((ROUNDS + 1) * len(Point) * TRIES * ROUND_SECONDS)
def test_a_killed_job_loses_and_doubles_nothing(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    hits: Counter[str] = Counter()
    restarts = 0
    with RunningQueueManager(tmp_path / "data", queues=[QUEUE]) as qm:
        job = Job(qm, tmp_path)
        job.send(10)
        job.start()
        try:
            for number in range(ROUNDS * len(Point)):
                point = list(Point)[number % len(Point)]
                for _ in range(TRIES):
                    hit = job.die_at(point, dice)
                    if dice.randrange(TRICK_EVERY) == 0:
                        job.forget_the_last_commit()
                    job.start()
                    restarts += 1
                    if hit:
                        break
                else:
                    pytest.fail(f"{point.name} was missed {TRIES} times, seed {SEED}")
                hits[point.name] += 1
                if number % CHECK_EVERY == 0:
                    verdict = job.verdict()
                    assert verdict.clean, f"seed {SEED}, after {restarts} restarts: {verdict}"
                    print(
                        f"{restarts} restarts, {dict(hits)}; first batch after "
                        f"{job.slow():.1f} s at most",
                        flush=True,
                    )
        finally:
            job.query.stop()
            job.proxy.close()
        verdict = job.verdict()
    print(
        f"{restarts} restarts, seed {SEED}: {dict(hits)}, {job.sent} messages: {verdict}; "
        f"first batch {job.slow():.1f} s"
    )
    assert verdict.clean
    assert job.slow() <= FIRST_BATCH_SECONDS


@pytest.fixture(scope="module")
def qm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(tmp_path_factory.mktemp("qm") / "data") as running:
        yield running


def test_a_process_of_the_query_is_killed_in_the_middle_of_a_call(
    spark: SparkSession, qm: RunningQueueManager, tmp_path: Path
) -> None:
    """The one that reads rows on an executor; the one that tells the source how far the query has come."""
    proxy = ApiProxy(qm.api)
    pipeline = Pipeline(spark, proxy.url, tmp_path)
    killed: list[bool] = []
    try:
        for call, moment in (("/rows?", "after"), ("/received", "before")):
            killed.clear()

            def watch(
                when: When, path: str, port: int, call: str = call, moment: str = moment
            ) -> None:
                if call in path and when == moment and not killed:
                    killed.append(kill_peer(port))

            proxy.watch = watch
            pipeline.send(15)
            with pytest.raises(Exception, match=r"."):
                pipeline.ingest()
            assert killed == [True]
            assert not pipeline.verdict().doubled, f"{moment} {call}"
        pipeline.send(5)
        pipeline.ingest()
        pipeline.check()
    finally:
        proxy.close()
