"""What may happen to a message that we have locked: its lock ends, it comes again, its number is odd."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from test_pulling import FORMAT
from test_pulling_steps import Answering, one_message, thief_acts, thief_ends

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.client.failures import refused
from srmp_spark.mqrr.ndr.methods import StatusResponse
from srmp_spark.mqrr.ndr.receive import StartReceiveResponse
from srmp_spark.queue_manager.puller.gateway_side.remote import GatewayQueue
from srmp_spark.queue_manager.puller.moving_and_copying.copying import Copier
from srmp_spark.queue_manager.puller.moving_and_copying.moving import Mover
from tests.kit.remote.queue import Connection, ForeignQueue


class Cleaning(Connection):
    """Its queue manager's timer ends a lock within a batch: the message comes once more, under another request.

    ``ends_by_message``: it takes an End by the first request all the same, as one does that looks the message up.
    """

    def __init__(self, queue: ForeignQueue, *, ends_by_message: bool, calls_at_once: int) -> None:
        super().__init__(queue, None)
        self.calls_at_once = calls_at_once
        self.by_message = ends_by_message
        self.first: dict[int, int] = {}
        """request → lookup identifier, of locks that have ended."""
        self.ends: list[int] = []

    async def call(self, opnum: int, asked: Any, wait_s: float = 0.0) -> Any:
        if opnum == 9:
            self.ends.append(asked.request_id)
            found = self.first.get(asked.request_id)
            if self.by_message and found in self._queue.messages:
                self._queue.locks.pop(found, None)
                self._queue.taken_by_us.append(self._queue.messages.pop(found)[0])
                return StatusResponse(0)
        answer = await super().call(opnum, asked, wait_s)
        if (
            opnum == 7 and asked.request_id == 2
        ):  # the first lock ends after the second message was handed over
            for lookup_id, (_, request) in list(self._queue.locks.items()):
                if request == 1:
                    del self._queue.locks[lookup_id]
                    self.first[request] = lookup_id
        return answer


@pytest.mark.parametrize("ends_by_message", [False, True])
@pytest.mark.parametrize("calls_at_once", [1, 8])
@pytest.mark.parametrize("was_kept", [False, True])
def test_a_lock_that_ends_within_a_batch_makes_no_second_row(
    *, ends_by_message: bool, calls_at_once: int, was_kept: bool
):
    """It is the same message, known by its key: stored once, ended once, by the lock that holds."""
    queue, disk, told = one_message()
    queue.put()
    queue.put()
    mover = Mover(disk, [], told=told.append)

    async def run() -> None:
        if was_kept:  # and its End was refused
            refusing = Answering(queue, removes=False, answer=refused(0x1C010003, "fault"))
            await mover.batch(await GatewayQueue.open(refusing, FORMAT, receive=True), 1.0)
            assert len(mover.kept) == 3
            queue.miss(refusing.number)
        connection = Cleaning(queue, ends_by_message=ends_by_message, calls_at_once=calls_at_once)
        remote = await GatewayQueue.open(connection, FORMAT, receive=True)
        assert await mover.batch(remote, 1.0) == 3
        assert len(connection.ends) == len(set(connection.ends)) == 3

    asyncio.run(run())
    assert sorted(disk.rows) == [1, 2, 3]
    assert not mover.kept
    assert not disk.kept
    assert not queue.messages
    assert mover.ended == 3


@pytest.mark.parametrize("thief", ["takes", "locks and gives back"])
def test_a_lock_that_ended_before_its_end_makes_no_row(thief: str):
    """The timer, or a rundown: the message is another reader's, or there again, and our copy is not visible before it is."""
    queue, disk, told = one_message()
    mover = Mover(disk, [], told=told.append)

    class Expiring(Connection):
        async def call(self, opnum: int, asked: Any, wait_s: float = 0.0) -> Any:
            if opnum == 9 and queue.locks and not told:
                told.append("the timer")
                queue.miss(self.number)
                thief_acts(queue, thief)
            return await super().call(opnum, asked, wait_s)

    async def run() -> None:
        remote = await GatewayQueue.open(Expiring(queue, None), FORMAT, receive=True)
        await mover.batch(remote, 1.0)
        assert disk.rows == []
        await mover.look_up(remote)
        assert disk.rows == []
        thief_ends(queue, thief)
        await mover.look_up(remote)
        await mover.batch(remote, 1.0)

    asyncio.run(run())
    assert (disk.rows, queue.stolen) == (([], [1]) if thief == "takes" else ([1], []))
    assert not mover.kept


def test_a_copy_that_is_shown_a_message_twice_in_a_walk_makes_one_row():
    """A cursor that begins anew, because the message it stood on is gone: the walk ends with an error, the next one goes on."""
    queue, disk, _ = one_message()
    queue.put()
    reads: list[int] = []

    class Again(Connection):
        def _start(self, asked: Any) -> StartReceiveResponse:
            reads.append(1)
            if len(reads) == 3:
                self._cursor = -1
            return super()._start(asked)

    async def run() -> None:
        copier = Copier(disk, [], told=pytest.fail)
        remote = await GatewayQueue.open(Again(queue, None), FORMAT, receive=False)
        with pytest.raises(RemoteProtocolError, match="does not go on"):
            await copier.walk(remote)
        assert sorted(disk.rows) == [1, 2], "what was shown before is copied"
        await copier.walk(remote)

    asyncio.run(run())
    assert sorted(disk.rows) == [1, 2]


@pytest.mark.parametrize(("whole", "read"), [(True, True), (False, False)])
def test_a_sequence_identifier_of_eight_bytes_stops_nobody(*, whole: bool, read: bool):
    """pSequenceId has the low seven bytes of the lookup identifier. The whole of it is understood; anything else there makes
    the message one that cannot be read, and those behind it come."""
    queue, disk, told = one_message()
    queue.put()
    first = min(queue.messages)

    class Wide(Connection):
        def _start(self, asked: Any) -> StartReceiveResponse:
            answer = super()._start(asked)
            if answer.status or answer.sequence_id != first & (1 << 56) - 1:
                return answer
            return answer._replace(sequence_id=first if whole else answer.sequence_id | 0xFF << 56)

    mover = Mover(disk, [], told=told.append)

    async def run() -> None:
        assert (
            await mover.batch(await GatewayQueue.open(Wide(queue, None), FORMAT, receive=True), 1.0)
            == 1 + read
        )

    asyncio.run(run())
    assert len(disk.rows) == 1 + read
    assert len(queue.messages) == 1 - read
    assert bool(told) is not read
    assert not queue.locks
