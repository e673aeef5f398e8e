"""Store decisions about rows whose sender requested to know their end ([MC-MQSRM] 3.1.7.3).

The receipts that follow from the decisions are stored here, too. There are four tables, and a row
of a queue is in at most one of them at any moment:

    undecided          one for each message that requests a receipt; written with the message,
                       in its transaction
    decisions          (first, last, reason): written with the mark, purge or deletion that
                       decides, in its transaction; one covers a million rows
    decided_receipts   receipts to send, kept until they are delivered
    told               final receipts that senders of streams have got, as runs of message
                       identifiers by owner, kept for 30 days

:func:`expand` processes decisions in the order in which they were made. Each call moves a bounded
slice from ``undecided`` to ``decided_receipts``. A row leaves ``undecided`` in the transaction that
writes its receipts. So a row is decided once, by the first decision that covers it, however often
the process is killed in between. A decision is visible only after its commit. :func:`number` gives
a receipt its identifier before the receipt is sent for the first time. The receipt keeps this
identifier over all repeats.

**Why the table** ``told`` **exists.** A sender that gives up a stream sends its messages again,
under their identifiers, in a new stream. The sender answers a final receipt that names the old
stream with 200 and discards the receipt (3.1.5.1.9.1), so an answer of 200 proves nothing. When
such a message arrives again it makes no row. :func:`move` then sends its final receipt for the new
place, even if one was sent before.

Functions that write are for :meth:`Journal.transact` or for the journal itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from srmp_spark.message import StreamId
from srmp_spark.sequences.ranges import Range
from srmp_spark.srmp.receiving.decisions import (
    DecisionKind,
    DecisionReceipt,
    Reason,
    Undecided,
    receipts_for,
)
from srmp_spark.srmp.receiving.stream_name import StreamName, name_of_queue
from srmp_spark.srmp.receiving.trust_domain import lineage_key
from srmp_spark.store.database.integers import UNSIGNED, signed
from srmp_spark.store.database.transaction import Transaction

Lane = tuple[str, str, str, str]
"""Key of receipts that are sent one after another to one destination.

