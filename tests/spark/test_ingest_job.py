"""jobs/ingest.py as a command: python, spark-submit, signals, exit codes, the last line of stdout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import deltalake
import pyspark
import pytest

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager

pytestmark = pytest.mark.spark
JOB = Path(__file__).resolve().parents[2] / "jobs" / "ingest.py"
QUEUE = "private$/orders"
OF_THE_JVM = "SPARK_SUBMIT_OPTS"
"""The options of each JVM: where its classes come mapped from (``make test``)."""


@pytest.fixture(scope="module")
def qm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(tmp_path_factory.mktemp("qm") / "data", queues=[QUEUE]) as running:
        yield running


def environment(**more: str) -> dict[str, str]:
    """A user's shell: nothing of ours is set."""
    ours = ("PYSPARK_", "SRMP_SPARK_", "PYTHONPATH", "SPARK_")
    given = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(ours) or key == OF_THE_JVM
    }
    return given | more


def command(qm_url: str, directory: Path, *more: str) -> list[str]:
    places = ["--table", str(directory / "table"), "--checkpoint", str(directory / "checkpoint")]
    return [str(JOB), "--queue-manager", qm_url, "--queue", "private$/*", *places, *more]


def landed(directory: Path) -> list[int]:
    if not deltalake.DeltaTable.is_deltatable(str(directory / "table")):
        return []
    table = deltalake.DeltaTable(directory / "table").to_pyarrow_table(columns=["sequence"])
    return sorted(table.column("sequence").to_pylist())


@pytest.mark.timeout(450)
def test_as_a_program(qm: RunningQueueManager, tmp_path: Path) -> None:
    """From another folder, without PYSPARK_PYTHON."""
    client = QueueManagerClient(qm.api)
    client.send(QUEUE, [{"label": str(n)} for n in range(50)])
    python = [
        sys.executable,
        *command(
            qm.api,
            tmp_path,
            "--available-now",
            "--max-offsets-per-trigger",
            "20",
            "--master",
            "local[2]",
        ),
    ]
    code, printed, shown = on_a_terminal(python, tmp_path)
    assert code == 0, shown[-3000:]
    assert json.loads(printed) == {"job": "ingest", "rows": 50, "batches": 3, "status": "done"}
    assert landed(tmp_path) == list(range(1, 51))

    # Nothing of Spark, Ivy and the JVM; one line of progress, rewritten; what the table holds.
    lines = shown.replace("\r\n", "\n").rstrip("\n").split("\n")
    assert lines[0] == "ingest: starting Spark, which takes ten seconds or more"
    busy = "Spark is still starting after "  # a machine that has no time
    ours = (line for line in lines[1:-1] if " srmp_spark.jobs." not in line)
    assert [line for line in ours if not line.startswith(busy)] == []
    drawn = lines[-1].split("\r")
    assert len(drawn) > 3, "each half second"
    assert drawn[-1].startswith("50 rows  3 batches  ")
    assert drawn[-1].rstrip().endswith("0 rows wait")


def on_a_terminal(command: list[str], cwd: Path) -> tuple[int, str, str]:
    """Run a command whose stderr is a terminal. Returns its exit code, its stdout and what the terminal shows."""
    ours, theirs = os.openpty()
    shown = bytearray()

    def read() -> None:
        with suppress(OSError):  # the end of a terminal
            while got := os.read(ours, 10_000):
                shown.extend(got)

    reader = threading.Thread(target=read)
    reader.start()
    process = subprocess.Popen(
        command, env=environment(), cwd=cwd, stdout=subprocess.PIPE, stderr=theirs, text=True
    )
    os.close(theirs)
    printed, _ = process.communicate(timeout=400)
    reader.join(10)
    os.close(ours)
    return process.returncode, printed, shown.decode()


@pytest.mark.long  # two JVMs: that of spark-submit has no Delta; make demo starts jobs as programs too
@pytest.mark.timeout(450)
def test_under_spark_submit(tmp_path: Path) -> None:
    """Without Delta; it goes on until SIGTERM."""
    with RunningQueueManager(tmp_path / "qm", queues=[QUEUE]) as running:
        under_spark_submit(running, tmp_path)


def under_spark_submit(qm: RunningQueueManager, tmp_path: Path) -> None:
    QueueManagerClient(qm.api).send(QUEUE, [{"label": str(n)} for n in range(5)])
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    with_python = environment(PYSPARK_PYTHON=sys.executable)
    output = tmp_path / "output"
    arguments = [
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
        "--conf",
        "spark.kept=yes",
        *command(qm.api, tmp_path, "--trigger", "1 second"),
    ]
    with output.open("w") as file:
        job = subprocess.Popen(
            [submit, *arguments],
            env=with_python,
            cwd=tmp_path,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 200
        while landed(tmp_path) != list(range(1, 6)):
            assert job.poll() is None, output.read_text()[-3000:]
            assert time.monotonic() < deadline, output.read_text()[-3000:]
            time.sleep(0.5)
        (driver,) = [
            pid
            for pid, line in commands_below(job.pid)
            if "ingest.py" in line and "java" not in line
        ]
        # A JVM starts helpers that have "java" in their path.
        (jvm,) = [line for _, line in commands_below(driver) if "deploy.SparkSubmit" in line]
        assert "spark.kept=yes" in jvm, (
            "the settings of spark-submit go on into the JVM that has Delta"
        )
        assert "spark.master=local[2]" in jvm
        os.kill(driver, signal.SIGTERM)
        assert job.wait(timeout=60) == 0
    finally:
        job.kill()
    *lines, last = output.read_text().splitlines()
    assert any(" ingest 5 rows  1 batch  " in line for line in lines), "progress in a file is lines"
    assert json.loads(last) == {"job": "ingest", "rows": 5, "batches": 1, "status": "stopped"}
    assert landed(tmp_path) == list(range(1, 6))


def commands_below(pid: int) -> list[tuple[int, str]]:
    """All processes below one, each with its command line. One that ends while we look is not there."""
    found: list[tuple[int, str]] = []
    with suppress(OSError):  # /proc says ENOENT, or ESRCH where it had opened the file
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for child in (task / "children").read_text().split():
                    with suppress(OSError):
                        found.append((int(child), Path(f"/proc/{child}/cmdline").read_text()))
                    found += commands_below(int(child))
    return found


def test_a_wrong_queue_is_usage_and_makes_no_table(qm: RunningQueueManager, tmp_path: Path) -> None:
    job = command(
        qm.api,
        tmp_path,
        "--available-now",
        "--master",
        "local[1]",
        "--option",
        "maxOffsetPerTrigger=5",
    )
    done = subprocess.run(
        [sys.executable, *job], env=environment(), capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 2
    assert "did you mean 'maxOffsetsPerTrigger'?" in done.stderr.splitlines()[-1]
    assert json.loads(done.stdout.splitlines()[-1])["status"] == "failed"
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize("home", ["/nowhere", ""])
def test_a_missing_java_is_one_clear_line(tmp_path: Path, home: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    job = [sys.executable, *command("http://127.0.0.1:9", tmp_path, "--available-now")]
    where = environment(PATH=str(tmp_path / "bin")) | ({"JAVA_HOME": home} if home else {})
    if not home:
        where.pop("JAVA_HOME", None)
    done = subprocess.run(job, env=where, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "Java is missing" in done.stderr
    assert json.loads(done.stdout) == {"job": "ingest", "rows": 0, "batches": 0, "status": "failed"}


def test_usage(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(JOB), "--queue", "x"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "--queue-manager" in done.stderr
