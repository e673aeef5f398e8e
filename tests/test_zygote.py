"""A program that the zygote forks is the program that a fresh interpreter would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.zygote import ForkingPopen

PROGRAM = [sys.executable, "-m", "srmp_spark.cli"]


def run(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, **more)  # type: ignore[call-overload,no-any-return]


def test_both_say_the_same_and_end_the_same() -> None:
    forked = run("nonsense")
    fresh = run("nonsense", env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert (forked.returncode, forked.stdout, forked.stderr) == (2, "", fresh.stderr)
    assert fresh.returncode == 2


def test_a_program_has_its_own_arguments_environment_and_directory(tmp_path: Path) -> None:
    given = run("queues", env={**os.environ, "SRMP_SPARK_API": "http://127.0.0.1:9"}, cwd=tmp_path)
    assert given.returncode == 3
    assert "127.0.0.1:9" in given.stderr
    assert run("--help").stdout.startswith("usage: srmp-spark")


def test_what_would_be_another_program_is_a_fresh_interpreter(tmp_path: Path) -> None:
    forked = subprocess.Popen([*PROGRAM, "--help"], stdout=subprocess.DEVNULL)
    strange = subprocess.Popen(
        [*PROGRAM, "--help"],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONHASHSEED": "1"},
    )
    other = subprocess.Popen([sys.executable, "-c", "pass"])
    assert [isinstance(each, ForkingPopen) for each in (forked, strange, other)] == [True] * 3
    assert [each._status is not None for each in (forked, strange, other)] == [True, False, False]
    assert [each.wait(30) for each in (forked, strange, other)] == [0, 0, 0]


def test_a_queue_manager_is_killed_waited_for_and_ended(tmp_path: Path) -> None:
    with RunningQueueManager(tmp_path / "data") as running:
        process = running.process
        assert process is not None
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        running.kill9()
        assert process.returncode == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
        running.restart()
        assert running.stop() == 0