The key is: URL, peer, authenticated name of the sender (or empty), GUID of the stream (or empty).
See :attr:`DecisionReceipt.lane`. Receipts of different lanes do not wait for each other.
"""

DDL = """
CREATE TABLE IF NOT EXISTS undecided(
    queue_id INTEGER NOT NULL, sequence INTEGER NOT NULL, lineage TEXT NOT NULL, \
uniquifier INTEGER NOT NULL,
    action TEXT NOT NULL, peer TEXT NOT NULL, sender_name TEXT, commitment_to TEXT, \
positive INTEGER NOT NULL,
    negative INTEGER NOT NULL, final_to TEXT, stream_guid TEXT, stream_ordinal TEXT, \
position INTEGER NOT NULL,
    stream_name TEXT, PRIMARY KEY (queue_id, sequence)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS undecided_by_identifier ON undecided(uniquifier, lineage);
CREATE TABLE IF NOT EXISTS decisions(
    id INTEGER PRIMARY KEY AUTOINCREMENT, queue_id INTEGER NOT NULL, queue TEXT NOT NULL, \
first INTEGER NOT NULL,
    last INTEGER NOT NULL, reason INTEGER NOT NULL, decided_at INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS decided_receipts(
    id INTEGER PRIMARY KEY, number INTEGER,  -- its own MessageIdOrdinal, before it is sent for \
the first time
    kind TEXT NOT NULL, url TEXT NOT NULL, queue TEXT NOT NULL, lineage TEXT NOT NULL, \
uniquifier INTEGER NOT NULL,
    action TEXT NOT NULL, peer TEXT NOT NULL, sender_name TEXT,  \
-- '' and not NULL without one: it is a part of the lane
    reason INTEGER NOT NULL, decided_at INTEGER NOT NULL,
    stream_guid TEXT NOT NULL, stream_ordinal TEXT, position INTEGER NOT NULL,
    stream_name TEXT
);
CREATE INDEX IF NOT EXISTS decided_receipts_by_sender ON decided_receipts(url, peer, sender_name, \
stream_guid, id);
CREATE INDEX IF NOT EXISTS decided_receipts_by_identifier ON decided_receipts(uniquifier, lineage);
CREATE TABLE IF NOT EXISTS told(
    lineage TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, reason INTEGER NOT NULL,
    decided_at INTEGER NOT NULL, PRIMARY KEY (lineage, first)
) WITHOUT ROWID
"""
"""Tables that are new in 0.2.

An older version does not know these tables and sends no such receipts, so the format number stays.
The column ``lineage`` of ``told`` is that of the history, which includes the owner
(:func:`~srmp_spark.srmp.receiving.trust_domain.lineage_key`).
"""

EXPAND_ROWS_MAX = 50
"""Largest number of decided rows whose receipts one transaction makes (:func:`expand`).

That takes about 1 ms in the loop. Further rows wait for the next transaction.
"""
NO_LANE: Lane = ("", "", "", "")
"""Start value for :func:`lanes`, which sorts before every lane."""
TOLD_DAYS = 30
"""Days for which rows of the table ``told`` (delivered final receipts) are kept.

Message identifiers are kept equally long; without an identifier a repeated message would be a new
row in any case.
"""

_UNDECIDED = (
    "sequence, lineage, uniquifier, action, peer, sender_name, commitment_to, positive, "
    "negative, final_to, stream_guid, "
    "stream_ordinal, position, stream_name"
)
_RECEIPT = (
    "id, number, kind, url, queue, lineage, uniquifier, action, peer, sender_name, "
    "reason, decided_at, stream_guid, "
    "stream_ordinal, position, stream_name"
)


class OwedDecision(NamedTuple):
    """One receipt to send, as stored in the table ``decided_receipts``; ``id`` is its rowid."""

    id: int
    number: int | None
    """Message identifier of the receipt itself, or ``None`` before :func:`number` gives it one."""
    receipt: DecisionReceipt


class Expanded(NamedTuple):
    """Result of one call of :func:`expand`: lanes with new receipts, and whether more is left."""

    lanes: set[Lane]
    """Lanes (see :data:`Lane`) that have new receipts."""
    more: bool
    """Whether decisions are left that :func:`expand` has not processed."""


# At the start of the process


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of this module if they are missing, and bring older ones up to date.

    Missing columns are added, and tables of builds before the first release are removed. The
    function runs in the caller's transaction.
    """
    for statement in DDL.split(";"):
        connection.execute(statement)
    # Builds before the first release had a table of the senders of ``told``.
    connection.execute("DROP TABLE IF EXISTS told_to")
    # Those builds had lanes without the sender's name. They create this index again when they open
    # the directory.
    if (
        connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'decided_receipts_by_lane'"
        ).fetchone()
        is not None
    ):
        connection.execute("UPDATE decided_receipts SET sender_name = '' WHERE sender_name IS NULL")
        connection.execute("DROP INDEX decided_receipts_by_lane")
    # The column is null in rows of earlier versions: see DecisionReceipt.counted_by.
    for table in ("undecided", "decided_receipts"):
        if "stream_name" not in {
            row[1] for row in connection.execute(f"PRAGMA table_info({table})")
        }:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN stream_name TEXT")


# Together with the message


def save_undecided(connection: sqlite3.Connection, rows: Sequence[tuple[int, Undecided]]) -> None:
    """Store the receipt requests of this transaction's rows.

    ``rows`` has pairs: the id of the queue, and the request. The function runs in the caller's
    transaction.
    """
    connection.executemany(
        "INSERT INTO undecided VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                queue_id,
                row.sequence,
                row.lineage,
                signed(row.uniquifier),
                row.action,
                row.peer,
                row.sender_name,
                row.commitment_to,
                row.positive,
                row.negative,
                row.final_to,
                *_stream(row.stream_id),
                row.position,
                row.stream_name,
            )
            for queue_id, row in rows
        ],
    )


