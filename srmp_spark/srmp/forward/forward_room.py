"""Room for the destinations of forwarded messages, checked before a message is answered 200.

Theory of operation. Below an ``--allow-url`` pattern any sender can name destinations. The number
of all destinations ever named is not limited. A destination counts only while a message for it
waits, and counts for the sender that named it. A message waits in one of two places:

- in the log of messages to forward, from its acceptance until the sender process has read it
  (:meth:`ForwardRoom.forwarded`);
- in an outgoing queue, until it is acknowledged. The sender process (the process that sends
  messages, :mod:`srmp_spark.queue_manager.sender`) reports these destinations and their senders
  (:meth:`ForwardRoom.update`), also after a start of either process.

After a start of the main process the waiting messages in the log and in the outgoing queues are not
counted yet. The sender process must first report all that it holds, and must read the log to the
end that it had at that start (:meth:`ForwardRoom.starts`). Until then there is no room for a
destination that is not counted. A restart therefore never admits more than the limit, whether the
sender process can run or not.

Destinations that are accepted under this limit have reserved places among the outgoing queues
(:data:`.outgoing_room.FORWARD_RESERVE`). No message that was answered 200 is discarded for lack of
room.

A message for a new destination without room is answered 503 before any of it is stored, and its
sender keeps it. A destination that is counted accepts every message.

This module does no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

FORWARD_DESTINATIONS_MAX = 1_000
"""Most destinations of other hosts for which messages may wait.

At the limit a message for a new destination is answered 503. Each destination is an outgoing queue,
of which there are :data:`.outgoing_room.DESTINATIONS_MAX`. Unauthenticated clients choose
destinations below an ``--allow-url`` pattern, and sinks must find room too.
"""
FORWARD_SHARE = 4
"""Divisor of :data:`FORWARD_DESTINATIONS_MAX`: one sender (an address, a /64 of IPv6, an
authenticated name) has at most this fraction of the destinations. This host itself is not
limited, because a reverse proxy on it has many senders.
"""


@dataclass(slots=True)
class _Destination:
    """One destination of another host for which messages wait."""

    sender: str
    accepted: int = 0
    """Sequence of the last row of ``private$/forward$`` that is for this destination."""
    is_outgoing: bool = False
    """Whether the destination has an outgoing queue with messages."""
    is_doubtful: bool = False
    """Whether ``is_outgoing`` was reported by a sender process that has ended, and not yet
    confirmed by its successor.
    """


def _has_share(sender: str) -> bool:
    return not (sender.startswith("127.") or sender in ("", "::/64"))


class ForwardRoom:
    """Counts the destinations for which messages wait to be forwarded."""

    def __init__(self) -> None:
        self._destinations: dict[str, _Destination] = {}
        self._of_sender: Counter[str] = Counter()
        self._forwarded_to = 0
        self._unknown_to: int | None = None

    def __len__(self) -> int:
        return len(self._destinations)

    @property
    def is_counted(self) -> bool:
        """Return whether all waiting messages are counted.

        This is False after a start, until the sender process has run and reported.
        """
        return self._unknown_to is None

    def refuses(self, destination: str, sender: str) -> str | None:
        """Return why there is no room for ``destination``, or ``None`` if there is room.

        The reason is a text for an operator. ``destination`` is in canonical form
        (:mod:`srmp_spark.canonical_url`). ``sender`` is the sender in whose share
        (:data:`FORWARD_SHARE`) the destination would count. Nothing is counted by this call.
        """
        if destination in self._destinations:
            return None
        if self._unknown_to is not None:
            return (
                "messages that wait to be forwarded since before the start are not counted: the "
                "sender process has not read them yet"
            )
        if len(self) >= FORWARD_DESTINATIONS_MAX:
            return (
                f"messages for FORWARD_DESTINATIONS_MAX = {FORWARD_DESTINATIONS_MAX} "
                "other queues wait to be forwarded"
            )
        most = max(1, FORWARD_DESTINATIONS_MAX // FORWARD_SHARE)
        if _has_share(sender) and self._of_sender[sender] >= most:
            return (
                f"messages of {sender} for {most} other queues wait to be forwarded, "
                "its share of FORWARD_DESTINATIONS_MAX"
            )
        return None

    def starts(self, end: int) -> None:
        """Begin to refuse new destinations, until all messages from before this start are counted.

        They are counted as soon as :meth:`forwarded` reports that the rows up to ``end`` have left
        the log. ``end`` is the sequence of the last row that was accepted before this start.
        """
        self._unknown_to = end

    def accepted(self, destination: str, sender: str, sequence: int) -> None:
        """Record that row ``sequence`` of ``private$/forward$`` is a message for ``destination``.

        A destination that is not known yet is counted in the share of ``sender``.
        """
        self._find(destination, sender).accepted = sequence

    def forwarded(self, to: int) -> None:
        """Record that the rows up to sequence ``to`` have left the log.

        These rows are in outgoing queues, or an operator discarded them. Call this when the sender
        process reports it. That process has then reported all its outgoing queues that hold
        messages, so reports of its predecessor no longer count. Destinations without messages are
        forgotten.
        """
        self._forwarded_to = to
        if self._unknown_to is not None and to >= self._unknown_to:
            self._unknown_to = None
        for each in self._destinations.values():
            each.is_outgoing &= not each.is_doubtful
            each.is_doubtful = False
        self._forget()

    def update(self, holding: Mapping[str, str], empty: Iterable[str], *, begins: bool) -> None:
        """Record which outgoing queues hold messages and which have become empty.

        Call this when the sender process reports it. ``holding`` has the sender of the messages for
        each destination; ``empty`` has the destinations without messages, which are forgotten.
        ``begins`` means that the sender process has just started. The report of its predecessor
        then counts until the new process has reported all (:meth:`forwarded`).
        """
        if begins:
            for each in self._destinations.values():
                each.is_doubtful = each.is_outgoing
        for name in empty:
            if name in self._destinations:
                self._destinations[name].is_outgoing = False
        for name, sender in holding.items():
            found = self._find(name, sender)
            # The messages of the first sender have left, and another sender's message follows them.
            if found.sender != sender:
                self._leave(found.sender)
                found.sender = sender
                self._of_sender[sender] += 1
            found.is_outgoing, found.is_doubtful = True, False
        self._forget()

    def _find(self, name: str, sender: str) -> _Destination:
        found = self._destinations.get(name)
        if found is None:
            found = self._destinations[name] = _Destination(sender)
            self._of_sender[sender] += 1
        return found

    def _forget(self) -> None:
        gone = [
            name
            for name, each in self._destinations.items()
            if not each.is_outgoing and each.accepted <= self._forwarded_to
        ]
        for name in gone:
            self._leave(self._destinations.pop(name).sender)

    def _leave(self, sender: str) -> None:
        self._of_sender[sender] -= 1
        if not self._of_sender[sender]:
            del self._of_sender[sender]
