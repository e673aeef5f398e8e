"""Losses of multicast messages wait in the store for the Delta table, and are no danger to the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from store_kit import NOW, Store

from srmp_spark.store.tables import losses
from srmp_spark.store.tables.losses import LOSSES_KEPT, Loss


def loss(first: int, reason: str = "retries") -> Loss:
    return Loss(
        "private$/m",
        "234.1.1.1:8001",
        "10.0.0.1",
        "0a0b0c0d0e0f.1",
        first,
        first + 1,
        2,
        reason,
        None,
        NOW,
    )


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = Store(tmp_path / "d")
    yield made
    made.close()


def kept(store: Store) -> list[tuple[int, int]]:
    return [(each.number, each.loss.first) for each in losses.load(store.directory.writer)]


def test_they_are_kept_in_order_with_epoch_and_number(store: Store) -> None:
    store.call(lambda t: losses.store(t, [loss(7), loss(2**32 - 1)]))
    (first, second) = losses.load(store.directory.writer)
    assert (first.epoch, first.number, first.loss) == (store.directory.epoch, 1, loss(7))
    assert (second.number, second.loss.first, second.loss.last) == (2, 2**32 - 1, 2**32)


def test_what_the_delta_table_has_goes_and_its_number_never_comes_again(store: Store) -> None:
    store.call(lambda t: losses.store(t, [loss(1)]))
    position = store.journal.position
    store.call(lambda t: losses.store(t, [loss(2)]))
    store.call(lambda t: losses.forget(t, position))
    assert kept(store) == [(2, 2)]
    store.call(lambda t: losses.forget(t, store.journal.position))
    store.call(lambda t: losses.store(t, [loss(3)]))
    assert kept(store) == [(3, 3)]


def test_no_more_are_kept_than_the_limit(store: Store) -> None:
    store.call(lambda t: losses.store(t, [loss(n) for n in range(LOSSES_KEPT)]))
    store.call(lambda t: losses.store(t, [loss(-1), loss(-2)]))
    found = kept(store)
    assert (len(found), found[0], found[-1]) == (LOSSES_KEPT, (3, 2), (LOSSES_KEPT + 2, -2))