def move(transaction: Transaction, row: Undecided) -> None:
    """Let the final receipt of a message that arrived again name the new place of the message.

    The place is stream, position and destination of the receipt, from ``row``. The final receipt
    must name the new place, whether the row is decided or not, and whether a receipt was sent or
    not. The sender gave up the earlier stream, and would discard a receipt that names it
    ([MC-MQSRM] 3.1.5.1.9.1). A receipt that was sent already becomes a new message with a new
    identifier, because the peer must not treat it as a repeat. Nothing is changed if ``row``
    requests no final receipt.

    Only the sender of a message may change where its final receipt goes. A message of another
    sender with the same identifier is another message. The row may be in another queue than a new
    row would be, because of a redirection that was made meanwhile. Then the row is found by the
    stream name. A reader may also have moved the row to a subqueue.
    """
    if row.final_to is None:
        return
    db, uniquifier = transaction.connection, signed(row.uniquifier)
    subqueues = row.queue, len(row.queue) + 1, f"{row.queue};"
    place = (
        row.final_to,
        row.peer,
        row.sender_name,
        *_stream(row.stream_id),
        row.position,
        row.stream_name,
    )
    name = row.sender_name or ""
    undecided = db.execute(
        "UPDATE undecided SET final_to = ?, peer = ?, sender_name = ?, stream_guid = ?, "
        "stream_ordinal = ?, position = ?, "
        "stream_name = ? WHERE uniquifier = ? AND lineage = ? AND final_to IS NOT NULL "
        "AND (stream_name = ? "
        "OR queue_id IN (SELECT id FROM queues WHERE deleted_at IS NULL AND (name = ? OR "
        "substr(name, 1, ?) = ?))) "
        "AND sender_name IS ?",
        (*place, uniquifier, row.lineage, row.stream_name, *subqueues, row.sender_name),
    )
    untold = db.execute(
        "UPDATE decided_receipts SET url = ?, peer = ?, sender_name = ?, stream_guid = ?, "
        "stream_ordinal = ?, position = ?, "
        "stream_name = ?, number = NULL WHERE uniquifier = ? AND lineage = ? "
        "AND (stream_name = ? OR queue = ? OR substr(queue, 1, ?) = ?) AND kind = "
        "'final_stream' AND sender_name = ?",
        (
            row.final_to,
            row.peer,
            name,
            *place[3:],
            uniquifier,
            row.lineage,
            row.stream_name,
            *subqueues,
            name,
        ),
    )
    if not undecided.rowcount and not untold.rowcount:
        _tell_again(db, row)


def _tell_again(db: sqlite3.Connection, row: Undecided) -> None:
    """Owe the final receipt of a message once more, if it was sent before."""
    told = db.execute(
        "SELECT last, reason, decided_at FROM told WHERE lineage = ? AND first <= ? ORDER "
        "BY first DESC LIMIT 1",
        (lineage_key(row.lineage, None, row.sender_name), signed(row.uniquifier)),
    ).fetchone()
    if told is not None and told[0] >= signed(row.uniquifier):
        _save_receipts(
            db,
            [
                each
                for each in receipts_for(row, Reason(told[1]), told[2])
                if each.kind == "final_stream"
            ],
        )


class MovedRowTarget(NamedTuple):
    """A row that was moved to another queue of this queue manager, where it is a new row.

    ``queue_id``, ``queue`` and ``sequence`` name the old row, ``to_queue_id`` and ``to_sequence``
    the new one.
    """

    queue_id: int
    queue: str
    sequence: int
    to_queue_id: int
    to_sequence: int


