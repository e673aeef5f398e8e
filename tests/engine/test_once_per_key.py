"""A key is new once; at the limit nothing is new, or everything is once more."""

from __future__ import annotations

import pytest

from srmp_spark.log_once import KEYS_MAX, OncePerKey


def test_a_key_is_new_once() -> None:
    told: OncePerKey[tuple[str, int]] = OncePerKey()
    assert [told.is_new(key) for key in (("a", 1), ("a", 1), ("a", 2))] == [True, False, True]
    assert ("a", 1) in told
    assert ("b", 1) not in told
    assert told.is_new(("b", 1)), "to ask for it did not make it known"


@pytest.mark.parametrize("starts_over", [False, True])
def test_the_keys_are_limited(starts_over: bool) -> None:
    told: OncePerKey[int] = OncePerKey(starts_over=starts_over)
    assert all(told.is_new(key) for key in range(KEYS_MAX))
    assert told.is_new(KEYS_MAX) is starts_over
    assert told.is_new(0) is starts_over
    assert not told.is_new(0)


def test_what_is_over_is_forgotten() -> None:
    told: OncePerKey[int] = OncePerKey(2)
    assert [told.is_new(key) for key in (1, 2, 3)] == [True, True, False]
    told.forget(lambda key: key == 1)
    assert [told.is_new(key) for key in (2, 3)] == [False, True]
    assert repr(told) == "<OncePerKey keys=2>"
