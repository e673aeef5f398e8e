"""Answer all items that one commit of the journal decides, with one callback."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.store.journal import Journal

Item = TypeVar("Item")


class AnsweredTogether(Generic[Item]):
    """Collects the items of each transaction of a journal, in the order of their submissions."""

    __slots__ = ("_answer", "_collecting", "_items", "_journal")

    def __init__(self, journal: Journal, answer: Callable[[list[Item], Committed], object]) -> None:
        """Begin without items. ``answer`` gets the items of each commit, and the commit's proof."""
        self._journal = journal
        self._answer = answer
        self._items: list[Item] = []
        self._collecting: object = None
        """The transaction (:attr:`.Journal.collecting`) to which the items belong."""

    def add(self, item: Item) -> Callable[[Committed], object] | None:
        """Add an item that the caller submits next; return the callback of this submission.

        The result is ``None`` if the callback of an earlier submission answers this item too.
        """
        collecting, callback = self._journal.collecting, None
        if collecting is not self._collecting:
            self._collecting = collecting
            self._items = []
            callback = partial(self._answer, self._items)
        self._items.append(item)
        return callback

    def __repr__(self) -> str:
        return f"<AnsweredTogether items={len(self._items)}>"
