"""Sealed rows give back the same rows, and the original posts byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows_kit import message, record_of, varied

from srmp_spark.errors import StoreDamagedError
from srmp_spark.rows import segment
from srmp_spark.rows.decode import decode, rows_of
from srmp_spark.rows.group import Record

QM, EPOCH, QUEUE = "qm", "ab12", "private$/orders"


def encoded(pairs: list[tuple[int, Record]]) -> segment.SegmentBytes:
    return segment.encode_segment(decode(QUEUE, pairs))


@pytest.mark.parametrize("envelope", [False, True])
@pytest.mark.parametrize("count", [1, 2, 200])
def test_the_rows_are_the_same(count: int, envelope: bool) -> None:
    pairs = varied(count)
    files = encoded(pairs)
    read = segment.read_segment(files.columns, QM, EPOCH, QUEUE, files.posts if envelope else None)
    assert read.equals(rows_of(QM, EPOCH, QUEUE, pairs, envelope))


def test_rows_that_are_all_alike_are_small() -> None:
    """What one sender repeats is kept once; the body is kept once although it is also the text."""
    pairs = [(n, record_of(message(n, body=b"x" * 1000))) for n in range(1, 501)]
    files = encoded(pairs)
    assert segment.read_segment(files.columns, QM, EPOCH, QUEUE).equals(
        rows_of(QM, EPOCH, QUEUE, pairs)
    )
    assert sum(files.sizes) > 500 * 2000
    assert len(files.columns) < 20_000, "one body, one of everything"


def test_the_original_posts_come_back_byte_for_byte() -> None:
    pairs = varied(80)
    files = encoded(pairs)
    assert list(segment.records_of(files.columns, files.posts)) == pairs
    assert files.sizes == [len(record.post) for _, record in pairs]


def test_a_post_that_windows_would_not_write_comes_back_too() -> None:
    """Foreign spelling: blanks, another boundary, no body at all, text/xml alone."""
    records = [record_of(message(1), boundary="=_x"), record_of(message(2, body=b""))]
    head, content = records[0].head, records[0].content
    loose = content.replace(b"Content-Length: 7\r\n", b"content-length:   7  \r\n")
    assert loose != content
    records.append(Record(records[0].arrival, head + loose + b"\r\n", len(head)))
    pairs = list(enumerate(records, 1))
    files = encoded(pairs)
    assert list(segment.records_of(files.columns, files.posts)) == pairs


def test_holes_inside_a_segment() -> None:
    pairs = [pair for pair in varied(20) if pair[0] not in (5, 6, 13)]
    files = encoded(pairs)
    read = segment.read_segment(files.columns, QM, EPOCH, QUEUE)
    assert read.column("sequence").to_pylist() == [sequence for sequence, _ in pairs]
    kept = segment.rows_kept(read, ((4, 7), (13, 15)))
    assert [part.column("sequence").to_pylist() for part in kept] == [[4, 7], [14, 15]]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10)), max_size=4))
def test_rows_kept_are_those_in_the_ranges(spans: list[tuple[int, int]]) -> None:
    keep = tuple((first, first + more) for first, more in spans)
    batch = rows_of(QM, EPOCH, QUEUE, [(n, record_of(message(n))) for n in range(11, 21)])
    found = [part.column("sequence").to_pylist() for part in segment.rows_kept(batch, keep)]
    wanted = [[n for n in range(11, 21) if first <= n <= last] for first, last in keep]
    assert found == [each for each in wanted if each]


def test_a_damaged_file_is_an_error() -> None:
    files = encoded(varied(5))
    for data in (b"", b"\0" * 100, files.columns[:-20], files.posts):
        with pytest.raises(StoreDamagedError):
            segment.read_segment(data, QM, EPOCH, QUEUE)


def test_a_newer_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "FORMAT", 2)
    files = encoded(varied(3))
    monkeypatch.setattr(segment, "FORMAT", 1)
    with pytest.raises(StoreDamagedError, match="start the newer version"):
        segment.read_segment(files.columns, QM, EPOCH, QUEUE)
