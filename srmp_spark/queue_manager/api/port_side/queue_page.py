"""Select the queues of an answer: ``queues``, ``limit`` and ``after`` of two calls.

The calls are ``GET status`` and ``GET queues``. ``queues`` is a name or a glob (a pattern with
``*`` or ``?``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srmp_spark.names import canonical_queue_name, is_glob, queue_matches
from srmp_spark.queue_manager.api.port_side.http import Request, usage

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.catalogue import Catalogue, Queue
    from srmp_spark.queue_manager.slices import Work

LIMIT_MAX = 10_000
"""Most queues of one page: as many as a queue manager may have.

A higher limit raises a 400.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """The part of the queues that a call asks for. Queues are ordered by name."""

    pattern: str | None
    """A name or glob in canonical form, or ``None`` for every queue."""
    limit: int | None
    """Largest number of queues on the page, or ``None`` for all of them."""
    after: str
    """The last name of the previous page; empty for the first page."""

    @classmethod
    def of(cls, request: Request) -> Page:
        """Read the query fields of a call, and return its page.

        Raises a 400 for an invalid field.
        """
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
        """Return whether the call asks for all queues; then its answer does not mention pages."""
        return self.pattern is None and self.limit is None and not self.after

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches the queue with ``name``.

        A pattern that is a name matches internal queues too, a glob does not.
        """
        return self.pattern is None or queue_matches(name, (self.pattern,))

    def of_streams(self, sees: Callable[[str], bool]) -> Callable[[str], bool]:
        """Return a filter for streams by their queues: ``sees``, limited to queues of the pattern.

        ``limit`` and ``after`` of the page do not apply to streams.
        """
        if self.pattern is None:
            return sees
        return lambda queue: self.matches(queue) and sees(queue)

    async def select(
        self, catalogue: Catalogue, sees: Callable[[str], bool], work: Work
    ) -> Selected:
        """Return the queues of the page, ordered by name.

        These queues come after :attr:`after`, are allowed by ``sees``, and match the pattern;
        queues that lists do not show (:attr:`.Queue.listed`) are left out unless the pattern is
        their name.
        """
        everything = list(catalogue)
        found: list[Queue] = []
        is_one = self.pattern is not None and not is_glob(self.pattern)
        if is_one and self.pattern is not None:
            one = catalogue.get(self.pattern)
            everything = [] if one is None or one.log_name != one.name else [one]
        for queue in everything[
            bisect_right(everything, self.after, key=lambda queue: queue.name) :
        ]:
            # A subqueue that a remote reader created is shown only if its name was given.
            listed = queue.listed or (is_one and not queue.state.declared)
            if listed and self.matches(queue.name) and sees(queue.name):
                if len(found) == self.limit:
                    return Selected(found, found[-1].name)
                found.append(queue)
            await work.turn()
        return Selected(found, None)


@dataclass(frozen=True, slots=True)
class Selected:
    """The queues of one page, ordered by name."""

    queues: list[Queue]
    after: str | None
    """Value of ``after`` for the next page, or ``None`` if there is no next page."""
