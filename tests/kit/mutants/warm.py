"""Run tests again and again without importing the libraries each time.

This program is started by its path in a copy of the project, and never imports the product itself:
each request is a fork that imports the copy's modules as they are at that moment. The libraries
that the tests need are imported once, before the first fork.

A request is a line of JSON on the standard input: ``{"tests": [...], "seconds": 60, "stop":
true}``. The answer is a line of JSON on the standard output: ``{"code": 1, "failed": [...],
"durations": {...}, "words": "..."}``. ``code`` is pytest's exit code, or ``null`` if the tests were
not over after ``seconds``. ``stop`` ends the run at the first failure.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

OURS = ("srmp_spark", "tests", "benchmarks", "jobs", "conftest", "__main__")
"""First parts of the names of modules that belong to the project; they are never kept."""
NO_PYTEST = 70
"""Exit code of a fork in which pytest itself failed."""


class Outcomes:
    """A plugin of pytest that notes which tests failed, and how long each test took."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.durations: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of one phase of a test."""
        name = report.nodeid.partition("[")[0]
        self.durations[name] = self.durations.get(name, 0.0) + report.duration
        if report.failed and name not in self.failed:
            self.failed.append(name)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that cannot be imported: all its tests have failed."""
        if report.failed:
            self.failed.append(report.nodeid)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run the tests of a request in this process, and return the answer but for ``modules``."""
    outcomes, said = Outcomes(), io.StringIO()
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:srmp_spark", "-p", "no:randomly"]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    arguments += ["-x"] if request["stop"] else []
    with contextlib.redirect_stdout(said):
        code = int(pytest.main([*arguments, *request["tests"]], plugins=[outcomes]))
    lines = said.getvalue().strip().splitlines()
    return {
        "code": code,
        "failed": outcomes.failed,
        "durations": outcomes.durations,
        "words": lines[-1].strip("= ") if lines else "",
        "said": said.getvalue()[-4000:],
    }


def in_fork(request: dict[str, Any]) -> dict[str, Any]:
    """Run a request in a fork with a process group of its own, which ends with it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.setpgid(0, 0)
        # What the tests and their programs print is no answer.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        code = NO_PYTEST
        try:
            answer = run(request)
            answer["modules"] = [name for name in sys.modules if name.partition(".")[0] not in OURS]
            with os.fdopen(writing, "w") as pipe:
                pipe.write(json.dumps(answer))
            code = 0
        finally:
            # Threads and handlers of libraries must not keep the fork.
            os._exit(code)
    os.close(writing)
    return _awaited(pid, reading, request["seconds"])


def _awaited(pid: int, reading: int, seconds: float) -> dict[str, Any]:
    """Return the answer of a fork; the fork and its children are ended afterwards."""
    deadline, pieces = time.monotonic() + seconds, []
    with os.fdopen(reading, "rb") as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                answer: dict[str, Any] = {
                    "code": None,
                    "failed": [],
                    "durations": {},
                    "words": f"not over after {seconds} s",
                    "said": "",
                }
                break
            piece = os.read(pipe.fileno(), 1 << 16)
            pieces.append(piece)
            if not piece:
                text = b"".join(pieces)
                answer = (
                    json.loads(text)
                    if text
                    else {
                        "code": NO_PYTEST,
                        "failed": [],
                        "durations": {},
                        "words": "pytest itself failed",
                        "said": "",
                    }
                )
                break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return answer


def main() -> None:
    """Answer requests until the standard input ends."""
    sys.path.insert(0, str(Path.cwd()))
    for line in sys.stdin:
        request = json.loads(line)
        answer = in_fork(request)
        # A module that one run has needed is needed by others, too. Modules that start threads when
        # they are imported are harmless in a fork only if nobody uses those threads.
        for name in answer.pop("modules", ()) if request.get("keep") else ():
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
