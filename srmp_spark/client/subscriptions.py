"""Subscriptions of a queue manager, from outside: which remote queues it reads into its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from srmp_spark.client.api import QueueManagerClient

_PATH = "/v1/subscriptions"


class SubscriptionsClient(QueueManagerClient):
    """What ``srmp-spark subscribe`` and ``format("mqrr")`` ask for. Errors as :class:`QueueManagerClient`."""

    def subscriptions(self) -> list[dict[str, Any]]:
        """``GET subscriptions``."""
        return cast("list[dict[str, Any]]", self._json("GET", _PATH)["subscriptions"])

    def subscribe(self, entry: Mapping[str, str | None]) -> dict[str, Any]:
        """``PUT subscriptions``; repeated it changes nothing. Keys without a value are left out."""
        body = {key: value for key, value in entry.items() if value is not None}
        return cast("dict[str, Any]", self._json("PUT", _PATH, body=body))

    def unsubscribe(self, host: str, queue: str, *, unused: bool = False) -> dict[str, Any]:
        """``DELETE subscriptions``: the status that it has now; ``pending`` above 0: it goes when these are settled.

        ``unused``: only if it never read anything, else an :class:`ApiError` with code ``subscription-in-use``.
        """
        parameters = {"host": host, "queue": queue, **({"unused": "1"} if unused else {})}
        return cast(
            "dict[str, Any]", self._json("DELETE", _PATH, parameters=parameters, retry=False)
        )

    def resume_subscription(self, host: str, queue: str) -> dict[str, Any]:
        """``POST subscriptions/resume``: the status of a subscription that is no longer on hold."""
        return cast(
            "dict[str, Any]",
            self._json("POST", f"{_PATH}/resume", body={"host": host, "queue": queue}),
        )