def go_along(transaction: Transaction, moved: Iterable[MovedRowTarget]) -> None:
    """Move the stored receipt requests of moved rows to their new rows.

    The sender gets its receipts when the new rows are received. The stream by which each row is
    counted does not change.
    """
    transaction.connection.executemany(
        "UPDATE undecided SET queue_id = ?, sequence = ?, stream_name = coalesce(stream_name, ?) "
        "WHERE queue_id = ? AND sequence = ?",
        [
            (
                each.to_queue_id,
                each.to_sequence,
                name_of_queue(each.queue),
                each.queue_id,
                each.sequence,
            )
            for each in moved
        ],
    )


# Together with the mark


def decide(
    transaction: Transaction,
    queue_id: int,
    queue: str,
    runs: Iterable[Range],
    reason: Reason,
    decided_at: int,
) -> bool:
    """Store the decision that the rows of ``runs`` left the queue for ``reason``.

    The runs are closed ranges of sequences. A run is stored only if one of its rows requested a
    receipt that :func:`expand` has not made yet. Return whether a run was stored. A row that an
    earlier decision covers keeps the earlier one. ``decided_at`` is in microseconds since 1970,
    UTC.
    """
    db, runs = transaction.connection, list(runs)
    if (
        not runs
        or db.execute("SELECT 1 FROM undecided WHERE queue_id = ? LIMIT 1", (queue_id,)).fetchone()
        is None
    ):
        return False
    asked = "SELECT 1 FROM undecided WHERE queue_id = ? AND sequence BETWEEN ? AND ? LIMIT 1"
    found = [
        (queue_id, queue, first, last, reason.value, decided_at)
        for first, last in runs
        if db.execute(asked, (queue_id, first, last)).fetchone() is not None
    ]
    db.executemany(
        "INSERT INTO decisions(queue_id, queue, first, last, reason, decided_at) VALUES "
        "(?, ?, ?, ?, ?, ?)",
        found,
    )
    return bool(found)


def discard(transaction: Transaction, row: Undecided, reason: Reason, decided_at: int) -> None:
    """Store the receipts to send for a message that was discarded and never became a row.

    ``row`` states which receipts were requested. ``decided_at`` is in microseconds since 1970, UTC.
    """
    _save_receipts(transaction.connection, receipts_for(row, reason, decided_at))


# After the mark


def is_pending(connection: sqlite3.Connection) -> bool:
    """Return whether there are decisions that :func:`expand` has not processed yet."""
    return connection.execute("SELECT 1 FROM decisions LIMIT 1").fetchone() is not None


def expand(transaction: Transaction) -> Expanded:
    """Make and store the receipts for a slice of the oldest decision.

    A slice has at most :data:`EXPAND_ROWS_MAX` rows, which are undecided no longer. The result
    names the lanes (:data:`Lane`) that have new receipts, and whether decisions are left.
    """
    db = transaction.connection
    decision = db.execute(
        "SELECT id, queue_id, queue, first, last, reason, decided_at FROM decisions ORDER "
        "BY id LIMIT 1"
    ).fetchone()
    if decision is None:
        return Expanded(set(), more=False)
    decision_id, queue_id, queue, first, last, reason, decided_at = decision
    rows = db.execute(
        f"SELECT {_UNDECIDED} FROM undecided WHERE queue_id = ? AND sequence BETWEEN ? "  # noqa: S608  # our own names
        "AND ? ORDER BY sequence LIMIT ?",
        (queue_id, first, last, EXPAND_ROWS_MAX),
    ).fetchall()
    receipts = [
        receipt
        for row in rows
        for receipt in receipts_for(_undecided(queue, row), Reason(reason), decided_at)
    ]
    _save_receipts(db, receipts)
    end = last
    if len(rows) == EXPAND_ROWS_MAX:
        end = rows[-1][0]
    db.execute(
        "DELETE FROM undecided WHERE queue_id = ? AND sequence BETWEEN ? AND ?",
        (queue_id, first, end),
    )
    if end < last:
        db.execute("UPDATE decisions SET first = ? WHERE id = ?", (end + 1, decision_id))
    else:
        db.execute("DELETE FROM decisions WHERE id = ?", (decision_id,))
    return Expanded({receipt.lane for receipt in receipts}, is_pending(db))


