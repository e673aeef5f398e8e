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
from srmp_spark.store.outbox.identity.hashing import CONTENT_BYTES, content_hashes, key_hashes
from srmp_spark.store.outbox.identity.key_contents import KeyContent, decode, encode
from srmp_spark.store.outbox.identity.row_hashes import BY_KEY
from srmp_spark.store.outbox.preparing.conflicts import LETTERS, Conflicting
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from srmp_spark.store.outbox.tables.schema import FORMAT_MARKED, FORMAT_OF_NEW


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "data")
    yield desk
    desk.close()


def keyed(key: str, body: bytes) -> dict[str, Any]:
    return {"body": body, "destination": A, "key": key}


def contents(desk: Desk) -> list[bytes]:
    return [
        row
        for (row,) in desk.outbox.database.connection.execute(
            "SELECT content FROM identities ORDER BY hash"
        )
    ]


def hashed(bodies: list[bytes]) -> np.ndarray:
    """What an earlier version compared, of rows with these bodies."""
    return content_hashes({"body": pa.array(bodies)}, len(bodies), CONTENT_BYTES)[:, 0]


def as_an_earlier_version(desk: Desk, rows: list[dict[str, Any]]) -> None:
    """Store with the keys of ``rows`` what an earlier version stored."""
    contents = [
        value.to_bytes(CONTENT_BYTES, "big")
        for value in hashed([row["body"] for row in rows]).tolist()
    ]
    keys = key_hashes(pa.array([row["key"].encode() for row in rows])).astype(">u8")
    with desk.outbox.database.transaction() as connection:
        for content, key in zip(contents, keys, strict=True):
            update = "UPDATE identities SET content = ? WHERE hash = ?"
            assert connection.execute(update, (content, key.tobytes())).rowcount == 1


def test_stored_values() -> None:
    stored = encode(np.array([0x0123456789ABCDEF, 0], np.uint64))
    assert stored.hex() == "010123456789abcdef010000000000000000"
    assert decode(stored[:9]) == KeyContent(0x0123456789ABCDEF, is_hashed=False)
    assert decode(stored[1:9]) == KeyContent(0x0123456789ABCDEF, is_hashed=True)


@pytest.mark.parametrize(
    "stored", [b"", b"\x01", bytes(9), b"\x02" + bytes(8), bytes(10), "text", 7]
)
def test_what_is_neither_form_is_damage(stored: Any) -> None:
    with pytest.raises(StoreDamagedError, match="the content of a key"):
        decode(stored)


def test_a_key_of_an_earlier_version_is_compared_as_it_was_stored(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_file, "CHUNK_ROWS", 2)
    old, new = (
        [keyed(f"old {n}", b"%d" % n) for n in range(5)],
        [keyed(f"new {n}", b"%d" % n) for n in range(5)],
    )
    assert desk.send(old) == CommitResult(5, 0)
    as_an_earlier_version(desk, old)
    assert desk.send([*new, *old], batch="2") == CommitResult(5, 5)
    assert sorted(map(len, contents(desk))) == [8] * 5 + [9] * 5
    assert desk.send([*old, *new, *old], batch="3") == CommitResult(0, 15)
    with pytest.raises(
        BatchError, match=r"key 'old 3' \(partition 0 row 2\) was sent before with another content"
    ):
        desk.send([old[0], new[1], keyed("old 3", b"x")], batch="4")
    with pytest.raises(
        BatchError, match=r"key 'new 3' \(partition 0 row 2\) was sent before with another content"
    ):
        desk.send([old[0], new[1], keyed("new 3", b"x")], batch="4")
    assert bodies(desk.read()) == [b"%d" % n for n in range(5)] * 2


def test_a_conflict_with_a_key_of_an_earlier_version_is_the_dead_letter_that_it_was(
    desk: Desk,
) -> None:
    """A row that became a dead letter is known by its key and content, in the form of the key."""
    rows, other = [keyed("a", b"1"), keyed("b", b"2")], keyed("a", b"other")
    assert desk.send(rows) == CommitResult(2, 0)
    as_an_earlier_version(desk, rows)
    key = key_hashes(pa.array([b"a"]))
    found = Conflicting(
        A, BY_KEY, np.zeros(1, np.uint32), key[:, 0], key[:, 1], hashed([b"other"])
    ).hashes(0, 1)
    for batch in ("2", "3"):
        assert desk.send([other, rows[1]], batch=batch, on_conflict="dead-letter") == CommitResult(
            0, 1, 1
        )
        stored = desk.outbox.database.connection.execute(
            "SELECT hash FROM identities JOIN scopes ON id = scope_id WHERE batch = ?", (LETTERS,)
        ).fetchall()
        assert stored == [(found.astype(">u8").tobytes(),)]
        assert desk.outbox.database.connection.execute("SELECT count(*) FROM moved").fetchone() == (
            1,
        )


def test_an_older_version_opens_the_outbox_until_a_key_is_stored(desk: Desk) -> None:
    connection: sqlite3.Connection = desk.outbox.database.connection
    desk.send([{"body": b"x", "destination": A}])
    assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT_OF_NEW,)
    desk.send([keyed("k", b"x")], batch="2")
    assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT_MARKED,) == (4,)
