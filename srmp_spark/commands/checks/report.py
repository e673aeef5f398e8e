"""The form of a check, and the report that a command prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from srmp_spark.commands.common import emit
from srmp_spark.interface import ExitCode


class Check(NamedTuple):
    """One line of the report: what was checked, the result, and advice.

    Advice of a check that passed is for later, or for what only the operator can judge.
    """

    check: str
    ok: bool
    detail: str
    hint: str = ""


def report(checks: Iterable[Check], *, table: bool) -> ExitCode:
    """Print the checks, as a table or as lines of JSON, and return the exit code of the command."""
    found = list(checks)
    emit([check._asdict() for check in found], table=table, whole=True)
    return ExitCode.DONE if all(check.ok for check in found) else ExitCode.CHECK_FAILED
