"""The dense stream: pieces as they are stored, decoded by who reads them."""

from __future__ import annotations

import io
import zlib
from typing import IO, Any

import pytest
from rows_kit import varied

from srmp_spark.errors import ApiUnreachableError, StoreDamagedError
from srmp_spark.rows import dense
from srmp_spark.rows.decode import decode, rows_of
from srmp_spark.rows.group import Record, pack_group
from srmp_spark.rows.segment import encode_segment

QM, EPOCH, QUEUE = "qm", "ab12", "private$/orders"
PAIRS = varied(60)


def segment_frames(
    pairs: list[tuple[int, Record]], keep: tuple[dense.Range, ...], envelope: bool
) -> bytes:
    files = encode_segment(decode(QUEUE, pairs))
    frame = (
        dense.head(dense.SEGMENT, EPOCH, keep, zlib.crc32(files.columns), len(files.columns))
        + files.columns
    )
    if envelope:
        frame += (
            dense.head(dense.POSTS, EPOCH, keep, zlib.crc32(files.posts), len(files.posts))
            + files.posts
        )
    return frame


def group(first: int, last: int, keep: tuple[dense.Range, ...] | None = None) -> bytes:
    blob = pack_group(first, [record for _, record in PAIRS[first - 1 : last]])
    return dense.group_frame(EPOCH, keep or ((first, last),), blob)


def stream(envelope: bool = False) -> bytes:
    """Rows 1 to 40 sealed, 41 to 60 in groups; 10 to 12 and 45 are holes."""
    frames = segment_frames(PAIRS[:40], ((1, 9), (13, 40)), envelope)
    return (
        frames + group(41, 41) + group(42, 50, ((42, 44), (46, 50))) + group(51, 60) + dense.end()
    )


def sequences(data: bytes | IO[bytes], after: int = 0, to: int = 60) -> list[int]:
    source = io.BytesIO(data) if isinstance(data, bytes) else data
    batches = dense.batches(dense.frames(source), QM, QUEUE, after, to)
    return [n for batch in batches for n in batch.column("sequence").to_pylist()]


EXPECTED = [n for n in range(1, 61) if n not in (10, 11, 12, 45)]


@pytest.mark.parametrize("envelope", [False, True])
def test_the_rows_are_those_of_the_log(envelope: bool) -> None:
    batches = list(
        dense.batches(dense.frames(io.BytesIO(stream(envelope))), QM, QUEUE, 0, 60, envelope)
    )
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == rows_of(QM, EPOCH, QUEUE, [PAIRS[n - 1] for n in EXPECTED], envelope).to_pylist()


@pytest.mark.parametrize(
    ("after", "to"), [(0, 60), (8, 14), (11, 45), (44, 46), (59, 60), (41, 41)]
)
def test_only_the_rows_asked_for(after: int, to: int) -> None:
    assert sequences(stream(), after, to) == [n for n in EXPECTED if after < n <= to]


def test_groups_are_joined_into_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "BATCH_ROWS", 8)
    data = b"".join(group(n, n) for n in range(1, 21)) + dense.end()
    assert [
        batch.num_rows for batch in dense.batches(dense.frames(io.BytesIO(data)), QM, QUEUE, 0, 60)
    ] == [8, 8, 4]


class Dribble(io.RawIOBase):
    """A socket that gives a few bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def read(self, size: int = -1) -> bytes:
        part = self._data[self._at : self._at + min(size, 100)]
        self._at += len(part)
        return part

    def readinto(self, buffer: Any) -> int:
        part = self.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)


def test_a_socket_may_give_less_at_once() -> None:
    assert sequences(Dribble(stream())) == EXPECTED  # type: ignore[arg-type]


def test_a_stream_that_is_cut_off_can_be_tried_again() -> None:
    data = stream()
    for length in (0, 5, 100, len(data) // 2, len(data) - len(dense.end()), len(data) - 1):
        with pytest.raises(ApiUnreachableError):
            sequences(data[:length])


def test_every_flipped_bit_of_the_data_is_found() -> None:
    data = stream()
    start = len(dense.head(dense.SEGMENT, EPOCH, ((1, 9), (13, 40)), 0, 0))
    for at in range(start, len(data) - 200, 997):
        broken = bytearray(data)
        broken[at] ^= 1
        with pytest.raises((StoreDamagedError, ApiUnreachableError, UnicodeDecodeError)):
            sequences(bytes(broken))


def test_what_is_no_dense_stream_is_said() -> None:
    with pytest.raises(StoreDamagedError, match="another version"):
        sequences(b'{"error": "no such queue", "code": 404}')
