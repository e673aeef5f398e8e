"""The oracle: four words, each found, and silence where all is well."""

from __future__ import annotations

from tests.kit.oracle import Oracle


def ledger(sent: str, acknowledged: str, landed: str, stream: str | None = None) -> Oracle:
    oracle = Oracle()
    for key in sent:
        oracle.sent(key, stream=stream)
    for key in acknowledged:
        oracle.acknowledged(key)
    for key in landed:
        oracle.landed(key)
    return oracle


def test_clean() -> None:
    verdict = ledger("abc", "abc", "abc", "s").verdict()
    assert verdict.clean
    assert str(verdict) == "lost 0, unexpected 0, doubled 0, disordered 0"


def test_what_was_never_acknowledged_may_land_or_not() -> None:
    assert ledger("abc", "a", "ab").verdict().clean
    assert ledger("abc", "", "").verdict().clean


def test_lost() -> None:
    assert ledger("abc", "ab", "a").verdict().lost == ["b"]


def test_unexpected() -> None:
    assert ledger("a", "a", "ax").verdict().unexpected == ["x"]


def test_doubled() -> None:
    assert ledger("ab", "ab", "aba").verdict().doubled == ["a"]


def test_what_was_discarded_on_purpose_is_not_lost_and_must_not_land() -> None:
    oracle = ledger("abc", "abc", "ac")
    assert oracle.verdict().lost == ["b"]
    oracle.discarded("b")
    assert oracle.verdict().clean
    oracle.landed("b")
    assert oracle.verdict().unexpected == ["b"]


def test_what_has_no_identity_may_repeat() -> None:
    oracle = Oracle()
    oracle.sent("a", may_repeat=True)
    oracle.landed("a")
    oracle.landed("a")
    assert oracle.verdict().clean


def test_disordered_within_a_stream_only() -> None:
    assert ledger("abc", "abc", "acb", "s").verdict().disordered == ["b"]
    assert ledger("abc", "abc", "acb").verdict().clean
    oracle = Oracle()
    for key, stream in (("a1", "a"), ("b1", "b"), ("a2", "a")):
        oracle.sent(key, stream=stream)
    for key in ("a1", "a2", "b1"):
        oracle.landed(key)
    assert oracle.verdict().clean


def test_sending_again_changes_nothing() -> None:
    oracle = ledger("ab", "ab", "ab", "s")
    oracle.sent("a", stream="s")
    assert oracle.verdict().clean


def test_nothing_is_clean_that_is_not() -> None:
    verdict = ledger("abc", "abc", "cbbx", "s").verdict()
    assert not verdict.clean
    assert str(verdict) == "lost 1, unexpected 1, doubled 1, disordered 1"
