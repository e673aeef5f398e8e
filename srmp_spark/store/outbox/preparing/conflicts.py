"""Conflicts: rows that have the key or the source position of a row with other content.

A conflict is no repeat. Two sinks of one query that share an application send two messages for one
source position, and a key may be used again for something else. A conflict is no new message
either. The batch may be a repeat whose body contains a clock, and the message would then be sent
twice.

The option ``onKeyConflict`` decides. ``fail`` refuses the batch. ``ignore`` sends the rest of the
batch. ``dead-letter`` sends the rest of the batch and keeps the row as a dead letter. In each case
the first content keeps its key or position.

A row that became a dead letter is known by its key or position together with its content, in a
scope of its own (:data:`LETTERS`). So a batch that is run again makes no second dead letter.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import NamedTuple, Protocol

import numpy as np

from srmp_spark.store.outbox.errors import KEY_CONFLICT, NEEDS_KEY, POSITION_CONFLICT, BatchError
from srmp_spark.store.outbox.identity.hashing import HASH_BYTES
from srmp_spark.store.outbox.identity.row_hashes import BY_KEY, BY_POSITION
from srmp_spark.store.outbox.preparing.scan import Scan

LETTERS = "dead letters\n"
"""Text in place of a batch's name in the scope of the dead letters of a destination.

No batch has this name, because the name contains a line break, which is not printable.
"""

REASONS = {BY_KEY: KEY_CONFLICT, BY_POSITION: POSITION_CONFLICT}
"""The reason that a dead letter states, by the way in which its row is identified."""

_APART = (
    "if two sinks of a query write these rows, give this sink, which was refused, an "
    "application of its own, or give its rows a column key. Leave the other sink unchanged: "
    "under another application its rows would be sent again. If the content of a row changed "
    "between two runs of a batch, onKeyConflict=ignore or dead-letter sends the batch without "
    "such rows"
)
_OTHER_KEY = (
    "a key belongs to one message for ever: use another one; "
    "onKeyConflict=ignore or dead-letter sends the batch without such rows"
)

NameRow = Callable[[int], str]
"""Function that describes row number n of the batch: its place, and its key or position.

The text is for error messages. The call may read a file.
"""


class Identified(Protocol):
    """Rows of a batch, each with its identity (:mod:`.identities`), in ascending order."""

    @property
    def rows(self) -> np.ndarray:
        """Return an array with the number of each row in the batch."""

    @property
    def high(self) -> np.ndarray:
        """Return an array with the first half of each row's identity."""

    @property
    def low(self) -> np.ndarray:
        """Return an array with the second half of each row's identity."""

    @property
    def same(self) -> np.ndarray:
        """Return a mask that is True for each row with the identity of the row before it."""


class Conflicting(NamedTuple):
    """The conflicting rows of one destination that are all identified in one way.

    ``how`` is BY_KEY or BY_POSITION (:mod:`.row_hashes`). ``rows`` has row numbers, ``high`` and
    ``low`` the two halves of each identity, and ``content`` the content marks.
    """

    destination: str
    how: int
    rows: np.ndarray
    high: np.ndarray
    low: np.ndarray
    content: np.ndarray

    def hashes(self, start: int, end: int) -> np.ndarray:
        """Return the identities of the dead letters for the rows from ``start`` to before ``end``.

        Each identity is a line of two unsigned numbers, made of the row's key or position and its
        content.
        """
        base = blake2b(struct.pack("<B", self.how), digest_size=HASH_BYTES, person=b"srmp-conflict")
        fields = np.stack(
            [self.high[start:end], self.low[start:end], self.content[start:end]], axis=1
        ).astype("<u8")
        made = []
        for field in fields:
            digest = base.copy()
            digest.update(field.tobytes())
            made.append(digest.digest())
        return np.frombuffer(b"".join(made), ">u8").reshape(-1, 2).astype(np.uint64)


