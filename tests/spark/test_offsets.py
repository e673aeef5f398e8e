"""Offsets: one value, one text; Spark compares texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.errors import DataLossError
from srmp_spark.spark.reading.offsets import LogKey, Offsets, Position

GUIDS = st.sampled_from(["1b4e28ba-2fa1-11d2-883f-0016d3cca427", "aa", "bb"])
QUEUES = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=8)
POSITIONS = st.builds(Position, st.sampled_from(["e1", "e2", "f"]), st.integers(0, 2**63 - 1))
OFFSETS = st.dictionaries(st.builds(LogKey, GUIDS, QUEUES), POSITIONS, max_size=6)


def test_the_text_of_interface_md() -> None:
    offsets = Offsets({LogKey("<guid>", "private$/orders"): Position("<epoch>", 1000)})
    assert str(offsets) == '{"qm":{"<guid>":{"<epoch>":{"private$/orders":1000}}},"v":1}'


@settings(max_examples=100)
@given(OFFSETS)
def test_text_and_back(positions: dict[LogKey, Position]) -> None:
    offsets = Offsets(positions)
    assert Offsets.from_text(str(offsets)) == offsets
    assert Offsets.from_dict(json.loads(json.dumps(offsets.as_dict()))) == offsets, (
        "what Spark does with it"
    )


@settings(max_examples=100)
@given(OFFSETS, st.randoms())
def test_one_value_has_one_text(positions: dict[LogKey, Position], random: object) -> None:
    """Pitfall: the same dict with another order of keys is another offset for Spark, and an endless row of empty batches."""
    items = list(positions.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert str(Offsets(dict(items))) == str(Offsets(positions))
    assert json.dumps(Offsets(dict(items)).as_dict()) == json.dumps(Offsets(positions).as_dict())


@settings(max_examples=100)
@given(OFFSETS)
def test_keys_are_sorted_at_every_level(positions: dict[LogKey, Position]) -> None:
    text = json.dumps(Offsets(positions).as_dict())
    assert text == json.dumps(json.loads(text), sort_keys=True)


@settings(max_examples=100)
@given(OFFSETS, OFFSETS)
def test_two_values_have_two_texts(
    one: dict[LogKey, Position], other: dict[LogKey, Position]
) -> None:
    assert (str(Offsets(one)) == str(Offsets(other))) == (one == other)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"qm":{},"v":2}', "run the version that wrote it"),
        ('{"qm":{}}', "another source"),
        ('{"n":5}', "another source"),
        ("5", "another source"),
        ("{", "not an offset"),
        ('{"qm":{"g":{"e":{"q":-1}}},"v":1}', "damaged offset"),
        ('{"qm":{"g":{"e":{"q":"1"}}},"v":1}', "damaged offset"),
        ('{"qm":{"g":{"e":{"q":1},"f":{"q":2}}},"v":1}', "damaged offset"),
    ],
)
def test_anything_else_is_refused(text: str, says: str) -> None:
    with pytest.raises(DataLossError) as error:
        Offsets.from_text(text)
    assert says in str(error.value)
