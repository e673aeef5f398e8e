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
    """The literal reasons of refusals in the package, of a message and of its HTTP request."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        of_port = path.parent.name in ("srmp_port", "wsrm")
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or len(node.args) < 3:
                continue
            status, reason = node.args[:2]
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", "")
            if (
                (name in ("Refused", "HeadError") or (name == "refuse" and of_port))
                and isinstance(reason, ast.Constant)
                and isinstance(reason.value, str)
                and not (isinstance(status, ast.Constant) and status.value == 204)
            ):
                found.add(reason.value)
    return found | {faults.REASON, DISK_FULL, OLDER_COPY}


def test_each_reason_has_a_meaning_and_an_advice() -> None:
    assert len(reasons()) >= 40, "they are where this test looks"
    assert reasons() - set(EXPLANATIONS) == set()
    for meaning, advice in EXPLANATIONS.values():
        assert len(meaning) > 10
        assert len(advice.format(queue="q", host="h")) > 5
