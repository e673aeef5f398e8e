"""Rows that ask to be told of their end, what was decided about them, and the receipts that follow ([MC-MQSRM] 3.1.7.3).

Four tables, and a row of ours is in at most one of them at any moment:

    undecided          with the message, in its transaction; only messages that ask have one
    decisions          (first, last, reason): with the mark, purge or deletion that decides, in its transaction; one for a
                       million rows
    decided_receipts   what is to be sent, until it is delivered
    told               what senders of streams were told, in runs of message identifiers by whose they are, for 30 days

:func:`expand` takes decisions in the order in which they were made and moves a bounded slice from ``undecided`` to
``decided_receipts``. A row leaves ``undecided`` in the transaction that writes its receipts, so it is decided once, by the
first decision that covers it, however often the process dies in between; and a decision is seen only after its commit.
:func:`number` gives a receipt its identifier before it is sent for the first time; it keeps it over all repeats.

**Why ``told``.** A sender that gives up a stream sends its messages again, under their identifiers, in a new one. A final
receipt that names the old stream it answers with 200 and discards (3.1.5.1.9.1), so 200 proves nothing. When such a message
comes again it makes no row; :func:`move` then tells its end at its new place, also if that was told already.

Every function but the reading ones is for :meth:`Journal.transact` or the journal itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from srmp_spark.message import StreamId
from srmp_spark.sequences.ranges import Range
from srmp_spark.srmp.decisions import DecisionKind, DecisionReceipt, Reason, Undecided, receipts_for
from srmp_spark.srmp.stream_name import StreamName, name_of_queue
from srmp_spark.srmp.trust_domain import lineage_key
from srmp_spark.store.integers import UNSIGNED, signed
from srmp_spark.store.transaction import Transaction

Lane = tuple[str, str, str, str]
"""URL, peer, the sender's authenticated name or nothing, GUID of the stream or nothing: :attr:`DecisionReceipt.lane`."""

DDL = """
CREATE TABLE IF NOT EXISTS undecided(
    queue_id INTEGER NOT NULL, sequence INTEGER NOT NULL, lineage TEXT NOT NULL, uniquifier INTEGER NOT NULL,
    action TEXT NOT NULL, peer TEXT NOT NULL, sender_name TEXT, commitment_to TEXT, positive INTEGER NOT NULL,
    negative INTEGER NOT NULL, final_to TEXT, stream_guid TEXT, stream_ordinal TEXT, position INTEGER NOT NULL,
    stream_name TEXT, PRIMARY KEY (queue_id, sequence)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS undecided_by_identifier ON undecided(uniquifier, lineage);
CREATE TABLE IF NOT EXISTS decisions(
    id INTEGER PRIMARY KEY AUTOINCREMENT, queue_id INTEGER NOT NULL, queue TEXT NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, reason INTEGER NOT NULL, decided_at INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS decided_receipts(
    id INTEGER PRIMARY KEY, number INTEGER,  -- its own MessageIdOrdinal, before it is sent for the first time
    kind TEXT NOT NULL, url TEXT NOT NULL, queue TEXT NOT NULL, lineage TEXT NOT NULL, uniquifier INTEGER NOT NULL,
    action TEXT NOT NULL, peer TEXT NOT NULL, sender_name TEXT,  -- '' and not NULL without one: it is a part of the lane
    reason INTEGER NOT NULL, decided_at INTEGER NOT NULL,
    stream_guid TEXT NOT NULL, stream_ordinal TEXT, position INTEGER NOT NULL,
    stream_name TEXT
);
CREATE INDEX IF NOT EXISTS decided_receipts_by_sender ON decided_receipts(url, peer, sender_name, stream_guid, id);
CREATE INDEX IF NOT EXISTS decided_receipts_by_identifier ON decided_receipts(uniquifier, lineage);
CREATE TABLE IF NOT EXISTS told(
    lineage TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, reason INTEGER NOT NULL,
    decided_at INTEGER NOT NULL, PRIMARY KEY (lineage, first)
) WITHOUT ROWID
"""
"""New in 0.2. An older version does not know them and sends no such receipts: the number of the format stays. The lineage of
``told`` is that of the history, which says whose it is (:func:`~srmp_spark.srmp.trust_domain.lineage_key`)."""

EXPAND_ROWS_MAX = 50
"""Rows decided in one transaction: about 1 ms in the loop."""
NO_LANE: Lane = ("", "", "", "")
"""Before the first one."""
TOLD_DAYS = 30
"""How long ``told`` is kept: as long as message identifiers, without which a repeat would be a new row anyway."""

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
    """A receipt to send."""

    id: int
    number: int | None
    """Its own identifier, once it has one (:func:`number`)."""
    receipt: DecisionReceipt


class Expanded(NamedTuple):
    """What one slice did."""

    lanes: set[Lane]
    """Where there are receipts now."""
    more: bool
    """There are decisions left to expand."""


# At the start


