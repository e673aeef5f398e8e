"""Read the receipts for this queue manager's messages from its order queue.

The order queue is ``private$/order_queue$``. A stream receipt is accepted, stored and answered 200
by the main process, which knows nothing of outgoing streams. Then this module reads the receipt,
and the engine handles the receipt. The position of reading is stored from time to time. After a
crash the last receipts are read again, which changes nothing. The main process is notified of the
position, and retention keeps the rows after the position (store/stored_rows/retention.py). So no
receipt that was answered 200 is ever lost, whichever process dies at any time, or cannot be started
for long. A peer need not send a receipt twice, and a peer that follows the specification does not.

An older copy of the inbox may be put in place of the one that was read. Then the sequences of that
copy are given out again, and soon reach the sequences that were read. So a sequence alone proves
nothing. Therefore the last row that was read is identified as well (:class:`Mark`). If another row
has the sequence of that row, everything is read again.
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
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.http_head import content_type_of
from srmp_spark.store.directory import DATABASE_FILE, SEGMENTS_DIRECTORY
from srmp_spark.store.outbox.tables.database import OutboxDatabase
from srmp_spark.store.stored_rows.log import Log, QueueNotInLogError, TrimmedError
from srmp_spark.store.stored_rows.reading import records

ROWS_MAX = 1_000
"""Most rows that are read at once, receipts or not.

The engine handles the receipts of these rows in one turn of the loop, before other tasks run.
"""
BYTES_MAX = 8 * 1_048_576
"""Size in bytes from which no more rows are read at once; the last row may exceed it.

Unauthenticated clients choose how large the rows are.
"""

log = logging.getLogger(__name__)


READ_TO = "order_queue_read_to"
"""Key, in the database table ``meta`` of the outbox, of the sequence read last.

It is the sequence up to which the order queue was read.
"""


READ_MARK = "order_queue_read_mark"
"""Key of the last row that was read in the table ``meta``: its sequence and its digest.

Version 0.1 does not change this entry, so the entry may be older than :data:`READ_TO`. The entry is
compared nevertheless if its row still exists.
"""


class Mark(NamedTuple):
    """Identifies the row that was read last, by its sequence and its content."""

    sequence: int
    digest: str
    """Digest of the POST of the row and the time of its arrival."""


def note_read(outbox: OutboxDatabase, to: int, mark: Mark | None = None) -> None:
    """Store the sequence up to which the order queue was read, and the last row.

    Call this after the effects of the rows were stored. ``mark`` identifies the last row; if it is
    ``None``, the stored mark stays.
    """
    with outbox.transaction() as connection:
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (READ_TO, str(to)))
        if mark is not None:
            connection.execute(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)",
                (READ_MARK, f"{mark.sequence} {mark.digest}"),
            )


def read_mark(outbox: OutboxDatabase) -> Mark | None:
    """Return the stored mark of the last row that was read, or ``None`` if there is none."""
    row = outbox.connection.execute("SELECT value FROM meta WHERE key = ?", (READ_MARK,)).fetchone()
    sequence, _, digest = str(row[0] if row is not None else "").partition(" ")
    return Mark(int(sequence), digest) if sequence.isdecimal() else None


def read_to(outbox: OutboxDatabase) -> int:
    """Return the sequence up to which the order queue was read for certain; 0 if nothing was."""
    row = outbox.connection.execute("SELECT value FROM meta WHERE key = ?", (READ_TO,)).fetchone()
    return int(row[0]) if row is not None else 0


class FoundReceipts(NamedTuple):
    """The receipts that one call of :meth:`ReceiptLog.read` found, as ``messages``."""

    to: int
    """The sequence up to which all rows were read."""
    messages: list[Message]
    more: bool
    """Whether more rows can be read now."""
    mark: Mark | None = None
    """The mark of the last row, or ``None`` if there was none."""


class ReceiptLog:
    """Reads receipts from the order queue, for one thread at a time."""

    def __init__(self, data_dir: Path, mark: Mark | None = None) -> None:
        """Prepare to read; ``mark`` identifies the row that the previous process read last.

        ``mark`` is ``None`` if that row is unknown.
        """
        self._data_dir = data_dir
        self._unchecked = mark
        """The mark to compare at the first read, then ``None``.

        An inbox is replaced only while no process runs.
        """

    def read(self, after: int) -> FoundReceipts:
        """Return the receipts after sequence ``after``.

        At most ROWS_MAX rows or BYTES_MAX bytes are read. Rows that were deleted by retention or by
        a purge are skipped. Messages that cannot be decoded are logged and skipped. If the inbox
        was replaced by an older copy, this is logged, and reading begins with the first row. Raises
        :class:`StoreError` if rows cannot be read.
        """
        messages: list[Message] = []
        to = after
        rows = size = 0
        last: tuple[int, Record] | None = None
        with Log(self._data_dir / DATABASE_FILE, self._data_dir / SEGMENTS_DIRECTORY) as stored:
            try:
                epochs = stored.epochs(ORDER_QUEUE)
            except QueueNotInLogError:
                # The first start is not complete yet.
                return FoundReceipts(after, [], more=False)
            end = stored.bounds(ORDER_QUEUE).end
            if end < after or not self._is_as_it_was(stored, epochs):
                # The inbox was replaced by an older copy, so new rows have numbers that were used
                # before.
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
                        return FoundReceipts(to, messages, more=True, mark=_mark_of(last))
        return FoundReceipts(max(to, end), messages, more=False, mark=_mark_of(last))

    def _is_as_it_was(self, stored: Log, epochs: Sequence[str]) -> bool:
        """Return whether the row that the last process read last is unchanged; checked only once.

        Return ``True`` too if that row was deleted or cannot be read, because then nothing can be
        compared. Later calls return ``True``.
        """
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
    """Yield each row of an epoch after sequence ``after``: sequence, message and stored row.

    The message is ``None`` unless it is a receipt. The stored row is ``None`` for rows that
    retention has just deleted; their last sequence is yielded once for all of them.
    """
    bounds = stored.bounds(ORDER_QUEUE, epoch)
    begin = max(after, bounds.first - 1)
    if bounds.end <= begin:
        return
    try:
        for sequence, record in records(stored, ORDER_QUEUE, epoch, begin, bounds.end):
            try:
                message = decode(content_type_of(record.head), record.content)
            except RemoteProtocolError as error:
                # An older version accepted this message.
                log.warning("receipts.unreadable sequence=%d reason=%s", sequence, error)
                yield sequence, None, record
                continue
            yield sequence, message if message.receipt is not None else None, record
    except TrimmedError as error:
        # Retention has deleted these rows just now.
        yield error.first - 1, None, None
