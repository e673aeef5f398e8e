"""Room for destinations: which outgoing queues hold messages now, and for whom.

Theory of operation. An unauthenticated client may name destinations without end: a sender whose
messages are forwarded, or the holder of an API token that may send. The number of destinations ever
named is therefore not limited. An outgoing queue counts only while it *holds* messages, and it
counts for its *origin*, which gave the first of these messages. A queue without messages is
forgotten when its place is needed (:meth:`.sender.Sender.forget_idle`). A later message creates the
queue again, in a new stream and under higher serials.

- A token has a share of the places. All tokens together leave a reserve for messages without an
  origin: those of the host's own user, and those of configurations without tokens.
- There is always room for a message to a queue that holds messages. A row for a new destination
  without room becomes a dead letter (``no-room``) alone. Neither its batch nor any message of
  others fails with it.
- A forwarded message was answered 200 before it gets to the outgoing queues, so it is always
  admitted. Forwarded messages have places of their own, which no other message uses, and they use
  no other places. The receiving engine limits them before the 200 (:mod:`.forward_room`).

This module does no I/O.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from srmp_spark.srmp.forward.forward_room import FORWARD_DESTINATIONS_MAX

if TYPE_CHECKING:
    from srmp_spark.srmp.sending.outgoing_effects import QueueKey

DESTINATIONS_MAX = 10_000
"""Most outgoing queues that hold messages at the same time.

At the limit a row for a new destination becomes a dead letter (``no-room``). A record takes about 2
KB, and records without messages are forgotten beyond this number. Only a sink that names a new
destination for each row reaches the limit.
"""
FORWARD_RESERVE = 2 * FORWARD_DESTINATIONS_MAX
"""Places among :data:`DESTINATIONS_MAX` for queues of forwarded messages.

A destination has at most two queues: one for its stream and one for its other messages.
"""
OTHERS_MAX = DESTINATIONS_MAX - FORWARD_RESERVE
"""Places among :data:`DESTINATIONS_MAX` for queues of all messages that are not forwarded."""
RESERVE = DESTINATIONS_MAX // 4
"""Places among :data:`OTHERS_MAX` that only messages without an origin may use."""
TOKEN_MAX = DESTINATIONS_MAX // 4
"""Most places among :data:`OTHERS_MAX` for one API token."""

NO_ORIGIN = ""
_TOKEN, _FORWARD = "token ", "forward "


def origin_of_token(name: str | None) -> str:
    """Return the origin of messages that were sent with the API token called ``name``.

    ``None`` means that the API requires no token.
    """
    return NO_ORIGIN if name is None else _TOKEN + name


def origin_of_forwarded(holder: str) -> str:
    """Return the origin of messages that are forwarded for a sender.

    ``holder`` names the sender (:func:`.stream_room.holder_of`).
    """
    return _FORWARD + holder


def sender_of(origin: str) -> str | None:
    """Return the sender whose messages are forwarded, or ``None`` for any other origin."""
    return origin.removeprefix(_FORWARD) if origin.startswith(_FORWARD) else None


class OutgoingRoom:
    """Counts the outgoing queues that hold messages, and for whom each counts."""

    def __init__(self) -> None:
        self._origins: dict[QueueKey, str] = {}
        self._of_token: Counter[str] = Counter()
        self._forwarded = 0
        self.version = 0
        """Number that changes whenever a queue starts or stops to hold messages."""

    def __len__(self) -> int:
        return len(self._origins)

    def __repr__(self) -> str:
        return f"<OutgoingRoom {len(self)} forwarded={self._forwarded}>"

    def note(self, key: QueueKey, origin: str, *, holds: bool) -> None:
        """Record whether the queue ``key`` holds messages now.

        ``origin`` is that of its first message. It is ignored if the state is already known.
        """
        if holds is (key in self._origins):
            return
        self.version += 1
        if holds:
            self._origins[key] = origin
        else:
            origin = self._origins.pop(key)
        step = 1 if holds else -1
        if origin.startswith(_TOKEN):
            self._of_token[origin] += step
            if not self._of_token[origin]:
                del self._of_token[origin]
        elif origin.startswith(_FORWARD):
            self._forwarded += step

    def admits(self, key: QueueKey, origin: str) -> bool:
        """Return whether there is room for a message of ``origin`` in the queue ``key``.

        There is always room in a queue that holds messages, and for a forwarded message. Nothing is
        counted by this call.
        """
        if key in self._origins or origin.startswith(_FORWARD):
            return True
        others = len(self) - self._forwarded
        if origin == NO_ORIGIN:
            return others < OTHERS_MAX
        return others < OTHERS_MAX - RESERVE and self._of_token[origin] < TOKEN_MAX

    def forwarded(self) -> dict[str, str]:
        """Return a new dictionary: the sender for each destination with forwarded messages."""
        return {
            key.destination: sender
            for key, origin in self._origins.items()
            if (sender := sender_of(origin)) is not None
        }