def create_tables(connection: sqlite3.Connection) -> None:
    """What a data directory of an older version has not. One transaction or none: the caller begins and ends it."""
    for statement in DDL.split(";"):
        connection.execute(statement)
    # Builds before the first release noted the sender of what was told beside it.
    connection.execute("DROP TABLE IF EXISTS told_to")
    # They knew lanes without the name of their sender; they make this index when they open it again.
    if (
        connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'decided_receipts_by_lane'"
        ).fetchone()
        is not None
    ):
        connection.execute("UPDATE decided_receipts SET sender_name = '' WHERE sender_name IS NULL")
        connection.execute("DROP INDEX decided_receipts_by_lane")
    for table in (
        "undecided",
        "decided_receipts",
    ):  # null in rows of before: DecisionReceipt.counted_by
        if "stream_name" not in {
            row[1] for row in connection.execute(f"PRAGMA table_info({table})")
        }:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN stream_name TEXT")


# With the message


def save_undecided(connection: sqlite3.Connection, rows: Sequence[tuple[int, Undecided]]) -> None:
    """Rows of this transaction that ask to be told of their end, each with the id of its queue."""
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
    """The message came once more, at another place: its final receipt names that place, decided or not, told or not.

    The sender gave up the stream in which it stood, and a receipt that names that would be discarded (3.1.5.1.9.1). One that
    was sent already is another message now, under another identifier: the peer must not take it for a repeat. Only who
    sent a message changes where its end is told: another's of the same identifier is another message. The row may be in another
    queue than a row would be in now, for a redirection may have been made meanwhile: then it is known by what its stream is
    counted by. And a reader may have moved it to a subqueue.
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
    if undecided.rowcount or untold.rowcount:
        return
    told = db.execute(
        "SELECT last, reason, decided_at FROM told WHERE lineage = ? AND first <= ? ORDER "
        "BY first DESC LIMIT 1",
        (lineage_key(row.lineage, None, row.sender_name), uniquifier),
    ).fetchone()
    if told is not None and told[0] >= uniquifier:
        _save_receipts(
            db,
            [
                each
                for each in receipts_for(row, Reason(told[1]), told[2])
                if each.kind == "final_stream"
            ],
        )


class Moved(NamedTuple):
    """A row that is in another queue of ours now, as a row of that."""

    queue_id: int
    queue: str
    sequence: int
    to_queue_id: int
    to_sequence: int


def go_along(transaction: Transaction, moved: Iterable[Moved]) -> None:
    """What these rows asked to be told of their end is told when they are received from where they are now. Whose streams they
    are counted by stays as it was."""
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


# With the mark


def decide(
    transaction: Transaction,
    queue_id: int,
    queue: str,
    runs: Iterable[Range],
    reason: Reason,
    decided_at: int,
) -> bool:
    """Rows of these runs left the queue for ``reason``; whether any of them had asked to be told.

    A row that an earlier decision covers keeps that one.
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
    """The message never became a row; its sender is told all the same."""
    _save_receipts(transaction.connection, receipts_for(row, reason, decided_at))


# After the mark


def is_pending(connection: sqlite3.Connection) -> bool:
    """Whether there are decisions to expand."""
    return connection.execute("SELECT 1 FROM decisions LIMIT 1").fetchone() is not None


def expand(transaction: Transaction) -> Expanded:
    """Turn a slice of the oldest decision into receipts."""
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
    """The next lanes behind ``after`` that have receipts, one step of the index for each, however many receipts it has."""
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
    """The oldest receipts of a lane, in the order of their decisions."""
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
    """Give those that have none an identifier for good, before they are sent for the first time."""
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
    """Receipts that are done with. One that :func:`move` has changed meanwhile is another, and stays."""
    transaction.connection.executemany(
        "DELETE FROM decided_receipts WHERE id = ? AND number IS ?",
        [(each.id, each.number) for each in receipts],
    )


def delivered(transaction: Transaction, receipts: Sequence[OwedDecision]) -> None:
    """Receipts that their peer has answered 200: forget them, but keep what senders of streams were told."""
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
    """Rows that one mark decided have identifiers that follow each other: mostly they are one run."""
    before = db.execute(
        "SELECT first, last, reason, decided_at FROM told WHERE lineage = ? AND first <= "
        "? ORDER BY first DESC LIMIT 1",
        (lineage, uniquifier),
    ).fetchone()
    if before is not None and before[1] >= uniquifier:
        return  # told again, at another place
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
    """What was decided more than :data:`TOLD_DAYS` before ``now`` (microseconds since 1970, UTC)."""
    db = transaction.connection
    db.execute("DELETE FROM told WHERE decided_at < ?", (now - TOLD_DAYS * 86_400_000_000,))


def _save_receipts(db: sqlite3.Connection, receipts: Iterable[DecisionReceipt]) -> None:
    db.executemany(
        "INSERT INTO decided_receipts VALUES (NULL, NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
        "?, ?, ?, ?)",
        [_values(receipt) for receipt in receipts],
    )


def _stream(stream_id: StreamId | None) -> tuple[str | None, str | None]:
    """A stream identifier as two columns: an ordinal has 64 bits without a sign."""
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
