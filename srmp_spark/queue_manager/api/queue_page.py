"""Which queues an answer lists: ``queues`` (a name or a glob), ``limit`` and ``after`` of ``GET status`` and ``GET queues``."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srmp_spark.names import canonical_queue_name, is_glob, queue_matches
from srmp_spark.queue_manager.api.http import Request, usage

if TYPE_CHECKING:
    from srmp_spark.queue_manager.catalogue import Catalogue, Queue
    from srmp_spark.queue_manager.slices import Work

LIMIT_MAX = 10_000
"""Queues of one page: as many as there may be."""


@dataclass(frozen=True, slots=True)
class Page:
    """What was asked for. Queues are in the order of their names."""

    pattern: str | None
    """A name or glob in canonical form; ``None``: every queue."""
    limit: int | None
    """``None``: all of them."""
    after: str
    """The last name of the page before; empty for the first page."""

    @classmethod
    def of(cls, request: Request) -> Page:
        """Read the query of a call. Raises a 400."""
        text, limit = request.text("queues"), request.integer("limit", low=1)
        try:
            pattern = None if text is None else canonical_queue_name(text)
        except ValueError as error:
            raise usage(f"queues: {error}") from None
        if limit is not None and limit > LIMIT_MAX:
            raise usage(f"limit is a whole number from 1 to {LIMIT_MAX}, not {limit}")
        return cls(pattern, limit, request.text("after") or "")

    @property
    def is_everything(self) -> bool:
        """Whether the call did not ask for a part: its answer says nothing of pages."""
        return self.pattern is None and self.limit is None and not self.after

    def matches(self, name: str) -> bool:
        """Whether the pattern stands for a queue. A name stands for our own queues too, a glob does not."""
        return self.pattern is None or queue_matches(name, (self.pattern,))

    def of_streams(self, sees: Callable[[str], bool]) -> Callable[[str], bool]:
        """Return ``sees`` for the streams that the answer lists: of the queues that the pattern stands for, on every page."""
        if self.pattern is None:
            return sees
        return lambda queue: self.matches(queue) and sees(queue)

    async def select(
        self, catalogue: Catalogue, sees: Callable[[str], bool], work: Work
    ) -> Selected:
        """Return the queues of the page, of those that are listed, that ``sees`` allows and that match."""
        everything = list(catalogue)
        found: list[Queue] = []
        is_one = self.pattern is not None and not is_glob(self.pattern)
        if is_one and self.pattern is not None:
            one = catalogue.get(self.pattern)
            everything = [] if one is None or one.log_name != one.name else [one]
        for queue in everything[
            bisect_right(everything, self.after, key=lambda queue: queue.name) :
        ]:
            listed = queue.listed or (
                is_one and not queue.state.declared
            )  # a subqueue that somebody made, by its name
            if listed and self.matches(queue.name) and sees(queue.name):
                if len(found) == self.limit:
                    return Selected(found, found[-1].name)
                found.append(queue)
            await work.turn()
        return Selected(found, None)


@dataclass(frozen=True, slots=True)
class Selected:
    """The queues of a page."""

    queues: list[Queue]
    after: str | None
    """What ``after`` of the next page is; ``None``: there is no next page."""
