"""Writes sets of sequences as JSON: a few runs as they are, which people can read, and many packed into a text.

The Delta state has what consumers received beyond their marks in this form, and a query's offsets what it leaves out.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable
from itertools import islice
from typing import Any

from srmp_spark.sequences.ranges import SEQUENCE_BITS, SEQUENCE_MAX, Range
from srmp_spark.sequences.sequence_set import BLOCK_BYTES, BLOCK_SEQUENCES, Piece, SequenceSet

RUNS_SHOWN_MAX = 1_000
"""Runs that are written as a list, which people and earlier versions can read; more are packed."""

_PACKED = struct.Struct("<QQH")
_BLOCKS_MAX = (1 << SEQUENCE_BITS) // BLOCK_SEQUENCES
_UNPACKED_MAX = 1 << 30
"""Bytes of the packed marks of one consumer: a hundred million scattered rows and more have room."""


def set_as_json(sequences: SequenceSet) -> list[Range] | str:
    """Return a list of runs, or a text."""
    runs = list(islice(sequences.runs(), RUNS_SHOWN_MAX + 1))
    if len(runs) <= RUNS_SHOWN_MAX:
        return runs
    packed = bytearray()
    for block, blocks, bits in sequences.pieces():
        packed += _PACKED.pack(block, blocks, 0 if bits is None else len(bits)) + (bits or b"")
    return base64.b64encode(zlib.compress(bytes(packed))).decode()


def set_from_json(value: list[Iterable[int]] | str) -> SequenceSet:
    """Read what :func:`set_as_json` wrote. Raises :class:`ValueError` or :class:`TypeError` for anything else."""
    if not isinstance(value, str):
        return SequenceSet(runs_from_json(value))
    inflating = zlib.decompressobj()
    try:
        packed = inflating.decompress(base64.b64decode(value, validate=True), _UNPACKED_MAX)
    except zlib.error as error:
        raise ValueError(f"sequences that cannot be unpacked: {error}") from error
    if not inflating.eof:
        raise ValueError("sequences that end too early, or are too many")
    found, at = SequenceSet(), 0
    try:
        while at < len(packed):
            block, blocks, size = _PACKED.unpack_from(packed, at)
            at += _PACKED.size + size
            if size > BLOCK_BYTES or at > len(packed) or block + blocks > _BLOCKS_MAX:
                raise ValueError(f"a piece of {size} bytes at {block}")
            found.add_piece(Piece(block, blocks, packed[at - size : at] if size else None))
    except struct.error as error:
        raise ValueError(f"sequences that cannot be unpacked: {error}") from error
    return found


def runs_from_json(found: Iterable[Iterable[Any]]) -> list[Range]:
    """Read a list of runs of sequences. Raises :class:`ValueError` or :class:`TypeError` for what no queue can have."""
    runs = []
    for first, last in found:
        if type(first) is not int or type(last) is not int:
            raise TypeError(f"no range of sequences: {first!r:.50} to {last!r:.50}")
        if not 1 <= first <= last <= SEQUENCE_MAX:
            raise ValueError(f"no range of sequences: {first!r:.50} to {last!r:.50}")
        runs.append((first, last))
    return runs
