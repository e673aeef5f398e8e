"""What the sink promises about one row, in a page: each distinct message is sent once, or is refused in words, never silent.

A *schedule* is the life of one query: micro-batches, the sinks that each of them is written to, failures, and what Spark does
then. All of it is drawn from ``Random(seed)``. The outbox under it is the real one, with its database and its stages, and the
engine that numbers messages; there is no Spark, no HTTP, and no network (:mod:`.sink_simulation` runs it).

The model beside it knows who owns a key or a position by one dictionary. It says what a commit must answer, and afterwards
which messages wait in the queues and which are dead letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

FAIL, IGNORE, DEAD_LETTER = MODES = ("fail", "ignore", "dead-letter")


class Row(NamedTuple):
    """A row as a sink is given it."""

    destination: str
    body: bytes
    label: str = ""
    key: str | None = None
    sequence: int | None = None
    """Of its source position; ``None``: it has none."""

    @property
    def content(self) -> tuple[bytes, str]:
        """Return what is compared."""
        return self.body, self.label


class Batch(NamedTuple):
    """What one sink commits: rows in the order in which they go out."""

    application: str
    batch: str
    mode: str
    rows: Sequence[Row]


class Answer(NamedTuple):
    """What a commit is answered; with an error, its code. The model names each code that may be told."""

    new: int = 0
    known: int = 0
    conflicts: int = 0
    error: str = ""

    def fits(self, wanted: Answer) -> bool:
        """Return whether this is one of the answers that a model wants."""
        return self == wanted or (bool(self.error) and self.error in wanted.error.split(" or "))


Identity = tuple[object, ...]


@dataclass(slots=True)
class SinkModel:
    """Everything that counts."""

    owners: dict[Identity, tuple[bytes, str]] = field(default_factory=dict)
    """Identity → the content that had it first."""
    sent: Counter[Row] = field(default_factory=Counter)
    letters: Counter[Row] = field(default_factory=Counter)
    _letters: set[tuple[Identity, tuple[bytes, str]]] = field(default_factory=set)

    def commit(self, batch: Batch) -> Answer:
        """Return the answer of a commit that is carried out."""
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
