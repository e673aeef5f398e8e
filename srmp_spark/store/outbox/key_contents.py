"""What a key must come with again, as it is stored: 8 bytes of the row's content, in the form of the day.

A key that is sent again is compared in the form that it was stored with, for as long as it is known (30 days):

- *hashed*, 8 bytes: blake2b (:func:`.hashing.content_hashes`), a call for each row. Earlier versions stored this.
- *marked*, 9 bytes: :data:`MARKED` and the mark (:func:`.content_marks.content_marks`), computed for a slice of rows at once.
- none, of a key that was restored from the Delta state: it is known whatever its row contains.

A mark is no signature. Two contents that were made to have one mark count as one, under one key of one application; who can
make them writes both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from srmp_spark.errors import StoreDamagedError
from srmp_spark.store.outbox.hashing import CONTENT_BYTES

MARKED = 1
"""The first byte of a mark as it is stored."""
STORED_BYTES = 1 + CONTENT_BYTES
_STORED = np.dtype([("form", "u1"), ("mark", ">u8")])


class KeyContent(NamedTuple):
    """What is stored with one key."""

    value: int
    is_hashed: bool
    """By blake2b, and no mark."""


def encode(marks: np.ndarray) -> bytes:
    """Return marks as they are stored, :data:`STORED_BYTES` each."""
    stored = np.empty(len(marks), _STORED)
    stored["form"], stored["mark"] = MARKED, marks
    return stored.tobytes()


def decode(stored: bytes) -> KeyContent:
    """Read what is stored with a key. Raises :class:`StoreDamagedError` for what is neither form."""
    if isinstance(stored, bytes):
        if len(stored) == CONTENT_BYTES:
            return KeyContent(int.from_bytes(stored, "big"), is_hashed=True)
        if len(stored) == STORED_BYTES and stored[0] == MARKED:
            return KeyContent(int.from_bytes(stored[1:], "big"), is_hashed=False)
    raise StoreDamagedError(
        f"the content of a key is stored as {stored!r}: the disk or a copy of the outbox is damaged"
    )
