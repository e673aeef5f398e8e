"""Makes stages of Arrow bytes: good, changed and hostile.

A stage is the Arrow IPC stream of rows that a client uploads for one batch. Arrow trusts the bytes
that it reads. The hostile forms once ended the process that read them, or used up its memory. Since
then a separate process, which may end alone, checks stages. Each form is a function that takes a
random generator and returns the bytes.
"""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Callable, Sequence
from random import Random

import pyarrow as pa

from tests.kit.fuzz.mutators import Mutator

ROWS = 1234
"""Number of rows in the stages that are changed.

No other number in these stages has the same eight bytes, so the row count can be found and
replaced.
"""
BODY = b"abcd"
BOMB_BYTES = 650 * 1024 * 1024
"""Size after decompression of a stage of 20 KB: ten times the limit of a record batch."""
MEGABYTE = 1024 * 1024
NOWHERE = "http://127.0.0.1:9/msmq/private$/q"
"""Destination of rows that must never be sent; no server listens at the address."""
_MUTATOR = Mutator([b"\xff" * 8, bytes(16), struct.pack("<q", 2**62), struct.pack("<i", -1)], [])


def stream_of(
    bodies: Sequence[bytes], destination: str = NOWHERE, compression: str | None = None
) -> bytes:
    """Return a stage with the columns ``body`` and ``destination``, as a good client writes it.

    ``compression`` is ``zstd``, ``lz4`` or ``None``.
    """
    return _stream(_rows(bodies, destination), compression)


def _rows(bodies: Sequence[bytes], destination: str = NOWHERE) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "body": pa.array(bodies, pa.binary()),
            "destination": pa.array([destination] * len(bodies)),
        }
    )


def _stream(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(
        sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _plain(rng: Random) -> bytes:
    return stream_of([BODY] * ROWS, compression=rng.choice((None, None, "zstd", "lz4")))


def mutated(rng: Random) -> bytes:
    """Return a good stage that is changed at random places."""
    return _MUTATOR.mutate(_plain(rng), rng)


def flipped(rng: Random) -> bytes:
    """Return a good stage of the same length in which up to 40 bytes are changed."""
    data = bytearray(_plain(rng))
    for _ in range(rng.choice((1, 4, 40))):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(data)


def truncated(rng: Random) -> bytes:
    """Return a good stage that ends too early.

    More than 16 bytes are cut off, because a stage may be accepted without its end marker of eight
    bytes.
    """
    data = _plain(rng)
    return data[: rng.randrange(len(data) - 16)]


def octets(rng: Random) -> bytes:
    """Return 1, 8, 100 or 100,000 random bytes."""
    return rng.randbytes(rng.choice((1, 8, 100, 100_000)))


def more_rows(rng: Random) -> bytes:
    """Return a stage whose record batch states another number of rows than it has offsets for."""
    count = rng.choice((100_000, 4_000_000, 4_000_000, 10**12, -1))
    return stream_of([BODY] * ROWS).replace(struct.pack("<q", ROWS), struct.pack("<q", count))


def wrong_offsets(rng: Random) -> bytes:
    """Return a stage in which an offset of a body points outside the buffer or backwards."""
    size = len(BODY)
    good = struct.pack(f"<{ROWS}i", *(size * number for number in range(1, ROWS + 1)))
    far = rng.choice((2**31 - 1, -(2**31), -1, 1_500_000_000))
    numbers = [size * number for number in range(1, ROWS + 1)]
    numbers[rng.choice((0, ROWS // 2, ROWS - 2))] = far
    return stream_of([BODY] * ROWS).replace(good, struct.pack(f"<{ROWS}i", *numbers))


@functools.cache
def _bomb() -> bytes:
    return stream_of([bytes(BOMB_BYTES)], compression="zstd")


def bomb(_rng: Random) -> bytes:
    """Return a stage of 20 KB that decompresses to :data:`BOMB_BYTES`."""
    return _bomb()


def dictionary_bomb(_rng: Random) -> bytes:
    """Return a stage with one value of a megabyte that each of 4,000 rows repeats."""
    values = pa.array([b"x" * MEGABYTE], pa.binary())
    body = pa.DictionaryArray.from_arrays(pa.array([0] * 4_000, pa.int32()), values)
    return _stream(pa.record_batch({"body": body, "destination": pa.array([NOWHERE] * 4_000)}))


def view_bomb(_rng: Random) -> bytes:
    """Return a stage with 4,000 views that all refer to the same megabyte."""
    text = pa.array(["x" * MEGABYTE]).cast(pa.string_view())
    view = text.buffers()[1].to_pybytes()[:16]
    body = pa.Array.from_buffers(
        pa.string_view(), 4_000, [None, pa.py_buffer(view * 4_000), *text.buffers()[2:]]
    )
    return _stream(pa.record_batch({"body": body, "destination": pa.array([NOWHERE] * 4_000)}))


def wrong_index(rng: Random) -> bytes:
    """Return a stage in which a dictionary index refers to no value."""
    indices = [0] * ROWS
    good = struct.pack(f"<{ROWS}i", *indices)
    body = pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int32()), pa.array([BODY], pa.binary())
    )
    data = _stream(pa.record_batch({"body": body, "destination": pa.array([NOWHERE] * ROWS)}))
    indices[rng.randrange(ROWS)] = rng.choice((1, -1, 2**31 - 1, -(2**31)))
    return data.replace(good, struct.pack(f"<{ROWS}i", *indices))


def lying_length(rng: Random) -> bytes:
    """Return a stage whose compressed buffer states an impossible uncompressed length."""
    data = bytearray(stream_of([b"a" * 54_321], compression="zstd"))
    at = data.rindex(struct.pack("<q", 54_321))
    data[at : at + 8] = struct.pack("<q", rng.choice((2**62, 2**63 - 1, -(2**63), 2**40, -2)))
    return bytes(data)


def no_utf8(_rng: Random) -> bytes:
    """Return a stage whose destinations are not valid UTF-8."""
    return stream_of([BODY] * 3).replace(NOWHERE.encode(), b"\xff" * len(NOWHERE))


def other_columns(rng: Random) -> bytes:
    """Return a stage whose columns a sink would not write.

    The body column is missing, or there are thousands of columns, or the body is a deeply nested
    list.
    """
    columns: dict[str, pa.Array] = {"destination": pa.array([NOWHERE])}
    what = rng.choice(("none", "many", "deep"))
    if what == "many":
        columns |= {f"c{number}": pa.array([1]) for number in range(5_000)}
    elif what == "deep":
        array = pa.array([1])
        for _ in range(60):
            array = pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)
        columns["body"] = array
    return _stream(pa.record_batch(columns))


HOSTILE: dict[str, Callable[[Random], bytes]] = {
    "truncated": truncated,
    "octets": octets,
    "more-rows": more_rows,
    "offsets": wrong_offsets,
    "bomb": bomb,
    "dictionary": dictionary_bomb,
    "views": view_bomb,
    "index": wrong_index,
    "lying": lying_length,
    "utf8": no_utf8,
    "columns": other_columns,
}
"""Name → form that must be refused, whatever the generator draws."""
ANYHOW: dict[str, Callable[[Random], bytes]] = {"mutated": mutated, "flipped": flipped}
"""Name → form that may be valid by chance, so the stage may be accepted or refused."""
FORMS = HOSTILE | ANYHOW
