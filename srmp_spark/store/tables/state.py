"""The state that a queue manager needs to continue after a restart.

The state is written with the rows to which it belongs, and read at the next start. :func:`load`
returns all of it except the message identifiers: queues with their last sequence, streams for the
receiving engine, consumers, and receipts still owed. :func:`load_history` returns the message
identifiers. The ``save_…`` functions write inside the journal's transaction.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from types import NoneType
from typing import Any, NamedTuple

from srmp_spark.holder import Holder
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.srmp.receiving.effects import Changes, OwedReceipt
from srmp_spark.srmp.receiving.history import HistoryRun
from srmp_spark.srmp.receiving.stream_effects import AcceptedGap, IncomingStreamRow
from srmp_spark.srmp.receiving.stream_name import StreamName
from srmp_spark.srmp.receiving.trust_domain import SEPARATOR
from srmp_spark.store.database.integers import UNSIGNED, signed
from srmp_spark.store.database.set_aside import REASON_MAX, SetAside, readable, typed
from srmp_spark.store.tables import marks
from srmp_spark.store.tables.epochs import end_of
from srmp_spark.store.tables.waiting import WaitingRows
from srmp_spark.store.unreadable_rows import GUID_LENGTH_MAX, NAME_LENGTH_MAX, rows_moved_aside

JOURNAL_CONSUMERS = ";journal/"
"""Prefix of the names of a journal's consumers.

These consumers are stored among the consumers of the queue. No name that a user gives has a slash.
"""
MESSAGE_IDENTIFIERS = "message_id"
"""Name of this queue manager's MessageIdOrdinal in the table ``ids``.

Receipts and ``send`` share it.
"""
IDENTIFIER_MAX = (1 << 32) - 1
"""Largest number of a message identifier, which has 32 bits in MSMQ ([MS-MQMQ] 2.2.8)."""
IDENTIFIERS_SKIPPED = 1 << 28
"""Least number of message identifiers that a copy skips: 268 million.

