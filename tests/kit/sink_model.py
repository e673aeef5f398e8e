"""A model of the sink's promise: each distinct message is sent once, or is an error.

A *schedule* is the life of one query: micro-batches, the sinks to which each micro-batch is
written, failures, and Spark's reactions. The whole schedule is drawn from ``Random(seed)``. The
outbox is the real one, with its database, its stages, and the engine that numbers messages. There
is no Spark, no HTTP, and no network (:mod:`.sink_simulation` runs it).

The model keeps the owner of each key or position in one dictionary. For each commit it says which
answer is right. At the end it says which messages must wait in the queues, and which must be dead
letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

FAIL, IGNORE, DEAD_LETTER = MODES = ("fail", "ignore", "dead-letter")


class Row(NamedTuple):
    """A row as the sink receives it."""

    destination: str
    body: bytes
    label: str = ""
    key: str | None = None
    sequence: int | None = None
    """The sequence of the row's source position; ``None`` if the row has no source position."""

    @property
    def content(self) -> tuple[bytes, str]:
        """Return the content that is compared: the body and the label."""
        return self.body, self.label


class Batch(NamedTuple):
    """The rows that one sink commits, in sending order.

    ``mode`` says what happens to conflicts: ``fail``, ``ignore`` or ``dead-letter``.
    """

    application: str
    batch: str
    mode: str
    rows: Sequence[Row]


class Answer(NamedTuple):
    """The answer of a commit: counts of rows, or the code of an error.

    In the model's answer ``error`` names each code that is allowed, separated by " or ".
    """

    new: int = 0
    known: int = 0
    conflicts: int = 0
    error: str = ""

    def fits(self, wanted: Answer) -> bool:
        """Return whether this answer is one of those that the model's answer ``wanted`` allows."""
        return self == wanted or (bool(self.error) and self.error in wanted.error.split(" or "))


Identity = tuple[object, ...]


@dataclass(slots=True)
class SinkModel:
    """The model's state: owners of identities, sent messages and dead letters.

    An *identity* of a row is its key, its source position or its content. Its *owner* is the
    content that had it first.
    """

    owners: dict[Identity, tuple[bytes, str]] = field(default_factory=dict)
    """Maps an identity to the content that had it first."""
    sent: Counter[Row] = field(default_factory=Counter)
    letters: Counter[Row] = field(default_factory=Counter)
    _letters: set[tuple[Identity, tuple[bytes, str]]] = field(default_factory=set)

    def commit(self, batch: Batch) -> Answer:
        """Carry out a commit in the model and return its right answer."""
        owners = dict(self.owners)
        new: list[Row] = []
        conflicts: list[tuple[Identity, Row]] = []
        known = 0
        twice = False
        equal: Counter[Identity] = Counter()
        mine: set[Identity] = set()
        for row in batch.rows:
            identity = self._identity(batch, row, equal)
            owner = owners.setdefault(identity, row.content)
            if identity not in self.owners and identity not in mine:
                new.append(row)
            elif owner != row.content:
                conflicts.append((identity, row))
            else:
                known += 1
            twice = twice or (
                identity in mine and identity[0] == "position" and owner == row.content
            )
            mine.add(identity)
        if batch.mode == FAIL and conflicts:
            return Answer(
                error=" or ".join(sorted({f"{identity[0]}-conflict" for identity, _ in conflicts}))
            )
        if batch.mode == FAIL and twice:
            return Answer(error="needs-key")
        self.owners = owners
        self.sent.update(new)
        if batch.mode == DEAD_LETTER:
            for identity, row in conflicts:
                if (identity, row.content) not in self._letters:
                    self._letters.add((identity, row.content))
                    self.letters[row] += 1
        return Answer(len(new), known, len(conflicts))

    @staticmethod
    def _identity(batch: Batch, row: Row, equal: Counter[Identity]) -> Identity:
        scope = (batch.application, row.destination)
        if row.key is not None:
            return ("key", *scope, row.key)
        if row.sequence is not None:
            return ("position", *scope, row.sequence)
        digest: Identity = ("digest", *scope, batch.batch, row.content)
        equal[digest] += 1
        return (*digest, equal[digest])
