"""``doctor`` explains every reason for which a message may be refused."""

from __future__ import annotations

import ast
from pathlib import Path

from srmp_spark.commands.doctor import EXPLANATIONS
from srmp_spark.queue_manager.admission import faults
from srmp_spark.queue_manager.admission.disk_gate import DISK_FULL
from srmp_spark.queue_manager.state_reports import OLDER_COPY

PACKAGE = Path(__file__).resolve().parents[2] / "srmp_spark"


def reasons() -> set[str]:
    """The literal reasons of ``Refused(status, reason, …)`` in the package."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Refused":
                reason = node.args[1] if len(node.args) > 1 else None
                if isinstance(reason, ast.Constant) and isinstance(reason.value, str):
                    found.add(reason.value)
    return found | {faults.REASON, DISK_FULL, OLDER_COPY}


def test_each_reason_has_a_meaning_and_an_advice() -> None:
    assert len(reasons()) >= 24, "they are where this test looks"
    assert reasons() - set(EXPLANATIONS) == set()
    for meaning, advice in EXPLANATIONS.values():
        assert len(meaning) > 10
        assert len(advice.format(queue="q", host="h")) > 5