The original may have issued as many since, in a month of 100 messages a second. Six copies of
copies have room for that; beyond that a copy skips a part of what is left.
"""


class StoredQueue(NamedTuple):
    """One queue, as stored, with the rows that wait in it."""

    id: int
    name: str
    transactional: bool
    paused: bool
    options: dict[str, object]
    end: int
    """The last issued sequence; 0 if none."""
    received: int
    """The mark of the default consumer."""
    waiting: WaitingRows
    """Rows beyond that mark, with their bytes and age, for the quota and for ``status``."""
    epochs: list[tuple[str, int]]
    """Pairs (epoch, its first sequence in this queue), oldest first."""
    trimmed_to: int
    """The last sequence that retention has deleted."""


class StoredConsumer(NamedTuple):
    """One consumer of a queue's log, and how far it has received.

    ``holder`` is the JSON text that names the present receiver, or ``None`` without one.
    """

    queue: str
    name: str
    received: int
    """The mark: every row up to this sequence was received."""
    ahead: SequenceSet
    """Sequences above ``received`` that were received, too (for example by priority)."""
    planned: int | None
    """First sequence that the present receiver plans to read; ``None`` without a receiver."""
    holder: str | None
    lease_until: int | None
    """End of the lease, in microseconds since 1970, UTC."""


class StoredReceipt(NamedTuple):
    """One owed receipt (:class:`.Journal`), as stored.

    By its number ``id`` :func:`delete_owed` deletes it after delivery.
    """

    id: int
    receipt: OwedReceipt


class StoredState(NamedTuple):
    """Everything that :func:`load` found, without the message identifiers.

    There can be millions of message identifiers; :func:`load_history` reads them.
    """

    queues: list[StoredQueue]
    streams: list[IncomingStreamRow]
    accepted_gaps: list[AcceptedGap]
    consumers: list[StoredConsumer]
    owed: list[StoredReceipt]
    ceilings: dict[str, int]
    """Highest number that may have been issued, by name (table ``ids``)."""
    unreadable: list[SetAside]
    """Database rows that could not be read and stay where they are."""


def load(connection: sqlite3.Connection) -> StoredState:
    """Return the state of the queue manager at the last commit, without message identifiers.

    Call the function before the journal writes. No body is read. A database row that cannot be read
    is listed in :attr:`StoredState.unreadable`, and affects only itself: a stream, whose sender
    begins it again; a receipt, which is not sent; or what a consumer received by priority beyond
    its mark. A queue always opens, because messages for a missing queue would be answered 400.
    """
    unreadable = rows_moved_aside(connection)
    names = dict(connection.execute("SELECT id, name FROM queues WHERE deleted_at IS NULL"))
    found = connection.execute(
        "SELECT queue_id, name, received, ahead, planned, holder, lease_until FROM consumers"
    )
    named = [row for row in found.fetchall() if row[0] in names]
    consumers = list(
        readable(
            "consumers",
            named,
            lambda row: _consumer(connection, names[row[0]], row, unreadable),
            unreadable,
            key=2,
        )
    )
    owed = connection.execute("SELECT id, payload FROM owed_receipts ORDER BY id")
    return StoredState(
        queues=[load_queue(connection, queue_id, unreadable) for queue_id in names],
        streams=load_streams(connection, unreadable),
        accepted_gaps=load_accepted_gaps(connection, unreadable),
        consumers=consumers,
        owed=list(readable("owed_receipts", owed, _receipt, unreadable)),
        ceilings=dict(connection.execute("SELECT name, ceiling FROM ids")),
        unreadable=unreadable,
    )


def _receipt(row: Sequence[Any]) -> StoredReceipt:
    receipt = OwedReceipt.from_payload(row[1])
    typed(receipt, _RECEIPT_TYPES)
    return StoredReceipt(row[0], receipt)


def _consumer(
    connection: sqlite3.Connection, queue: str, row: Sequence[Any], unreadable: list[SetAside]
) -> StoredConsumer:
    """Return one consumer of the queue ``queue`` from its database row.

    Problems are added to ``unreadable``. Stored sequences beyond its mark that cannot be read are
    dropped: those rows are delivered again, rather than never. A lease that cannot be read is
    dropped: the next receiver that registers gets the consumer. Raises :class:`TypeError` or
    :class:`ValueError` if the name or the mark cannot be read.
    """
    queue_id, name, received, ahead, planned, holder, lease_until = row
    typed((name, received), (str, int))
    if received < 0:
        raise ValueError(f"received {received}")
    try:
        typed((planned, holder, lease_until), (_INT_OR_NONE, _TEXT_OR_NONE, _INT_OR_NONE))
        value = None if holder is None else json.loads(holder)
        if value is not None and not isinstance(value, str):
            Holder.from_dict(value)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        unreadable.append(
            SetAside("consumers", f"{queue} {name}", f"its lease: {error}"[:REASON_MAX])
        )
        planned = holder = lease_until = None
    if (told := marks.set_aside_text(queue, name, ahead)) is not None:
        unreadable.append(told)
    found = marks.load(connection, queue_id, name, received, unreadable)
    return StoredConsumer(queue, name, received, found, planned, holder, lease_until)


def load_queue(
    connection: sqlite3.Connection, queue_id: int, unreadable: list[SetAside] | None = None
) -> StoredQueue:
    """Return the stored state of queue ``queue_id``, with the rows that wait in it.

    The queue must be in the table ``queues``. Options that cannot be read count as no options, and
    are reported in ``unreadable`` if that is given.
    """
    name, transactional, paused, options, trimmed_to = connection.execute(
        "SELECT name, transactional, paused, options, trimmed_to FROM queues WHERE id = ?",
        (queue_id,),
    ).fetchone()
    epochs = connection.execute(
        "SELECT epochs.epoch, queue_epochs.first FROM queue_epochs JOIN epochs ON "
        "epochs.id = epoch_id "
        "WHERE queue_id = ? ORDER BY epoch_id",
        (queue_id,),
    ).fetchall()
    received = received_by_default(connection, queue_id)
    waiting = WaitingRows.load(connection, queue_id, received)
    end = end_of(connection, queue_id)
    return StoredQueue(
        queue_id,
        name,
        bool(transactional),
        bool(paused),
        _options(name, options, unreadable),
        end,
        received,
        waiting,
        epochs,
        trimmed_to,
    )


def _options(queue: str, text: str, unreadable: list[SetAside] | None) -> dict[str, object]:
    try:
        found = json.loads(text)
        if isinstance(found, dict):
            return found
        error: Exception = TypeError(f"options are {text!r:.50}")
    except (ValueError, TypeError, RecursionError) as failed:
        error = failed
    if unreadable is not None:
        unreadable.append(SetAside("queues", queue, f"options: {error}"[:REASON_MAX]))
    return {}


_TEXT_OR_NONE, _INT_OR_NONE = (str, NoneType), (int, NoneType)
_STREAM_TYPES = (str, str, str, int, int, str, str, _TEXT_OR_NONE, int, int, int, _TEXT_OR_NONE)
_RECEIPT_TYPES = (str, str, str, str, int, int, str, str, _TEXT_OR_NONE)
_GAP_TYPES = (str, str, str, int, int, _INT_OR_NONE)


def load_streams(
    connection: sqlite3.Connection, unreadable: list[SetAside] | None = None
) -> list[IncomingStreamRow]:
    """Return the rows of the table ``streams``.

    Rows that cannot be read are left out, and reported in ``unreadable`` if that is given.
    """
    found = connection.execute(f"SELECT {', '.join(IncomingStreamRow._fields)} FROM streams")  # noqa: S608  # our own names
    return list(
        readable("streams", found, _stream, [] if unreadable is None else unreadable, key=2)
    )


def _stream(row: Sequence[Any]) -> IncomingStreamRow:
    stream = IncomingStreamRow(*typed(row, _STREAM_TYPES))
    _check_lengths(stream.queue, stream.guid)
    return stream._replace(stream_ordinal=int(stream.stream_ordinal))


def _check_lengths(queue: str, guid: str) -> None:
    if len(queue) > NAME_LENGTH_MAX:
        raise ValueError(f"the name of the queue has {len(queue)} characters")
    if len(guid) > GUID_LENGTH_MAX:
        raise ValueError(f"the GUID has {len(guid)} characters")


def load_accepted_gaps(
    connection: sqlite3.Connection, unreadable: list[SetAside] | None = None
) -> list[AcceptedGap]:
    """Return the rows of the table ``accepted_gaps``.

    Gaps that are over are included (:meth:`.IncomingStream.restore_gap` recognizes them). Rows that
    cannot be read are left out, and reported in ``unreadable`` if that is given.
    """
    found = connection.execute(
        "SELECT queue, guid, stream_ordinal, started_at, after, next_position FROM accepted_gaps"
    )
    return list(
        readable("accepted_gaps", found, _gap, [] if unreadable is None else unreadable, key=2)
    )


def _gap(row: Sequence[Any]) -> AcceptedGap:
    queue, guid, ordinal, *rest = typed(row, _GAP_TYPES)
    _check_lengths(queue, guid)
    return AcceptedGap(StreamName(queue), guid, int(ordinal), *rest)


def load_history(
    connection: sqlite3.Connection, unreadable: list[SetAside] | None = None
) -> Iterator[HistoryRun]:
    """Yield the runs of message identifiers in the table ``history``, by lineage and number.

    A lineage is the GUID part of message identifiers. Runs of numbers below 2^63 are yielded first,
    then the others, because SQLite would sort the others first. Runs that cannot be read are left
    out, and reported in ``unreadable`` if that is given. Call the function before the journal
    writes.
    """
    columns = "SELECT lineage, first, last, last_received_at FROM history WHERE"
    left_out: list[SetAside] = [] if unreadable is None else unreadable
    for half in ("first >= 0", "first < 0"):
        rows = connection.execute(f"{columns} {half} ORDER BY lineage, first")
        yield from readable("history", rows, _run, left_out, key=2)


def _run(row: Sequence[Any]) -> HistoryRun:
    lineage, first, last, at = row
    # The two numbers are checked by the operations on them below.
    if type(lineage) is not str or type(at) is not int:
        raise TypeError(f"lineage {lineage!r:.50}, received at {at!r:.50}")
    run = HistoryRun(lineage, first & UNSIGNED, last & UNSIGNED, at)
    if run.first > run.last:
        raise ValueError(f"the run {run.first} to {run.last} ends before it begins")
    return run


def divide_history(connection: sqlite3.Connection, undivided_until: int | None = None) -> None:
    """Store the time until which identifiers were saved without their sender, if none is stored.

    The key in the table ``meta`` is ``undivided_until``; a stored time is never replaced. An
    earlier version saved message identifiers without the name of the authenticated sender
    (:mod:`~srmp_spark.srmp.receiving.trust_domain`). Such identifiers count as repeats for every
    sender during the 30 days that they are kept. Otherwise a message that a named sender repeats
    after the update would be a second row.

    ``undivided_until`` is in microseconds since 1970, UTC; 0 means that all identifiers have their
    sender. Without it the function computes the time from the table ``history``. It runs in the
    caller's transaction.
    """
    if undivided_until is None:
        found = "SELECT max(last_received_at), max(instr(lineage, ?)) FROM history"
        newest, slash = connection.execute(found, (SEPARATOR,)).fetchone()
        undivided_until = 0 if slash else newest or 0
    connection.execute(
        "INSERT OR IGNORE INTO meta VALUES ('undivided_until', ?)", (undivided_until,)
    )


def undivided_until(connection: sqlite3.Connection) -> int:
    """Return the time until which message identifiers were saved without their sender.

    The time is in microseconds since 1970, UTC; 0 means that all identifiers have their sender.
    :func:`divide_history` must have stored it.
    """
    (at,) = connection.execute("SELECT value FROM meta WHERE key = 'undivided_until'").fetchone()
    return int(at)


def save_changes(connection: sqlite3.Connection, changes: Changes) -> None:
    """Write changed streams, accepted gaps and message identifiers, in the caller's transaction.

    The same transaction stores the rows that belong to the changes.
    """
    if changes.dropped_streams:
        for table in ("streams", "accepted_gaps"):
            connection.executemany(
                f"DELETE FROM {table} WHERE queue = ? AND guid = ?",  # noqa: S608  # our own names
                changes.dropped_streams,
            )
    for row in changes.streams:
        connection.execute(
            "INSERT OR REPLACE INTO streams VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (row.queue, row.guid, str(row.stream_ordinal), *row[3:]),
        )
    for gap in changes.accepted_gaps:
        connection.execute(
            "INSERT OR REPLACE INTO accepted_gaps VALUES (?, ?, ?, ?, ?, ?)",
            (gap.queue, gap.guid, str(gap.stream_ordinal), *gap[3:]),
        )
    history = changes.history
    for lineage, first in history.deletes:
        connection.execute(
            "DELETE FROM history WHERE lineage = ? AND first = ?", (lineage, signed(first))
        )
    for lineage, first, last, at in history.upserts:
        connection.execute(
            "INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?)",
            (lineage, signed(first), signed(last), at),
        )


# Receipts owed


def last_owed_id(connection: sqlite3.Connection) -> int:
    """Return the highest number (:attr:`StoredReceipt.id`) of a stored receipt; 0 if none."""
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM owed_receipts").fetchone()
    return int(last)


def save_owed(connection: sqlite3.Connection, stored: Sequence[StoredReceipt]) -> None:
    """Store owed receipts in the caller's transaction, which stores their messages."""
    connection.executemany(
        "INSERT INTO owed_receipts VALUES (?, ?, ?, ?, ?, ?)",
        [
            (number, owed.kind, owed.url, owed.peer, owed.payload(), owed.arrived_at)
            for number, owed in stored
        ],
    )


