"""Several ``jobs/ingest.py`` and one table: one for each queue manager works, a second one for the same queues is refused.

Real processes; what the table's claims do in detail is in ``test_exactly_once.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import deltalake
import pytest

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.interface import ExitCode
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.demo.query import Query

pytestmark = pytest.mark.spark
JOB = Path(__file__).resolve().parents[2] / "jobs" / "ingest.py"
QUEUE = "private$/orders"
WAIT_SECONDS = 240.0
"""For a JVM to start and to land what waits, on a busy machine."""


class OfOneTable(Query):
    """A job whose table is that of others too."""

    @property
    def table(self) -> Path:
        return self.directory.with_name("table")


@pytest.fixture
def managers(tmp_path: Path) -> Iterator[list[RunningQueueManager]]:
    with (
        RunningQueueManager(tmp_path / "qm-a", queues=[QUEUE]) as a,
        RunningQueueManager(tmp_path / "qm-b", queues=[QUEUE]) as b,
    ):
        yield [a, b]


@pytest.fixture
def jobs(managers: list[RunningQueueManager], tmp_path: Path) -> Iterator[list[OfOneTable]]:
    made = []
    for running in managers:
        folder = tmp_path / f"job-{len(made)}"
        folder.mkdir()
        made.append(OfOneTable(JOB, folder, running.api, QUEUE))
    yield made
    for job in made:
        job.stop()


def send(running: RunningQueueManager, count: int) -> None:
    QueueManagerClient(running.api).send(QUEUE, [{"label": "x"}] * count)


def landed(job: Query) -> Counter[tuple[str, int]]:
    if not deltalake.DeltaTable.is_deltatable(str(job.table)):
        return Counter()
    rows = (
        deltalake.DeltaTable(str(job.table))
        .to_pyarrow_table(columns=["queue_manager", "sequence"])
        .to_pylist()
    )
    return Counter((row["queue_manager"], row["sequence"]) for row in rows)


def wait(condition: Callable[[], bool], *jobs: Query) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        for job in jobs:
            job.check()
        assert time.monotonic() < end, [job.log.read_text()[-2000:] for job in jobs]
        time.sleep(0.2)


def all_of(managers: list[RunningQueueManager], *counts: int) -> Counter[tuple[str, int]]:
    pairs = zip(managers, counts, strict=True)
    return Counter(
        (running.guid, number) for running, count in pairs for number in range(1, count + 1)
    )


def run_another(
    api: str, table: Path, checkpoint: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A job that is started once more by mistake."""
    return subprocess.run(
        [sys.executable, str(JOB), "--queue-manager", api, "--queue", QUEUE, "--table", str(table),
         "--checkpoint", str(checkpoint), "--available-now", "--master", "local[1]"],
        capture_output=True, text=True, timeout=WAIT_SECONDS, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def assert_refused(done: subprocess.CompletedProcess[str], table: Path, holder: str) -> None:
    assert done.returncode == ExitCode.IN_USE, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "job": "ingest",
        "rows": 0,
        "batches": 0,
        "status": "failed",
    }
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"ingest: consumer default is held by {holder}")
    assert f", which goes on; this job has not touched {table}. Stop that receiver first" in told


@contextmanager
def held(running: RunningQueueManager, holder: str) -> Iterator[None]:
    """Somebody has the lease of the default consumer, and renews it."""
    over = threading.Event()

    def hold() -> None:
        client = QueueManagerClient(running.api)
        while not over.is_set():
            client.register(QUEUE, "default", epoch=running.epoch, first=None, holder=holder)
            over.wait(1.0)

    thread = threading.Thread(target=hold)
    thread.start()
    yield
    over.set()
    thread.join()


def test_a_job_is_refused_while_another_holds_its_consumer(
    tmp_path: Path, jvm: dict[str, str]
) -> None:
    with (
        RunningQueueManager(tmp_path / "qm", queues=[QUEUE]) as running,
        held(running, "another job"),
    ):
        send(running, 1)
        done = run_another(running.api, tmp_path / "table", tmp_path / "checkpoint", **jvm)
        assert_refused(done, tmp_path / "table", "another job")
    assert not (tmp_path / "table").exists()


@pytest.mark.long  # four JVMs, three of them at once
@pytest.mark.timeout(900)
def test_one_job_for_each_queue_manager_and_a_second_one_for_the_same_is_refused(
    managers: list[RunningQueueManager], jobs: list[OfOneTable], tmp_path: Path
) -> None:
    first, second = jobs
    for running in managers:
        send(running, 20)
    for job in jobs:
        job.start()
    wait(lambda: landed(first) == all_of(managers, 20, 20), *jobs)

    # kill -9 in the middle of the rows of one; the other goes on
    send(managers[0], 2000)
    batches = first.batches()
    wait(lambda: first.batches() > batches or sum(landed(first).values()) > 40, second)
    first.kill9()
    send(managers[1], 30)
    wait(lambda: all_of(managers, 0, 50) <= landed(first), second)

    # the job that was killed comes back, and another one for the queue of the second tries to read
    send(managers[0], 30)
    first.start()
    refused = run_another(managers[1].api, second.table, tmp_path / "another")
    assert_refused(refused, second.table, "Spark query, consumer default of ")
    wait(lambda: all_of(managers, 2050, 50) <= landed(first), *jobs)

    # nobody was harmed: both write on, and each row is there once
    for running in managers:
        send(running, 5)
    wait(lambda: all_of(managers, 2055, 55) <= landed(first), *jobs)
    assert landed(first) == all_of(managers, 2055, 55)
    names = [f"srmp-ingest:{QUEUE},queue-manager/{running.guid}" for running in managers]
    table = deltalake.DeltaTable(str(second.table))
    assert all(table.transaction_version(name) is not None for name in names)
