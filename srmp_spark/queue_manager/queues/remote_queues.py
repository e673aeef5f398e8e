"""Define how the API uses the pullers, which read remote queues into local ones.

:mod:`srmp_spark.queue_manager.puller.pullers` implements it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from srmp_spark.interface import CutoverEntry, ReceivedThere, SubscriptionEntry


class Reading(NamedTuple):
    """The values of one subscription for metrics."""

    host: str
    queue: str
    pending: int
    """Number of messages that are stored and are no rows of a queue yet."""
    lag_seconds: float | None
    """Seconds since the last time at which every message of the remote queue was a local row.

    ``None`` if that never was so.
    """
    taken_in_doubt: int
    """Number of rows whose message was gone after a removal without an answer."""


class CutoverQuestion(NamedTuple):
    """The parameters of one question about a cut-over."""

    consumers: tuple[str, ...]
    """Names of the consumers that will read here."""
    wait_s: float
    """Longest wait for the comparison, in seconds."""
    walk: int | None
    """The walk of an earlier question that had to wait longer, or ``None`` for a new question."""
    accepts_received: bool = False
    """Whether messages that were received here already block nothing."""


class RemoteQueues(Protocol):
    """All subscriptions of one queue manager, each of which reads a remote queue."""

    @property
    def is_ready(self) -> bool:
        """Return whether the subscriptions are started. They are not in status before that."""
        ...

    def status(self) -> list[SubscriptionEntry]:
        """Return the list ``status.subscriptions``, with an entry for each subscription."""
        ...

    def readings(self) -> Iterable[Reading]:
        """Return the values for metrics of each running subscription."""
        ...

    async def add(
        self, entry: Mapping[str, str], password: str | None
    ) -> tuple[SubscriptionEntry, bool]:
        """Add or change a subscription. Return its status entry, and whether it is new.

        ``entry`` has the keys of ``[[subscription]]``; ``password`` replaces its password file.
        Raises :class:`ApiError` if the entry is invalid or cannot be added.
        """
        ...

    async def remove(
        self,
        host: str | None,
        queue: str | None,
        *,
        unused: bool = False,
        unsettled: str | None = None,
    ) -> SubscriptionEntry:
        """Stop the subscription of ``host`` and ``queue``, and return its status entry.

        It is removed when its pending messages are settled, which may be later. With ``unused`` it
        is removed only if it never read from its queue. ``unsettled`` (``here`` or ``there``)
        states where the messages are that a cut-over has not decided. Raises :class:`ApiError` if
        it cannot be removed, or if ``host`` or ``queue`` is ``None``.
        """
        ...

    async def check_cutover(
        self, host: str | None, queue: str | None, asked: CutoverQuestion
    ) -> CutoverEntry:
        """Compare a remote queue with its copy, and return the result. Change nothing.

        Raises :class:`ApiError` if there is no such subscription.
        """
        ...

    async def cut_over(
        self, host: str | None, queue: str | None, consumers: tuple[str, ...]
    ) -> SubscriptionEntry:
        """Let a subscription that copies move from now on, and return its status entry.

        A subscription that moves already does not change. Raises :class:`ApiError` if there is no
        such subscription, or it cannot be cut over now.
        """
        ...

    async def received_there(
        self, host: str | None, queue: str | None, after: tuple[int, str] | None
    ) -> list[ReceivedThere]:
        """Return the next copied messages that were received there, one page.

        ``after`` has both identifiers of the last message of the page before. Raises
        :class:`ApiError` if there is no such subscription.
        """
        ...

    async def resume_all(self) -> None:
        """Take every subscription off hold, durably."""
        ...

    async def resume(self, host: str | None, queue: str | None) -> SubscriptionEntry:
        """Take the subscription of ``host`` and ``queue`` off hold, and return its status entry.

        A subscription that is not on hold does not change. Raises :class:`ApiError` if it is
        unknown or cannot continue.
        """
        ...
