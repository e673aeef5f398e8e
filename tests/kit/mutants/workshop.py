"""Plant mutants in copies of the project, run the tests of their rows, and return verdicts.

Each copy has one warm process (:mod:`.warm`). The files of the package are compiled once with the
hashes of their texts, so that a changed file is compiled again and every other file is not.
"""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tests.kit.musts import ROOT
from tests.kit.mutants.mutant import PACKAGE, Mutant

COPIED = (
    PACKAGE,
    "tests",
    "docs",
    "conf",
    "jobs",
    "benchmarks",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
)
"""The files and folders of the project that the tests need. Everything else may be large."""
TESTS_SECONDS_MIN = 60.0
"""Least time, in seconds, that the tests of a mutant get.

A mutant may make a test wait until the test's own deadline.
"""
TESTS_TIMES_MAX = 10.0
"""Most time that the tests of a mutant get, as a multiple of their time without a mutant."""
BASELINE_SECONDS = 1800.0
"""Longest run, in seconds, of all tests without a mutant."""


class Verdict(Enum):
    """What the named tests of one row said to a mutant."""

    KILLED = "killed"
    """A test failed, or the tests did not end."""
    SURVIVED = "survived"
    """Every test passed."""
    NOT_RUN = "not run"
    """pytest could not run the tests, which proves nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict about one mutant in one of its rows; ``words`` is pytest's last line."""

    row: str
    mutant: Mutant
    verdict: Verdict
    words: str


class Copy:
    """One copy of the project in an empty folder, with its warm process."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder = folder
        for name in COPIED:
            if (root / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(root / name, folder / name, ignore=ignored)
            elif (root / name).exists():
                shutil.copy(root / name, folder / name)
        compileall.compile_dir(
            folder / PACKAGE,
            quiet=1,
            invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH,
        )
        # The command is this interpreter with a program of this project.
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, str(Path(__file__).with_name("warm.py"))],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def tests(
        self, tests: Sequence[str], seconds: float, *, stop: bool = True, keep: bool = False
    ) -> dict[str, Any]:
        """Run ``tests`` for at most ``seconds``, and return the answer of :mod:`.warm`.

        ``stop`` ends the run at the first failure. ``keep`` imports the libraries of this run for
        all later ones. Raises :class:`RuntimeError` if the warm process has ended.
        """
        request = {"tests": list(tests), "seconds": seconds, "stop": stop, "keep": keep}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the warm process has ended: run tests/kit/mutants/warm.py by hand")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def judged(
        self,
        mutant: Mutant,
        named: Mapping[str, Sequence[str]],
        durations: Mapping[str, float],
    ) -> list[Outcome]:
        """Plant a mutant, run the tests that ``named`` has for its rows, and remove it again.

        Quick tests run first, by their ``durations`` without a mutant. A mutant of several rows is
        judged for each of them.
        """
        path = self.folder / PACKAGE / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutant.planted_in(text), encoding="utf-8")
        found = []
        try:
            for row in mutant.rows:
                tests = sorted(named[row], key=lambda test: durations.get(test, 0.0))
                wanted = TESTS_TIMES_MAX * sum(durations.get(test, 0.0) for test in tests)
                answer = self.tests(tests, max(TESTS_SECONDS_MIN, wanted))
                found.append(Outcome(row, mutant, verdict(answer), answer["words"]))
        finally:
            path.write_text(text, encoding="utf-8")
        return found


def verdict(answer: Mapping[str, Any]) -> Verdict:
    """Return the verdict of an answer of :mod:`.warm`.

    A module of tests that could not be imported is a failure: the mutant broke an import.
    """
    if answer["code"] in (None, 1) or answer["failed"]:
        return Verdict.KILLED
    return Verdict.SURVIVED if answer["code"] == 0 else Verdict.NOT_RUN
