"""A remote queue as [MS-MQRR] 3.1.4 and [MS-MQDMPR] 3.1.7 describe one, written from the document and not from our server.

It loses answers, carries calls out and says nothing, keeps the locks of connections that are gone until it misses them, and has
other readers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from srmp_spark.mqrr.ndr.methods import CursorResponse, HandleRequest, StatusResponse
from srmp_spark.mqrr.ndr.receive import StartReceiveResponse
from srmp_spark.mqrr.ndr.stub import ContextHandle
from srmp_spark.mqrr.packets.base_header import BaseHeader
from srmp_spark.mqrr.packets.message_packet import MessagePacket
from srmp_spark.mqrr.packets.message_properties_header import MessagePropertiesHeader
from srmp_spark.mqrr.packets.queue_names import direct_queue
from srmp_spark.mqrr.packets.sections import SectionBuffer
from srmp_spark.mqrr.packets.user_header import UserHeader
from srmp_spark.queue_manager.puller.gateway_side.answers import LostError, NotSentError

GUID = "11223344-5566-7788-99aa-bbccddeeff00"
OK, EMPTY, NOT_FOUND, USAGE = 0, 0xC00E001B, 0xC00E0088, 0xC00E0050
INVALID_HANDLE, INVALID_PARAMETER, ALREADY_RECEIVED = 0xC00E0007, 0xC00E0006, 0xC00E001D


class ForeignQueue:
    """The queue manager that has it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sequence = 0
        self.messages: dict[int, tuple[int, int]] = {}
        """lookup identifier → (number, priority)."""
        self.locks: dict[int, tuple[int, int]] = {}
        """lookup identifier → (connection, request)."""
        self.handed: dict[tuple[int, int], int] = {}
        """(connection, request) → number: of every lock that ever was."""
        self.taken_by_us: list[int] = []
        self.stolen: list[int] = []
        self.unanswered_ends: set[int] = set()
        """Messages of which an End was sent and its answer did not arrive."""
        self.connections = 0
        self.loops = False
        """Whether each cursor shows the head of the queue again and again."""

    def put(self) -> None:
        """Take a message of any priority from somebody."""
        self.sequence += 1
        priority = self.rng.randrange(8)
        self.messages[(7 - priority) << 56 | self.sequence] = self.sequence, priority

    def first(self) -> int | None:
        """Return the lookup identifier of the first message that nobody has locked."""
        return min((each for each in self.messages if each not in self.locks), default=None)

    def steal(self) -> None:
        """Another reader receives whatever is first, or any other message."""
        free = [each for each in self.messages if each not in self.locks]
        if free:
            taken = self.rng.choice([min(free), self.rng.choice(free)])
            self.stolen.append(self.messages.pop(taken)[0])

    def hold(self) -> None:
        """Another reader locks a message for a while."""
        free = [each for each in self.messages if each not in self.locks]
        if free:
            self.locks[self.rng.choice(free)] = -1, 0

    def expire(self) -> None:
        """A lock ends by itself (the cleanup timer), perhaps while its End is on its way."""
        if self.locks:
            del self.locks[self.rng.choice(sorted(self.locks))]

    def miss(self, connection: int | None = None) -> None:
        """Rundown of connections that are gone, or of the other readers (``None``)."""
        gone = -1 if connection is None else connection
        for lookup_id in [each for each, (owner, _) in self.locks.items() if owner == gone]:
            del self.locks[lookup_id]

    def packet(self, lookup_id: int) -> bytes:
        """Write the packet of a message, whose body is its number."""
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
        """A message as an answer has it; a hostile queue has another method here."""
        packet = self.packet(lookup_id)
        return (SectionBuffer(0, len(packet), packet),)


async def a_while(rng: random.Random) -> None:
    """Whatever else is under way comes first, or does not."""
    for _ in range(rng.randrange(4)):
        await asyncio.sleep(0)


class KilledError(BaseException):
    """kill -9."""


class Connection:
    """One, with faults; after the first fault it is gone."""

    is_dead: Callable[[], bool] = staticmethod(lambda: False)
    """Whether the process that has it was killed: then whatever of it still runs here says nothing any more."""

    def __init__(self, queue: ForeignQueue, faults: float | None) -> None:
        """``faults``: how likely each call is to be the last; ``None``: nothing happens, and there are no other readers."""
        self._lively, faults = faults is not None, faults or 0.0
        self._queue = queue
        queue.connections += 1
        self.number = queue.connections
        self._faults = faults
        self._gone = False
        self._cursor = -1
        self.calls_at_once = queue.rng.choice((1, 8, 64))

    async def call(self, opnum: int, asked: Any, wait_s: float = 0.0) -> Any:  # noqa: ANN401  # parameters and answer of any method
        """Carry a call out, or lose it or its answer. Raises :class:`LostError`, :class:`NotSentError`."""
        queue, rng = self._queue, self._queue.rng
        del wait_s
        await a_while(rng)
        if self.is_dead():
            raise KilledError
        if self._gone:
            raise NotSentError("gone")
        fault = rng.random()
        if fault < self._faults / 2:  # the call never arrived
            self._gone = True
            if opnum == 9:
                self.note_end(asked.request_id)
            raise LostError("before")
        if opnum == 9 and fault < self._faults:
            self.note_end(asked.request_id)
        answer = self.carry_out(opnum, asked)
        if self._lively and rng.random() < 0.1:
            rng.choice((queue.steal, queue.put, queue.hold, queue.miss, queue.expire))()
        if fault < self._faults:  # its answer did not
            self._gone = True
            raise LostError("after")
        return answer

    def note_end(self, request: int) -> None:
        """Note that an End of this request has no answer."""
        number = self._queue.handed.get((self.number, request))
        if number is not None:
            self._queue.unanswered_ends.add(number)

    def carry_out(self, opnum: int, asked: Any) -> Any:  # noqa: ANN401  # the same
        """Do what a call asks for, and return its answer."""
        queue = self._queue
        if opnum == 2:
            return HandleRequest(ContextHandle(0, self.number.to_bytes(16, "big")))
        if opnum == 4:
            self._cursor = -1
            return CursorResponse(1, OK)
        if opnum == 5:
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

    def _start(self, asked: Any) -> StartReceiveResponse:  # noqa: ANN401  # the same
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
