"""Planted bugs in the identities of the sink, to see that the sink's simulation finds them.

An *identity* of a row is its key, its source position or its content. A *conflict* is a row whose
identity was sent with other content. As in :mod:`.planted_bugs`, each class has one fault. The
class's docstring says what is wrong and what a customer would see.
"""
# The class's docstring says what is wrong with its one method.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import numpy as np

from srmp_spark.store.outbox.preparing.identities import Identities
from srmp_spark.store.outbox.preparing.scan import Scan

Rank = Callable[[np.ndarray], np.ndarray]
"""Returns, for the numbers of rows, the places of these rows in the order of their batch."""


class PositionWithOtherContentIsKnown(Identities):
    """Treats a position that was sent as known, whatever the row contains.

    If one function writes to two sinks, the second sink loses its rows.
    """

    def decide(self, scan: Scan, rank: Rank) -> Generator[None]:
        mark_all = scan.mark_all

        def blank() -> Iterator[None]:
            yield from mark_all()
            scan.marks[:] = 0

        scan.mark_all = blank  # type: ignore[method-assign]
        yield from super().decide(scan, rank)

    def store_contents(self, scan: Scan) -> Iterator[None]:
        scan.marks[:] = 0
        yield from super().store_contents(scan)


class KeyWithOtherContentIsKnown(Identities):
    """Treats a key that was used as known, whatever the row contains.

    A message with a reused key is not sent, and no error reports it.
    """

    def decide(self, scan: Scan, rank: Rank) -> Generator[None]:
        if scan.content is not None:
            scan.content[:] = 0
        yield from super().decide(scan, rank)


class ConflictIsSent(Identities):
    """Sends a row whose identity was sent with other content.

    A batch whose body holds the current time is sent twice when Spark runs it again.
    """

    def decide(self, scan: Scan, rank: Rank) -> Generator[None]:
        yield from super().decide(scan, rank)
        self.conflicts.mask[:] = False
        # The bug needs the private fields.
        self.conflicts._parts.clear()  # noqa: SLF001
        self.conflicts._first = None  # noqa: SLF001


class ConflictIsCountedAsKnown(Identities):
    """Counts a row that is left out as sent before.

    The warning states another reason, and the message is lost.
    """

    def decide(self, scan: Scan, rank: Rank) -> Generator[None]:
        yield from super().decide(scan, rank)
        self.known |= self.conflicts.mask
        self.conflicts.mask[:] = False


class LettersAreForgotten(Identities):
    """Does not store which rows are dead letters. Each run of a batch creates them again."""

    def find_letters(self) -> Iterator[None]:
        fresh = list(self._fresh)
        yield from super().find_letters()
        self._fresh = fresh


class EveryConflictIsALetter(Identities):
    """Does not look up whether a conflicting row already became a dead letter.

    Each run of a batch creates the dead letter again.
    """

    def find_letters(self) -> Iterator[None]:
        yield from super().find_letters()
        self.letters[:] = self.conflicts.mask


class ContentsAreNotStored(Identities):
    """Stores positions without their content.

    From the next batch on, each position is known, whatever its row contains.
    """

    def store_contents(self, scan: Scan) -> Iterator[None]:
        self._unmarked = []
        yield from super().store_contents(scan)


PLANTED_SINK: dict[str, type[Identities]] = {
    each.__name__: each
    for each in (
        PositionWithOtherContentIsKnown,
        KeyWithOtherContentIsKnown,
        ConflictIsSent,
        ConflictIsCountedAsKnown,
        LettersAreForgotten,
        EveryConflictIsALetter,
        ContentsAreNotStored,
    )
}
