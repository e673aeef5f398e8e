"""A remote queue as [MS-MQRR] 3.1.4 and [MS-MQDMPR] 3.1.7 describe it.

The queue is written from the documents and shares no code with the server of srmp-spark. Its
connections lose answers, carry out calls without answering, and the queue has other readers. It
keeps the locks of a broken connection until it notices that the connection is gone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from srmp_spark.errors import RemoteLostError
from srmp_spark.mqrr.client.failures import NotSentError
from srmp_spark.mqrr.ndr.methods import CursorResponse, HandleRequest, StatusResponse
from srmp_spark.mqrr.ndr.receive import StartReceiveResponse
from srmp_spark.mqrr.ndr.stub import ContextHandle
from srmp_spark.mqrr.packets.base_header import BaseHeader
from srmp_spark.mqrr.packets.message_packet import MessagePacket
from srmp_spark.mqrr.packets.message_properties_header import MessagePropertiesHeader
from srmp_spark.mqrr.packets.queue_names import direct_queue
from srmp_spark.mqrr.packets.sections import SectionBuffer
from srmp_spark.mqrr.packets.user_header import UserHeader

GUID = "11223344-5566-7788-99aa-bbccddeeff00"
OK, EMPTY, NOT_FOUND, USAGE = 0, 0xC00E001B, 0xC00E0088, 0xC00E0050
INVALID_HANDLE, INVALID_PARAMETER, ALREADY_RECEIVED = 0xC00E0007, 0xC00E0006, 0xC00E001D


class ForeignQueue:
    """One queue of a foreign queue manager, with its messages and locks.

    Message numbers begin with 1. ``taken_by_us`` has the numbers that the reader under test
    removed, ``stolen`` those that other readers removed.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sequence = 0
        self.messages: dict[int, tuple[int, int]] = {}
        """Lookup identifier → (number, priority)."""
        self.locks: dict[int, tuple[int, int]] = {}
        """Lookup identifier → (connection number, request). Other readers have connection -1."""
        self.handed: dict[tuple[int, int], int] = {}
        """(connection, request) → message number, for every lock that was ever granted."""
        self.taken_by_us: list[int] = []
        self.stolen: list[int] = []
        self.unanswered_ends: set[int] = set()
        """Numbers of messages for which an End was sent and the answer did not arrive."""
        self.connections = 0
        self.loops = False
        """Whether each cursor returns the head of the queue again and again."""

    def put(self) -> None:
        """Add a new message of random priority to the queue."""
        self.sequence += 1
        priority = self.rng.randrange(8)
        self.messages[(7 - priority) << 56 | self.sequence] = self.sequence, priority

    def first(self) -> int | None:
        """Return the lookup identifier of the first unlocked message, or ``None``."""
        return min((each for each in self.messages if each not in self.locks), default=None)

    def steal(self) -> None:
        """Remove the first unlocked message or a random one, as another reader would.

        Nothing happens if no message is unlocked.
        """
        free = [each for each in self.messages if each not in self.locks]
        if free:
            taken = self.rng.choice([min(free), self.rng.choice(free)])
            self.stolen.append(self.messages.pop(taken)[0])

    def hold(self) -> None:
        """Lock a random unlocked message, if there is one, as another reader would."""
        free = [each for each in self.messages if each not in self.locks]
        if free:
            self.locks[self.rng.choice(free)] = -1, 0

    def expire(self) -> None:
        """End a random lock, if there is one, as the cleanup timer does.

        The call that ends the same receive may be in flight.
        """
        if self.locks:
            del self.locks[self.rng.choice(sorted(self.locks))]

    def miss(self, connection: int | None = None) -> None:
        """Release all locks of one connection that is lost.

        With ``None``, release the locks of the other readers.
        """
        gone = -1 if connection is None else connection
        for lookup_id in [each for each, (owner, _) in self.locks.items() if owner == gone]:
            del self.locks[lookup_id]

    def packet(self, lookup_id: int) -> bytes:
        """Return the encoded packet of a message.

        Its body is ``body N`` with the message number.
        """
        number, priority = self.messages[lookup_id]
        return MessagePacket(
            base=BaseHeader(priority=priority),
            user=UserHeader(
                source_queue_manager=GUID,
                message_id=number,
                sent_time=1_790_000_000,
                destination_queue=direct_queue(r"OS:host\q"),
            ),
            properties=MessagePropertiesHeader(message_body=b"body %d" % number),
        ).encode()

    def sections(self, lookup_id: int) -> tuple[SectionBuffer, ...]:
        """Return the message as the sections of an answer: one section with the whole packet.

        Hostile tests replace this method.
        """
        packet = self.packet(lookup_id)
        return (SectionBuffer(0, len(packet), packet),)


async def a_while(rng: random.Random) -> None:
    """Let other tasks of the event loop run first, zero to three times at random."""
    for _ in range(rng.randrange(4)):
        await asyncio.sleep(0)


class KilledError(BaseException):
    """Raised by a call because the process that made the call was killed (kill -9)."""


