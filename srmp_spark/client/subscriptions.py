"""Calls for the subscriptions of a queue manager: remote queues that it reads into its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srmp_spark.client.api import QueueManagerClient

_PATH = "/v1/subscriptions"


class SubscriptionsClient(QueueManagerClient):
    """Calls the API for ``srmp-spark subscribe`` and ``format("mqrr")``.

    Its methods raise the errors of :class:`QueueManagerClient`.
    """

    def subscriptions(self) -> list[dict[str, Any]]:
        """Return one status entry for each subscription (``GET subscriptions``)."""
        answer: list[dict[str, Any]] = self._json("GET", _PATH)["subscriptions"]
        return answer

    def subscribe(self, entry: Mapping[str, str | None]) -> dict[str, Any]:
        """Add a subscription and return its status (``PUT subscriptions``).

        Repeating the call changes nothing. Keys without a value are left out.
        """
        body = {key: value for key, value in entry.items() if value is not None}
        return self._object("PUT", _PATH, body=body)

    def unsubscribe(self, host: str, queue: str, *, unused: bool = False) -> dict[str, Any]:
        """Remove a subscription and return its current status (``DELETE subscriptions``).

        If ``pending`` of the status is above 0, the subscription is not removed yet, but when that
        many messages in transfer are settled. With ``unused`` it is removed only if it never read
        anything; otherwise :class:`ApiError` with code ``subscription-in-use`` is raised.
        """
        parameters = {"host": host, "queue": queue, **({"unused": "1"} if unused else {})}
        return self._object("DELETE", _PATH, parameters=parameters, retry=False)

    def resume_subscription(self, host: str, queue: str) -> dict[str, Any]:
        """Resume a subscription that is on hold and return its status.

        The call is ``POST subscriptions/resume``.
        """
        return self._object("POST", f"{_PATH}/resume", body={"host": host, "queue": queue})
