"""Every place where a batch can be cut off, one after the other: what the random runs of test_pulling.py may miss.

A batch has a number of steps: each call that goes out, each answer that comes back, each commit. At one of them the process is
killed, or the connection ends; the other side notices at once or late; and meanwhile another reader does nothing, takes the
next message, or locks it for a while. Whatever it was, each message is one row or the other reader's.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any
from unittest import mock

import pytest
from test_pulling import FORMAT, Disk

from srmp_spark.errors import RemoteLostError
from srmp_spark.mqrr.client.failures import NotSentError, refused
from srmp_spark.mqrr.ndr.methods import StatusResponse
from srmp_spark.mqrr.ndr.receive import StartReceiveResponse
from srmp_spark.mqrr.packets.sections import SectionBuffer
from srmp_spark.mqrr.pulled_states import PulledState
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side.pulled import PulledKey
from srmp_spark.queue_manager.puller.gateway_side.remote import GatewayQueue
from srmp_spark.queue_manager.puller.moving_and_copying import copying, locks
from srmp_spark.queue_manager.puller.moving_and_copying.copying import Copier
from srmp_spark.queue_manager.puller.moving_and_copying.moving import Mover
from tests.kit.remote.queue import GUID, Connection, ForeignQueue, KilledError

MESSAGES = 3
WIDE = 64
"""Calls at once that let three batches, of one message each, be under way."""
LATE = ("at once", "late")
THIEVES = ("nobody", "takes", "locks and gives back", "locks and takes")


class Steps:
    """Counts, and ends it at one of them."""

    def __init__(self, last: int) -> None:
        self.left = last
        self.where = ""

    def is_last(self, where: str) -> bool:
        self.left -= 1
        if self.left == 0:
            self.where = where
        return self.left == 0


class SteppedDisk(Disk):
    def __init__(self, steps: Steps, how: str) -> None:
        super().__init__(random.Random(0))
        self.steps, self.how = steps, how

    def _killed(self) -> None:
        self.dead = self.dead or (self.how == "kill" and self.steps.is_last("commit"))
        if self.dead:
            raise KilledError


class SteppedConnection(Connection):
    def __init__(self, queue: ForeignQueue, disk: SteppedDisk, calls_at_once: int) -> None:
        super().__init__(queue, None)
        self.disk, self.calls_at_once = disk, calls_at_once

    async def call(self, opnum: int, asked: Any, wait_s: float = 0.0) -> Any:
        del wait_s
        await asyncio.sleep(0)
        if self.disk.dead:
            raise KilledError
        if self._gone:
            raise NotSentError("gone")
        self._cut(opnum, asked, "before")
        answer = self.carry_out(opnum, asked)
        if opnum == 9 and self.disk.steps.left == 1:
            self._queue.unanswered_ends |= set(self._queue.taken_by_us[-1:])
        self._cut(opnum, asked, "after")
        return answer

    def _cut(self, opnum: int, asked: Any, when: str) -> None:
        if not self.disk.steps.is_last(f"{when} opnum {opnum}"):
            return
        self._gone = True
        if self.disk.how == "kill":
            self.disk.dead = True
            raise KilledError
        if opnum == 9 and when == "before":
            self.note_end(asked.request_id)
        raise RemoteLostError(when)


def thief_acts(queue: ForeignQueue, thief: str) -> None:
    first = queue.first()
    if first is None or thief == "nobody":
        return
    if thief == "takes":
        queue.stolen.append(queue.messages.pop(first)[0])
    else:
        queue.locks[first] = -1, 0


def thief_ends(queue: ForeignQueue, thief: str) -> None:
    for lookup_id in [each for each, (owner, _) in queue.locks.items() if owner == -1]:
        del queue.locks[lookup_id]
        if thief == "locks and takes":
            queue.stolen.append(queue.messages.pop(lookup_id)[0])


async def cut_at(step: int, how: str, late: str, thief: str, calls_at_once: int) -> str:
    """One run; where it was cut off, empty if it came to its end before."""
    queue = ForeignQueue(random.Random(5))
    for _ in range(MESSAGES):
        queue.put()
    steps = Steps(step)
    disk = SteppedDisk(steps, how)
    mover = Mover(disk, [], told=pytest.fail)
    for turn in range(12):
        if turn == 1 and not steps.where:
            return ""
        connection = SteppedConnection(queue, disk, calls_at_once)
        try:
            remote = await GatewayQueue.open(connection, FORMAT, receive=True)
            await mover.look_up(remote)
            with mock.patch.object(
                locks, "BATCH_MESSAGES", 1 if calls_at_once == WIDE else locks.BATCH_MESSAGES
            ):
                await mover.batches(remote, 1.0, goes_on=lambda: True)
        except RemoteLostError:
            mover.on_connection_lost()
        except KilledError:
            queue.unanswered_ends |= disk.in_doubt()
            mover = Mover(disk, disk.after_a_kill(), told=pytest.fail)
        else:
            mover.on_connection_lost()
        if turn == 0 or late == "at once":
            for number in range(
                1, queue.connections if turn == 0 and late == "late" else queue.connections + 1
            ):
                queue.miss(number)
        if turn == 0:
            thief_acts(queue, thief)
        if turn == 2:
            for number in range(1, queue.connections + 1):
                queue.miss(number)
        if turn == 4:
            thief_ends(queue, thief)
        if turn >= 4:
            for number in range(1, queue.connections + 1):
                queue.miss(number)
    about = (
        f"{how} at step {step} ({steps.where}), noticed {late}, another reader "
        f"{thief}, {calls_at_once} calls at once"
    )
    assert not queue.messages, f"{about}: left there"
    assert not mover.kept, f"{about}: kept for ever"
    assert not disk.kept, about
    assert len(disk.rows) == len(set(disk.rows)), f"{about}: doubled {disk.rows}"
    everything = set(range(1, queue.sequence + 1))
    assert set(disk.rows) | set(queue.stolen) == everything, (
        f"{about}: lost {everything - set(disk.rows) - set(queue.stolen)}"
    )
    both = set(disk.rows) & set(queue.stolen)
    assert both <= queue.unanswered_ends, (
        f"{about}: {both} is a row and another reader's, and no End was in doubt"
    )
    return steps.where


@pytest.mark.parametrize("how", ["kill", "drop"])
def test_a_batch_cut_off_at_each_of_its_steps(how: str):
    places: set[str] = set()
    for late, thief, calls_at_once in itertools.product(LATE, THIEVES, (1, MESSAGES, WIDE)):
        for step in itertools.count(1):
            where = asyncio.run(cut_at(step, how, late, thief, calls_at_once))
            if not where:
                break
            places.add(where)
    calls = {f"{when} opnum {opnum}" for when in ("before", "after") for opnum in (2, 7, 9)}
    assert calls | ({"commit"} if how == "kill" else set()) <= places


def one_message() -> tuple[ForeignQueue, Disk, list[str]]:
    queue = ForeignQueue(random.Random(1))
    queue.put()
    disk = Disk(random.Random(0))
    disk._killed = lambda: None  # type: ignore[method-assign]
    return queue, disk, []


class Answering(Connection):
    """Answers R_EndReceive as it is told to, once."""

    def __init__(self, queue: ForeignQueue, *, removes: bool, answer: Exception | int) -> None:
        super().__init__(queue, None)
        self.removes, self.answer = removes, answer
        self.calls_at_once = 1

    async def call(self, opnum: int, asked: Any, wait_s: float = 0.0) -> Any:
        if opnum != 9:
            return await super().call(opnum, asked, wait_s)
        if self.removes:
            self.carry_out(opnum, asked)
        else:
            self._queue.miss(self.number)
        if isinstance(self.answer, Exception):
            raise self.answer
        return StatusResponse(self.answer)


@pytest.mark.parametrize(
    ("answer", "removes", "becomes_a_row"),
    [
        (
            refused(0x1C010003, "fault", perhaps_done=False),
            False,
            False,
        ),  # stood before the method: another's
        (
            refused(0x1C000012, "fault", perhaps_done=True),
            True,
            True,
        ),  # nca_s_fault_unspec, and it was carried out
        (0xC00E0007, False, False),  # T34: Windows' clients would keep the message
        (0xC00E0006, False, False),
        (0xC00E0088, False, False),
        (
            0xC00E004B,
            True,
            True,
        ),  # the removal itself failed, half way: it was removed all the same
        (0xC00E0027, True, True),
        (0xC0000001, True, True),
    ],
)
def test_an_end_that_is_refused(answer, removes: bool, becomes_a_row: bool):
    """What is gone then is ours only if the End may have been carried out."""
    queue, disk, told = one_message()
    mover = Mover(disk, [], told=told.append)

    async def run() -> None:
        remote = await GatewayQueue.open(
            Answering(queue, removes=removes, answer=answer), FORMAT, receive=True
        )
        await mover.batch(remote, 1.0)
        assert [each.state for each in mover.kept.values()] == [
            PulledState.UNANSWERED if becomes_a_row else PulledState.UNSENT
        ]
        while queue.messages:
            queue.steal()
        await mover.look_up(remote)

    asyncio.run(run())
    assert bool(disk.rows) is becomes_a_row
    assert not mover.kept


class WithUnreadable(Connection):
    """Some messages are cut, though all of them was asked for."""

    def __init__(self, queue: ForeignQueue, broken: set[int]) -> None:
        super().__init__(queue, None)
        self.broken = broken
        self.calls_at_once = 1

    def _start(self, asked: Any) -> StartReceiveResponse:
        answer = super()._start(asked)
        if answer.status == 0 and answer.sequence_id in self.broken:
            section = answer.sections[0]
            return answer._replace(
                sections=(SectionBuffer(0, section.size_alloc, section.data[:-4]),)
            )
        return answer


def test_what_cannot_be_read_is_stepped_over_and_stays():
    """It is first in the queue: the messages behind it come all the same, and it is never a row and never removed."""
    queue, disk, told = one_message()
    for _ in range(5):
        queue.put()
    broken = {min(queue.messages) & (1 << 56) - 1}
    mover = Mover(disk, [], told=told.append)

    async def run() -> None:
        remote = await GatewayQueue.open(WithUnreadable(queue, broken), FORMAT, receive=True)
        assert await mover.batch(remote, 1.0) == 5
        assert await mover.batch(remote, 1.0) == 0
        assert mover.unreadable == 1
        await Copier(disk, [], told=told.append).walk(remote)

    asyncio.run(run())
    assert sorted(disk.rows) == sorted(set(range(1, 7)) - broken)
    assert {number for number, _ in queue.messages.values()} == broken
    assert not queue.locks, "its lock is given back"
    assert all("cannot be read" in each for each in told)
    assert not mover.is_busy


def test_a_copy_closes_the_cursor_of_each_walk():
    """[MS-MQRR] 3.1.4.5: to reclaim what the server keeps for it, as long as the connection lasts."""
    queue, disk, told = one_message()
    copier, connection = Copier(disk, [], told=told.append), Connection(queue, None)

    async def run() -> None:
        remote = await GatewayQueue.open(connection, FORMAT, receive=False)
        for _ in range(3):
            await copier.walk(remote)

    asyncio.run(run())
    assert disk.rows == [1]
    assert connection.cursors == 0


def copied_by(queue: ForeignQueue, disk: Disk) -> None:
    async def run() -> None:
        await Copier(disk, [], told=pytest.fail).walk(
            await GatewayQueue.open(Connection(queue, None), FORMAT, receive=False)
        )

    asyncio.run(run())


def test_what_was_copied_and_is_moved_then_is_no_second_row():
    """``mode`` was ``copy``, the counts were compared, and now it is ``move``."""
    queue, disk, _ = one_message()
    queue.put()
    copied_by(queue, disk)
    queue.put()
    mover = Mover(disk, [], told=pytest.fail, copied=disk.copied_keys)

    async def run() -> None:
        await mover.batch(
            await GatewayQueue.open(Connection(queue, None), FORMAT, receive=True), 1.0
        )

    asyncio.run(run())
    assert sorted(disk.rows) == [1, 2, 3]
    assert not queue.messages
    assert not disk.copied_keys
    assert mover.rows_made == 1


def test_what_was_copied_is_no_second_row_when_the_end_of_another_is_in_doubt():
    """Two are rows already and are removed; then the connection is lost in the End of the third."""
    queue, disk, _ = one_message()
    queue.put()
    copied_by(queue, disk)
    queue.put()

    class Losing(Connection):
        ends = 0

        async def call(self, opnum: int, asked: Any, wait_s: float = 0.0) -> Any:
            self.ends += opnum == 9
            if self.ends == 3:
                self.carry_out(opnum, asked)
                raise RemoteLostError("no answer")
            return await super().call(opnum, asked, wait_s)

    mover = Mover(disk, [], told=pytest.fail, copied=disk.copied_keys)

    async def run() -> None:
        with pytest.raises(RemoteLostError):
            await mover.batch(
                await GatewayQueue.open(Losing(queue, None), FORMAT, receive=True), 1.0
            )
        mover.on_connection_lost()
        assert len(mover.kept) == 1, "of what is a row nothing is kept"
        await mover.look_up(await GatewayQueue.open(Connection(queue, None), FORMAT, receive=True))

    asyncio.run(run())
    assert sorted(disk.rows) == [1, 2, 3]
    assert not mover.kept


def test_a_copy_removes_nothing_that_an_earlier_move_left_in_doubt():
    """What is still there is left there, and its copy here is dropped: the walk makes the row. What is gone is ours."""
    queue, disk, _ = one_message()
    queue.put()

    class Dropping(Connection):
        async def call(self, opnum: int, asked: Any, wait_s: float = 0.0) -> Any:
            if opnum == 9:
                raise RemoteLostError("dropped")
            return await super().call(opnum, asked, wait_s)

    before = Mover(disk, [], told=pytest.fail)

    async def run() -> None:
        connection = Dropping(queue, None)
        with pytest.raises(RemoteLostError):
            await before.batch(await GatewayQueue.open(connection, FORMAT, receive=True), 1.0)
        assert len(disk.kept) == 2
        after = Mover(disk, disk.after_a_kill(), told=pytest.fail, takes=False)
        peeking = await GatewayQueue.open(Connection(queue, None), FORMAT, receive=False)
        await after.look_up(peeking)
        assert len(after.kept) == 2, "locked: our old connection was not missed yet"
        queue.miss(connection.number)
        gone = min(queue.messages)
        number = queue.messages.pop(gone)[0]
        await after.look_up(peeking)
        assert not after.kept
        assert disk.rows == [number]
        await Copier(disk, [], told=pytest.fail).walk(peeking)

    asyncio.run(run())
    assert sorted(disk.rows) == [1, 2]
    assert len(queue.messages) == 1
    assert not queue.locks


def test_a_queue_manager_that_counts_from_the_beginning_again_is_copied_again():
    """A machine set up anew gives the same lookup identifiers to other messages."""
    queue, disk, _ = one_message()
    copied_by(queue, disk)
    lookup_id, (number, priority) = next(iter(queue.messages.items()))
    queue.messages[lookup_id] = number + 1000, priority
    copier = Copier(disk, disk.copied_keys, told=pytest.fail)

    async def run() -> None:
        await copier.walk(await GatewayQueue.open(Connection(queue, None), FORMAT, receive=False))

    asyncio.run(run())
    assert disk.rows == [number, number + 1000]
    assert disk.copied_keys == {PulledKey(lookup_id, f"{{{GUID}}}\\{number + 1000}")}


class WithoutPriority(Connection):
    """Takes [MS-MQDMPR] 3.1.7.1.9 as it is printed: the high byte of an identifier is 0 unless the message is in a stream."""

    def _start(self, asked: Any) -> StartReceiveResponse:
        if asked.lookup_id >> 56:
            return StartReceiveResponse(0, 0, (), Status.MQ_ERROR_MESSAGE_NOT_FOUND)
        return super()._start(asked)


def test_a_copy_knows_both_readings_of_the_lookup_identifier():
    """A message that is locked while it is looked for is not gone, whatever number its queue manager has for it."""
    queue, disk, _ = one_message()
    lookup_id, what = queue.messages.popitem()
    queue.messages[lookup_id & (1 << 56) - 1] = what
    copier = Copier(disk, [], told=pytest.fail)

    async def run() -> None:
        remote = await GatewayQueue.open(WithoutPriority(queue, None), FORMAT, receive=False)
        await copier.walk(remote)
        queue.hold()
        await copier.walk(remote)
        queue.miss()
        await copier.walk(remote)

    asyncio.run(run())
    assert disk.rows == [1]


def test_a_full_queue_is_told_by_a_copy():
    queue, disk, _ = one_message()

    async def refuse(messages):
        del messages
        return 0, "paused"

    disk.copied = refuse  # type: ignore[method-assign]
    copier = Copier(disk, [], told=pytest.fail)

    async def run() -> None:
        assert (
            await copier.walk(
                await GatewayQueue.open(Connection(queue, None), FORMAT, receive=False)
            )
            == 0
        )

    asyncio.run(run())
    assert copier.is_full == "paused"


def test_a_copy_keeps_no_more_keys_than_its_limit(monkeypatch: pytest.MonkeyPatch):
    """What is beyond waits, and is said; what is removed there makes room, in the same walk."""
    monkeypatch.setattr(copying, "COPIED_MAX", 2)
    queue, disk, told = one_message()
    for _ in range(4):
        queue.put()
    copier = Copier(disk, [], told=told.append)

    async def run() -> None:
        remote = await GatewayQueue.open(Connection(queue, None), FORMAT, receive=False)
        assert await copier.walk(remote) == 2
        assert (len(copier.seen), copier.not_copied) == (2, 3)
        del queue.messages[min(each.lookup_id for each in copier.seen)]
        assert await copier.walk(remote) == 0
        assert (len(copier.seen), copier.not_copied) == (1, 3)
        assert await copier.walk(remote) == 1

    asyncio.run(run())
    assert len(disk.rows) == 3
    assert told[0] == (
        "3 messages are not copied: a copy knows at most 2 messages of the remote queue "
        "(COPIED_MAX); "
        'receive or purge messages there, or subscribe with mode = "move"'
    )
