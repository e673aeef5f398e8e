"""Serve one local queue that remote readers have open.

The module reports new messages to the server without I/O (:mod:`srmp_spark.mqrr.server`), knows
which messages have left the queue, and reads messages ahead. Theory of operation. A reader requests
one message after the other, and each would be a request to the reader process. So the answer to one
request holds the message and those after it, up to :data:`AHEAD_BYTES_MAX`. They stay in memory
until it is needed for others. Such messages may have left the queue meanwhile. So the server calls
:meth:`ServedView.has_left` before it requests one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError, StoreDamagedError
from srmp_spark.interface import DEFAULT_CONSUMER, TRIMMED, UNKNOWN_QUEUE
from srmp_spark.mqrr.packets.message_packet import EncodedPacket
from srmp_spark.mqrr.server.effects import ServedMessage
from srmp_spark.mqrr.server.positions import ArrivedRun, Positions
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.reader.crossing import ReadPackets, ReadPriorities, ReadRecord
from srmp_spark.queue_manager.reader.frames import RUN, SRMP, UNREADABLE, Frames, MessageFrame
from srmp_spark.rows.group import Record, unpack_group

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.catalogue import Queue
    from srmp_spark.queue_manager.service import QueueManager

AHEAD_BYTES_MIN, AHEAD_BYTES_MAX = 256 * 1024, 4 * 1024 * 1024
"""Bytes of one read.

A read has twice the size of the one before while each continues where the last ended, as a walk
does. For each read a group of the log is unpacked from its beginning, and a segment is read whole.
"""
AHEAD_ROWS = 4_096
"""Most sequences of one read, because holes and small messages have few bytes."""
KEPT_BYTES = 16 * 1024 * 1024
"""Most bytes of messages that are kept of one queue.

A larger message is delivered and not kept.
"""
FOLLOW_SECONDS = 30.0
"""Longest wait for the next commit, in seconds.

After that it is checked whether the queue still exists.
"""
SLICE_RUNS = 2_000
"""Runs of one priority that are added in one turn of the event loop, which takes a few
milliseconds. If priorities alternate, each message is a run.
"""
AGAIN_SECONDS = 1.0
"""Pause after a request that the reader process refused or did not answer, in seconds."""

log = logging.getLogger(__name__)


class ServedView:
    """Tells the server without I/O which messages have left one queue.

    It looks each message up in the memory of the queue, so nothing is copied. "Left" means:
    received by the consumer ``default``, purged, discarded or trimmed.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.deleted = False
        self.known = 0
        """Sequence of the last message that was reported to the server."""

    @property
    def name(self) -> str:
        """Return the canonical name of the queue."""
        return self.queue.name

    @property
    def transactional(self) -> bool:
        """Return whether the queue is transactional, so that it is for transactional messages."""
        return self.queue.state.transactional

    def is_behind(self) -> bool:
        """Return whether rows were committed that were not reported to the server yet.

        The result is False for a deleted queue.
        """
        return not self.deleted and self.queue.end > self.known

    def holds_receivers(self) -> bool:
        """Return whether the readers of the queue are paused (``queue pause --out``)."""
        return self.queue.paused_out

    def floor(self) -> int:
        """Return the sequence up to which (included) all rows have left the queue.

        They were trimmed by retention or received by the consumer ``default``. A client that only
        peeks does not create that consumer.
        """
        default = self.queue.consumers.get(DEFAULT_CONSUMER)
        return max(self.queue.trimmed_to, 0 if default is None else default.received)

    def has_left(self, sequence: int) -> bool:
        """Return whether the row ``sequence`` has left the queue.

        A row leaves the queue if it is received, purged, discarded or trimmed, or if the queue is
        deleted.
        """
        if self.deleted or sequence <= self.floor():
            return True
        default = self.queue.consumers.get(DEFAULT_CONSUMER)
        return (
            default is not None and sequence in default.ahead
        ) or sequence in self.queue.waiting.holes


