"""Fails a run of the whole suite in which a test did not pass that a page of MUSTs names.

The pages are docs/MUSTS.md, MUSTS_MQRR.md and MUSTS_WSRVCRM.md. For each sentence of a document
they state which tests fail when the sentence is broken. A name alone proves nothing: the test may
have been renamed, be skipped everywhere, or not be collected at all. So the process that gathers
the reports records the result of each named test. With pytest-xdist this process is the controller,
which runs no test itself. At the end of a *whole* run a named test that did not pass makes the exit
code 1.

A run of a part of the suite is not checked. ``make test``, which leaves out the long tests, counts
as whole: each sentence needs a test that is not long.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.musts import Table
from tests.long_samples import NOT_LONG

CACHE_KEY = "musts/"
"""Prefix of the keys in pytest's cache, one key for each document.

A key has the sentences that lost their proof for a reason other than a failed test.
"""

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
"""Options of pytest after which only a part of the suite runs, by their names in ``config.option``.
"""


class MustsGate:
    """The plugin that checks the tests of one document's MUST sentences.

    :mod:`tests.conftest` registers it.
    """

    def __init__(self, table: Table, suite: Path) -> None:
        """Create the plugin for ``table``; ``suite`` is the folder of all tests."""
        self._document = table.document.name
        self._wanted = table.tests()
        self._suite = suite
        self._passed: set[str] = set()
        self._failed: set[str] = set()
        self._skipped: dict[str, set[str]] = {}
        self._faults: list[str] = []

    # --- calls from pytest ------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # pytest-xdist appends ``@GROUP`` to the name.
        test = report.nodeid.partition("[")[0].partition("@")[0]
        if test not in self._wanted:
            return
        if report.failed:
            self._failed.add(test)
        elif report.skipped:
            # The value is (file, line, reason) for a test that was skipped.
            place = report.longrepr
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
        # tests/again.py reads from the cache the faults that no second run can disprove.
        cache = getattr(session.config, "cache", None)
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

    # --- the verdict ------------------------------------------------------------------------------

    def is_whole(self, session: pytest.Session) -> bool:
        """Return whether the run covers the whole suite and nothing stopped it."""
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
        """Return a line for each named test that did not pass."""
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
