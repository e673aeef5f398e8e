"""Write sets of sequences as JSON, and read them again.

A set of few runs becomes a list of runs, which people can read. A set of many runs becomes one
packed text. The Delta state stores in this form the rows that a consumer received out of turn,
beyond its mark (:mod:`srmp_spark.store.tables.marks`). The offsets of a query store in this form
the rows that the query leaves out.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable
from itertools import islice
from typing import Any

from srmp_spark.sequences.ranges import SEQUENCE_BITS, SEQUENCE_MAX, Range
from srmp_spark.sequences.sequence_set import BLOCK_BYTES, BLOCK_SEQUENCES, SequenceSet, SetPiece

RUNS_SHOWN_MAX = 1_000
"""Most runs of a set that is written as a list.

People and earlier versions can read a list. A set with more runs is packed.
"""

_PACKED = struct.Struct("<QQH")
_BLOCKS_MAX = (1 << SEQUENCE_BITS) // BLOCK_SEQUENCES
_UNPACKED_MAX = 1 << 30
"""Most bytes that one packed text may unpack to, so that a small text cannot fill the memory.

More than a hundred million scattered rows fit. A longer text is refused with :class:`ValueError`.
"""


def set_as_json(sequences: SequenceSet) -> list[Range] | str:
    """Return the set as a value for JSON: a list of runs, or a packed text.

    A set of at most :data:`RUNS_SHOWN_MAX` runs becomes a list of pairs (first, last), ascending.
    For a larger set the text holds all pieces of the set (:class:`.SetPiece`), packed, compressed
    and in base64.
    """
    runs = list(islice(sequences.runs(), RUNS_SHOWN_MAX + 1))
    if len(runs) <= RUNS_SHOWN_MAX:
        return runs
    packed = bytearray()
    for block, blocks, bits in sequences.pieces():
        packed += _PACKED.pack(block, blocks, 0 if bits is None else len(bits)) + (bits or b"")
    return base64.b64encode(zlib.compress(bytes(packed))).decode()


def set_from_json(value: list[Iterable[int]] | str) -> SequenceSet:
    """Return the set that :func:`set_as_json` wrote as ``value``.

    Raises :class:`ValueError` or :class:`TypeError` if ``value`` is neither a list of runs nor a
    packed text, or has sequences that no queue can have.
    """
    if not isinstance(value, str):
        return SequenceSet(runs_from_json(value))
    inflating = zlib.decompressobj()
    try:
        packed = inflating.decompress(base64.b64decode(value, validate=True), _UNPACKED_MAX)
    except zlib.error as error:
        raise ValueError(f"the packed sequences cannot be unpacked: {error}") from error
    if not inflating.eof:
        raise ValueError(
            f"the packed sequences are cut off, or unpack to more than {_UNPACKED_MAX} bytes"
        )
    found, at = SequenceSet(), 0
    try:
        while at < len(packed):
            block, blocks, size = _PACKED.unpack_from(packed, at)
            at += _PACKED.size + size
            if size > BLOCK_BYTES or at > len(packed) or block + blocks > _BLOCKS_MAX:
                raise ValueError(
                    f"the packed sequences have an invalid piece of {size} bytes at block {block}"
                )
            found.add_piece(SetPiece(block, blocks, packed[at - size : at] if size else None))
    except struct.error as error:
        raise ValueError(f"the packed sequences cannot be unpacked: {error}") from error
    return found


def runs_from_json(found: Iterable[Iterable[Any]]) -> list[Range]:
    """Return the runs of sequences that ``found``, a value read from JSON, holds.

    The result is a list of pairs in the order of ``found``. Raises :class:`TypeError` if a bound of
    a run is no integer. Raises :class:`ValueError` if an element is no pair, or if its bounds are
    out of order, below 1 or above :data:`.SEQUENCE_MAX`.
    """
    runs = []
    for first, last in found:
        if type(first) is not int or type(last) is not int:
            raise TypeError(f"no range of sequences: {first!r:.50} to {last!r:.50}")
        if not 1 <= first <= last <= SEQUENCE_MAX:
            raise ValueError(f"no range of sequences: {first!r:.50} to {last!r:.50}")
        runs.append((first, last))
    return runs
