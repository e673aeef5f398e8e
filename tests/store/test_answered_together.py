"""One callback for each transaction, with its items in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.store.answered_together import AnsweredTogether


def test_the_items_of_a_transaction_are_answered_by_its_first_callback() -> None:
    journal: Any = SimpleNamespace(collecting=object())
    answers: list[tuple[list[str], int]] = []
    together: AnsweredTogether[str] = AnsweredTogether(
        journal, lambda items, proof: answers.append((items, proof.position))
    )
    first = together.add("a")
    assert together.add("b") is None
    journal.collecting = object()
    second = together.add("c")
    assert first is not None
    assert second is not None
    first(Committed(1))
    second(Committed(2))
    assert answers == [(["a", "b"], 1), (["c"], 2)]
    assert together.add("d") is None, "the transaction is still collected"
    assert repr(together) == "<AnsweredTogether items=2>"
