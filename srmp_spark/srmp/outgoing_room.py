"""Room for destinations: which outgoing queues hold messages now, and for whom. Without any I/O.

Theory of operation. A stranger may name destinations without end: a sender whose messages we forward, a token that may send. So
nothing counts the destinations that there ever were. What counts is an outgoing queue that *holds* messages, and it counts for
its *origin*: whoever gave the first of these messages. A queue without messages is forgotten when its place is needed
(:meth:`.sender.Sender.forget_idle`); a later message makes it anew, in a new stream, under higher serials.

- A token has a share of the places. All tokens leave a reserve to what has no origin: the own user of the host, and
  configurations without tokens.
- A message for a queue that holds messages always has room. A row for a new destination without room ends alone, as a dead
  letter (``no-room``): neither its batch nor anything of others fails with it.
- What is forwarded was answered 200 before it comes here, so it is always admitted. It has places of its own, which nothing
  else takes, and takes none of others. The receiving engine bounds it before the 200 (:mod:`.forward_room`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from srmp_spark.srmp.forward_room import FORWARD_DESTINATIONS_MAX

if TYPE_CHECKING:
    from srmp_spark.srmp.outgoing_effects import QueueKey

DESTINATIONS_MAX = 10_000
"""Outgoing queues that hold messages at once, and records that are kept: about 2 KB each. A sink that makes a destination for
each row would reach it."""
FORWARD_RESERVE = 2 * FORWARD_DESTINATIONS_MAX
"""Of them, for what is forwarded: a destination has two queues at most, of its stream and of its other messages."""
OTHERS_MAX = DESTINATIONS_MAX - FORWARD_RESERVE
"""Of them, for everything that is not forwarded."""
RESERVE = DESTINATIONS_MAX // 4
"""Of :data:`OTHERS_MAX`, for what has no origin."""
TOKEN_MAX = DESTINATIONS_MAX // 4
"""Of them, at most for one token."""

NO_ORIGIN = ""
_TOKEN, _FORWARD = "token ", "forward "


def origin_of_token(name: str | None) -> str:
    """Return the origin of what a token gives; ``None``: no token is asked for."""
    return NO_ORIGIN if name is None else _TOKEN + name


def origin_of_forwarded(holder: str) -> str:
    """Return the origin of what is forwarded for a sender (:func:`.stream_room.holder_of`)."""
    return _FORWARD + holder


def sender_of(origin: str) -> str | None:
    """Return the sender whose messages are forwarded; ``None``: nothing is forwarded for this origin."""
    return origin.removeprefix(_FORWARD) if origin.startswith(_FORWARD) else None


class OutgoingRoom:
    """The outgoing queues that hold messages."""

    def __init__(self) -> None:
        self._origins: dict[QueueKey, str] = {}
        self._of_token: Counter[str] = Counter()
        self._forwarded = 0
        self.version = 0
        """Changes whenever a queue begins or ends to hold messages."""

    def __len__(self) -> int:
        return len(self._origins)

    def __repr__(self) -> str:
        return f"<OutgoingRoom {len(self)} forwarded={self._forwarded}>"

    def note(self, key: QueueKey, origin: str, *, holds: bool) -> None:
        """Say whether a queue holds messages; ``origin``: of the first of them."""
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
        """Return whether a message of ``origin`` finds room in the queue ``key``."""
        if key in self._origins or origin.startswith(_FORWARD):
            return True
        others = len(self) - self._forwarded
        if origin == NO_ORIGIN:
            return others < OTHERS_MAX
        return others < OTHERS_MAX - RESERVE and self._of_token[origin] < TOKEN_MAX

    def forwarded(self) -> dict[str, str]:
        """Return the destinations that hold forwarded messages, each with the sender they count for."""
        return {
            key.destination: sender
            for key, origin in self._origins.items()
            if (sender := sender_of(origin)) is not None
        }