def lanes(connection: sqlite3.Connection, after: Lane, limit: int) -> list[Lane]:
    """Return the next lanes (:data:`Lane`) after ``after`` that have receipts to send.

    The lanes are sorted, and at most ``limit``. Each lane costs one step in the index, however many
    receipts the lane has.
    """
    found: list[Lane] = []
    at = after
    sql = (
        "SELECT url, peer, sender_name, stream_guid FROM decided_receipts "
        "WHERE (url, peer, sender_name, stream_guid) > (?, ?, ?, ?) ORDER BY url, peer, "
        "sender_name, stream_guid LIMIT 1"
    )
    while len(found) < limit and (row := connection.execute(sql, at).fetchone()) is not None:
        at = (row[0], row[1], row[2], row[3])
        found.append(at)
    return found


def owed(connection: sqlite3.Connection, lane: Lane, limit: int) -> list[OwedDecision]:
    """Return the oldest stored receipts of ``lane``, at most ``limit``, oldest first."""
    rows = connection.execute(
        f"SELECT {_RECEIPT} FROM decided_receipts WHERE url = ? AND peer = ? AND "  # noqa: S608  # our own names
        "sender_name = ? AND stream_guid = ? "
        "ORDER BY id LIMIT ?",
        (*lane, limit),
    )
    return [_owed(row) for row in rows.fetchall()]


def number(
    transaction: Transaction, receipts: Sequence[OwedDecision], numbers: Sequence[int]
) -> list[OwedDecision]:
    """Give an identifier to each receipt without one, before the receipt is first sent.

    ``numbers`` has at least as many identifiers as receipts lack one. The identifiers are stored.
    Return all receipts with their identifiers, in the same order. A receipt keeps its identifier
    until :func:`move` changes it.
    """
    left = iter(numbers)
    numbered = [
        each if each.number is not None else each._replace(number=next(left)) for each in receipts
    ]
    transaction.connection.executemany(
        "UPDATE decided_receipts SET number = ? WHERE id = ? AND number IS NULL AND "
        "position = ? AND stream_ordinal IS ?",
        [
            (new.number, new.id, new.receipt.position, _stream(new.receipt.stream_id)[1])
            for old, new in zip(receipts, numbered, strict=True)
            if old.number is None
        ],
    )
    return numbered


def forget(transaction: Transaction, receipts: Iterable[OwedDecision]) -> None:
    """Delete receipts that are delivered or will not be sent again.

    A receipt that :func:`move` has changed since it was read is a different receipt and stays.
    """
    transaction.connection.executemany(
        "DELETE FROM decided_receipts WHERE id = ? AND number IS ?",
        [(each.id, each.number) for each in receipts],
    )


def delivered(transaction: Transaction, receipts: Sequence[OwedDecision]) -> None:
    """Delete receipts that their peer answered with 200.

    The final receipts of streams are recorded in the table ``told``, as the module explains.
    """
    forget(transaction, receipts)
    finals = [each.receipt for each in receipts if each.receipt.kind == "final_stream"]
    for key, uniquifier, reason, at in sorted(
        (
            lineage_key(each.lineage, None, each.sender_name or None),
            signed(each.uniquifier),
            each.reason.value,
            each.decided_at,
        )
        for each in finals
    ):
        _remember(transaction.connection, key, uniquifier, reason, at)


