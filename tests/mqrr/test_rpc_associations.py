"""Association groups and their context handles, by themselves ([MS-RPCE] 3.3.1.4.1, 3.3.1.5.7)."""

from __future__ import annotations

import itertools

import pytest
from rpc_kit import associations

from srmp_spark.errors import LimitExceededError, LocalProtocolError
from srmp_spark.mqrr.ndr.stub import NULL_HANDLE
from srmp_spark.mqrr.rpc import associations as module
from srmp_spark.mqrr.rpc.associations import Associations


def test_a_handle_is_found_until_it_is_closed():
    association = associations().join(0, "a")
    handle = association.open("queue")
    assert association.find(handle) == "queue"
    assert association.find(handle._replace(attributes=1)) is None
    assert association.find(NULL_HANDLE) is None
    assert association.close(handle) == "queue"
    assert association.close(handle) is None
    assert association.find(handle) is None


def test_handles_of_one_association_are_strangers_in_another():
    groups = associations()
    handle = groups.join(0, "a").open("queue")
    assert groups.join(0, "a").find(handle) is None


def test_limits(monkeypatch):
    monkeypatch.setattr(module, "HANDLES_MAX", 2)
    monkeypatch.setattr(module, "ASSOCIATIONS_MAX", 2)
    groups = associations()
    first = groups.join(0, "a")
    first.open(1)
    first.open(2)
    with pytest.raises(LimitExceededError, match="HANDLES_MAX is 2, got 3"):
        first.open(3)
    groups.join(0, "b")
    with pytest.raises(LimitExceededError, match="ASSOCIATIONS_MAX is 2, got 3"):
        groups.join(0, "c")
    groups.leave(first)
    assert groups.join(0, "c").peer == "c"


def test_identifiers_that_are_taken_are_not_given_again():
    ids = itertools.chain([5, 5, 0, 6], itertools.repeat(5))
    groups = Associations(new_id=lambda: next(ids), new_uuid=lambda: b"same sixteen by.")
    assert [groups.join(0, "a").id, groups.join(0, "a").id] == [5, 6]
    with pytest.raises(LocalProtocolError, match="random number"):
        groups.join(0, "a")
    association = groups.join(5, "a")
    association.open(1)
    with pytest.raises(LocalProtocolError, match="16 random bytes"):
        association.open(2)
