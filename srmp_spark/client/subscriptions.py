"""Calls for the subscriptions of a queue manager: remote queues that it reads into its own."""

from __future__ import annotations

from collections.abc import Mapping

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.interface import SubscriptionEntry

_PATH = "/v1/subscriptions"


class SubscriptionsClient(QueueManagerClient):
    """Calls the API for ``srmp-spark subscribe`` and ``format("mqrr")``.

    Its methods raise the errors of :class:`QueueManagerClient`.
    """

    def subscriptions(self) -> list[SubscriptionEntry]:
        """Return one status entry for each subscription (``GET subscriptions``)."""
        answer: list[SubscriptionEntry] = self._json("GET", _PATH)["subscriptions"]
        return answer

    def subscribe(self, entry: Mapping[str, str | None]) -> SubscriptionEntry:
        """Add a subscription and return its status (``PUT subscriptions``).

        Repeating the call changes nothing. Keys without a value are left out.
        """
        body = {key: value for key, value in entry.items() if value is not None}
        answer: SubscriptionEntry = self._json("PUT", _PATH, body=body)
        return answer

    def unsubscribe(self, host: str, queue: str, *, unused: bool = False) -> SubscriptionEntry:
        """Remove a subscription and return its current status (``DELETE subscriptions``).

        If ``pending`` of the status is above 0, the subscription is not removed yet, but when that
        many messages in transfer are settled. With ``unused`` it is removed only if it never read
        anything; otherwise :class:`ApiError` with code ``subscription-in-use`` is raised.
        """
        parameters = {"host": host, "queue": queue, **({"unused": "1"} if unused else {})}
        answer: SubscriptionEntry = self._json("DELETE", _PATH, parameters=parameters, retry=False)
        return answer

    def resume_subscription(self, host: str, queue: str) -> SubscriptionEntry:
        """Resume a subscription that is on hold and return its status.

        The call is ``POST subscriptions/resume``.
        """
        answer: SubscriptionEntry = self._json(
            "POST", f"{_PATH}/resume", body={"host": host, "queue": queue}
        )
        return answer
