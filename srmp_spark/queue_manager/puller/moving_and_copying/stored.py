"""Store the remote messages that are no rows yet, and load the state of a subscription.

The functions read and write over the caller's connection, and the caller commits. The table module
:mod:`srmp_spark.store.tables.cutovers` stores what was copied.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.packets.message_packet import parse_message_packet
from srmp_spark.mqrr.pulled_states import PulledState
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, PulledKey
from srmp_spark.store.database.set_aside import KEY_MAX, REASON_MAX, SetAside, readable, typed
from srmp_spark.store.tables import cutovers
from srmp_spark.store.tables.cutovers import CutoverRow

_SIGNED = 2**63


class StoredPullerState(NamedTuple):
    """The stored state that an earlier puller of one subscription left.

    ``kept`` are messages that are no rows of a queue yet. ``copied`` are keys of copied messages.
    """

    kept: list[Pulled]
    copied: set[PulledKey]
    unreadable: list[SetAside]
    """Stored messages that cannot be read.

    While there is such a message, the subscription must not read, because it would not recognise
    the message in the remote queue.
    """
    ends: frozenset[PulledKey] = frozenset()
    """Keys of copied messages for which an End may have been sent, and that are not decided."""
    gone: int = 0
    """Number of copied messages whose originals other readers received."""
    cutover: CutoverRow | None = None
    """The cut-over of the subscription, or ``None`` if it was never cut over."""


def load_left(connection: sqlite3.Connection, subscription: str) -> StoredPullerState:
    """Read the stored state of a subscription from the database.

    What cannot be read is returned in ``unreadable`` and raises nothing. The store does not show
    whether End of a kept message was sent, so the state of each message is ``UNANSWERED``.
    """
    kept: list[Pulled] = []
    unreadable: list[SetAside] = []
    found = connection.execute(
        "SELECT lookup_id, message_id, packet FROM pulled WHERE subscription = ? ORDER BY rowid",
        (subscription,),
    )
    for lookup_id, message_id, packet in found:
        try:
            typed((lookup_id, message_id, packet), (int, str, bytes))
            message = message_of(parse_message_packet(packet))
        except (RemoteProtocolError, TypeError) as error:
            unreadable.append(
                SetAside(
                    "pulled", f"{subscription} {message_id}"[:KEY_MAX], str(error)[:REASON_MAX]
                )
            )
            continue
        kept.append(
            Pulled(
                PulledKey(lookup_id % 2**64, message_id), packet, message, PulledState.UNANSWERED
            )
        )
    return StoredPullerState(
        kept,
        _load_copied(connection, subscription, unreadable),
        unreadable,
        frozenset(PulledKey(*each) for each in cutovers.ends(connection, subscription)),
        cutovers.count_gone(connection, subscription),
        cutovers.load(connection, subscription),
    )


def keep_pulled(
    connection: sqlite3.Connection, subscription: str, messages: Iterable[Pulled], now: int
) -> None:
    """Store messages that are locked in the remote queue and are no rows of a queue yet.

    ``now`` is in microseconds since 1970. A message that is stored already is not stored again.
    """
    connection.executemany(
        "INSERT OR IGNORE INTO pulled(subscription, lookup_id, message_id, pulled_at, "
        "packet) VALUES (?, ?, ?, ?, ?)",
        [
            (subscription, _signed(each.key.lookup_id), each.key.message_id, now, each.raw)
            for each in messages
        ],
    )


def forget_pulled(
    connection: sqlite3.Connection, subscription: str, keys: Iterable[PulledKey]
) -> None:
    """Delete stored messages of a subscription by their keys.

    They are rows now, or another reader has received them.
    """
    connection.executemany(
        "DELETE FROM pulled WHERE subscription = ? AND lookup_id = ? AND message_id = ?",
        [(subscription, _signed(lookup_id), message_id) for lookup_id, message_id in keys],
    )


def _load_copied(
    connection: sqlite3.Connection, subscription: str, unreadable: list[SetAside]
) -> set[PulledKey]:
    """Read the keys of messages that were copied and may still be in the remote queue.

    Keys that cannot be read are added to ``unreadable``.
    """
    found = connection.execute(
        "SELECT lookup_id, message_id FROM copied WHERE subscription = ?", (subscription,)
    )
    return set(readable("copied", found, _copied, unreadable, key=2))


def _copied(row: Sequence[Any]) -> PulledKey:
    lookup_id, message_id = typed(row, (int, str))
    return PulledKey(lookup_id % 2**64, message_id)


def _signed(number: int) -> int:
    return number - 2**64 if number >= _SIGNED else number
