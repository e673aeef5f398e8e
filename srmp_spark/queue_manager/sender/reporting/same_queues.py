"""Find two destinations that seem to be one queue of a peer.

Examples are ``machine2`` and ``machine2.example.com``, or http and https. Hosts are not compared by
their addresses, so each name has a stream of its own. A peer that knows both names as one queue
keeps one stream of each sender for it. The peer answers 200 to messages of the older stream, drops
these messages as late copies, and sends no receipt. Nothing that the peer sends reveals this
problem, so this module finds the problem in two ways:

- *When a stream begins* and its host has an address that another stream is sent to. The other
  stream has another host name with the same port, or the other scheme, and the same path. There may
  be no problem yet. Destinations that are reached through a redirection are left out, because the
  address is that of the proxy.
- *When receipts are missing*: a stream was sent again :data:`REPEATS_MIN` times, and all of it was
  answered 200. Meanwhile a newer stream to the same address, or to the same path of another host,
  was acknowledged. If only the path is the same, this is reported as one of two possible reasons.
  Many machines have a queue of the same name, and the receipts of one of them may fail to reach
  this queue manager.

Both cases are logged once. While a case lasts, ``status.outgoing`` and ``doctor`` show the case.
The module runs in the loop of the sender process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from srmp_spark.log_once import OncePerKey
from srmp_spark.names import UrlParts, split_url
from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from srmp_spark.srmp.sending.sender import Sender

LOOK_SECONDS = 10.0
"""Interval of the search for missing receipts, in seconds: less than one resend interval.

One search goes through all streams, which takes some milliseconds for ten thousand.
"""
REPEATS_MIN = 2
"""Number of repeats of a stream without a receipt at which the stream is suspected.

One receipt may be lost or late. With the default ``--resend-table`` the repeats take a minute.
"""
NAMES_MAX = 8
"""Most destinations that are remembered for one IP address and path.

