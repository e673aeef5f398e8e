"""Define what the API knows of the pullers, which read remote queues into ours.

:mod:`srmp_spark.queue_manager.puller.pullers` implements it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol


class Reading(NamedTuple):
    """The values of one subscription for metrics."""

    host: str
    queue: str
    pending: int
    """Messages that are stored and are no rows yet."""
    lag_seconds: float | None
    """Seconds since the last time at which everything in the remote queue had arrived here.

    ``None`` if that never was so.
    """
    taken_in_doubt: int
    """Rows whose message was gone after a removal without an answer."""


class RemoteQueues(Protocol):
    """All subscriptions of one queue manager."""

    def status(self) -> list[dict[str, Any]]:
        """Return the entries of ``status.subscriptions``."""
        ...

    def readings(self) -> Iterable[Reading]:
        """Return the values of the running subscriptions for metrics."""
        ...

    async def add(self, entry: dict[str, Any], password: str | None) -> tuple[dict[str, Any], bool]:
        """Add or change a subscription. Return its status, and whether it is new.

        Raises :class:`ApiError` if the entry is wrong or cannot be added.
        """
        ...

    async def remove(
        self, host: str | None, queue: str | None, *, unused: bool = False
    ) -> dict[str, Any]:
        """Stop a subscription, and remove it once its pending messages are settled.

        Return its status.

        With ``unused`` it is removed only if it never read anything. Raises :class:`ApiError` if it
        cannot be removed.
        """
        ...

    async def resume(self, host: str | None, queue: str | None) -> dict[str, Any]:
        """Let a subscription that is on hold continue. Return its status.

        Raises :class:`ApiError` if it cannot continue.
        """
        ...
