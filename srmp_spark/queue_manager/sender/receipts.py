"""Receipts that came for us: read from the log of our order queue, where they are rows like all others.

A stream receipt is accepted, stored and answered 200 by the main process, which knows nothing of outgoing streams. Then this
reads it, and the engine hears of it. How far it was read is stored now and then; after a crash the last ones are read once
more, which changes nothing; the main process is told, and until then retention keeps them (store/retention.py). So no receipt
that was answered 200 is ever lost, whichever process dies when, or cannot be started for long: a peer need not send it twice,
and by the document it does not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Message
from srmp_spark.names import ORDER_QUEUE
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


def note_read(outbox: OutboxDatabase, to: int) -> None:
    """Store how far the order queue was read, after what was read is stored."""
    with outbox.transaction() as connection:
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (READ_TO, str(to)))


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


class ReceiptLog:
    """The order queue, for one thread at a time."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def read(self, after: int) -> Found:
        """What came after sequence ``after``; rows that retention or a purge took are passed over."""
        messages: list[Message] = []
        to = after
        rows = size = 0
        with Log(self._data_dir / DATABASE_FILE, self._data_dir / SEGMENTS_DIRECTORY) as stored:
            try:
                epochs = stored.epochs(ORDER_QUEUE)
            except UnknownQueueError:  # before the first start is complete
                return Found(after, [], more=False)
            end = stored.bounds(ORDER_QUEUE).end
            if end < after:
                # The inbox was put back from an older copy: what comes now has numbers that were used before.
                log.warning("receipts.begin_again read_to=%d end=%d", after, end)
                to = 0
            for epoch in epochs:
                for sequence, message, length in _of_epoch(stored, epoch, to):
                    to, rows, size = sequence, rows + 1, size + length
                    if message is not None:
                        messages.append(message)
                    if rows >= ROWS_MAX or size >= BYTES_MAX:
                        return Found(to, messages, more=True)
        return Found(max(to, end), messages, more=False)


def _of_epoch(stored: Log, epoch: str, after: int) -> Iterator[tuple[int, Message | None, int]]:
    """Sequence, what it says if it is a receipt, and the length of its post."""
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
                yield sequence, None, len(record.post)
                continue
            yield sequence, message if message.receipt is not None else None, len(record.post)
    except TrimmedError as error:  # just now
        yield error.first - 1, None, 0
