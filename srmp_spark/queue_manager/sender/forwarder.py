"""Move accepted messages for other hosts from ``private$/forward$`` into the outbox.

Each row is moved once. The main process accepts a message for another host like all others:
duplicates, stream position, one sync, 200, receipts. The sender's stream ends in this queue
manager, but the message is not outgoing yet. This module reads the rows of ``private$/forward$``
from a cursor and passes them to the outbox. One transaction of the outbox stores the messages and
the cursor (:mod:`srmp_spark.store.outbox.preparing.forwarded`). In the outbox these messages are
sent like those of this queue manager's own users. Each message gets a position in one of its
streams, and is sent until it is acknowledged. Then the main process is notified of the position. So
the queue's ``default`` consumer has received the rows, for quota, ``status`` and retention.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from srmp_spark.errors import SrmpSparkError, StoreDamagedError
from srmp_spark.names import FORWARD_QUEUE
from srmp_spark.queue_manager.sender.dispatcher import Dispatcher
from srmp_spark.queue_manager.sender.forward_rules import ForwardRules
from srmp_spark.rows.group import Form, Record
from srmp_spark.rows.kept_columns import columns_of_record, message_of_columns
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.http_head import content_type_of
from srmp_spark.srmp.forward.forwarding import hops_in_head, via_of
from srmp_spark.srmp.receiving.stream_room import holder_of
from srmp_spark.srmp.sending.outgoing_room import origin_of_forwarded
from srmp_spark.store.directory import DATABASE_FILE, SEGMENTS_DIRECTORY
from srmp_spark.store.outbox.outbox import Outbox
from srmp_spark.store.outbox.preparing.forwarded import (
    CursorMovedError,
    ForwardedBatch,
    MessageToForward,
    Unsendable,
)
from srmp_spark.store.outbox.tables.forward_place import ForwardPlace
from srmp_spark.store.stored_rows.log import Log, QueueNotInLogError
from srmp_spark.store.stored_rows.reading import records

ROWS_MAX = 1_000
BYTES_MAX = 16 * 1024 * 1024
"""Size in bytes from which a transaction takes no more rows; the last row may exceed it.

A transaction also has at most ``ROWS_MAX`` rows. With this limit many small messages share one
sync, and many large messages do not fill the memory.
"""
HOLD_SECONDS = 30.0
"""Time after which forwarding resumes during a purge, in seconds.

Then the caller of the purge may have died.
"""
HELD_PAUSE_SECONDS = 0.02
"""Interval of the check whether forwarding is still held, in seconds.

:meth:`Forwarder.hold` holds forwarding.
"""
RETRY_SECONDS = 2.0
"""Pause after rows could not be read, or the outbox did not accept them, in seconds.

