"""Bugs that somebody could write one day into the identities of the sink, to see that its simulation catches them.

As in :mod:`.planted_bugs`: each is a queue manager with one fault, and the docstring says what a customer would have seen.
"""
# ruff: noqa: D102  # the class says what is wrong with its one method

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import numpy as np

from srmp_spark.store.outbox.preparing.identities import Identities
from srmp_spark.store.outbox.preparing.scan import Scan

Rank = Callable[[np.ndarray], np.ndarray]
"""Gives the places of rows in the order of their batch."""


class PositionWithOtherContentIsKnown(Identities):
    """A position that was sent is known whatever the row contains: of two sinks in one function the second loses its rows."""

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
    """The same of keys: a message whose key was used before is not sent, and nobody is told."""

    def decide(self, scan: Scan, rank: Rank) -> Generator[None]:
        if scan.content is not None:
            scan.content[:] = 0
        yield from super().decide(scan, rank)


class ConflictIsSent(Identities):
    """A row with another content is a message: a batch whose body holds a clock is sent twice when it is run again."""

    def decide(self, scan: Scan, rank: Rank) -> Generator[None]:
        yield from super().decide(scan, rank)
        self.conflicts.mask[:] = False
        self.conflicts._parts.clear()  # noqa: SLF001  # a bug
        self.conflicts._first = None  # noqa: SLF001  # a bug


class ConflictIsCountedAsKnown(Identities):
    """A row that is left out counts as sent before: the warning is about something else, and the message is gone."""

    def decide(self, scan: Scan, rank: Rank) -> Generator[None]:
        yield from super().decide(scan, rank)
        self.known |= self.conflicts.mask
        self.conflicts.mask[:] = False


class LettersAreForgotten(Identities):
    """Which rows are dead letters is not stored: each run of a batch makes them again."""

    def find_letters(self) -> Iterator[None]:
        fresh = list(self._fresh)
        yield from super().find_letters()
        self._fresh = fresh


class EveryConflictIsALetter(Identities):
    """A row that is a dead letter is not looked up."""

    def find_letters(self) -> Iterator[None]:
        yield from super().find_letters()
        self.letters[:] = self.conflicts.mask


class ContentsAreNotStored(Identities):
    """Positions are stored without their content: from the next batch on each is known whatever its row contains."""

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
