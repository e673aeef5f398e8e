"""What is stored of remote messages that are no rows yet, and of those that were copied."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Message
from srmp_spark.mqrr.lookup_identifier import lookup_id_of, sequence_of
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.packets.message_packet import MessagePacket, parse_message_packet
from srmp_spark.mqrr.pulled_states import PulledEvent, PulledState, moved
from srmp_spark.store.set_aside import SetAside

_SIGNED = 2**63


class PulledKey(NamedTuple):
    """Which message: nothing else in the remote queue has both."""

    lookup_id: int
    message_id: str

    @property
    def lookup_ids(self) -> tuple[int, ...]:
        """What its queue manager may call it, the likeliest first (:func:`.lookup_identifier.candidates`)."""
        return tuple(dict.fromkeys((self.lookup_id, sequence_of(self.lookup_id))))


@dataclass(slots=True, eq=False)
class Pulled:
    """One message of a remote queue, whole."""

    key: PulledKey
    raw: bytes
    """The packet."""
    message: Message
    state: PulledState
    request: int = 0
    """dwRequestId of the lock that we have, if we have one."""

    def move(self, event: PulledEvent) -> None:
        """Raises :class:`LocalProtocolError` for what cannot happen."""
        self.state = moved(self.state, event)


def pulled_of(raw: bytes, packet: MessagePacket, sequence_id: int, state: PulledState) -> Pulled:
    """A message as it was read. Raises :class:`RemoteProtocolError` for one of which a part is missing."""
    message = message_of(packet)
    lookup_id = lookup_id_of(sequence_id, priority=packet.priority, transactional=packet.transaction is not None)
    return Pulled(PulledKey(lookup_id, packet.id), raw, message, state)


class Left(NamedTuple):
    """What a subscription has stored."""

    kept: list[Pulled]
    copied: set[PulledKey]
    unreadable: list[SetAside]
    """Messages that cannot be read. While there is one, the subscription must not read: it could not tell that it has it."""


def load_left(connection: sqlite3.Connection, subscription: str) -> Left:
    """Load what is stored. Whether End of a kept message was sent, nobody knows."""
    kept: list[Pulled] = []
    unreadable: list[SetAside] = []
    found = connection.execute(
        "SELECT lookup_id, message_id, packet FROM pulled WHERE subscription = ? ORDER BY rowid", (subscription,)
    )
    for lookup_id, message_id, packet in found:
        try:
            message = message_of(parse_message_packet(packet))
        except RemoteProtocolError as error:
            unreadable.append(SetAside("pulled", f"{subscription} {message_id}", str(error)))
            continue
        kept.append(Pulled(PulledKey(lookup_id % 2**64, message_id), packet, message, PulledState.UNANSWERED))
    return Left(kept, load_copied(connection, subscription), unreadable)


def keep_pulled(connection: sqlite3.Connection, subscription: str, messages: Iterable[Pulled], now: int) -> None:
    """Store them, once."""
    connection.executemany(
        "INSERT OR IGNORE INTO pulled(subscription, lookup_id, message_id, pulled_at, packet) VALUES (?, ?, ?, ?, ?)",
        [(subscription, _signed(each.key.lookup_id), each.key.message_id, now, each.raw) for each in messages],
    )


def forget_pulled(connection: sqlite3.Connection, subscription: str, keys: Iterable[PulledKey]) -> None:
    """They are rows, or nobody's here."""
    connection.executemany(
        "DELETE FROM pulled WHERE subscription = ? AND lookup_id = ? AND message_id = ?",
        [(subscription, _signed(lookup_id), message_id) for lookup_id, message_id in keys],
    )


def load_copied(connection: sqlite3.Connection, subscription: str) -> set[PulledKey]:
    """What are rows, copied, and may still be in the remote queue."""
    found = connection.execute("SELECT lookup_id, message_id FROM copied WHERE subscription = ?", (subscription,))
    return {PulledKey(lookup_id % 2**64, message_id) for lookup_id, message_id in found}


def note_copied(connection: sqlite3.Connection, subscription: str, keys: Iterable[PulledKey]) -> None:
    """They are rows."""
    connection.executemany(
        "INSERT OR IGNORE INTO copied(subscription, lookup_id, message_id) VALUES (?, ?, ?)",
        [(subscription, _signed(lookup_id), message_id) for lookup_id, message_id in keys],
    )


def forget_copied(connection: sqlite3.Connection, subscription: str, keys: Iterable[PulledKey]) -> None:
    """They are in the remote queue no more."""
    connection.executemany(
        "DELETE FROM copied WHERE subscription = ? AND lookup_id = ? AND message_id = ?",
        [(subscription, _signed(lookup_id), message_id) for lookup_id, message_id in keys],
    )


def _signed(number: int) -> int:
    return number - 2**64 if number >= _SIGNED else number
