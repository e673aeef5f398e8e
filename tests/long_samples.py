"""Samples of random tests: the first ones run in ``make test``, the rest in ``make test-long``.

A test marked ``long`` repeats with more samples what another case of the same function, or another
test, has shown with fewer samples. Or it shows that a benchmark runs. ``make test`` leaves out
these tests, and ``make test-long`` runs them alone; CI runs one after the other. No promise of
docs/GUARANTEES.md and no sentence of docs/MUSTS*.md depends on long tests alone
(``tests/docs/test_docs.py``, ``musts_gate.py``).

With pytest-xdist each process leaves out these tests for itself, and no process reports them.
:class:`LeftOut` prints their number.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

import pytest

NOT_LONG = "not long"
"""Value of ``-m`` in ``make test``. A run with this value still counts as a run of the whole suite.
"""


def shares(variable: str, count: int, first: int) -> list[Any]:  # values of pytest.param
    """Return the parameters of a test that takes a ``range`` of seeds.

    The first parameter has the ``first`` of ``count`` seeds; the second has the rest and is marked
    as a long test. The environment variable ``variable`` sets another count: then all seeds are one
    parameter. There is also only one parameter if ``first`` covers all seeds.
    """
    wanted = int(os.environ.get(variable, count))
    if variable in os.environ or wanted <= first:
        return [pytest.param(range(wanted), id="all")]
    return [
        pytest.param(range(first), id="first"),
        pytest.param(range(first, wanted), id="rest", marks=pytest.mark.long),
    ]


def lengths(variable: str, short: float, long: float) -> list[Any]:  # values of pytest.param
    """Return the parameters of a test that runs for a number of seconds.

    The first is a short run, the second is a long run and marked as a long test. The environment
    variable ``variable`` sets another length, which is the only parameter then.
    """
    if variable in os.environ:
        return [pytest.param(float(os.environ[variable]), id="as asked")]
    return [pytest.param(short, id="short"), pytest.param(long, id="long", marks=pytest.mark.long)]


class Node(Protocol):
    """The attributes that are read of a pytest-xdist process that has ended."""

    workeroutput: dict[str, Any]


class LeftOut:
    """The plugin that counts the long tests which a run leaves out.

    :mod:`tests.conftest` registers it in each process.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Create the plugin; ``config`` is the configuration of this process."""
        self._config = config
        self._count = 0

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._count += len(items)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["left_out"] = self._count

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Node) -> None:
        """Read the count of a process that has ended. Each process has left out the same tests."""
        self._count = max(self._count, getattr(node, "workeroutput", {}).get("left_out", 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._count and self._config.option.markexpr == NOT_LONG:
            terminalreporter.line(
                f"{self._count} long tests are left out: make test-long runs them", yellow=True
            )
