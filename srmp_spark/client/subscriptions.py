"""Calls for the subscriptions of a queue manager: remote queues that it reads into its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.interface import (
    DEFAULT_CONSUMER,
    CutoverEntry,
    ReceivedThere,
    SubscriptionEntry,
)

_PATH = "/v1/subscriptions"
CHECK_SECONDS = 60.0
"""Longest wait for a comparison with a remote queue, in seconds, if the caller names none.

A walk through a remote queue of 100,000 messages takes about that long.
"""
CALL_SECONDS = 10.0
"""Longest wait of one call for a comparison, in seconds, which the queue manager allows."""
ANSWER_SECONDS = 50.0
"""Longest time for the rest of such a call, in seconds: the queue manager opens the remote queue,
and reads what was copied from its store."""


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

    def unsubscribe(
        self, host: str, queue: str, *, unused: bool = False, unsettled: str | None = None
    ) -> SubscriptionEntry:
        """Remove a subscription and return its current status (``DELETE subscriptions``).

        If ``pending`` of the status is above 0, the subscription is not removed yet, but when that
        many messages in transfer are settled. With ``unused`` it is removed only if it never read
        anything; otherwise :class:`ApiError` with code ``subscription-in-use`` is raised.
        ``unsettled`` (``here`` or ``there``) states to whom the messages belong that a cut-over in
        progress has not decided; without it, :class:`ApiError` with code ``cutover`` is raised.
        """
        parameters = {"host": host, "queue": queue, **({"unused": "1"} if unused else {})}
        if unsettled is not None:
            parameters["unsettled"] = unsettled
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

    def check_cutover(
        self,
        host: str,
        queue: str,
        consumers: Sequence[str] = (DEFAULT_CONSUMER,),
        *,
        wait_s: float = CHECK_SECONDS,
        accepts_received: bool = False,
    ) -> CutoverEntry:
        """Compare a remote queue with its copy, and return the result (``GET …/cutover``).

        The comparison is waited for at most ``wait_s`` seconds; ``compared`` of the result states
        whether it is complete. Nothing is changed.
        """
        asked: dict[str, str | list[str]] = {
            "host": host,
            "queue": queue,
            "consumer": list(consumers),
            **({"accept_received": "1"} if accepts_received else {}),
        }
        deadline = time.monotonic() + wait_s
        while True:
            left = max(0.0, deadline - time.monotonic())
            found: CutoverEntry = self._json(
                "GET",
                f"{_PATH}/cutover",
                parameters={**asked, "wait": f"{min(left, CALL_SECONDS):.1f}"},
                timeout=CALL_SECONDS + ANSWER_SECONDS,
            )
            is_read = all(each["code"] != "not-read" for each in found["findings"])
            if found["compared"] or not is_read or time.monotonic() >= deadline:
                return found
            asked["walk"] = str(found["walk"])

    def cut_over(
        self, host: str, queue: str, consumers: Sequence[str] = (DEFAULT_CONSUMER,)
    ) -> SubscriptionEntry:
        """Let a subscription that copies move, and return its status (``POST …/cutover``)."""
        body = {"host": host, "queue": queue, "consumers": list(consumers)}
        answer: SubscriptionEntry = self._json("POST", f"{_PATH}/cutover", body=body)
        return answer

    def received_there(self, host: str, queue: str) -> Iterator[ReceivedThere]:
        """Yield the copied messages that other readers received in the remote queue."""
        asked = {"host": host, "queue": queue}
        while True:
            page: list[ReceivedThere] = self._json(
                "GET", f"{_PATH}/received-there", parameters=asked
            )["messages"]
            yield from page
            if not page:
                return
            asked["lookup_id"] = str(page[-1]["lookup_id"])
            asked["message_id"] = page[-1]["message_id"]
