"""The content that a key belongs to, as it is stored with the key: 8 bytes and their form.

A key that is used again is compared in the form in which it was stored, for as long as it is known
(30 days):

- *hashed*, 8 bytes: blake2b (:func:`.hashing.content_hashes`), a call for each row. Earlier
  versions stored this form.
- *marked*, 9 bytes: :data:`MARKED` and the mark (:func:`.content_marks.content_marks`), computed
  for a slice of rows at once.
- none, for a key that was restored from the Delta state: any content of its row is accepted as a
  repeat.

A mark is no signature. Two contents that were constructed to have one mark count as equal, under
one key of one application. The application itself writes both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from srmp_spark.errors import StoreDamagedError
from srmp_spark.store.outbox.identity.hashing import CONTENT_BYTES

MARKED = 1
"""First byte of a content mark (:mod:`.content_marks`) in its stored form."""
STORED_BYTES = 1 + CONTENT_BYTES
_STORED = np.dtype([("form", "u1"), ("mark", ">u8")])


class KeyContent(NamedTuple):
    """The content that is stored with one key, as a number of 8 bytes."""

    value: int
    is_hashed: bool
    """Whether the value is a blake2b hash, and not a mark."""


def encode(marks: np.ndarray) -> bytes:
    """Return the stored forms of content marks one after another, :data:`STORED_BYTES` for each."""
    stored = np.empty(len(marks), _STORED)
    stored["form"], stored["mark"] = MARKED, marks
    return stored.tobytes()


def decode(stored: bytes) -> KeyContent:
    """Return the content that is stored with a key, and whether it is a hash or a mark.

    Raises :class:`StoreDamagedError` if it has neither form.
    """
    if isinstance(stored, bytes):
        if len(stored) == CONTENT_BYTES:
            return KeyContent(int.from_bytes(stored, "big"), is_hashed=True)
        if len(stored) == STORED_BYTES and stored[0] == MARKED:
            return KeyContent(int.from_bytes(stored[1:], "big"), is_hashed=False)
    raise StoreDamagedError(
        f"the content of a key is stored as {stored!r}: the disk or a copy of the outbox is damaged"
    )
