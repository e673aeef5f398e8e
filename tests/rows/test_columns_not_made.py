"""Columns that nobody chose are not made, and what may be large of a segment is left out where none of it is needed."""

from __future__ import annotations

import io
import random
import zlib

import pyarrow as pa
import pytest
from rows_kit import message, record_of, varied

from srmp_spark.errors import StoreDamagedError
from srmp_spark.rows import dense
from srmp_spark.rows.columns import NAMES, WIDE, arrow_schema
from srmp_spark.rows.decode import decode, rows_of
from srmp_spark.rows.group import Record
from srmp_spark.rows.made_columns import columns_of
from srmp_spark.rows.segment import SegmentBytes, encode_segment, read_segment
from srmp_spark.rows.wide_part import WidePart

QM, EPOCH, QUEUE = "qm", "ab12", "private$/orders"
PAIRS = varied(60)
LARGE = [
    (n, record_of(message(n, body=random.Random(n).randbytes(1_000), action=f"MSMQ:{n % 3}")))
    for n in range(1, 101)
]


def choices(count: int) -> list[tuple[str, ...]]:
    rng = random.Random(22)
    return [tuple(rng.sample(NAMES, rng.randint(1, 12))) for _ in range(count)]


@pytest.mark.parametrize(
    "names",
    [("label", "sequence"), ("message_id",), ("body_text",), ("queue", "epoch"), *choices(40)],
)
def test_chosen_columns_are_those_of_the_whole_rows_in_their_order(names: tuple[str, ...]) -> None:
    whole = rows_of(QM, EPOCH, QUEUE, PAIRS)
    chosen = rows_of(QM, EPOCH, QUEUE, PAIRS, names=names)
    assert chosen.schema.equals(arrow_schema(names))
    assert chosen.equals(whole.select(names))
    sealed = read_segment(
        encode_segment(decode(QUEUE, PAIRS)).columns, QM, EPOCH, QUEUE, names=names
    )
    assert sealed.equals(whole.select(names))


def test_what_was_not_chosen_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from srmp_spark.rows import made_columns

    made: list[str] = []
    for name, maker in made_columns._MAKERS.items():
        monkeypatch.setitem(
            made_columns._MAKERS,
            name,
            lambda rows, name=name, maker=maker: made.append(name) or maker(rows),
        )
    columns_of(decode(QUEUE, PAIRS), ("label", "message_id"))
    assert sorted(made) == ["label", "lineage", "message_id", "uniquifier"]


def narrow_stream(files: SegmentBytes, pairs: list[tuple[int, Record]]) -> bytes:
    wide = files.wide
    assert wide is not None
    head = dense.narrow_head(EPOCH, ((1, len(pairs)),), wide, len(files.columns))
    return head + files.columns[: wide.begin] + files.columns[wide.end :] + dense.end()


def read_narrow(data: bytes, names: tuple[str, ...]) -> pa.Table:
    return pa.Table.from_batches(
        dense.batches(dense.frames(io.BytesIO(data)), QM, QUEUE, 0, 100, names=names)
    )


NARROW = tuple(name for name in NAMES if name not in WIDE)


def test_a_segment_without_its_wide_part_has_all_other_columns() -> None:
    files = encode_segment(decode(QUEUE, LARGE))
    data = narrow_stream(files, LARGE)
    assert len(data) < len(files.columns) - 100 * 1_000, "the bodies are not among the bytes"
    whole = pa.Table.from_batches([rows_of(QM, EPOCH, QUEUE, LARGE)])
    assert read_narrow(data, NARROW).equals(whole.select(NARROW))


def test_a_reader_that_needs_a_body_refuses_a_segment_without_it() -> None:
    data = narrow_stream(encode_segment(decode(QUEUE, LARGE)), LARGE)
    with pytest.raises(StoreDamagedError, match="bodies"):
        read_narrow(data, ("sequence", "body"))


def test_every_flipped_bit_of_a_narrow_segment_is_found() -> None:
    files = encode_segment(decode(QUEUE, LARGE))
    data = narrow_stream(files, LARGE)
    start = len(dense.narrow_head(EPOCH, ((1, 100),), WidePart(0, 0, 0), 0))
    for at in range(start, len(data) - len(dense.end()), 97):
        broken = bytearray(data)
        broken[at] ^= 1
        with pytest.raises(StoreDamagedError):
            read_narrow(bytes(broken), NARROW)


@pytest.mark.parametrize(("begin", "size"), [(1 << 40, 1 << 20), (10, 5), (0, 1 << 60)])
def test_lengths_that_cannot_be_are_refused_before_memory_is_taken(begin: int, size: int) -> None:
    head = dense.head(dense.NARROW, EPOCH, ((1, 2),), 0, 16 + 100)
    data = head + begin.to_bytes(8, "little") + size.to_bytes(8, "little") + bytes(100)
    with pytest.raises(StoreDamagedError, match="cannot be"):
        read_narrow(data, NARROW)


def test_a_segment_of_small_bodies_is_sent_whole() -> None:
    assert encode_segment(decode(QUEUE, PAIRS)).wide is None


def test_the_wide_part_is_what_may_be_large() -> None:
    files = encode_segment(decode(QUEUE, LARGE))
    assert files.wide is not None
    begin, end, crc = files.wide
    assert zlib.crc32(files.columns[:begin] + files.columns[end:]) == crc
    assert 100 * 1_000 <= end - begin <= 110 * 1_000
