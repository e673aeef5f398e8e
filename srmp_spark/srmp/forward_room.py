"""Room for destinations that messages are forwarded to, where they are accepted: before the 200. Without any I/O.

Theory of operation. Below an ``--allow-url`` pattern any sender names destinations. No number of them that there ever were is a
limit: a destination counts while a message for it waits, and it counts for the sender that named it. A message waits

- in the log of what is forwarded, from its acceptance until the sender process has read it (:meth:`ForwardRoom.forwarded`);
- in an outgoing queue, until it is acknowledged: the sender process tells which destinations those are
  (:meth:`ForwardRoom.told`), with their senders, also after a start of either process.

After a start of the main process nobody counts what waits in the log, nor what is outgoing. Until the sender process has told
all it holds, and has read the log as far as it led at that start (:meth:`ForwardRoom.starts`), every destination that is not
counted is without room. So no restart admits more than the limit, whether the sender process can run or not.

What is accepted under this limit has its own places among the outgoing queues (:data:`.outgoing_room.FORWARD_RESERVE`): nothing
that was answered 200 is given up for want of room.

A new destination without room is answered 503 before anything of its message is stored; its sender keeps it. A destination that
is counted takes every message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

FORWARD_DESTINATIONS_MAX = 1_000
"""Destinations of other hosts with messages that wait. Each is an outgoing queue, of which there are
:data:`.outgoing_room.DESTINATIONS_MAX`; strangers choose them below an ``--allow-url`` pattern, and sinks must find room."""
FORWARD_SHARE = 4
"""One sender (an address, a /64 of IPv6, an authenticated name) has at most this part of them. This host itself has no share: a
reverse proxy stands there, whose senders are many."""


@dataclass(slots=True)
class _Destination:
    """One that counts."""

    sender: str
    accepted: int = 0
    """The last row of the log that is for it."""
    is_outgoing: bool = False
    """It has an outgoing queue with messages."""
    is_doubtful: bool = False
    """The sender process that told so has ended, and the one after it has not told of it."""


def _has_share(sender: str) -> bool:
    return not (sender.startswith("127.") or sender in ("", "::/64"))


class ForwardRoom:
    """The destinations that hold messages which are to be forwarded."""

    def __init__(self) -> None:
        self._destinations: dict[str, _Destination] = {}
        self._of_sender: Counter[str] = Counter()
        self._forwarded_to = 0
        self._unknown_to: int | None = None

    def __len__(self) -> int:
        return len(self._destinations)

    @property
    def is_counted(self) -> bool:
        """Whether everything that waits is known; not for a moment after a start, or until the sender process can run."""
        return self._unknown_to is None

    def refuses(self, destination: str, sender: str) -> str | None:
        """Return why a message for ``destination`` finds no room, or ``None``. ``destination`` is canonical."""
        if destination in self._destinations:
            return None
        if self._unknown_to is not None:
            return (
                "what waits to be forwarded since before the start is not counted: the "
                "sender process has not read it yet"
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
        """Count no new destination before rows up to ``end`` have left the log, and what is outgoing is known.

        ``end``: the last row that was accepted before this start.
        """
        self._unknown_to = end

    def accepted(self, destination: str, sender: str, sequence: int) -> None:
        """Count ``destination``: row ``sequence`` of the log is for it."""
        self._find(destination, sender).accepted = sequence

    def forwarded(self, to: int) -> None:
        """Note that rows up to sequence ``to`` have left the log, for outgoing queues or because an operator gave them up.

        The sender process says so when it has told all outgoing queues that hold messages.
        """
        self._forwarded_to = to
        if self._unknown_to is not None and to >= self._unknown_to:
            self._unknown_to = None
        for each in self._destinations.values():
            each.is_outgoing &= not each.is_doubtful
            each.is_doubtful = False
        self._forget()

    def told(self, holding: Mapping[str, str], empty: Iterable[str], *, begins: bool) -> None:
        """Note which outgoing queues hold messages, with their senders, and which do no longer, as the sender process tells it.

        ``begins``: it has just started, and what the one before it told counts until this one has told all
        (:meth:`forwarded`).
        """
        if begins:
            for each in self._destinations.values():
                each.is_doubtful = each.is_outgoing
        for name in empty:
            if name in self._destinations:
                self._destinations[name].is_outgoing = False
        for name, sender in holding.items():
            found = self._find(name, sender)
            if (
                found.sender != sender
            ):  # what waited for the first one has left, and a message of another came behind it
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