The notice of the next message may be a long time away.
"""

log = logging.getLogger(__name__)


class ForwardRows(NamedTuple):
    """The rows of ``private$/forward$`` that one call of :meth:`ForwardLog.read` found.

    ``more`` states whether more rows can be read now.
    """

    rows: list[MessageToForward | Unsendable]
    to: ForwardPlace | None
    """The position up to which everything was read.

    If the queue does not exist, this is the position at which the read began, or ``None`` for the
    beginning.
    """
    more: bool


class ForwardLog:
    """Reads the rows of ``private$/forward$``, for one thread at a time."""

    def __init__(self, data_dir: Path, identity: str, rules: ForwardRules) -> None:
        self._data_dir = data_dir
        self._identity = identity
        self._rules = rules

    def read(self, after: ForwardPlace | None) -> ForwardRows:
        """Return the rows after the position ``after``, up to ROWS_MAX rows or BYTES_MAX bytes.

        ``after`` is ``None`` for all rows. Rows that an operator purged, or gave up as damaged, are
        skipped. Rows that are gone for another reason are logged. Raises :class:`StoreError` for
        rows that cannot be read. Rows that are being deleted at this moment are reported by the
        next call.
        """
        rows: list[MessageToForward | Unsendable] = []
        size = 0
        with Log(self._data_dir / DATABASE_FILE, self._data_dir / SEGMENTS_DIRECTORY) as stored:
            try:
                known = epochs = stored.epochs(FORWARD_QUEUE)
            except QueueNotInLogError:
                return ForwardRows([], after, more=False)
            if after is not None and after.epoch in epochs:
                # The rows of earlier epochs were forwarded before.
                epochs = epochs[epochs.index(after.epoch) :]
            for epoch in epochs:
                begin = after.sequence if after is not None and after.epoch == epoch else 0
                bounds = stored.bounds(FORWARD_QUEUE, epoch)
                if bounds.first - 1 > begin and (
                    epoch == epochs[0] if after is None else epoch == after.epoch
                ):
                    self._tell_trimmed(stored, epoch, begin, bounds.first - 1)
                begin = max(begin, bounds.first - 1)
                if bounds.end > begin:
                    for sequence, record in records(
                        stored, FORWARD_QUEUE, epoch, begin, bounds.end
                    ):
                        after = ForwardPlace(epoch, sequence)
                        rows.append(self._row(after, known, record))
                        size += len(record.post)
                        if len(rows) >= ROWS_MAX or size >= BYTES_MAX:
                            return ForwardRows(rows, after, more=True)
                    after = ForwardPlace(epoch, bounds.end)
                elif after is None or after.epoch != epoch:
                    after = ForwardPlace(epoch, begin)
        return ForwardRows(rows, after, more=False)

    def _row(
        self, at: ForwardPlace, epochs: Sequence[str], record: Record
    ) -> MessageToForward | Unsendable:
        to = FORWARD_QUEUE
        if record.form is Form.COLUMNS:
            return self._restored(at.sequence, record)
        try:
            message = decode(content_type_of(record.head), record.content)
            to = message.destination
            to = self._rules.forward_to(to, at, epochs)
        except (
            SrmpSparkError,
            ValueError,
        ) as error:
            # The row was accepted by the same rules, so an older version accepted it.
            return Unsendable(to, at.sequence, record.post, str(error))
        via = via_of((*hops_in_head(record.head), self._identity))
        origin = origin_of_forwarded(holder_of(record.arrival.peer, record.arrival.sender_name))
        return MessageToForward(message, to, via, at.sequence, record.post, origin)

    @staticmethod
    def _restored(sequence: int, record: Record) -> Unsendable:
        """Return a row that a restore rebuilt from its columns, as unsendable.

        Such a row has no POST that could be sent on. One case is a row that a remote reader moved
        away and back.
        """
        to, why = (
            FORWARD_QUEUE,
            "the row was restored without its POST, which cannot be sent on: ask its sender for it",
        )
        with suppress(StoreDamagedError):
            to = message_of_columns(columns_of_record(FORWARD_QUEUE, sequence, record)).destination
        return Unsendable(to, sequence, record.content, why)

    def _tell_trimmed(self, stored: Log, epoch: str, after: int, to: int) -> None:
        """Log rows that are gone from ``private$/forward$`` and were not forwarded by this outbox.

        These are the rows after sequence ``after`` up to ``to``. Holes, which an operator gave up,
        are not counted; if all rows are holes, nothing is logged. No part of this project deletes
        such rows otherwise.
        """
        holes = sum(last - first + 1 for first, last in stored.holes(FORWARD_QUEUE, after, to))
        if holes < to - after:
            log.error(
                "forward.lost queue=%s epoch=%s first=%d last=%d rows=%d: these rows are "
                "gone from the log, and this outbox never had them; unless an earlier "
                "outbox.db had them, ask their senders to send them again",
                FORWARD_QUEUE,
                epoch,
                after + 1,
                to,
                to - after - holes,
            )


class Forwarder:
    """Moves new rows of ``private$/forward$`` into the outbox until cancelled."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        outbox: Outbox,
        stored: ForwardLog,
        read_to: ForwardPlace | None,
        on_forwarded: Callable[[ForwardPlace], object],
        *,
        is_held: bool = False,
    ) -> None:
        """Prepare to forward the rows after ``read_to``.

        ``on_forwarded`` is called with the position up to which rows are outgoing, on stable
        storage. With ``is_held`` this process forwards nothing
        (:func:`.forward_place.held_because`).
        """
        self._is_held = is_held
        self._dispatcher = dispatcher
        self._outbox = outbox
        self._log = stored
        self._read_to = read_to
        self._on_forwarded = on_forwarded
        self._last_error = ""
        self._has_new_rows = asyncio.Event()
        self._has_new_rows.set()
        self._thread = ThreadPoolExecutor(1, "forward")
        self._taking = asyncio.Lock()
        self._held_until = float("-inf")

    def __repr__(self) -> str:
        return f"<Forwarder read_to={self._read_to}>"

    def note_new_rows(self) -> None:
        """Note that there are new rows, so that :meth:`run` reads them."""
        self._has_new_rows.set()

    async def hold(self) -> ForwardPlace | None:
        """Stop forwarding until :meth:`release`, for at most :data:`HOLD_SECONDS`.

        Wait first until the rows in progress are outgoing. Return the position up to which rows are
        outgoing now, or ``None`` if none ever were.
        """
        async with self._taking:
            self._held_until = asyncio.get_running_loop().time() + HOLD_SECONDS
            return self._read_to

    def release(self) -> None:
        """End the hold that :meth:`hold` began, so that forwarding resumes."""
        self._held_until = float("-inf")
        self._has_new_rows.set()

    async def run(self) -> None:
        """Forward new rows until cancelled.

        Errors are logged, and the rows are tried again after RETRY_SECONDS. Return at once if this
        process forwards nothing (``is_held``).
        """
        if self._is_held:
            return
        if self._read_to is not None:
            # The previous process may have ended between the commit and its report.
            self._on_forwarded(self._read_to)
        try:
            while True:
                await self._has_new_rows.wait()
                self._has_new_rows.clear()
                try:
                    if await self._forward():
                        self._has_new_rows.set()
                except CursorMovedError as error:
                    # An earlier try was committed, whatever its caller was told.
                    log.warning('forward.cursor reason="%s"', error)
                    self._read_to = error.stored
                    self._has_new_rows.set()
                    continue
                except SrmpSparkError as error:
                    if self._last_error != str(error):
                        # Log each error once, and not every two seconds.
                        self._last_error = str(error)
                        told = 'forward.failed after=%s reason="%s"'
                        # The reason is enough: a traceback adds nothing.
                        log.error(told, self._read_to, error)  # noqa: TRY400
                except Exception:
                    log.exception("forward.failed after=%s", self._read_to)
                else:
                    self._last_error = ""
                    continue
                self._has_new_rows.set()
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _forward(self) -> bool:
        """Make some rows outgoing unless forwarding is held. Return whether there may be more.

        While forwarding is held, wait HELD_PAUSE_SECONDS and return ``True``.
        """
        async with self._taking:
            if asyncio.get_running_loop().time() >= self._held_until:
                return await self._take()
        await asyncio.sleep(HELD_PAUSE_SECONDS)
        return True

    async def _take(self) -> bool:
        read = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._log.read, self._read_to
        )
        if read.to is None or read.to == self._read_to:
            if self._read_to is not None:
                # Report again: the main process may have missed it, because its socket was full.
                self._on_forwarded(self._read_to)
            return read.more
        to = read.to
        await self._dispatcher.commit(partial(self._prepare, read.rows, self._read_to, to))
        self._read_to = to
        self._on_forwarded(to)
        return read.more

    def _prepare(
        self,
        rows: list[MessageToForward | Unsendable],
        since: ForwardPlace | None,
        to: ForwardPlace,
        at: int,
    ) -> ForwardedBatch:
        return ForwardedBatch(self._outbox.database, rows, since, to, at)
