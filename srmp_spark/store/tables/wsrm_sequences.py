"""Store incoming sequences of WS-ReliableMessaging.

The sequences are written with the rows that they count, and read at the next start.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

from srmp_spark.errors import SrmpSparkError
from srmp_spark.store.database.set_aside import KEY_MAX, REASON_MAX, SetAside, typed
from srmp_spark.wsrm.codec.endpoint_text import endpoint_of, text_of
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion
from srmp_spark.wsrm.limits import IDENTIFIER_MAX
from srmp_spark.wsrm.receiving.destination_effects import SequenceRow
from srmp_spark.wsrm.receiving.inbound_states import InboundState

DDL = """
CREATE TABLE IF NOT EXISTS wsrm_sequences(
    identifier TEXT PRIMARY KEY, queue_id INTEGER NOT NULL, create_id TEXT NOT NULL, \
soap TEXT NOT NULL,
    addressing TEXT NOT NULL, rm TEXT NOT NULL, acks_to TEXT NOT NULL, state TEXT NOT NULL, \
accepted INTEGER NOT NULL,
    last_number INTEGER, expires_at INTEGER, peer TEXT NOT NULL, sender_name TEXT, \
created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL, returns TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID
"""
"""Table of the incoming sequences.

``soap``, ``addressing``, ``rm``: names of versions. ``accepted``: messages 1 to this number are
rows. Times: microseconds since 1970, UTC. ``returns``: the sequence for replies that was offered
and accepted.
"""


_INT_OR_NONE, _TEXT_OR_NONE = (int, NoneType), (str, NoneType)
_TYPES = (
    str,
    str,
    str,
    str,
    str,
    str,
    str,
    str,
    int,
    _INT_OR_NONE,
    _INT_OR_NONE,
    str,
    str,
    _TEXT_OR_NONE,
    int,
)


class SequenceClient(NamedTuple):
    """Client that began a sequence, which the allow-list checks.

    ``sender_name`` is its authenticated name, or ``None``.
    """

    peer: str
    """Address of the client as ``host:port``."""
    sender_name: str | None
    created_at: int
    """Time when the sequence began, in microseconds since 1970, UTC."""


class StoredSequence(NamedTuple):
    """One incoming sequence, as stored, with its queue and its client."""

    queue: str
    row: SequenceRow
    origin: SequenceClient


class StoredSequences(NamedTuple):
    """The sequences that :func:`load` could read, and the database rows that it could not."""

    sequences: list[StoredSequence]
    unreadable: list[SetAside]


def load(connection: sqlite3.Connection) -> StoredSequences:
    """Return all stored sequences of existing queues, and the database rows that cannot be read.

    A database row that cannot be read stays in the table and is returned as :class:`SetAside`. The
    client of such a sequence is answered UnknownSequence, as after the loss of a sequence, and
    every other sequence continues.
    """
    found = connection.execute(
        "SELECT queues.name, identifier, create_id, soap, addressing, rm, acks_to, state, "
        "accepted, last_number, expires_at, "
        "returns, peer, sender_name, created_at FROM wsrm_sequences JOIN queues ON "
        "queues.id = queue_id "
        "WHERE deleted_at IS NULL ORDER BY created_at, identifier"
    )
    stored = StoredSequences([], [])
    for row in found:
        try:
            stored.sequences.append(_sequence_of(row))
        except (  # noqa: PERF203
            # One bad row must not stop the others.
            SrmpSparkError,
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ) as error:
            reason = f"{type(error).__name__}: {error}"[:REASON_MAX]
            stored.unreadable.append(
                SetAside("wsrm_sequences", f"{row[0]} {row[1]}"[:KEY_MAX], reason)
            )
    return stored


def _sequence_of(row: Sequence[Any]) -> StoredSequence:
    (
        queue,
        identifier,
        create_id,
        soap,
        addressing,
        rm,
        acks_to,
        state,
        accepted,
        last_number,
        expires_at,
        returns,
        *origin,
    ) = typed(row, _TYPES)
    if len(identifier) > IDENTIFIER_MAX or accepted < 0:
        raise ValueError(
            f"{len(identifier)} characters of identifier, {accepted} messages accepted"
        )
    sequence = SequenceRow(
        identifier,
        create_id,
        SoapVersion[soap],
        AddressingVersion[addressing],
        RmVersion[rm],
        endpoint_of(acks_to),
        InboundState[state],
        accepted,
        last_number,
        expires_at,
        returns,
    )
    return StoredSequence(queue, sequence, SequenceClient(*origin))


def save(
    connection: sqlite3.Connection,
    queue: str,
    rows: Iterable[SequenceRow],
    removed: Iterable[str],
    origins: Mapping[str, SequenceClient],
    now: int,
) -> None:
    """Write changed sequences of ``queue``, and delete removed ones by their identifiers.

    ``rows`` are the changed sequences, and ``origins`` has the client of each, by identifier. The
    function runs in the transaction that stores the rows that the sequences count. ``now`` is in
    microseconds since 1970, UTC.
    """
    for row in rows:
        origin = origins[row.identifier]
        connection.execute(
            "INSERT OR REPLACE INTO wsrm_sequences SELECT ?, id, ?, ?, ?, ?, ?, ?, ?, ?, "
            "?, ?, ?, ?, ?, ? FROM queues "
            "WHERE name = ?",
            (
                row.identifier,
                row.create_id,
                row.soap.name,
                row.addressing.name,
                row.rm.name,
                text_of(row.acks_to, row.addressing),
                row.state.name,
                row.accepted,
                row.last_number,
                row.expires_at,
                *origin,
                now,
                row.returns,
                queue,
            ),
        )
    connection.executemany(
        "DELETE FROM wsrm_sequences WHERE identifier = ?", [(each,) for each in removed]
    )
