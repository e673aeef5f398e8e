"""What is stored with a key: marks from now on, and the hashes of earlier versions for as long as they are known."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from outbox_kit import A, Desk, bodies

from srmp_spark.errors import StoreDamagedError
from srmp_spark.store.outbox import stage_file
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.hashing import CONTENT_BYTES, content_hashes
from srmp_spark.store.outbox.key_contents import KeyContent, decode, encode
from srmp_spark.store.outbox.preparation import CommitResult
from srmp_spark.store.outbox.schema import FORMAT_MARKED, FORMAT_OF_NEW


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "data")
    yield desk
    desk.close()


def keyed(key: str, body: bytes) -> dict[str, Any]:
    return {"body": body, "destination": A, "key": key}


def contents(desk: Desk) -> list[bytes]:
    return [row for (row,) in desk.outbox.database.connection.execute("SELECT content FROM identities ORDER BY hash")]


def as_an_earlier_version(desk: Desk, rows: list[dict[str, Any]]) -> None:
    """Store with the keys of ``rows``, which alone are stored, what an earlier version stored."""
    columns = {"body": pa.array([row["body"] for row in rows])}
    hashed = {row["key"]: each.tobytes() for row, each in zip(rows, content_hashes(columns, len(rows), CONTENT_BYTES).astype(">u8"), strict=True)}
    from srmp_spark.store.outbox.hashing import key_hashes

    keys = key_hashes(pa.array([row["key"].encode() for row in rows])).astype(">u8")
    with desk.outbox.database.transaction() as connection:
        for row, key in zip(rows, keys, strict=True):
            changed = connection.execute("UPDATE identities SET content = ? WHERE hash = ?", (hashed[row["key"]], key.tobytes()))
            assert changed.rowcount == 1


def test_stored_values() -> None:
    stored = encode(np.array([0x0123456789ABCDEF, 0], np.uint64))
    assert stored.hex() == "010123456789abcdef010000000000000000"
    assert decode(stored[:9]) == KeyContent(0x0123456789ABCDEF, is_hashed=False)
    assert decode(stored[1:9]) == KeyContent(0x0123456789ABCDEF, is_hashed=True)


@pytest.mark.parametrize("stored", [b"", b"\x01", bytes(9), b"\x02" + bytes(8), bytes(10), "text", 7])
def test_what_is_neither_form_is_damage(stored: Any) -> None:
    with pytest.raises(StoreDamagedError, match="the content of a key"):
        decode(stored)


def test_a_key_of_an_earlier_version_is_compared_as_it_was_stored(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_file, "CHUNK_ROWS", 2)
    old, new = [keyed(f"old {n}", b"%d" % n) for n in range(5)], [keyed(f"new {n}", b"%d" % n) for n in range(5)]
    assert desk.send(old) == CommitResult(5, 0)
    as_an_earlier_version(desk, old)
    assert desk.send([*new, *old], batch="2") == CommitResult(5, 5)
    assert sorted(map(len, contents(desk))) == [8] * 5 + [9] * 5
    assert desk.send([*old, *new, *old], batch="3") == CommitResult(0, 15)
    with pytest.raises(BatchError, match=r"key 'old 3' \(partition 0 row 2\) was sent before with another content"):
        desk.send([old[0], new[1], keyed("old 3", b"x")], batch="4")
    with pytest.raises(BatchError, match=r"key 'new 3' \(partition 0 row 2\) was sent before with another content"):
        desk.send([old[0], new[1], keyed("new 3", b"x")], batch="4")
    assert bodies(desk.read()) == [b"%d" % n for n in range(5)] * 2


def test_a_conflict_of_an_earlier_version_becomes_no_second_dead_letter(desk: Desk) -> None:
    rows = [keyed("a", b"1"), keyed("b", b"2")]
    others = [keyed("a", b"other"), keyed("b", b"2")]
    assert desk.send(rows) == CommitResult(2, 0)
    as_an_earlier_version(desk, rows)
    assert desk.send(others, batch="2", on_conflict="dead-letter") == CommitResult(0, 1, 1)
    letters = desk.outbox.database.connection.execute("SELECT count(*) FROM moved").fetchone()
    assert letters == (1,)
    hashed = content_hashes({"body": pa.array([b"other"])}, 1, CONTENT_BYTES)
    assert desk.send(others, batch="3", on_conflict="dead-letter") == CommitResult(0, 1, 1)
    assert desk.outbox.database.connection.execute("SELECT count(*) FROM moved").fetchone() == letters, hashed


def test_an_older_version_opens_the_outbox_until_a_key_is_stored(desk: Desk) -> None:
    connection: sqlite3.Connection = desk.outbox.database.connection
    desk.send([{"body": b"x", "destination": A}])
    assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT_OF_NEW,)
    desk.send([keyed("k", b"x")], batch="2")
    assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT_MARKED,) == (4,)
