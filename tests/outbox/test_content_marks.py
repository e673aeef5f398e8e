"""Marks of contents: values that must never change, and the same content as that of keys."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.store.outbox.identity import content_marks as marks_module
from srmp_spark.store.outbox.identity.content_marks import content_marks
from srmp_spark.store.outbox.identity.hashing import CONTENT, CONTENT_BYTES, content_hashes

TYPES: dict[str, pa.DataType] = {
    "label": pa.string(), "priority": pa.int64(), "correlation_id": pa.binary(), "app_specific": pa.int64(),
    "body_type": pa.int64(), "response_queue": pa.string(), "admin_queue": pa.string(),
    "time_to_reach_queue": pa.timestamp("us", tz="UTC"), "extension": pa.binary(), "delivery": pa.string(),
    "transaction": pa.binary(), "journal": pa.bool_(), "destination_list": pa.string(), "soap_action": pa.string(),
    "wsrm_version": pa.string(), "soap_version": pa.string(), "wsa_version": pa.string(), "body": pa.binary(),
}  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "label": [None, "", "a", "b", "a\0"], "priority": [None, 3, 0, -1], "correlation_id": [None, b"", b"c" * 20],
    "app_specific": [None, 0, 2**32 - 1], "body_type": [None, 0, 8], "response_queue": [None, "a", ""],
    "admin_queue": [None, "a"], "time_to_reach_queue": [None, 0, 5], "extension": [None, b"", b"a"],
    "delivery": [None, "transactional", "express"], "transaction": [None, b"", b"1"], "journal": [None, False, True],
    "destination_list": [None, "a"], "soap_action": [None, "a"], "wsrm_version": [None, "1.0"],
    "soap_version": [None, "1.1"], "wsa_version": [None, "2004/08"],
    "body": [b"", None, b"a", b"b", b"\0", b"\0\0", b"12345678", b"1234567", b"123456780", b"12345678" * 3, b"x" * 100],
}  # fmt: skip


def columns_of(rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    return {name: pa.array([row.get(name) for row in rows], type_) for name, type_ in TYPES.items()}


def test_every_column_of_the_content_has_a_value_here() -> None:
    assert {name for name, _ in CONTENT} | {"body"} == set(TYPES) == set(VALUES)


def test_stored_values() -> None:
    """A mark that changes would make every repeat after an update a conflict."""
    rows = [
        {"body": b"a"},
        {"body": b""},
        {
            "body": b"0123456789",
            "label": "x",
            "priority": 0,
            "time_to_reach_queue": 5,
            "journal": True,
        },
    ]
    found = [f"{mark:016x}" for mark in content_marks(columns_of(rows), 3).tolist()]
    assert found == ["fd647ac6380c2793", "0000000000000000", "36f2e7691cc5bb00"]
    assert content_marks({}, 1)[0] == content_marks({"body": pa.array([b""])}, 1)[0], (
        "no body is an empty one"
    )


def test_each_value_of_each_column_is_one_content_for_marks_as_it_is_for_keys() -> None:
    rows = [
        {name: value, **({} if name == "body" else {"body": b"body"})}
        for name, each in VALUES.items()
        for value in each
    ]
    columns = columns_of(rows)
    marks, hashes = (
        content_marks(columns, len(rows)).tolist(),
        content_hashes(columns, len(rows), CONTENT_BYTES)[:, 0].tolist(),
    )
    for first, second in itertools.combinations(range(len(rows)), 2):
        assert (marks[first] == marks[second]) == (hashes[first] == hashes[second]), (
            rows[first],
            rows[second],
        )


row_strategy = st.fixed_dictionaries(
    {name: st.sampled_from(values) for name, values in VALUES.items()}
)


@settings(max_examples=100, deadline=None)
@given(st.lists(row_strategy, min_size=1, max_size=8), st.integers(0, 3))
def test_whole_rows_are_one_content_for_marks_as_they_are_for_keys(
    rows: list[dict[str, Any]], skipped: int
) -> None:
    columns = {
        name: array.slice(min(skipped, len(rows) - 1)) for name, array in columns_of(rows).items()
    }
    count = len(next(iter(columns.values())))
    marks, hashes = (
        content_marks(columns, count).tolist(),
        content_hashes(columns, count, CONTENT_BYTES)[:, 0].tolist(),
    )
    assert [marks.index(each) for each in marks] == [hashes.index(each) for each in hashes]


@pytest.mark.parametrize("segment", [2, 3, 8, 1 << 15])
def test_a_mark_is_the_same_wherever_its_row_stands(
    segment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(1)
    bodies = [random.bytes(int(size)) for size in random.integers(0, 60, 50)] + [
        random.bytes(1_000),
        b"",
        random.bytes(1_000),
    ]
    alone = [int(content_marks({"body": pa.array([body])}, 1)[0]) for body in bodies]
    monkeypatch.setattr(marks_module, "_SEGMENT", segment)
    assert content_marks({"body": pa.array(bodies)}, len(bodies)).tolist() == alone
    assert len(set(alone)) == len(set(bodies))


def test_each_byte_of_a_large_body_counts() -> None:
    body = bytes(300_000)
    places = [0, 7, 8, 262_143, 262_144, 299_999]
    changed = [body[:at] + b"\1" + body[at + 1 :] for at in places]
    marks = content_marks({"body": pa.array([body, *changed])}, 1 + len(changed)).tolist()
    assert len(set(marks)) == len(marks)


def test_no_two_of_many_neighbours_have_one_mark() -> None:
    """Numbers in text, which differ in few bits of few words."""
    bodies = [
        b'{"order": %08d, "line": %08d, "ok": true}' % (n % 500, n // 500) for n in range(200_000)
    ]
    assert len(set(content_marks({"body": pa.array(bodies)}, len(bodies)).tolist())) == len(bodies)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (struct.pack("<4f", 1.5, -2.25, 3, 4.5), struct.pack("<4f", -1.5, 2.25, -3, -4.5)),
        (b"abcpabcpxyz0xyz0", b"abc0abc0xyzpxyzp"),
        (b"\0" * 16, (b"\0" * 7 + b"\x80") * 2),
        (b"\0" * 16, (b"\0\0\0\x80") * 4),
        (b"AAAAAAAA" + b"x" * 2040 + b"aAAAaAAA", b"aAAAaAAA" + b"x" * 2040 + b"AAAAAAAA"),
    ],
)  # fmt: skip
def test_equal_changes_of_several_words_count(one: bytes, other: bytes) -> None:
    marks = content_marks({"body": pa.array([one, other])}, 2).tolist()
    assert marks[0] != marks[1]


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_few_changes_in_a_regular_body_do_not_cancel(width: int) -> None:
    """Each pair of changes of one bit pattern in two of some places, in all elements of a word or in one."""
    bodies = {bytes(4_096)}
    for pattern in (0x01, 0x10, 0x40, 0x80, 0xC0, 0xFF):
        for element in range(0, 8, width):
            word = bytes(
                pattern if at % width == width - 1 and at // width in (element // width, 0) else 0
                for at in range(8)
            )
            for first, second in itertools.combinations((0, 1, 2, 4, 8, 16, 128, 256, 511), 2):
                words = [bytes(8)] * 512
                words[first] = words[second] = word
                bodies.add(b"".join(words))
                for one in (first, second):
                    words = [bytes(8)] * 512
                    words[one] = word
                    bodies.add(b"".join(words))
    assert len(set(content_marks({"body": pa.array(sorted(bodies))}, len(bodies)).tolist())) == len(
        bodies
    )