Further destinations are not compared. An address with more names is a proxy, and each name would be
compared with all others.
"""
ADDRESSES_MAX = 8
"""IP addresses of one host that are remembered. Further addresses are ignored."""

_Place = tuple[str, str]
"""An IP address and the path of a URL."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SameQueue:
    """The finding about one stream: the destination ``other`` seems to be the same queue.

    ``receipts_missing`` states in which of the two ways it was found. ``text`` describes the
    problem, and ``hint`` the remedy.
    """

    other: str
    receipts_missing: bool
    text: str
    hint: str

    def as_json(self) -> dict[str, object]:
        """Return the finding as a dictionary, as ``status.outgoing`` shows it."""
        return {
            "destination": self.other,
            "receipts_missing": self.receipts_missing,
            "text": self.text,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class _Known:
    """The URL of a destination, and each IP address of its host with the path of the URL."""

    url: UrlParts
    places: tuple[_Place, ...]


class SameQueues:
    """Finds pairs of destinations that seem to be one queue, for one sender process."""

    def __init__(self, sender: Sender, endpoint_of: Callable[[str], str]) -> None:
        self._sender = sender
        self._endpoint_of = endpoint_of
        self._known: dict[QueueKey, _Known] = {}
        """Known destinations by stream.

        The engine has these streams, so there are never more than its records.
        """
        self._names: dict[_Place, list[QueueKey]] = {}
        self._near: dict[QueueKey, tuple[QueueKey, str]] = {}
        """For a stream, another stream and the IP address that both are sent to."""
        self._missing: dict[QueueKey, SameQueue] = {}
        self._logged: OncePerKey[tuple[QueueKey, QueueKey, bool]] = OncePerKey()

    def __repr__(self) -> str:
        return (
            f"<SameQueues known={len(self._known)} near={len(self._near)} "
            f"missing={len(self._missing)}>"
        )

    async def run(self) -> None:
        """Search for missing receipts each LOOK_SECONDS, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def of(self, key: QueueKey) -> SameQueue | None:
        """Return the present finding about the stream ``key``, or ``None``.

        Missing receipts are those of the last search.
        """
        missing = self._missing.get(key)
        if missing is not None:
            return missing
        near = self._near.get(key)
        return None if near is None else _as_near(key, *near)

    def learnt(self, key: QueueKey, addresses: Sequence[str]) -> None:
        """Record the addresses of the host of ``key``, before a connection to one of them is made.

        Then compare the stream with others, as :meth:`leaves`. Destinations that are no stream, or
        are reached through a redirection, are ignored.
        """
        if key.kind != "stream" or self._endpoint_of(key.destination) != key.destination:
            return
        url = split_url(key.destination)
        # Sort the addresses: name servers rotate the addresses of a host, and the one that answers
        # is tried first.
        places = tuple((address, url.path) for address in sorted(addresses)[:ADDRESSES_MAX])
        known = self._known.get(key)
        if known is None or known.places != places:
            self._forget(key)
            self._known[key] = _Known(url, places)
            for place in places:
                names = self._names.setdefault(place, [])
                if len(names) < NAMES_MAX:
                    names.append(key)
        self.leaves(key)

    def leaves(self, key: QueueKey) -> None:
        """Compare the stream ``key`` with other streams to its addresses.

        Called when a message of the stream is sent. A pair that is found is recorded and logged. A
        connection may live longer than a stream. If both connections are kept open, no address is
        looked up when a stream begins.
        """
        known = self._known.get(key)
        if known is None or key in self._near:
            return
        for other, address in self._neighbours(key):
            if (
                _are_two_names(known.url, self._known[other].url)
                and self._stream(other) is not None
            ):
                self._near[key], self._near[other] = (other, address), (key, address)
                self._tell(key, other, _as_near(key, other, address))
                return

    def look(self) -> None:
        """Forget findings that have ended, and find and log streams whose receipts are missing."""
        gone = {key for key in self._known if self._sender.get(*key) is None}
        for key in gone:
            self._forget(key)
        if gone:
            self._logged.forget(lambda pair: not gone.isdisjoint(pair[:2]))
        for key, (other, _) in list(self._near.items()):
            if self._stream(key) is None or self._stream(other) is None:
                del self._near[key]
        stuck = [
            queue
            for queue in self._sender
            if isinstance(queue, OutgoingStream) and _is_stuck(queue)
        ]
        by_path = self._acknowledged_by_path(stuck)
        self._missing = {}
        for stream in stuck:
            found = self._newer_one(stream, by_path)
            if found is not None:
                newer, address = found
                self._missing[stream.key] = _as_missing(stream, newer.key.destination, address)
                self._tell(stream.key, newer.key, self._missing[stream.key])

    def _stream(self, key: QueueKey) -> OutgoingStream | None:
        """Return the stream of ``key`` if it holds messages, else ``None``."""
        queue = self._sender.get(*key)
        return queue if isinstance(queue, OutgoingStream) and queue.holds_messages else None

    def _neighbours(self, key: QueueKey) -> Iterator[tuple[QueueKey, str]]:
        known = self._known.get(key)
        for place in known.places if known is not None else ():
            for other in self._names.get(place, ()):
                if other != key:
                    yield other, place[0]

    def _acknowledged_by_path(self, stuck: list[OutgoingStream]) -> dict[str, OutgoingStream]:
        """Return, for each URL path of the streams ``stuck``, the stream acknowledged last.

        All streams with that path are considered.
        """
        found: dict[str, OutgoingStream] = {}
        if stuck:
            paths = {_path_of(stream.key.destination) for stream in stuck}
            for queue in self._sender:
                if isinstance(queue, OutgoingStream) and queue.last_acknowledged_at:
                    path = _path_of(queue.key.destination)
                    last = found.get(path)
                    if path in paths and (
                        last is None or queue.last_acknowledged_at > last.last_acknowledged_at
                    ):
                        found[path] = queue
        return found

    def _newer_one(
        self, stream: OutgoingStream, by_path: dict[str, OutgoingStream]
    ) -> tuple[OutgoingStream, str | None] | None:
        """Return the stream that seems to replace ``stream``, and the IP address if it is the same.

        The address is ``None`` if only the path is the same. Return ``None`` if there is no such
        stream.
        """
        for key, address in self._neighbours(stream.key):
            other = self._sender.get(*key)
            if isinstance(other, OutgoingStream) and _goes_on(other, stream):
                return other, address
        last = by_path.get(_path_of(stream.key.destination))
        return (last, None) if last is not None and _goes_on(last, stream) else None

    def _tell(self, key: QueueKey, other: QueueKey, found: SameQueue) -> None:
        pair = (min(key, other), max(key, other), found.receipts_missing)
        if self._logged.is_new(pair):
            text = "sender.same_queue destination=%s other=%s: %s; %s"
            log.warning(text, key.destination, found.other, found.text, found.hint)

    def _forget(self, key: QueueKey) -> None:
        known = self._known.pop(key, None)
        for place in known.places if known is not None else ():
            names = self._names.get(place, [])
            if key in names:
                names.remove(key)
                if not names:
                    del self._names[place]
        other, _ = self._near.pop(key, (None, ""))
        if other is not None and self._near.get(other, (None, ""))[0] == key:
            del self._near[other]


def _path_of(destination: str) -> str:
    return "/" + destination.partition("://")[2].partition("/")[2]


def _are_two_names(one: UrlParts, other: UrlParts) -> bool:
    """Return whether two URLs of one address and path may be one queue under two names.

    Another port is another queue manager. Two URLs with one host and port are two forms of one
    name, one of which an older version stored
    (:mod:`~srmp_spark.store.outbox.preparing.respelled`); they count only if their queries are
    equal.
    """
    return one.scheme != other.scheme or (
        one.port == other.port and (one.host != other.host or one.query == other.query)
    )


def _is_stuck(stream: OutgoingStream) -> bool:
    """Return whether the peer answers 200 to a stream repeatedly, and sends no receipt."""
    return stream.repeats >= REPEATS_MIN and stream.unacknowledged > 0 and stream.last_status == 200


def _goes_on(other: OutgoingStream, stream: OutgoingStream) -> bool:
    """Return whether ``other`` is newer than ``stream`` and was acknowledged more recently."""
    since = max(stream.last_acknowledged_at, stream.started_at)
    return (
        other is not stream
        and other.ordinal > stream.ordinal
        and other.last_acknowledged_at > since
    )


def _as_near(key: QueueKey, other: QueueKey, address: str) -> SameQueue:
    text = (
        f"{key.destination} and {other.destination} lead to one address ({address}) and "
        "one queue there, and each has a stream "
        "of its own: a peer that takes both for one queue keeps the newer stream alone"
    )
    return SameQueue(other.destination, False, text, "write one of the two names everywhere")


def _as_missing(stream: OutgoingStream, other: str, address: str | None) -> SameQueue:
    destination = stream.key.destination
    same = f"of the same address ({address})" if address is not None else "of the same queue path"
    text = (
        f"{stream.unacknowledged} messages to {destination} were answered 200 again and "
        "again and no stream receipt was "
        f"received, while the newer stream to {other}, {same}, is acknowledged: "
    )
    one_queue = (
        "the peer takes both for one queue, keeps the newer stream, and drops the "
        "messages of the older one"
    )
    text += (
        one_queue if address is not None else f"either {one_queue}, or its receipts do not reach us"
    )
    hint = (
        f"write one of the two names everywhere; once nothing waits for {other}, "
        f"`srmp-spark streams reset --destination '{destination}'` sends the rest"
    )
    if address is None:
        reach = (
            f"if they are two machines, see whether that of {destination} reaches the "
            "address in send_receipts_to"
        )
        hint = f"{reach}; if they are one, {hint}"
    return SameQueue(other, True, text, hint)
