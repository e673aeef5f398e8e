"""Calls of ``/v1/outgoing/…``: send messages, ask for their states, decide about them.

The commands ``send`` and ``streams`` use them. Spark sends rows differently, in batches that are
staged and committed: :mod:`srmp_spark.client.outbox_batches`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.names import quote_queue_name

WAIT_SECONDS = 10.0
"""Longest wait of one call in seconds; the queue manager allows no more."""


class OutgoingClient(QueueManagerClient):
    """Calls the API of one queue manager for the commands ``send`` and ``streams``."""

    def send_away(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Store messages to be sent, each to its ``destination`` (``POST outgoing/messages``).

        Return one entry for each message. The queue manager sends them afterwards. The call is not
        repeated automatically, because a lost answer may hide a committed message. With a ``key``
        the caller can repeat the call safely.
        """
        answer: list[dict[str, Any]] = self._json(
            "POST", "/v1/outgoing/messages", body=list(messages), retry=False
        )
        return answer

    def states(
        self, destination: str, kind: str, serials: Sequence[int], *, wait: float = 0.0
    ) -> list[str]:
        """Return the states of the messages with ``serials`` to one destination.

        The call is ``POST outgoing/states``. It answers when all of the messages have a final
        state, or after ``wait`` seconds, of which at most WAIT_SECONDS count; 0 answers at once.
        """
        body = {
            "destination": destination,
            "kind": kind,
            "serials": list(serials),
            "wait": min(wait, WAIT_SECONDS),
        }
        return cast("list[str]", self._json("POST", "/v1/outgoing/states", body=body)["states"])

    def activate(self) -> dict[str, Any]:
        """End the hold of a copied data directory; return the answer (``POST activate``).

        Repeating the call does what is left to do.
        """
        return self._object("POST", "/v1/activate", body={})

    def decide(self, action: str, destination: str, stream: str | None = None) -> dict[str, Any]:
        """Apply an operator's decision to a destination or one of its streams; return the answer.

        The call is ``POST outgoing/{destination}/pause|resume|resend|reset|drop``.
        """
        path = f"/v1/outgoing/{quote(destination, safe='')}/{action}"
        return self._object("POST", path + _stream(stream))

    def decide_incoming(
        self, action: str, queue: str, stream: str, gap_at: int | None = None
    ) -> dict[str, Any]:
        """Apply a decision of the operator to an incoming stream of a queue; return the answer.

        The call is ``POST streams/{queue}/accept-gap|reset|drop``. With ``gap_at`` only the gap at
        that number is accepted. The call is not repeated automatically, because a second
        ``accept-gap`` would accept another gap.
        """
        path = f"/v1/streams/{quote_queue_name(queue)}/{action}{_stream(stream)}"
        if gap_at is not None:
            path += f"&gap_at={gap_at}"
        return self._object("POST", path, retry=False)


def _stream(stream: str | None) -> str:
    return "" if stream is None else f"?stream={quote(stream, safe='')}"
