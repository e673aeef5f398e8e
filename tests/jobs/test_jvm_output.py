"""What Spark's JVM prints: its start is held and shown when the job fails, everything later is shown."""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import threading
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.interface import ExitCode
from srmp_spark.jobs import running
from srmp_spark.spark import jvm_output, session
from srmp_spark.spark.jvm_output import (
    HELD_LINES_MAX,
    LINE_BYTES_MAX,
    START_PATIENCE_SECONDS,
    JvmOutput,
)

ROOT = Path(__file__).resolve().parents[2]
CHATTER = ":: loading settings :: url = jar:file:/somewhere/ivy.jar"
TRACE = (
    "26/11/27 01:00:00 ERROR MicroBatchExecution: Query [id = 1, runId = 2] terminated with error\n"
    "org.apache.spark.SparkException: no\n"
    "\tat org.apache.spark.Somewhere.go(Somewhere.scala:1)"
)


def prints(output: JvmOutput, text: str) -> None:
    """Print as the JVM does: a process of its own that has the pipe as stderr."""
    subprocess.run(["cat", "-"], input=text.encode(), stdout=output.fileno(), check=True)


@pytest.fixture
def shown() -> list[str]:
    return []


def test_a_start_is_held_and_what_follows_is_shown(shown: list[str]) -> None:
    with JvmOutput(shown.append) as output:
        prints(output, f"{CHATTER}\n26/11/27 01:00:00 WARN Utils: a host name\n")
        keeps = os.dup(output.fileno())
        output.started()
        assert shown == []
        os.write(keeps, b"26/11/27 01:00:09 ERROR TaskSetManager: a task failed\n\tat X\n")
        output.settle()
        assert shown == ["26/11/27 01:00:09 ERROR TaskSetManager: a task failed", "\tat X"]
        os.write(keeps, f"{TRACE}\n26/11/27 01:00:10 ERROR Other: next\n".encode())
        output.settle()
        assert shown[2:] == ["26/11/27 01:00:10 ERROR Other: next"], "the job tells that error"
        output.show_held()
        assert shown[3] == CHATTER
        assert shown[5:] == TRACE.splitlines()
        os.close(keeps)


def test_a_start_that_takes_long_says_what_it_does(shown: list[str]) -> None:
    clock = [0.0]
    with JvmOutput(shown.append, lambda: clock[0]) as output:
        prints(output, "downloading https://repo1.example/delta.jar ...\n\n")
        output.settle()
        assert shown == []
        clock[0] = START_PATIENCE_SECONDS + 1
        prints(output, "\n")
        output.settle()
        newest = "downloading https://repo1.example/delta.jar ..."
        assert shown == [f"Spark is still starting after 31 s; its newest line: {newest}"]
        prints(output, "\n")
        output.settle()
        assert len(shown) == 1, "once in half a minute"


def test_a_long_start_is_told_without_a_new_line_too(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm_output, "START_PATIENCE_SECONDS", 0.05)
    told = threading.Event()

    def show(line: str) -> None:
        shown.append(line)
        told.set()

    with JvmOutput(show):
        assert told.wait(20)
    assert shown[0].endswith("its newest line: nothing yet")


def test_what_is_held_is_bounded_and_keeps_the_newest(shown: list[str]) -> None:
    with JvmOutput(shown.append) as output:
        prints(output, "".join(f"line {n}\n" for n in range(HELD_LINES_MAX + 10)))
        output.show_held()
        assert shown[:2] == ["(10 older lines of Spark are left out)", "line 10"]
        assert len(shown) == HELD_LINES_MAX + 1
        prints(output, "x" * 1_000_000)
        output.settle()
        assert len(output._rest) <= LINE_BYTES_MAX