def _remember(db: sqlite3.Connection, lineage: str, uniquifier: int, reason: int, at: int) -> None:
    """Store one delivered final receipt in the table ``told``.

    Rows that one decision covers mostly have consecutive identifiers, so they are stored as one
    run. ``at`` is the time of the decision, in microseconds since 1970, UTC.
    """
    before = db.execute(
        "SELECT first, last, reason, decided_at FROM told WHERE lineage = ? AND first <= "
        "? ORDER BY first DESC LIMIT 1",
        (lineage, uniquifier),
    ).fetchone()
    if before is not None and before[1] >= uniquifier:
        # The final receipt was sent again, for another place.
        return
    if before is not None and before[1:] == (uniquifier - 1, reason, at):
        db.execute(
            "UPDATE told SET last = ? WHERE lineage = ? AND first = ?",
            (uniquifier, lineage, before[0]),
        )
    else:
        db.execute(
            "INSERT INTO told VALUES (?, ?, ?, ?, ?)", (lineage, uniquifier, uniquifier, reason, at)
        )


def forget_told(transaction: Transaction, now: int) -> None:
    """Delete delivered final receipts (table ``told``) that are older than :data:`TOLD_DAYS`.

    The age counts from the decision to ``now``, which is in microseconds since 1970, UTC.
    """
    db = transaction.connection
    db.execute("DELETE FROM told WHERE decided_at < ?", (now - TOLD_DAYS * 86_400_000_000,))


def _save_receipts(db: sqlite3.Connection, receipts: Iterable[DecisionReceipt]) -> None:
    db.executemany(
        "INSERT INTO decided_receipts VALUES (NULL, NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
        "?, ?, ?, ?)",
        [_values(receipt) for receipt in receipts],
    )


def _stream(stream_id: StreamId | None) -> tuple[str | None, str | None]:
    """Return a stream identifier as two columns, GUID and ordinal; both ``None`` without one.

    The ordinal is stored as text because it has 64 bits without a sign.
    """
    return (None, None) if stream_id is None else (stream_id.guid, str(stream_id.ordinal))


def _values(receipt: DecisionReceipt) -> tuple[object, ...]:
    guid, ordinal = _stream(receipt.stream_id)
    return (
        receipt.kind,
        receipt.url,
        receipt.queue,
        receipt.lineage,
        signed(receipt.uniquifier),
        receipt.action,
        receipt.peer,
        receipt.sender_name or "",
        receipt.reason.value,
        receipt.decided_at,
        guid or "",
        ordinal,
        receipt.position,
        receipt.stream_name,
    )


def _undecided(queue: str, row: tuple[object, ...]) -> Undecided:
    (
        sequence,
        lineage,
        uniquifier,
        action,
        peer,
        name,
        to,
        positive,
        negative,
        final_to,
        guid,
        ordinal,
        position,
        stream,
    ) = row
    return Undecided(
        queue,
        _int(sequence),
        str(lineage),
        _int(uniquifier) & UNSIGNED,
        str(action),
        str(peer),
        _text(name),
        _text(to),
        bool(positive),
        bool(negative),
        _text(final_to),
        _stream_id(guid, ordinal),
        _int(position),
        _name(stream),
    )


def _owed(row: tuple[object, ...]) -> OwedDecision:
    (
        row_id,
        own,
        kind,
        url,
        queue,
        lineage,
        uniquifier,
        action,
        peer,
        name,
        reason,
        at,
        guid,
        ordinal,
        position,
        stream,
    ) = row
    which: DecisionKind = "final_stream" if kind == "final_stream" else "commitment"
    receipt = DecisionReceipt(
        which,
        str(url),
        str(queue),
        str(lineage),
        _int(uniquifier) & UNSIGNED,
        str(action),
        str(peer),
        _text(name) or None,
        Reason(reason),
        _int(at),
        _stream_id(guid, ordinal),
        _int(position),
        _name(stream),
    )
    return OwedDecision(_int(row_id), None if own is None else _int(own), receipt)


def _int(value: object) -> int:
    assert isinstance(value, int), value
    return value


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _name(value: object) -> StreamName | None:
    return None if value is None else StreamName(str(value))


def _stream_id(guid: object, ordinal: object) -> StreamId | None:
    return StreamId(str(guid), int(str(ordinal))) if guid and ordinal is not None else None