class Conflicts:
    """Collects the conflicts of one batch, which the module explains."""

    def __init__(self, mask: np.ndarray, *, keeps: bool) -> None:
        """Begin without conflicts.

        ``mask`` has a zero for each row of the batch, and is changed by :meth:`add`. ``keeps`` says
        that the caller will call :meth:`take`.
        """
        self.mask = mask
        """Mask of the rows that are conflicts, by row number."""
        self.count = 0
        """Number of rows that are conflicts."""
        self._keeps = keeps
        self._parts: list[Conflicting] = []
        self._first: tuple[int, int | None] | None = None
        """The first conflicting row, and the row of the batch that has its identity.

        The second number is ``None`` if a message of an earlier batch has the identity.
        """
        self._twice: tuple[int, int] | None = None

    def add(
        self,
        part: Identified,
        content: np.ndarray,
        differs: np.ndarray,
        found: np.ndarray,
        scan: Scan,
    ) -> None:
        """Record the rows of ``part`` that are conflicts.

        ``differs`` is a mask of these rows, by index in ``part``. ``content`` has the content mark
        of each row of ``part``. ``found`` is a mask of its rows whose identity was known before the
        batch.
        """
        rows = part.rows[differs]
        self.mask[rows] = True
        first = int(rows.min())
        how, destination = int(scan.how[first]), scan.scopes[int(scan.scope[first])]
        self.count += len(rows)
        if self._keeps:
            self._parts.append(
                Conflicting(
                    destination, how, rows, part.high[differs], part.low[differs], content[differs]
                )
            )
        if self._first is None or first < self._first[0]:
            index = int(np.flatnonzero(part.rows == first)[0])
            lead = int(np.flatnonzero(~part.same[: index + 1])[-1])
            self._first = first, None if found[index] else int(part.rows[lead])

    def note_twice(self, part: Identified, twice: np.ndarray, scan: Scan) -> None:
        """Record two rows of the batch that share one source position and one content.

        ``twice`` is a mask of rows of ``part`` that repeat the row before them. Only the first two
        such rows are kept. Rows with a key or a digest are ignored. :meth:`refuse` refuses the
        batch because of them.
        """
        found = np.flatnonzero(twice)
        if self._twice is None and len(found) and scan.how[part.rows[found[0]]] == BY_POSITION:
            self._twice = int(part.rows[found[0] - 1]), int(part.rows[found[0]])

    def refuse(self, scan: Scan, name: NameRow) -> None:
        """Raise :class:`BatchError` if the batch has a conflict (409).

        Two rows of the batch with one source position and one content are refused too (400).
        ``name`` describes a row for the text of the error.
        """
        if self._first is not None:
            row, other = self._first
            how, destination = int(scan.how[row]), scan.scopes[int(scan.scope[row])]
            if other is None:
                message = f"{name(row)} was sent before with another content, to {destination}"
            else:
                what = "key" if how == BY_KEY else "source position"
                message = (
                    f"two rows of the batch have one {what} and differ in content: "
                    f"{name(other)} and {name(row)}"
                )
                message += f", both for {destination}"
            if self.count > 1:
                message += f"; {self.count} rows of the batch conflict"
            raise BatchError(409, REASONS[how], message, _OTHER_KEY if how == BY_KEY else _APART)
        if self._twice is not None:
            first, second = map(name, self._twice)
            message = f"two rows of the batch have one source position: {first} and {second}"
            raise BatchError(
                400,
                NEEDS_KEY,
                message,
                "add a column key that tells them apart",
            )

    def take(self) -> Iterator[Conflicting]:
        """Yield the conflicts since the last call, grouped by destination, and forget them.

        Conflicts by key and conflicts by position are yielded separately.
        """
        grouped: dict[tuple[str, int], list[Conflicting]] = {}
        parts, self._parts = self._parts, []
        for part in parts:
            grouped.setdefault((part.destination, part.how), []).append(part)
        for (destination, how), parts in grouped.items():
            arrays = [
                np.concatenate(each) for each in zip(*(part[2:] for part in parts), strict=True)
            ]
            yield Conflicting(destination, how, *arrays)
