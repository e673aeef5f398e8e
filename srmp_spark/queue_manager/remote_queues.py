"""What the API knows of those who read remote queues into ours (:mod:`srmp_spark.queue_manager.puller.pullers`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol


class Reading(NamedTuple):
    """Of one subscription, for metrics."""

    host: str
    queue: str
    pending: int
    """Messages that are stored and no rows yet."""
    lag_seconds: float | None
    """How long ago everything that was in the remote queue was here; ``None``: that never was."""
    taken_in_doubt: int
    """Rows whose message was gone after a removal without an answer."""


class RemoteQueues(Protocol):
    """All subscriptions."""

    def status(self) -> list[dict[str, Any]]:
        """The entries of ``status.subscriptions``."""
        ...

    def readings(self) -> Iterable[Reading]:
        """Of those that run."""
        ...

    async def add(self, entry: dict[str, Any], password: str | None) -> tuple[dict[str, Any], bool]:
        """Add or change one; its status, and whether it is new. Raises :class:`ApiError`."""
        ...

    async def remove(
        self, host: str | None, queue: str | None, *, unused: bool = False
    ) -> dict[str, Any]:
        """Take nothing more; its status. ``unused``: only if it never read anything. Raises :class:`ApiError`."""
        ...

    async def resume(self, host: str | None, queue: str | None) -> dict[str, Any]:
        """Take one off hold; its status. Raises :class:`ApiError`."""
        ...
