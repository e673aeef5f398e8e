"""The source positions that an application has sent to a destination.

Sequences of one queue are sent in order but rarely all of them, because a query filters. Runs would
need one row for each gap, and hashes 40 bytes for each row. So blocks of 4,096 sequences are kept.
A block is a list of offsets while few of them are known, and then a bitmap. A block takes two bytes
a row at most, and an eighth of a byte a row where nearly all rows are sent.

The content of the rows is kept separately, eight bytes a row (:mod:`.content_marks`). Each batch
adds one record for each block in which it has new rows, and never reads or writes a record of
another batch. All records of a block are read when one of its positions is used again. A position
without a content in any record was stored by version 0.1, and its content is not compared.
"""

from __future__ import annotations

import logging
import sqlite3

import numpy as np

BLOCK_BITS = 12
BLOCK = 1 << BLOCK_BITS
"""Number of sequences in one block, whose bitmap has 512 bytes."""
_LIST, _BITMAP = b"L", b"B"
_LIST_MAX = BLOCK // 16
"""Number of offsets (two bytes each) from which on a bitmap is stored instead of a list.

A list of this many offsets takes as much room as a bitmap.
"""


_log = logging.getLogger(__name__)

CONTENT_BYTES = 8
"""Length of a stored content mark, in bytes."""


def encode_contents(marks: np.ndarray) -> bytes:
    """Return the stored form of the marks of a block, which are in the order of their offsets."""
    return marks.astype("<u8").tobytes()


def stored_contents(
    connection: sqlite3.Connection, scope: int, source: int, block: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays: a mask of the offsets whose content is stored, and the marks by offset.

    Both have one element for each sequence of the block. ``scope``, ``source`` and ``block`` are
    the numbers in the table ``position_contents``. A damaged record is logged and skipped.
    """
    there, marks = np.zeros(BLOCK, bool), np.zeros(BLOCK, np.uint64)
    for known, contents in connection.execute(
        "SELECT known, contents FROM position_contents WHERE scope_id = ? AND source_id = "
        "? AND block = ? ORDER BY batch_no",
        (scope, source, block),
    ):
        offsets = np.flatnonzero(decode(known))
        if len(contents) != CONTENT_BYTES * len(offsets):
            _log.warning(
                "outbox.contents_damaged block=%d: these positions are known, what they "
                "contained is not",
                block,
            )
            continue
        # The last record counts. A later batch has one if version 0.1 had forgotten the position.
        marks[offsets] = np.frombuffer(contents, "<u8", len(offsets))
        there[offsets] = True
    return there, marks


def decode(known: bytes) -> np.ndarray:
    """Return a mask that is True at each offset that is known in a stored block.

    ``known`` is the stored form, which :func:`encode` returned.
    """
    mask = np.zeros(BLOCK, bool)
    if known[:1] == _LIST:
        mask[np.frombuffer(known, "<u2", offset=1)] = True
    else:
        mask[:] = np.unpackbits(np.frombuffer(known, np.uint8, offset=1), bitorder="little").astype(
            bool
        )
    return mask


def encode(mask: np.ndarray) -> bytes:
    """Return the stored form of a block in which the offsets are known that ``mask`` selects."""
    return encode_at(np.flatnonzero(mask))


def encode_at(offsets: np.ndarray) -> bytes:
    """Return the stored form of a block whose known offsets are ``offsets`` (ascending)."""
    if len(offsets) < _LIST_MAX:
        return _LIST + offsets.astype("<u2").tobytes()
    mask = np.zeros(BLOCK, bool)
    mask[offsets] = True
    return _BITMAP + np.packbits(mask, bitorder="little").tobytes()
