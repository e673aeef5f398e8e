"""Fails a run of the whole suite in which a test that docs/MUSTS.md, MUSTS_MQRR.md or MUSTS_WSRVCRM.md names did not pass.

The pages say of each sentence of a document which tests fail when it is broken. A name alone proves nothing: the test may
have been renamed, be skipped everywhere, or not be collected at all. So the process that gathers the reports (with
pytest-xdist the controller, which runs no test itself) notes what became of each named test, and at the end of a *whole* run
one that did not pass makes the exit code 1. In a run of a part of the suite nothing is asked for; ``make test``, which leaves
the long tests out, counts as whole: a sentence needs a test that is not long.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.musts import Table
from tests.long_samples import NOT_LONG

CACHE_KEY = "musts/"
"""Where pytest's cache has the sentences without proof for a reason other than a failed test: a key for each document."""

NARROWING = (
    "keyword",
    "deselect",
    "ignore",
    "ignore_glob",
    "lf",
    "collectonly",
    "setuponly",
    "setupplan",
)
"""Options of pytest, each by its name in ``config.option``, after which it is not the whole suite that runs."""


class MustsGate:
    """The plugin; :mod:`tests.conftest` registers it."""

    def __init__(self, table: Table, suite: Path) -> None:
        """``suite`` is the folder of all tests."""
        self._document = table.document.name
        self._wanted = table.tests()
        self._suite = suite
        self._passed: set[str] = set()
        self._failed: set[str] = set()
        self._skipped: dict[str, set[str]] = {}
        self._faults: list[str] = []

    # --- what pytest tells ------------------------------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid.partition("[")[0].partition("@")[0]  # pytest-xdist adds @GROUP
        if test not in self._wanted:
            return
        if report.failed:
            self._failed.add(test)
        elif report.skipped:
            place = report.longrepr  # (file, line, reason)
            reason = place[2] if isinstance(place, tuple) else "an expected failure"
            self._skipped.setdefault(test, set()).add(reason)
        elif report.when == "call":
            self._passed.add(test)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
        ) or not self.is_whole(session):
            return
        self._faults = self.faults()
        cache = getattr(
            session.config, "cache", None
        )  # for tests/again.py: what no second run of a test mends
        if cache is not None:
            for_good = [
                fault for fault in self._faults if fault.partition(" ")[0] not in self._failed
            ]
            cache.set(CACHE_KEY + self._document, for_good)
        if self._faults:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._faults:
            terminalreporter.section(f"sentences of [{self._document}] without proof", red=True)
            for fault in self._faults:
                terminalreporter.line(fault, red=True)
            terminalreporter.line(
                "Mend the test, or what docs/musts says of the sentence, and run make docs-musts."
            )

    # --- what it makes of it ----------------------------------------------------------------------------------------------

    def is_whole(self, session: pytest.Session) -> bool:
        """Whether everything was asked for and nothing stopped it."""
        config = session.config
        if (
            any(getattr(config.option, name, None) for name in NARROWING)
            or session.shouldstop
            or session.shouldfail
        ):
            return False
        if getattr(config.option, "markexpr", "") not in ("", NOT_LONG):
            return False
        folders = [(config.invocation_params.dir / argument).resolve() for argument in config.args]
        return any(self._suite == folder or folder in self._suite.parents for folder in folders)

    def faults(self) -> list[str]:
        """A line for each named test that did not pass."""
        found = []
        for test, sentences in self._wanted.items():
            ids = ", ".join(sentence.id for sentence in sentences[:5]) + (
                " …" if len(sentences) > 5 else ""
            )
            may_skip = {sentence.may_skip for sentence in sentences if sentence.may_skip}
            unexcused = {
                r for r in self._skipped.get(test, ()) if not any(text in r for text in may_skip)
            }
            if test in self._failed:
                found.append(f"{test} failed ({ids})")
            elif unexcused:
                found.append(f"{test} was skipped, {'; '.join(sorted(unexcused))} ({ids})")
            elif test not in self._passed and test not in self._skipped:
                found.append(f"{test} did not run ({ids})")
        return found