def test_a_closed_stderr_does_not_stop_the_jvm() -> None:
    """More than a pipe has room for, into a stderr that nobody can write to."""

    def closed(_: str) -> None:
        raise BrokenPipeError

    with JvmOutput(closed) as output:
        keeps = os.dup(output.fileno())
        output.started()
        os.write(keeps, b"x\n" * 20_000)
        os.write(keeps, b"x\n" * 20_000)
        os.write(keeps, b"x\n" * 20_000)
        os.close(keeps)


# --- a job's session ------------------------------------------------------------------------------


class FakeSession:
    def stop(self) -> None:
        """End."""


def a_job(
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
    *,
    at_start: bool = False,
    verbose: bool = False,
) -> tuple[int, str, dict[str, Any]]:
    """Exit code and stderr of a job whose Spark prints chatter, and the arguments of the session."""
    given: dict[str, Any] = {}

    def delta_session(*_: object, **more: Any) -> FakeSession:
        given.update(more)
        if more["output"] is not None:
            prints(more["output"], f"{CHATTER}\n")
        if at_start and error is not None:
            raise error
        return FakeSession()

    def work() -> running.JobOutcome:
        with running.spark_session("srmp replay", argparse.Namespace(master=None, verbose=verbose)):
            if error is not None:
                raise error
        return running.JobOutcome()

    monkeypatch.setattr(session, "delta_session", delta_session)
    monkeypatch.setattr(running, "needs", lambda _: None)
    with redirect_stderr(io.StringIO()) as printed:
        code = running.run_job("replay", work)
    return code, printed.getvalue(), given


def test_a_job_that_ends_well_prints_no_chatter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed, given = a_job(monkeypatch, None)
    assert code == ExitCode.DONE
    assert CHATTER not in printed
    assert given["log_level"] == "ERROR"
    assert json.loads(capsys.readouterr().out)["status"] == "done"


@pytest.mark.parametrize("at_start", [True, False])
def test_a_job_that_spark_fails_shows_what_was_hidden(
    monkeypatch: pytest.MonkeyPatch, at_start: bool
) -> None:
    code, printed, _ = a_job(monkeypatch, RuntimeError("no class Delta"), at_start=at_start)
    assert code == ExitCode.CHECK_FAILED
    assert printed.splitlines()[-2:] == [CHATTER, "replay: no class Delta"]


def test_an_error_of_this_package_says_all_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (
        ConfigurationError("a wrong table"),
        RuntimeError("Traceback\nsrmp_spark.errors.ConfigurationError: a wrong table\n"),
    ):
        _, printed, _ = a_job(monkeypatch, error)
        assert CHATTER not in printed
        assert printed.splitlines()[-1] == "replay: a wrong table"


def test_verbose_leaves_stderr_to_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, given = a_job(monkeypatch, None, verbose=True)
    assert given == {"output": None, "log_level": "WARN"}


@pytest.mark.parametrize("more", [[], ["--verbose"]])
def test_a_jvm_that_does_not_start_is_told_with_what_it_printed(
    more: list[str], tmp_path: Path
) -> None:
    """The real job and Spark's real launcher, with a Java that fails."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/bash\n"
        'if [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; exit 0; fi\n'
        "echo 'Error: Could not create the Java Virtual Machine.' >&2; exit 1\n"
    )
    java.chmod(0o755)
    table = tmp_path / "table" / "_delta_log"
    table.mkdir(parents=True)
    ours = ("PYSPARK_", "SRMP_SPARK_", "SPARK_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "jobs" / "replay.py"), "--table", str(table.parent),
         "--queue-manager", "http://127.0.0.1:9", "--destination", "DIRECT=http://a.example/msmq/b",
         *more],
        env=environment | {"JAVA_HOME": str(tmp_path / "java"), "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == ExitCode.CHECK_FAILED
    assert "Error: Could not create the Java Virtual Machine." in done.stderr
    assert done.stderr.splitlines()[-1].startswith("replay: [JAVA_GATEWAY_EXITED]")
    assert json.loads(done.stdout)["status"] == "failed"
