"""The packed group: what is stored, byte for byte, or an error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.errors import StoreDamagedError
from srmp_spark.message import Arrival
from srmp_spark.rows.group import Record, pack_group, post_lengths, unpack_group

records = st.builds(
    lambda at, peer, sender, post, cut: Record(
        Arrival(at, "http", peer, sender), post, min(cut, len(post))
    ),
    st.integers(0, 2**63 - 1),
    st.text(max_size=30),
    st.none() | st.text(min_size=1, max_size=30),
    st.binary(max_size=200),
    st.integers(0, 200),
)


@settings(max_examples=100)
@given(st.integers(1, 2**44), st.lists(records, min_size=1, max_size=5))
def test_what_goes_in_comes_out(first: int, group: list[Record]) -> None:
    blob = pack_group(first, group)
    assert list(unpack_group(blob)) == list(enumerate(group, first))
    assert post_lengths(blob) == [len(record.post) for record in group]


def test_damage_is_never_a_row() -> None:
    """T8: each flipped bit, each cut."""
    blob = pack_group(9, [Record(Arrival(1, "http", "a:1"), b"POST / HTTP/1.1\r\n\r\nbody", 19)])
    for bit in range(len(blob) * 8):
        broken = bytearray(blob)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreDamagedError):
            list(unpack_group(bytes(broken)))
    for length in range(len(blob)):
        with pytest.raises(StoreDamagedError):
            list(unpack_group(blob[:length]))
