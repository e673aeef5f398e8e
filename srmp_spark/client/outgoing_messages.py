"""Messages that go out, ``/v1/outgoing/…``: send some, ask for their states, decide on them as an operator.

For the commands ``send`` and ``streams``. Spark hands its rows over another way, in batches that are staged and committed:
:mod:`srmp_spark.client.outbox_batches`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.names import quote_queue_name

WAIT_SECONDS = 10.0
"""Longest wait in one call; the queue manager allows no more."""


class OutgoingClient(QueueManagerClient):
    """One queue manager, by the URL of its API, as the commands ``send`` and ``streams`` use it."""

    def send_away(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """``POST outgoing/messages``; each message names its ``destination``.

        Not repeated by itself: a lost answer may hide a committed message. With a ``key`` a repeat does no harm.
        """
        answer = self._json("POST", "/v1/outgoing/messages", body=list(messages), retry=False)
        return cast("list[dict[str, Any]]", answer)

    def states(
        self, destination: str, kind: str, serials: Sequence[int], *, wait: float = 0.0
    ) -> list[str]:
        """``POST outgoing/states``: at once, or when all have come to their end, or after ``wait`` seconds."""
        body = {
            "destination": destination,
            "kind": kind,
            "serials": list(serials),
            "wait": min(wait, WAIT_SECONDS),
        }
        return cast("list[str]", self._json("POST", "/v1/outgoing/states", body=body)["states"])

    def decide(self, action: str, destination: str, stream: str | None = None) -> dict[str, Any]:
        """``POST outgoing/{destination}/pause|resume|resend|reset|drop``."""
        path = f"/v1/outgoing/{quote(destination, safe='')}/{action}"
        return cast("dict[str, Any]", self._json("POST", path + _stream(stream)))

    def decide_incoming(
        self, action: str, queue: str, stream: str, gap_at: int | None = None
    ) -> dict[str, Any]:
        """``POST streams/{queue}/accept-gap|reset|drop``; ``gap_at``: accept that gap and no other.

        Not repeated by itself: a second ``accept-gap`` means more than one.
        """
        path = f"/v1/streams/{quote_queue_name(queue)}/{action}{_stream(stream)}"
        if gap_at is not None:
            path += f"&gap_at={gap_at}"
        return cast("dict[str, Any]", self._json("POST", path, retry=False))


def _stream(stream: str | None) -> str:
    return "" if stream is None else f"?stream={quote(stream, safe='')}"
