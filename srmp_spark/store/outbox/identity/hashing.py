"""Decides when two rows are equal: the hash of a key, and the digest of a row's content.

The content is everything that determines the message, in one form for every Arrow type and batch.
The content consists of the sink's columns except ``key`` and ``destination``, with defaults filled
in. Identities count for each destination anyway, but the list of destinations of a row with several
is content. A missing column and a null are equal, so a query that adds a column without values
changes nothing.

**This form is stored for 30 days: it must not change.** ``tests/outbox/test_hashing.py`` has its
values.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

HASH_BYTES = 16
"""Length of keys' hashes and of digests, in bytes.

Two of a million million rows have the same hash with a probability of 10^-15.
"""
CONTENT_BYTES = 8
"""Length in bytes of the content hash that earlier versions stored with a key.

This version compares such a hash when its key is used again (:mod:`.key_contents`). Hashes are
compared pair by pair, so half the length of a digest is enough.
"""

CONTENT = (
    ("label", b"l"),
    ("priority", b"p"),
    ("correlation_id", b"c"),
    ("app_specific", b"a"),
    ("body_type", b"t"),
    ("response_queue", b"r"),
    ("admin_queue", b"m"),
    ("time_to_reach_queue", b"q"),
    ("extension", b"x"),
    ("delivery", b"d"),
    ("transaction", b"n"),
    ("journal", b"j"),
    ("destination_list", b"e"),
    ("soap_action", b"s"),
    ("wsrm_version", b"w"),
    ("soap_version", b"v"),
    ("wsa_version", b"g"),
)
"""The columns that are hashed before the body, each with the letter that stands for it."""
DEFAULTS = {
    "delivery": "transactional",
    "priority": 3,
    "journal": False,
    "app_specific": 0,
    "body_type": 0,
    "label": "",
}
"""Values that mean the same as a missing value. Such values are left out of the hash."""


def key_hashes(keys: pa.Array) -> np.ndarray:
    """Return an array with the hash of each key: a row of two unsigned 64-bit numbers.

    A null has the hash of an empty key.
    """
    view, offsets = _bytes_of(keys)
    made = []
    # Copying a hash object costs less than making a new one.
    base = blake2b(digest_size=HASH_BYTES, person=b"srmp-key")
    for a, b in itertools.pairwise(offsets):
        digest = base.copy()
        digest.update(view[a:b])
        made.append(digest.digest())
    return np.frombuffer(b"".join(made), ">u8").reshape(-1, 2).astype(np.uint64)


def content_hashes(columns: Mapping[str, pa.Array], rows: int, size: int) -> np.ndarray:
    """Return an array with the digest of each row's content: a row of ``size // 8`` numbers.

    A digest has ``size`` bytes. The numbers are unsigned and have 64 bits.
    """
    heads = _heads(columns, rows)
    body = columns.get("body")
    if body is None:
        made = [blake2b(head, digest_size=size, person=b"srmp-row").digest() for head in heads]
    else:
        view, offsets = _bytes_of(body)
        made = []
        if heads.count(heads[0]) == rows:
            base = blake2b(heads[0], digest_size=size, person=b"srmp-row")
            for a, b in itertools.pairwise(offsets):
                digest = base.copy()
                digest.update(view[a:b])
                made.append(digest.digest())
        else:
            for head, a, b in zip(heads, offsets[:-1], offsets[1:], strict=True):
                digest = blake2b(head, digest_size=size, person=b"srmp-row")
                digest.update(view[a:b])
                made.append(digest.digest())
    return np.frombuffer(b"".join(made), ">u8").reshape(-1, size // 8).astype(np.uint64)


def again(digest: bytes | bytearray, count: int) -> bytes:
    """Return the identity (16 bytes) of a row that has the same content as rows before it.

    ``digest`` is the digest of the content, and ``count`` is the number of equal rows before it in
    its batch. The identity of the first of them (``count`` 0) is the digest.
    """
    if count == 0:
        return bytes(digest)
    return blake2b(
        digest + struct.pack("<Q", count), digest_size=HASH_BYTES, person=b"srmp-again"
    ).digest()


def _heads(columns: Mapping[str, pa.Array], rows: int) -> list[bytes]:
    fields: list[list[bytes]] = []
    for name, letter in CONTENT:
        array = columns.get(name)
        if array is None:
            continue
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.int64())
        default = DEFAULTS.get(name)
        encoded: dict[Any, bytes] = {None: b"", default: b""}
        field = []
        for value in array.to_pylist():
            text = encoded.get(value)
            if text is None:
                data = value if isinstance(value, bytes) else str(value).encode()
                text = letter + len(data).to_bytes(4, "little") + data
                if len(encoded) < _MEMO_MAX:
                    encoded[value] = text
            field.append(text)
        fields.append(field)
    if not fields:
        return [b"b"] * rows
    return [b"".join(each) + b"b" for each in zip(*fields, strict=True)]


_MEMO_MAX = 1_000
"""Number of a column's values whose encoded form is kept, because labels and queues repeat."""


def _bytes_of(array: pa.Array) -> tuple[memoryview, list[int]]:
    """Return all bytes of a binary column, and the offsets at which its rows begin and end.

    Row n lies between the offsets n and n + 1. A null is an empty value.
    """
    _, offsets, data = array.buffers()
    spans = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    # Arrow does not define what the span of a null contains.
    if array.null_count:
        array = array.fill_null(b"")
        _, offsets, data = array.buffers()
        spans = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return memoryview(data if data is not None else b""), spans.tolist()
