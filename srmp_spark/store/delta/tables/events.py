"""Define the events that the publishers of the Delta state report to their owner.

``of`` names a publisher: ``inbox`` or ``sending``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StateCompared:
    """The tables are open, and are not ahead of the log. Reported once."""


@dataclass(frozen=True, slots=True)
class StatePublished:
    """A cycle has published."""

    uri: str
    position: int
    """Commit up to which no queue lacks a row in the Delta state."""
    as_of: float
    """Time of that state, in seconds since 1970."""
    sequences: dict[str, dict[str, int]]
    """Last durable sequence of each queue, by epoch and queue."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Reason why a queue has rows that are not published, by queue."""


@dataclass(frozen=True, slots=True)
class PublisherFailed:
    """A cycle failed, or one queue of it."""

    of: str
    error: str
    remedy: str
    fatal: bool = False
    """Whether the publisher has ended."""
    queue: str | None = None
    """The queue that failed. The other queues were published."""
    older_copy: bool = False
    """Whether the data directory is an older copy, so that no message may be accepted."""


@dataclass(frozen=True, slots=True)
class RowsGone:
    """Other programs took rows out of the tables that are no longer in the log."""

    of: str
    ranges: list[tuple[str, str, int, int]]
    """Epoch, queue, first and last sequence of each range."""
    further: int
    """Number of further ranges."""


@dataclass(frozen=True, slots=True)
class PublisherRecovered:
    """A cycle succeeded, and it was the first one or the one before it failed."""

    of: str


StateEvent = StateCompared | StatePublished | PublisherFailed | RowsGone | PublisherRecovered
Notify = Callable[[StateEvent], None]
