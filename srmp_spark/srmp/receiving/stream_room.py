"""Room for incoming streams: how many are allowed, for whom each counts, and which are evicted.

See [MC-MQSRM] 3.1.1.1.6. Theory of operation. The specification never ends an incoming stream, and
a ``<start>`` costs its sender only one stored message. Unauthenticated clients can therefore fill
any table, and must be able to fill only their own share:

- The *holder* of a stream is who began it: the authenticated name, else the host of its address. In
  IPv6 a /64 counts as one host, because every client has 2**64 addresses. One holder has a limited
  share of the table, so no holder fills the table alone.
- When there is no room, streams of the largest holder are evicted, or streams of the holder itself
  if its share is used up. Streams that were unused for longest are evicted first, and none that was
  used within a day. Streams whose sender has its stream receipt are evicted before others. The
  newest streams stay, so a flood ends by itself. Streams of small holders stay, however long they
  are unused.
- A stream with an authenticated name is never evicted. Such a stream belongs to its owner
  ([MC-MQSRM] 5.1), and only an operator drops it.

After an eviction, repeats are still recognized by their identifiers. The next message of the sender
is after a gap until the sender begins its stream again. No stream is therefore evicted while there
is room.
"""

from __future__ import annotations

import heapq
from ipaddress import IPv6Address
from typing import Generic, Protocol, TypeVar

from srmp_spark.srmp.receiving.stream_name import StreamName

STREAMS_MAX = 100_000
"""Most incoming streams, of about 1 KB each.

Each stream costs its sender a stored message, so only a flood reaches the limit. A new stream is
then answered 503.
"""
HOLDER_SHARE = 10
"""Divisor of :data:`STREAMS_MAX`: one holder has at most this fraction of the streams. 10,000 pairs
of queue and sender at one address are more than one proxy has.
"""
REST_S_MIN = 86_400.0
"""Seconds without use after which a stream may be evicted.

A stream that was used within a day belongs to a sender that works, or worked the day before.
"""
FORGOTTEN_AT_ONCE = 256
"""Most streams that are evicted together, because finding them costs more than evicting them."""
LOOKED_AT_MAX = 2_048
"""Streams that are examined for an eviction; the streams of one further holder may be added.

An examination takes 40 ms with 100,000 holders, and 10 ms with ten.
"""
LOOK_AGAIN_S = 10.0
"""Seconds between two examinations if the first found no stream.

A client that begins streams without end must not cause examinations without end.
"""
_PREFIX_BITS = 64


def share_of(holder: str) -> int:
    """Return the number of streams that a holder may have.

    This host may have all of them, because a reverse proxy with many senders, or programs of this
    package, may run on it.
    """
    here = holder.startswith("127.") or holder in ("", "::/64")
    return STREAMS_MAX if here else max(1, STREAMS_MAX // HOLDER_SHARE)


def holder_of(peer: str, sender_name: str | None) -> str:
    """Return the holder in whose share a stream counts.

    The result is ``name NAME`` for an authenticated sender, else the host of ``peer``, or its /64
    for IPv6. ``peer`` is ``HOST:PORT``, and is empty for messages that this queue manager created.
    """
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
    """The attributes of an incoming stream that this module needs.

    :class:`.incoming_streams.IncomingStream` describes each of them.
    """

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
    """Keeps the incoming streams by holder, and decides which of them are evicted for others."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[tuple[StreamName, str], Stream]] = {}
        self._count = 0
        self._look_at: dict[str | None, float] = {}
        """Time (monotonic seconds) of the next search for streams to evict, by holder, or by
        ``None`` for all holders.
        """

    def add(self, stream: Stream) -> None:
        """Add a stream.

        The stream counts for the holder who began it. After a restart it counts for the holder who
        sent the last message.
        """
        stream.holder = holder_of(stream.peer, stream.sender_name)
        self._holders.setdefault(stream.holder, {})[stream.queue, stream.guid] = stream
        self._count += 1

    def remove(self, stream: Stream) -> None:
        """Remove a stream that ended or was dropped."""
        held = self._holders[stream.holder]
        del held[stream.queue, stream.guid]
        self._count -= 1
        if not held:
            del self._holders[stream.holder]

    def full(self, peer: str, sender_name: str | None) -> str | None:
        """Return the reason why this sender may begin no further stream, as a text for an operator.

        Return ``None`` if there is room.
        """
        holder = holder_of(peer, sender_name)
        share = share_of(holder)
        if share < STREAMS_MAX and len(self._holders.get(holder, ())) >= share:
            return f"{holder} has {share} streams, which is all that one sender's address may have"
        return f"STREAMS_MAX is {STREAMS_MAX}" if self._count >= STREAMS_MAX else None

    def make_way(self, peer: str, sender_name: str | None, at: int, now: float) -> list[Stream]:
        """Return the streams to evict for a new stream of this sender, at most FORGOTTEN_AT_ONCE.

        Call this if :meth:`full` returns a reason. The caller must then :meth:`remove` these
        streams.

        The list is empty if all examined streams are in use, and for the next LOOK_AGAIN_S after
        that. ``at`` is the time in microseconds since 1970, by a clock that nobody can set ahead
        (:mod:`.history_clock`). ``now`` is the monotonic clock in seconds.
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
            # At most HOLDER_SHARE holders can fill their shares, so other entries are obsolete.
            if len(self._look_at) > HOLDER_SHARE:
                self._look_at.clear()
            self._look_at[whose] = now + LOOK_AGAIN_S
        return found

    def __repr__(self) -> str:
        return f"<StreamRoom streams={self._count} holders={len(self._holders)}>"


def _rests(stream: HeldStream, at: int, now: float) -> bool:
    """Return whether a stream may be evicted.

    Such a stream has no authenticated name, and neither a message nor a repeat arrived for
    :data:`REST_S_MIN`, by both clocks: ``at`` in microseconds since 1970, ``now`` in monotonic
    seconds.
    """
    rested = at - stream.last_access_at >= REST_S_MIN * 1_000_000 and now - stream.stored_at >= min(
        REST_S_MIN, now
    )
    return rested and stream.sender_name is None
