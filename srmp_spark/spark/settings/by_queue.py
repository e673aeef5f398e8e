"""Parse options that have a value for each queue, in one of two forms.

    {"private$/orders": 1000, "private$/payments": -2}
    {"caf195ea-…": {"private$/orders": 1000}, "http://qm2:8081": {"private$/orders": 70}}

In the first form a value counts for the queue of that name at every queue manager. In the second
form a queue manager is named by its GUID, or by its URL as in option ``queueManager``.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import local_queue_name
from srmp_spark.spark.settings.option_values import api_url

_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_T = TypeVar("_T")


class Named(NamedTuple):
    """A queue as an option names it: at one queue manager, or at every one."""

    queue_manager: str | None
    """A GUID or a URL. ``None`` means every queue manager that has the queue."""
    queue: str

    def __str__(self) -> str:
        return (
            repr(self.queue)
            if self.queue_manager is None
            else f"{self.queue!r} of {self.queue_manager}"
        )


ByQueue = Mapping[Named, int]
"""The values of an option, by queue."""


class ReadQueue(NamedTuple):
    """A queue that a query reads, with its queue manager."""

    queue_manager: str
    """GUID of the queue manager."""
    url: str
    queue: str

    def names(self) -> tuple[Named, Named, Named]:
        """Return the three ways in which an option may name the queue."""
        return (
            Named(None, self.queue),
            Named(self.queue_manager.lower(), self.queue),
            Named(self.url, self.queue),
        )

    def value_in(self, values: ByQueue) -> int | None:
        """Return the value that an option has for the queue, or ``None`` if the option has none."""
        return next((values[name] for name in self.names() if name in values), None)


def parse_by_queue(option: str, text: str, value: Callable[[str, Any], int]) -> ByQueue:
    """Parse a JSON object into the values by queue, in either form of the module.

    ``value(queue, item)`` checks and converts one value. Raises :class:`ConfigurationError` for
    text that is no JSON object, for both forms mixed, for a wrong name or one that is given twice,
    and if no queue is named.
    """
    try:
        items: Any = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f'option {option}: no JSON ({error}); expected {{"private$/orders": 1000}}'
        ) from None
    if not isinstance(items, dict):
        raise ConfigurationError(
            f'option {option}: expected {{"private$/orders": 1000}}, got {text!r:.80}'
        )
    nested = {name: item for name, item in items.items() if isinstance(item, dict)}
    if nested and len(nested) < len(items):
        raise ConfigurationError(
            f"option {option}: name queues, or queue managers with their queues, not both"
        )
    found: dict[Named, int] = {}
    for manager, queues in nested.items() if nested else ((None, items),):
        where = None if manager is None else _queue_manager(option, manager)
        for queue, item in queues.items():
            named = Named(where, local_queue_name(queue))
            if named in found:
                raise ConfigurationError(f"option {option} names {queue!r} twice")
            found[named] = value(queue, item)
    if not found:
        raise ConfigurationError(f"option {option}: names no queue")
    return found


def _queue_manager(option: str, text: str) -> str:
    if _GUID.fullmatch(text.lower()):
        return text.lower()
    try:
        return api_url(text)
    except ConfigurationError:
        raise ConfigurationError(
            f"option {option}: {text!r} is neither the GUID of a queue manager "
            "(`srmp-spark status` shows it) nor its URL"
        ) from None


def check_named(option: str, values: ByQueue | None, reads: Iterable[ReadQueue], hint: str) -> None:
    """Raise :class:`ConfigurationError` unless the option names exactly the queues that are read.

    Each queue must be named once. ``hint`` is added to the error for a missing queue, and states
    which special values are possible. Nothing is checked if ``values`` is ``None``.
    """
    if values is None:
        return
    reads = list(reads)
    known = {name for read in reads for name in read.names()}
    for named in values:
        if named not in known:
            queues = {read.queue for read in reads}
            close = difflib.get_close_matches(named.queue, queues - {named.queue}, 1, 0.5)
            there = (
                ", ".join(
                    sorted(f"{read.queue} of {read.url} ({read.queue_manager})" for read in reads)
                )
                or "none"
            )
            if named.queue_manager is None:
                there = ", ".join(sorted(queues)) or "none"
            advice = (
                f"did you mean {close[0]!r}?"
                if close and named.queue not in queues
                else f"the query reads {there}"
            )
            raise ConfigurationError(
                f"{option} names {named}, which the query does not read; {advice}"
            )
    for read in reads:
        ways = [name for name in read.names() if name in values]
        if not ways:
            raise ConfigurationError(
                f"{option} does not name {read.queue!r}{_of(read, values)}; name every queue{hint}"
            )
        if len(ways) > 1:
            raise ConfigurationError(
                f"{option} names one queue twice: {' and '.join(map(str, ways))}"
            )


def _of(read: ReadQueue, values: ByQueue) -> str:
    nested = any(named.queue_manager is not None for named in values)
    return f" of {read.url} ({read.queue_manager})" if nested else ""
