"""Samples of random tests: the first in ``make test``, the rest in ``make test-long``.

A test marked ``long`` repeats with more samples what another case of the same function, or another test, has shown already with
fewer, or shows that a benchmark runs: ``make test`` leaves it out, ``make test-long`` runs it alone, CI runs one after the
other. No promise of docs/GUARANTEES.md and no sentence of docs/MUSTS*.md hangs on long tests alone
(``tests/docs/test_docs.py``, ``musts_gate.py``).

With pytest-xdist each process leaves them out for itself and none says so; :class:`LeftOut` prints how many they are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

import pytest

NOT_LONG = "not long"
"""What ``make test`` gives to ``-m``: with it the run still counts as one of the whole suite."""


def shares(variable: str, count: int, first: int) -> list[Any]:  # of pytest.param
    """Return the parameters of a test that takes a ``range`` of seeds: the ``first`` of ``count``, and the rest as a long test.

    The environment ``variable`` says another count: all of them are one case then, as is what ``first`` covers.
    """
    wanted = int(os.environ.get(variable, count))
    if variable in os.environ or wanted <= first:
        return [pytest.param(range(wanted), id="all")]
    return [
        pytest.param(range(first), id="first"),
        pytest.param(range(first, wanted), id="rest", marks=pytest.mark.long),
    ]


def lengths(variable: str, short: float, long: float) -> list[Any]:  # of pytest.param
    """Return the parameters of a test that takes seconds: a short run, and a long one as a long test.

    The environment ``variable`` says another length: it is the only one then.
    """
    if variable in os.environ:
        return [pytest.param(float(os.environ[variable]), id="as asked")]
    return [pytest.param(short, id="short"), pytest.param(long, id="long", marks=pytest.mark.long)]


class Node(Protocol):
    """What is read of a process of pytest-xdist that has ended."""

    workeroutput: dict[str, Any]


class LeftOut:
    """The plugin; :mod:`tests.conftest` registers it in each process."""

    def __init__(self, config: pytest.Config) -> None:
        """``config`` is that of this process."""
        self._config = config
        self._count = 0

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._count += len(items)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["left_out"] = self._count

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Node) -> None:
        """Take the count of a process: each has left out the same."""
        self._count = max(self._count, getattr(node, "workeroutput", {}).get("left_out", 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._count and self._config.option.markexpr == NOT_LONG:
            terminalreporter.line(
                f"{self._count} long tests are left out: make test-long runs them", yellow=True
            )
