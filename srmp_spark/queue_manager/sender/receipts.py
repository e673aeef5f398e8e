"""Receipts that came for us: read from the log of our order queue, where they are rows like all others.

A stream receipt is accepted, stored and answered 200 by the main process, which knows nothing of outgoing streams. Then this
reads it, and the engine hears of it. How far it was read is stored now and then; after a crash the last ones are read once
more, which changes nothing; the main process is told, and until then retention keeps them (store/retention.py). So no receipt
that was answered 200 is ever lost, whichever process dies when, or cannot be started for long: a peer need not send it twice,
and by the document it does not.

An older copy of the inbox may be put in place of the one that was read. Its numbers are then given out once more, and soon
reach those that were read, so a number alone says nothing. Which row was read last is stored as well (:class:`Mark`); where
another row has its number, everything is read again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from srmp_spark.errors import RemoteProtocolError, StoreDamagedError
from srmp_spark.message import Message
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.rows.group import Record
from srmp_spark.srmp.decoder import decode
from srmp_spark.srmp.http_head import content_type_of
from srmp_spark.store.directory import DATABASE_FILE, SEGMENTS_DIRECTORY
from srmp_spark.store.log import Log, TrimmedError, UnknownQueueError
from srmp_spark.store.outbox.database import OutboxDatabase
from srmp_spark.store.reading import records

ROWS_MAX = 1_000
"""Rows read at once, receipts or not: the engine takes them in one turn of the loop, and hears of those before others wait."""
BYTES_MAX = 8 * 1_048_576
"""Their posts, one row more at most: strangers choose how large they are."""

log = logging.getLogger(__name__)


READ_TO = "order_queue_read_to"
"""Key in the table ``meta`` of the outbox."""


READ_MARK = "order_queue_read_mark"
"""Key of the last row that was read: its number and its digest. Version 0.1 leaves it as it is, so an older one may stay: a
row that is still there is compared all the same."""


class Mark(NamedTuple):
    """Which row was read last."""

    sequence: int
    digest: str
    """Of its bytes and the time of its arrival."""


def note_read(outbox: OutboxDatabase, to: int, mark: Mark | None = None) -> None:
    """Store how far the order queue was read, after what was read is stored; ``mark``: the last row, ``None`` if unknown."""
    with outbox.transaction() as connection:
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (READ_TO, str(to)))
        if mark is not None:
            connection.execute(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)",
                (READ_MARK, f"{mark.sequence} {mark.digest}"),
            )


def read_mark(outbox: OutboxDatabase) -> Mark | None:
    """Return which row was read last for certain; ``None`` if that is not known."""
    row = outbox.connection.execute("SELECT value FROM meta WHERE key = ?", (READ_MARK,)).fetchone()
    sequence, _, digest = str(row[0] if row is not None else "").partition(" ")
    return Mark(int(sequence), digest) if sequence.isdecimal() else None


def read_to(outbox: OutboxDatabase) -> int:
    """How far it was read for certain."""
    row = outbox.connection.execute("SELECT value FROM meta WHERE key = ?", (READ_TO,)).fetchone()
    return int(row[0]) if row is not None else 0


class Found(NamedTuple):
    """Some receipts."""

    to: int
    """Everything up to this sequence was read."""
    messages: list[Message]
    more: bool
    """There is more to read now."""
    mark: Mark | None = None
    """The last row; ``None`` if there was none."""


class ReceiptLog:
    """The order queue, for one thread at a time."""

    def __init__(self, data_dir: Path, mark: Mark | None = None) -> None:
        """``mark``: the row that the process before read last."""
        self._data_dir = data_dir
        self._unchecked = mark
        """To be looked for at the first read: the inbox is put back while no process runs."""

    def read(self, after: int) -> Found:
        """What came after sequence ``after``; rows that retention or a purge took are passed over."""
        messages: list[Message] = []
        to = after
        rows = size = 0
        last: tuple[int, Record] | None = None
        with Log(self._data_dir / DATABASE_FILE, self._data_dir / SEGMENTS_DIRECTORY) as stored:
            try:
                epochs = stored.epochs(ORDER_QUEUE)
            except UnknownQueueError:  # before the first start is complete
                return Found(after, [], more=False)
            end = stored.bounds(ORDER_QUEUE).end
            if end < after or not self._is_as_it_was(stored, epochs):
                # The inbox was put back from an older copy: what comes now has numbers that were used before.
                log.warning("receipts.begin_again read_to=%d end=%d", after, end)
                to = end = 0
            for epoch in epochs:
                for sequence, message, record in _of_epoch(stored, epoch, to):
                    to, rows = sequence, rows + 1
                    if record is not None:
                        size, last = size + len(record.post), (sequence, record)
                    if message is not None:
                        messages.append(message)
                    if rows >= ROWS_MAX or size >= BYTES_MAX:
                        return Found(to, messages, more=True, mark=_mark_of(last))
        return Found(max(to, end), messages, more=False, mark=_mark_of(last))

    def _is_as_it_was(self, stored: Log, epochs: Sequence[str]) -> bool:
        """Return whether the row that was read last is there, or nobody can tell any more."""
        mark, self._unchecked = self._unchecked, None
        for epoch in epochs if mark is not None else ():
            assert mark is not None, "looked at before"
            bounds = stored.bounds(ORDER_QUEUE, epoch)
            if bounds.first <= mark.sequence <= bounds.end:
                try:
                    found = list(
                        records(stored, ORDER_QUEUE, epoch, mark.sequence - 1, mark.sequence)
                    )
                except (TrimmedError, StoreDamagedError):
                    return True
                return not found or _mark_of(found[0]) == mark
        return True


def _mark_of(row: tuple[int, Record] | None) -> Mark | None:
    if row is None:
        return None
    sequence, record = row
    digest = hashlib.sha256(record.arrival.at.to_bytes(8, "big") + record.post)
    return Mark(sequence, digest.hexdigest()[:32])


def _of_epoch(
    stored: Log, epoch: str, after: int
) -> Iterator[tuple[int, Message | None, Record | None]]:
    """Sequence, what it says if it is a receipt, and the row if it was read."""
    bounds = stored.bounds(ORDER_QUEUE, epoch)
    begin = max(after, bounds.first - 1)
    if bounds.end <= begin:
        return
    try:
        for sequence, record in records(stored, ORDER_QUEUE, epoch, begin, bounds.end):
            try:
                message = decode(content_type_of(record.head), record.content)
            except RemoteProtocolError as error:  # an older version took it
                log.warning("receipts.unreadable sequence=%d reason=%s", sequence, error)
                yield sequence, None, record
                continue
            yield sequence, message if message.receipt is not None else None, record
    except TrimmedError as error:  # just now
        yield error.first - 1, None, None