class Connection:
    """One connection of the reader to the queue, with faults. After the first fault it is gone."""

    is_dead: Callable[[], bool] = staticmethod(lambda: False)
    """Return whether the process that owns the connection was killed.

    Calls on the connection then raise :class:`KilledError`. Tests replace this function.
    """

    def __init__(self, queue: ForeignQueue, faults: float | None) -> None:
        """Connect to ``queue``.

        ``faults`` is the probability, from 0 to 1, that a call or its answer is lost, which ends
        the connection. With ``None`` no fault happens, and no other reader acts.
        """
        self._lively, faults = faults is not None, faults or 0.0
        self._queue = queue
        queue.connections += 1
        self.number = queue.connections
        self._faults = faults
        self._gone = False
        self._cursor = -1
        self.cursors = 0
        """Number of cursors that were created and not closed."""
        self.calls_at_once = queue.rng.choice((1, 8, 64))

    async def call(self, opnum: int, asked: Any, wait_s: float = 0.0) -> Any:  # noqa: ANN401  # of any method
        """Carry out the call ``opnum`` with the parameters ``asked``, and return its answer.

        The time-out ``wait_s`` is ignored. Raises :class:`RemoteLostError` if the call or its
        answer is lost, :class:`NotSentError` if the connection is gone already, and
        :class:`KilledError` if the calling process was killed.
        """
        queue, rng = self._queue, self._queue.rng
        del wait_s
        await a_while(rng)
        if self.is_dead():
            raise KilledError
        if self._gone:
            raise NotSentError("gone")
        fault = rng.random()
        # In the first half of the fault range the call itself never arrives.
        if fault < self._faults / 2:
            self._gone = True
            if opnum == 9:
                self.note_end(asked.request_id)
            raise RemoteLostError("before")
        if opnum == 9 and fault < self._faults:
            self.note_end(asked.request_id)
        answer = self.carry_out(opnum, asked)
        if self._lively and rng.random() < 0.1:
            rng.choice((queue.steal, queue.put, queue.hold, queue.miss, queue.expire))()
        # In the second half the call was carried out, and its answer never arrives.
        if fault < self._faults:
            self._gone = True
            raise RemoteLostError("after")
        return answer

    def note_end(self, request: int) -> None:
        """Record that an End of ``request`` gets no answer. An unknown request is ignored."""
        number = self._queue.handed.get((self.number, request))
        if number is not None:
            self._queue.unanswered_ends.add(number)

    def carry_out(self, opnum: int, asked: Any) -> Any:  # noqa: ANN401  # of any method
        """Execute the call ``opnum`` on the queue and return its answer.

        ``asked`` has the parameters of the call.
        """
        queue = self._queue
        if opnum == 2:
            return HandleRequest(ContextHandle(0, self.number.to_bytes(16, "big")))
        if opnum == 4:
            self._cursor = -1
            self.cursors += 1
            return CursorResponse(1, OK)
        if opnum == 5:
            self.cursors -= 1
            return StatusResponse(OK)
        if opnum == 9:
            found = next(
                (
                    each
                    for each, owner in queue.locks.items()
                    if owner == (self.number, asked.request_id)
                ),
                None,
            )
            if found is None:
                return StatusResponse(INVALID_HANDLE)
            del queue.locks[found]
            if asked.ack == 2:
                queue.taken_by_us.append(queue.messages.pop(found)[0])
            return StatusResponse(OK)
        return self._start(asked)

    def _start(self, asked: Any) -> StartReceiveResponse:  # noqa: ANN401  # of any method
        queue = self._queue
        if asked.action in (0x40000010, 0x40000020):
            found: int | None = asked.lookup_id
            if found not in queue.messages:
                return StartReceiveResponse(0, 0, (), NOT_FOUND)
            if found in queue.locks:
                return StartReceiveResponse(
                    0, 0, (), USAGE if asked.action == 0x40000010 else NOT_FOUND
                )
        elif asked.action == 0x40000011:
            behind = sorted(
                each
                for each in queue.messages
                if each not in queue.locks and each > asked.lookup_id
            )
            if asked.lookup_id not in queue.messages or not behind:
                return StartReceiveResponse(0, 0, (), NOT_FOUND)
            found = behind[0]
        elif asked.cursor:
            cursor = -1 if queue.loops else self._cursor
            free = sorted(
                each for each in queue.messages if each not in queue.locks and each > cursor
            )
            if not free:
                return StartReceiveResponse(0, 0, (), EMPTY)
            found = self._cursor = free[0]
        else:
            found = queue.first()
            if found is None:
                return StartReceiveResponse(0, 0, (), EMPTY)
        assert found is not None
        if asked.action in (0, 0x40000020):
            queue.locks[found] = self.number, asked.request_id
            queue.handed[self.number, asked.request_id] = queue.messages[found][0]
        return StartReceiveResponse(1_790_000_001, found & (1 << 56) - 1, queue.sections(found), OK)
