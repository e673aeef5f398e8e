"""``Transfer-Encoding: chunked`` (RFC 9112 7.1): whole or byte by byte the same, and nothing lenient."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.queue_manager.srmp_port.chunked import ChunkedBody
from srmp_spark.queue_manager.srmp_port.http_limits import (
    CHUNK_LINE_MAX,
    CHUNK_MEAN_MIN,
    CHUNK_TRAILERS_MAX,
    CHUNKS_FREE,
)
from srmp_spark.srmp.limits import CONTENT_MAX


def encoded(parts: list[bytes], trailers: bytes = b"") -> bytes:
    return (
        b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
        + b"0\r\n"
        + trailers
        + b"\r\n"
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=50), max_size=6),
    st.binary(max_size=30),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_any_cut_gives_the_same_content_and_the_same_rest(
    parts: list[bytes], rest: bytes, cuts: list[int]
) -> None:
    wire = encoded(parts, b"X-Trailer: 1\r\n") + rest
    body, begin, left = ChunkedBody(), 0, None
    for end in [*sorted(cut for cut in cuts if cut < len(wire) - len(rest)), len(wire)]:
        assert left is None
        left = body.feed(wire[begin:end])
        begin = end
    assert (bytes(body.content), left) == (b"".join(parts), rest)


@pytest.mark.parametrize(
    "wire",
    [
        b"1\nA\r\n0\r\n\r\n",
        b"1\r\nAB\r\n0\r\n\r\n",
        b"1\r\nA\n0\r\n\r\n",
        b"0x1\r\nA\r\n0\r\n\r\n",
        b"-1\r\nA\r\n0\r\n\r\n",
        b"+1\r\nA\r\n0\r\n\r\n",
        b" 1\r\nA\r\n0\r\n\r\n",
        b"\r\n\r\n",
        b"\n",
        b"000000001\r\nA\r\n0\r\n\r\n",
        b"1;" + b"a" * CHUNK_LINE_MAX + b"\r\nA\r\n0\r\n\r\n",
        b"1;\x00\r\nA\r\n0\r\n\r\n",
        b"0\r\nno colon\r\n\r\n",
        b"0\r\nX: y\n\r\n",
        b"0\r\n" + b"A: b\r\n" * CHUNK_TRAILERS_MAX,
    ],
)
def test_what_a_proxy_could_read_differently_is_refused(wire: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        ChunkedBody().feed(wire)
    assert refused.value.status_hint == 400
    body = ChunkedBody()
    with pytest.raises(RemoteProtocolError):
        feed_one_by_one(body, wire)


def feed_one_by_one(body: ChunkedBody, wire: bytes) -> None:
    for byte in wire:
        body.feed(bytes([byte]))


def test_too_much_is_413_before_it_arrives() -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        ChunkedBody().feed(b"%x\r\n" % (CONTENT_MAX + 1))
    assert refused.value.status_hint == 413


def test_a_body_in_chunks_of_almost_nothing_is_refused_before_it_has_cost_the_loop_much() -> None:
    """A body of 4 MB in chunks of one byte took eight seconds of the loop, 115 ms for each read of 256 KB."""
    short, body = [b"x"] * CHUNKS_FREE, ChunkedBody()
    assert body.feed(encoded(short)) == b"", "a short message may arrive byte by byte"
    assert body.content == b"x" * CHUNKS_FREE
    read = b"1\r\nx\r\n" * 43_690
    began = time.process_time()
    with pytest.raises(RemoteProtocolError, match="CHUNK_MEAN_MIN"):
        ChunkedBody().feed(read)
    assert time.process_time() - began < 0.02
    large = ChunkedBody()
    assert large.feed(encoded([bytes(CHUNK_MEAN_MIN)] * 20_000)) == b"", "the mean counts, not each"
