"""Rows that have the key or the source position of another content, and what becomes of them.

Such a row is no repeat: two sinks of one query that share an application send two messages for one source position, and a key
may be used again for something else. Nor is it a message: the batch may be a repeat whose body holds a clock, and would then be
sent twice. ``fail`` refuses the batch. ``ignore`` sends the rest of it. ``dead-letter`` sends the rest and keeps the row as a
dead letter. Either way the first content keeps its key or position.

A row that became a dead letter is known by its key or position together with its content, in a scope of its own
(:data:`LETTERS`). So a batch that is run again makes no second dead letter.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import NamedTuple, Protocol

import numpy as np

from srmp_spark.store.outbox.errors import KEY_CONFLICT, NEEDS_KEY, POSITION_CONFLICT, BatchError
from srmp_spark.store.outbox.hashing import HASH_BYTES
from srmp_spark.store.outbox.row_hashes import BY_KEY, BY_POSITION
from srmp_spark.store.outbox.scan import Scan

LETTERS = "dead letters\n"
"""In place of a batch, in the scope of an application and a destination: no batch has this name, for it cannot be printed."""

REASONS = {BY_KEY: KEY_CONFLICT, BY_POSITION: POSITION_CONFLICT}
"""What a dead letter says of its end."""

_APART = (
    "if two sinks of a query write these rows, give this one, which was refused, an "
    "application of its own (or its rows a "
    "column key), and leave the other as it is: what that one has sent would be sent "
    "again under another application. If the "
    "content of a row changed between two runs of a batch, onKeyConflict=ignore or "
    "dead-letter goes on without such rows"
)
_OTHER_KEY = (
    "a key belongs to one message for ever: use another one; "
    "onKeyConflict=ignore or dead-letter sends the batch without such rows"
)

NameRow = Callable[[int], str]
"""Where row number n of the batch stands, and what identifies it: for errors, which may read a file."""


class Identified(Protocol):
    """Rows, by their identities."""

    @property
    def rows(self) -> np.ndarray:
        """Their numbers in the batch."""

    @property
    def high(self) -> np.ndarray:
        """First half of the identity."""

    @property
    def low(self) -> np.ndarray:
        """Second half."""

    @property
    def same(self) -> np.ndarray:
        """Return whether a row has the identity of the row before."""


class Conflicting(NamedTuple):
    """Conflicts of one destination that are known in one way."""

    destination: str
    how: int
    rows: np.ndarray
    high: np.ndarray
    low: np.ndarray
    content: np.ndarray

    def hashes(self, start: int, end: int) -> np.ndarray:
        """Return what the dead letters of the rows between two indices are known by, two unsigned numbers each."""
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
    """The conflicts of one batch."""

    def __init__(self, mask: np.ndarray, *, keeps: bool) -> None:
        """``mask``: a zero for each row of the batch; ``keeps``: somebody asks for :meth:`take`."""
        self.mask = mask
        """Which rows are conflicts, by number."""
        self.count = 0
        """How many rows are conflicts."""
        self._keeps = keeps
        self._parts: list[Conflicting] = []
        self._first: tuple[int, int | None] | None = None
        """The first row, and the row of the batch that has its identity; ``None``: a message of an earlier batch has it."""
        self._twice: tuple[int, int] | None = None

    def add(
        self,
        part: Identified,
        content: np.ndarray,
        differs: np.ndarray,
        found: np.ndarray,
        scan: Scan,
    ) -> None:
        """Note rows of ``part``. ``found``: whether the identity of a row was there before the batch."""
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
        """Note rows whose position and content another row of the batch has: whoever refuses conflicts refuses these too."""
        found = np.flatnonzero(twice)
        if self._twice is None and len(found) and scan.how[part.rows[found[0]]] == BY_POSITION:
            self._twice = int(part.rows[found[0] - 1]), int(part.rows[found[0]])

    def refuse(self, scan: Scan, name: NameRow) -> None:
        """Raise :class:`BatchError` if there is something to refuse."""
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
                message += f"; {self.count} rows of the batch are such"
            raise BatchError(409, REASONS[how], message, _OTHER_KEY if how == BY_KEY else _APART)
        if self._twice is not None:
            first, second = map(name, self._twice)
            message = f"two rows of the batch have one source position: {first} and {second}"
            raise BatchError(
                400,
                NEEDS_KEY,
                message,
                "add a column key that tells them apart, or select the rows apart",
            )

    def take(self) -> Iterator[Conflicting]:
        """Yield the conflicts of each destination since the last call, those by key and those by position apart."""
        grouped: dict[tuple[str, int], list[Conflicting]] = {}
        parts, self._parts = self._parts, []
        for part in parts:
            grouped.setdefault((part.destination, part.how), []).append(part)
        for (destination, how), parts in grouped.items():
            arrays = [
                np.concatenate(each) for each in zip(*(part[2:] for part in parts), strict=True)
            ]
            yield Conflicting(destination, how, *arrays)