def delete_owed(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Delete the owed receipts with these ``numbers`` (:attr:`StoredReceipt.id`).

    They were delivered, or refused for good.
    """
    connection.executemany(
        "DELETE FROM owed_receipts WHERE id = ?", [(number,) for number in numbers]
    )


# Consumers and numbers


def received_by_default(connection: sqlite3.Connection, queue_id: int) -> int:
    """Return the mark of the default consumer; 0 if there is none or it cannot be read.

    Every row up to the mark was received.
    """
    row = connection.execute(
        "SELECT received FROM consumers WHERE queue_id = ? AND name = 'default'", (queue_id,)
    ).fetchone()
    return row[0] if row and type(row[0]) is int else 0


def received_from_journal(connection: sqlite3.Connection, queue_id: int) -> int | None:
    """Return the mark of the default consumer of the queue's journal.

    Return ``None`` if no message was ever received from the journal.
    """
    name = JOURNAL_CONSUMERS + "default"
    row = connection.execute(
        "SELECT received FROM consumers WHERE queue_id = ? AND name = ?", (queue_id, name)
    ).fetchone()
    return row[0] if row and type(row[0]) is int else None


def kept_after(connection: sqlite3.Connection, queue_id: int) -> int:
    """Return the sequence after which retention keeps rows, whatever their age.

    The default consumer of the queue, or of its journal, has not received the rows above it yet.
    """
    received, journal = (
        received_by_default(connection, queue_id),
        received_from_journal(connection, queue_id),
    )
    return received if journal is None else min(received, journal)


def delete_consumer(connection: sqlite3.Connection, queue_id: int, name: str) -> None:
    """Delete a consumer of a queue, by the name under which it is stored.

    A consumer of a journal is stored with the prefix :data:`JOURNAL_CONSUMERS`. Nothing happens if
    there is no such consumer.
    """
    connection.execute("DELETE FROM consumers WHERE queue_id = ? AND name = ?", (queue_id, name))


def save_consumer(
    connection: sqlite3.Connection,
    queue_id: int,
    consumer: StoredConsumer,
    changes: marks.StoredMarks | None = None,
) -> None:
    """Write a consumer's mark and lease, and the sequences received beyond its mark.

    Of these sequences only ``changes`` are written. If ``changes`` is ``None``, all of them are
    written.
    """
    name, received = consumer.name, consumer.received
    connection.execute(
        "INSERT INTO consumers VALUES (?, ?, ?, '[]', ?, ?, ?) ON CONFLICT (queue_id, "
        "name) DO UPDATE SET "
        "received = excluded.received, ahead = '[]', planned = excluded.planned, holder = "
        "excluded.holder, "
        "lease_until = excluded.lease_until",
        (queue_id, name, received, consumer.planned, consumer.holder, consumer.lease_until),
    )
    every = marks.StoredMarks(list(consumer.ahead.pieces()), []) if changes is None else changes
    marks.save(connection, queue_id, name, received, every)


def raise_ceiling(connection: sqlite3.Connection, name: str, ceiling: int) -> None:
    """Store that numbers of the counter ``name`` up to ``ceiling`` may be issued.

    The numbers may be issued once the transaction is committed. A restart begins above the ceiling.
    A lower ceiling than the stored one changes nothing.
    """
    connection.execute(
        "INSERT INTO ids VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET ceiling = "
        "max(ceiling, excluded.ceiling)",
        (name, ceiling),
    )


def skip_used_identifiers(connection: sqlite3.Connection) -> None:
    """Skip message identifiers, in a copy, that the original may have issued since.

    At least :data:`IDENTIFIERS_SKIPPED` numbers are skipped, or a quarter of those that are left if
    that is less. See [MC-MQSRM] 3.1.1.1.1. A peer that knows an identifier treats a second message
    with it as a repeat: the peer answers 200 and keeps nothing.
    """
    row = connection.execute(
        "SELECT ceiling FROM ids WHERE name = ?", (MESSAGE_IDENTIFIERS,)
    ).fetchone()
    ceiling = row[0] if row is not None else 0
    step = min(IDENTIFIERS_SKIPPED, max(IDENTIFIER_MAX - ceiling, 0) // 4)
    # Skip up to twice the step, at random: one backup may be restored twice, and the two copies
    # must use different numbers.
    raise_ceiling(connection, MESSAGE_IDENTIFIERS, ceiling + step + secrets.randbelow(step + 1))