class ServedQueue:
    """Reads one queue for the server without I/O, while a client has it open."""

    def __init__(
        self,
        manager: QueueManager,
        queue: Queue,
        *,
        turn: asyncio.Lock,
        came: Callable[[ServedView, list[ArrivedRun]], None],
        deleted: Callable[[ServedView], None],
    ) -> None:
        self.view = ServedView(queue)
        self.opened = 0
        """Number of open handles of the queue, with any access."""
        self.receivers = 0
        """Number of open handles of the queue with the right to receive."""
        self._manager = manager
        self._queue = queue
        self._turn = turn
        self._on_arrived = came
        self._on_deleted = deleted
        self.lock = asyncio.Lock()
        """Held while messages are reported to the server, so that each is reported exactly once."""
        self._kept: OrderedDict[int, ServedMessage] = OrderedDict()
        self._kept_bytes = 0
        self._ahead_bytes = AHEAD_BYTES_MIN
        self._ahead_from = 0
        """Sequence that follows the last message that was read ahead."""
        self._wanted: dict[int, list[Callable[[ServedMessage | str | None], None]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None

    # --- what came --------------------------------------------------------------------------------

    async def load(self) -> Positions:
        """Read the priorities of all messages in the queue, and return their positions.

        The caller holds :attr:`lock`. Raises :class:`ApiError` or :class:`ConnectionResetError` if
        the reader process fails.
        """
        self.view.known = self.view.floor()
        positions = Positions()
        async for runs in self._news():
            positions.add(runs)
        return positions

    def follow(self) -> None:
        """Start the task that reports new messages and the queue's deletion, unless it runs."""
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._follow())

    async def _news(self) -> AsyncIterator[list[ArrivedRun]]:
        """Yield the runs of messages that are new since ``view.known``, in slices, and advance it.

        A run is a range of sequences of one priority. The event loop has turns between slices. The
        last slice is empty. All messages of a transactional queue have priority 0 ([MS-MQMQ]
        2.2.19.1), so the log need not be read. Its holes are left out, because a restore may skip a
        million sequences, which would be passed one by one in one turn of the loop. Raises as
        :meth:`load`.
        """
        after, to = self.view.known, self._queue.end
        if self._queue.state.transactional:
            async for runs in self._without_holes(after, to):
                self.view.known = max(self.view.known, runs[-1].last)
                yield runs
        elif to > after:
            for low, high, epoch in self._epochs(after, to):
                async for runs in self._priorities(epoch, low, high):
                    self.view.known = max(self.view.known, runs[-1].last)
                    yield runs
        self.view.known = max(after, to)
        yield []

    async def _without_holes(self, after: int, to: int) -> AsyncIterator[list[ArrivedRun]]:
        while True:
            found = self._queue.waiting.holes.gaps(after + 1, to)
            runs = [ArrivedRun(0, first, last) for first, last in islice(found, SLICE_RUNS)]
            if not runs:
                return
            yield runs
            after = runs[-1].last
            if after == to:
                return
            async with self._turn:
                await asyncio.sleep(0)

    def _epochs(self, after: int, to: int) -> list[tuple[int, int, str]]:
        """Return (after, to, epoch) for each epoch that has rows in the range (after, to]."""
        found = []
        firsts = [*(each.first for each in self._queue.epochs), 2**63]
        for (epoch, first), following in zip(self._queue.epochs, firsts[1:], strict=True):
            low, high = max(after, first - 1), min(to, following - 1)
            if low < high:
                found.append((low, high, epoch))
        return found

    async def _priorities(self, epoch: str, after: int, to: int) -> AsyncIterator[list[ArrivedRun]]:
        command = ReadPriorities(self._queue.log_name, epoch, after, to)
        pieces = await self._manager.reader.open(command)
        data = b"".join([piece async for piece in pieces])
        for at in range(0, len(data), SLICE_RUNS * RUN.size):
            async with self._turn:
                await asyncio.sleep(0)
            yield [
                ArrivedRun(*each) for each in RUN.iter_unpack(data[at : at + SLICE_RUNS * RUN.size])
            ]

    async def _follow(self) -> None:
        while await self._report_next():
            pass

    async def _report_next(self) -> bool:
        """Wait for the next commit and report its messages, or report that the queue was deleted.

        Return whether the queue still exists. If the reader process fails, log it and pause.
        """
        try:
            if self._queue.end <= self.view.known:
                await self._queue.changed(FOLLOW_SECONDS)
            if self._manager.catalogue.get(self._queue.name) is not self._queue:
                self.view.deleted = True
                self._on_deleted(self.view)
                return False
            async with self.lock:
                async for runs in self._news():
                    self._on_arrived(self.view, runs)
        except (ApiError, ConnectionResetError) as error:
            if isinstance(error, ApiError) and error.code == TRIMMED:
                # Retention has removed these rows meanwhile.
                self.view.known = max(self.view.known, self._queue.trimmed_to)
                return True
            log.warning('mqrr.follow_failed queue=%s reason="%s"', self._queue.name, error)
            await asyncio.sleep(AGAIN_SECONDS)
        return True

    # --- messages ---------------------------------------------------------------------------------

    def read(self, sequence: int, done: Callable[[ServedMessage | str | None], None]) -> None:
        """Read the message ``sequence`` and call ``done`` with it, at once or later.

        ``done`` gets the message, ``None`` if the message has left the queue, or a text if it
        cannot be read. The message is kept in memory for a later read (KEPT_BYTES).
        """
        found = self._kept.get(sequence)
        if found is not None:
            done(found)
            return
        self._wanted.setdefault(sequence, []).append(done)
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            while self._wanted:
                first = next(iter(self._wanted))
                try:
                    await self._read_from(first)
                except (ApiError, ConnectionResetError) as error:
                    code = error.code if isinstance(error, ApiError) else ""
                    gone = code in (TRIMMED, UNKNOWN_QUEUE) or self.view.has_left(first)
                    self._tell(first, None if gone else str(error))
                else:
                    if first in self._wanted:
                        # The row is a hole, or the answer ended before it.
                        gone = self.view.has_left(first)
                        self._tell(
                            first,
                            None
                            if gone
                            else f"row {first} of {self._queue.name} was not sent by the reader",
                        )
        finally:
            self._reading = None

    async def _read_from(self, first: int) -> None:
        _, end, epoch = next(
            each for each in self._epochs(first - 1, self._queue.end) if each[0] < first <= each[1]
        )
        goes_on = first == self._ahead_from
        self._ahead_bytes = (
            min(2 * self._ahead_bytes, AHEAD_BYTES_MAX) if goes_on else AHEAD_BYTES_MIN
        )
        to = min(end, first + AHEAD_ROWS - 1)
        command = ReadPackets(self._queue.log_name, epoch, first - 1, to, self._ahead_bytes)
        pieces = await self._manager.reader.open(command)
        frames = Frames()
        async for piece in pieces:
            for frame in frames.take(piece):
                self._take(frame)
                self._ahead_from = frame.sequence + 1

    def _take(self, frame: MessageFrame) -> None:
        if frame.kind == UNREADABLE:
            self._tell(frame.sequence, frame.head.decode())
            return
        packet = EncodedPacket(frame.head, frame.counted, frame.tail)
        message = ServedMessage(packet, frame.kind == SRMP, frame.arrived_at)
        if frame.sequence not in self._kept:
            self._kept[frame.sequence] = message
            self._kept_bytes += _size(message)
            while self._kept_bytes > KEPT_BYTES:
                self._kept_bytes -= _size(self._kept.popitem(last=False)[1])
        self._tell(frame.sequence, message)

    def _tell(self, sequence: int, what: ServedMessage | str | None) -> None:
        for done in self._wanted.pop(sequence, ()):
            done(what)

    async def record(self, sequence: int) -> Record:
        """Read a row, and return it in its stored form.

        Raises :class:`ApiError` if the row has left the queue or is damaged, and as
        :meth:`.link.ChildLink.open` if the reader process fails.
        """
        _, _, epoch = next(
            each
            for each in self._epochs(sequence - 1, self._queue.end)
            if each[0] < sequence <= each[1]
        )
        pieces = await self._manager.reader.open(ReadRecord(self._queue.log_name, epoch, sequence))
        blob = b"".join([piece async for piece in pieces])
        if not blob:
            raise ApiError(
                409,
                "row-gone",
                f"row {sequence} of {self._queue.name} has left the queue",
                "look again",
            )
        try:
            ((_, record),) = unpack_group(blob)
        except StoreDamagedError as error:
            raise ApiError(
                500, "damaged", f"row {sequence} of {self._queue.name}: {error}", "see status"
            ) from None
        return record

    def forget(self, sequence: int) -> None:
        """Discard a message that was read ahead, because it has left the queue."""
        found = self._kept.pop(sequence, None)
        if found is not None:
            self._kept_bytes -= _size(found)

    async def close(self) -> None:
        """End the tasks, because no client has the queue open any longer."""
        await end((self._following, self._reading))


def _size(message: ServedMessage) -> int:
    return sum(map(len, message.packet))
