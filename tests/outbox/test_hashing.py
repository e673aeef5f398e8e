"""The stored form of identities: values that must never change, or a replay after an update doubles what it sends."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.store.outbox.identity.hashing import (
    CONTENT_BYTES,
    HASH_BYTES,
    again,
    content_hashes,
    key_hashes,
)
from srmp_spark.store.outbox.identity.positions import BLOCK, decode, encode

# Made by the form as hashing.py describes it: letter, length (u32, little-endian) and value of each column, "b" and the body.
KEY_EMPTY = "e43d1077b65bfe5cc3a1807d395d9e94"
KEY_ORDER = "3c8fa0ebd0f30dcaf1add8693e8a34fe"
KEY_ACCENT = "9f0adbc8817083636762256774e2aba6"
FULL = "6a10f0ee2ad30a4509dfb1638b380bff"
ONLY_A = "48e73bd78b558e76ffc20519715bebb0"
EMPTY = "cbeb378ba58e9fdf3a0cd403536f0a6e"


def hexed(hashes: np.ndarray) -> list[str]:
    return [row.astype(">u8").tobytes().hex() for row in hashes]


def test_keys() -> None:
    keys = pa.array([b"", b"order-1", "é".encode(), None])
    assert hexed(key_hashes(keys))[:3] == [KEY_EMPTY, KEY_ORDER, KEY_ACCENT]
    assert hexed(key_hashes(keys.slice(1, 2))) == [KEY_ORDER, KEY_ACCENT], (
        "an offset into a larger array"
    )


def test_contents() -> None:
    columns = {
        "body": pa.array([b"a", b"a", b"", None]),
        "label": pa.array(["x", None, "", None]),
        "priority": pa.array([0, 3, None, None], pa.int64()),
        "time_to_reach_queue": pa.array([5, None, None, None], pa.timestamp("us", tz="UTC")),
    }
    assert hexed(content_hashes(columns, 4, HASH_BYTES)) == [FULL, ONLY_A, EMPTY, EMPTY]
    assert hexed(content_hashes({"body": pa.array([b"a"])}, 1, HASH_BYTES)) == [ONLY_A]
    assert len(hexed(content_hashes({}, 1, CONTENT_BYTES))[0]) == 2 * CONTENT_BYTES


def test_equal_rows_are_told_apart_by_how_many_came_before() -> None:
    digest = bytes(range(16))
    assert again(digest, 0) == digest
    assert len({again(digest, n) for n in range(100)}) == 100


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.binary(max_size=3), st.one_of(st.none(), st.text(max_size=3)), st.binary(max_size=3)
        ),
        max_size=8,
    )
)
def test_two_contents_have_one_digest_only_if_they_are_one(
    rows: list[tuple[bytes, str | None, bytes]],
) -> None:
    """Bytes that move from one column into the next are another content."""
    columns = {
        "extension": pa.array([row[0] for row in rows], pa.binary()), "label": pa.array([row[1] for row in rows], pa.string()),
        "body": pa.array([row[2] for row in rows], pa.binary()),
    }  # fmt: skip
    hashes = hexed(content_hashes(columns, len(rows), HASH_BYTES)) if rows else []
    contents = [(extension, label or "", body) for extension, label, body in rows]
    for a, first in zip(hashes, contents, strict=True):
        for b, second in zip(hashes, contents, strict=True):
            assert (a == b) == (first == second)


@settings(max_examples=50)
@given(st.sets(st.integers(0, BLOCK - 1), max_size=600))
def test_known_positions_of_a_block(offsets: set[int]) -> None:
    mask = np.zeros(BLOCK, bool)
    mask[list(offsets)] = True
    stored = encode(mask)
    assert set(np.flatnonzero(decode(stored)).tolist()) == offsets
    assert len(stored) <= min(1 + 2 * len(offsets), 1 + BLOCK // 8)
