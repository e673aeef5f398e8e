"""Room for incoming streams: how many there may be, whose they are, and which one makes way ([MC-MQSRM] 3.1.1.1.6).

Theory of operation. The document never ends an incoming stream, and a ``<start>`` costs who sends it one stored message. So
strangers can fill any table, and what they fill must be their own part of it:

- A *holder* is who began a stream: the authenticated name; else the host of its address, of which IPv6 gives everybody 2**64.
  One holder has a share of the table and no more, so nobody fills it alone.
- When there is no room, streams of the largest holder make way (of the holder itself, when its share is used up): those that
  have rested longest, and never for less than a day; those whose sender has its stream receipt before the others. What is
  newest stays, so a flood ends in itself; what belongs to small holders stays, however long it rests.
- A stream with an authenticated name never makes way: it is its owner's ([MC-MQSRM] 5.1), an operator alone drops it.

What it costs to be forgotten: repeats are known by their identifiers all the same. The sender's next message stands behind a
gap, until it begins its stream anew; so nothing is forgotten while there is room.
"""

from __future__ import annotations

import heapq
from ipaddress import IPv6Address
from typing import Generic, Protocol, TypeVar

from srmp_spark.srmp.stream_name import StreamName

STREAMS_MAX = 100_000
"""About 1 KB each. A stream costs its sender a stored message, so only a flood reaches this; it is answered 503."""
HOLDER_SHARE = 10
"""One holder has at most this part of them: 10,000 pairs of queue and sender behind one address are more than one proxy has."""
REST_S_MIN = 86_400.0
"""A stream that was used within a day is never forgotten: its sender is at work, or was before the night."""
FORGOTTEN_AT_ONCE = 256
"""Streams that make way together: to find them costs more than to forget them."""
LOOKED_AT_MAX = 2_048
"""Streams that are looked at for that, and those of one holder more. A look costs 40 ms at 100,000 holders, 10 ms at ten."""
LOOK_AGAIN_S = 10.0
"""After a look that found nothing: who begins streams without end must not make us look without end."""
_PREFIX_BITS = 64


def share_of(holder: str) -> int:
    """How many streams it may have. All of them if it is this host: a reverse proxy, whose senders are many, or ourselves."""
    here = holder.startswith("127.") or holder in ("", "::/64")
    return STREAMS_MAX if here else max(1, STREAMS_MAX // HOLDER_SHARE)


def holder_of(peer: str, sender_name: str | None) -> str:
    """Whose share a stream counts in. ``peer`` is ``HOST:PORT``; empty for messages that were made here."""
    if sender_name is not None:
        return f"name {sender_name}"
    host = peer.rpartition(":")[0].strip("[]")
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped
    return (
        str(mapped)
        if mapped is not None
        else f"{IPv6Address(int(address) >> _PREFIX_BITS << _PREFIX_BITS)}/{_PREFIX_BITS}"
    )


class HeldStream(Protocol):
    """What this module must know of an incoming stream (:class:`.incoming_streams.IncomingStream` says what each means)."""

    queue: StreamName
    guid: str
    peer: str
    sender_name: str | None
    sequence_number: int
    last_acknowledged: int
    last_access_at: int
    stored_at: float
    holder: str


Stream = TypeVar("Stream", bound=HeldStream)


class StreamRoom(Generic[Stream]):
    """Which streams there are, by holder."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[tuple[StreamName, str], Stream]] = {}
        self._count = 0
        self._look_at: dict[str | None, float] = {}
        """When to look again for streams that may make way, of a holder or (``None``) of all."""

    def add(self, stream: Stream) -> None:
        """There is one more; it counts for who began it (after a restart: for who wrote last)."""
        stream.holder = holder_of(stream.peer, stream.sender_name)
        self._holders.setdefault(stream.holder, {})[stream.queue, stream.guid] = stream
        self._count += 1

    def remove(self, stream: Stream) -> None:
        """There is one less."""
        held = self._holders[stream.holder]
        del held[stream.queue, stream.guid]
        self._count -= 1
        if not held:
            del self._holders[stream.holder]

    def full(self, peer: str, sender_name: str | None) -> str | None:
        """Why this sender may begin no further stream, in words for an operator; ``None``: there is room."""
        holder = holder_of(peer, sender_name)
        share = share_of(holder)
        if share < STREAMS_MAX and len(self._holders.get(holder, ())) >= share:
            return f"{holder} has {share} streams, which is all that one sender's address may have"
        return f"STREAMS_MAX is {STREAMS_MAX}" if self._count >= STREAMS_MAX else None

    def make_way(self, peer: str, sender_name: str | None, at: int, now: float) -> list[Stream]:
        """The streams to forget when :meth:`full` says that there is no room; none while all are in use.

        ``at`` is the time in microseconds since 1970 by a clock that nobody can set ahead (:mod:`.history_clock`), ``now`` the
        monotonic clock.
        """
        holder = holder_of(peer, sender_name)
        own_share = share_of(holder) < STREAMS_MAX and len(
            self._holders.get(holder, ())
        ) >= share_of(holder)
        whose = holder if own_share else None
        if now < self._look_at.get(whose, now):
            return []
        largest = (
            [holder]
            if own_share
            else heapq.nlargest(LOOKED_AT_MAX, self._holders, lambda each: len(self._holders[each]))
        )
        found: list[Stream] = []
        looked_at = 0
        for each in largest:
            held = self._holders[each].values()
            looked_at += len(held)
            resting = [stream for stream in held if _rests(stream, at, now)]
            resting.sort(
                key=lambda stream: (
                    stream.sequence_number > stream.last_acknowledged,
                    stream.last_access_at,
                )
            )
            found += resting[: FORGOTTEN_AT_ONCE - len(found)]
            if len(found) >= FORGOTTEN_AT_ONCE or looked_at >= LOOKED_AT_MAX:
                break
        if found:
            self._look_at.pop(whose, None)
        else:
            if (
                len(self._look_at) > HOLDER_SHARE
            ):  # those that have a share each, and all; who had one once is no matter
                self._look_at.clear()
            self._look_at[whose] = now + LOOK_AGAIN_S
        return found

    def __repr__(self) -> str:
        return f"<StreamRoom streams={self._count} holders={len(self._holders)}>"


def _rests(stream: HeldStream, at: int, now: float) -> bool:
    """Whether it may make way: nobody's by name, and neither a message nor a repeat of one came for so long."""
    rested = at - stream.last_access_at >= REST_S_MIN * 1_000_000 and now - stream.stored_at >= min(
        REST_S_MIN, now
    )
    return rested and stream.sender_name is None
