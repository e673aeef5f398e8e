"""Which source positions an application has sent to a destination.

Sequences of one queue come in order but rarely all of them: a query filters. So neither runs (one row a gap) nor hashes (40
bytes a row) are kept but blocks of 4,096 sequences, each a list of offsets while few are known and then a bitmap: two bytes a
row at the most beside the block, an eighth of a byte where nearly all are sent.
"""

from __future__ import annotations

import numpy as np

BLOCK_BITS = 12
BLOCK = 1 << BLOCK_BITS
"""Sequences of one block; its bitmap has 512 bytes."""
_LIST, _BITMAP = b"L", b"B"
_LIST_MAX = BLOCK // 16
"""Offsets of two bytes that take as much room as the bitmap."""


def decode(known: bytes) -> np.ndarray:
    """The offsets in a stored block, as a mask."""
    mask = np.zeros(BLOCK, bool)
    if known[:1] == _LIST:
        mask[np.frombuffer(known, "<u2", offset=1)] = True
    else:
        mask[:] = np.unpackbits(np.frombuffer(known, np.uint8, offset=1), bitorder="little").astype(bool)
    return mask


def encode(mask: np.ndarray) -> bytes:
    """The stored form of a mask."""
    offsets = np.flatnonzero(mask)
    if len(offsets) < _LIST_MAX:
        return _LIST + offsets.astype("<u2").tobytes()
    return _BITMAP + np.packbits(mask, bitorder="little").tobytes()
