"""Streams are read by SQLite as a whole, and one by one where a row is not what this version writes: the answer is the same."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from store_kit import NOW, Store

from srmp_spark.store.database import schema
from srmp_spark.store.delta import stored_log
from srmp_spark.store.tables import queues
from srmp_spark.store.tables.epochs import end_of, ends
from tests.kit.offline_purge import purge

GUID = "32221eda-9376-46df-b6ed-783091123831"
GOOD: tuple[Any, ...] = (
    "q",
    GUID,
    "7",
    3,
    2,
    "http://peer/q",
    "192.0.2.1:1",
    GUID,
    0,
    NOW,
    NOW + 1,
    None,
)
ODD: dict[str, tuple[Any, ...]] = {
    "an ordinal beyond 64 bits": (*GOOD[:2], "18446744073709551615", *GOOD[3:]),
    "an ordinal with a zero before it": (*GOOD[:2], "007", *GOOD[3:]),
    "an ordinal that is none": (*GOOD[:2], "seven", *GOOD[3:]),
    "an ordinal of digits that are not ASCII": (*GOOD[:2], "\u0667", *GOOD[3:]),
    "an empty ordinal": (*GOOD[:2], "", *GOOD[3:]),
    "an ordinal as a number": (*GOOD[:2], 7, *GOOD[3:]),
    "no address for receipts": (*GOOD[:5], "", "", None, *GOOD[8:]),
    "a sender with a name": (*GOOD[:11], "CN=Sender"),
    "a name of bytes": (b"q", *GOOD[1:]),
    "a name that is too long": ("q" * 100_000, *GOOD[1:]),
    "a text where a number is": (*GOOD[:3], "x", *GOOD[4:]),
    "a name in Greek": ("\u03b1\u03b2", *GOOD[1:]),
    "a name beyond the 16 bits of a plane": ("\U0001f600", *GOOD[1:]),
    "a name near the surrogates": ("\uffee", *GOOD[1:]),
    "a name with a zero in it": ("q\0r", *GOOD[1:]),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "data")
    yield opened
    opened.close()


def write(store: Store, *rows: tuple[Any, ...]) -> None:
    with sqlite3.connect(store.directory.database) as db:
        db.execute("DELETE FROM streams")
        db.executemany(f"INSERT INTO streams VALUES ({', '.join('?' * 12)})", rows)
    db.close()


def both(store: Store) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    db = schema.connect_reader(store.directory.database)
    try:
        return list(stored_log._streams(db)), [tuple(row) for row in stored_log._each_stream(db)]
    finally:
        db.close()


@pytest.mark.parametrize("what", ODD)
def test_an_odd_row_is_read_as_each_row_is(store: Store, what: str) -> None:
    write(store, ("p", *GOOD[1:]), ODD[what], ("z", *GOOD[1:]))
    found, each = both(store)
    assert found == each
    assert len(found) >= 2


def test_a_text_that_is_no_utf8_costs_its_row_alone(store: Store) -> None:
    write(store, ("p", *GOOD[1:]), ("z", *GOOD[1:]))
    with sqlite3.connect(store.directory.database) as db:
        db.execute("UPDATE streams SET peer = CAST(x'fffe' AS TEXT) WHERE queue = 'p'")
    db.close()
    found, each = both(store)
    assert found == each
    assert [row[0] for row in found] == ["z"]


def test_many_rows_are_read_at_once_in_the_order_of_their_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(1)
    names = ["".join(chance.choices("ab\u00e4\u20ac\U0001f600\uffee;/$", k=3)) for _ in range(200)]
    write(store, *((name, *GOOD[1:]) for name in sorted(set(names), key=lambda _: chance.random())))
    found, each = both(store)
    assert found == each
    monkeypatch.setattr(stored_log, "_each_stream", lambda db: pytest.fail("one by one"))
    write(store, GOOD)
    db = schema.connect_reader(store.directory.database)
    assert len(stored_log._streams(db)) == 1
    db.close()


def test_the_ends_of_all_queues_are_those_of_each(store: Store) -> None:
    for number in range(5):
        store.call(lambda t, number=number: queues.create(t, f"q{number}", transactional=False))
    store.put(7, together=3)
    store.call(lambda t: purge(t, "private$/orders", store.directory.segments))
    store.put(2)
    store.call(lambda t: queues.delete(t, "q3", store.directory.segments, NOW))
    db = store.directory.writer
    assert ends(db) == {
        number: end_of(db, number) for (number,) in db.execute("SELECT id FROM queues").fetchall()
    }
    assert max(ends(db).values()) == 9
