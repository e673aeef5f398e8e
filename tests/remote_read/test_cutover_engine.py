"""A copied queue is moved: each message is given to a reader here, or it was received there.

Random runs: readers there go on during the copy, between the check and the move, and during the
move; they take messages, lock them, and give them back; connections are lost, and the process is
killed at any step.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_pulling import FORMAT, Disk

from srmp_spark.errors import LocalProtocolError, RemoteLostError, RemoteReadError
from srmp_spark.mqrr.copied_states import TRANSITIONS, CopiedEvent, CopiedState
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.configuration.subscriptions import parse_subscription
from srmp_spark.queue_manager.puller.cutover import checking, findings
from srmp_spark.queue_manager.puller.cutover.findings import CutoverNumbers, Phase, findings_of
from srmp_spark.queue_manager.puller.gateway_side.pulled import PulledKey
from srmp_spark.queue_manager.puller.gateway_side.remote import GatewayQueue
from srmp_spark.queue_manager.puller.moving_and_copying.copying import Copier
from srmp_spark.queue_manager.puller.moving_and_copying.moving import Mover
from srmp_spark.queue_manager.puller.moving_and_copying.settling import Settling
from tests.kit.remote.queue import GUID, Connection, ForeignQueue, KilledError

RUNS = int(os.environ.get("SRMP_SPARK_CUTOVERS", "120"))


def numbers(keys: set[PulledKey]) -> set[int]:
    return {int(each.message_id.rpartition("\\")[2]) for each in keys}


class World:
    """One remote queue, one disk, and the process that is killed and started again."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.queue, self.disk = ForeignQueue(self.rng), Disk(self.rng)
        self.in_doubt: set[int] = set()
        for _ in range(self.rng.randrange(3, 25)):
            self.queue.put()
        self.copier = Copier(self.disk, [], told=pytest.fail)
        self.mover: Mover | None = None

    async def turn(self, *, calm: bool = False) -> None:
        """One connection of the present process, and perhaps its end."""
        if calm:
            self.disk._killed = lambda: None  # type: ignore[method-assign]
            self.queue.miss()
        faults = None if calm else self.rng.choice((0.0, 0.05))
        connection = Connection(self.queue, faults)
        try:
            remote = await GatewayQueue.open(connection, FORMAT, receive=self.mover is not None)
            if self.mover is None:
                await self.copier.walk(remote)
            else:
                await self.mover.look_up(remote)
                await self.mover.batch(remote, 0.0)
                if self.rng.random() < 0.5 or calm:
                    await self.mover.settling.look_up(remote)
        except RemoteLostError:
            if self.mover is not None:
                self.mover.on_connection_lost()
        except KilledError:
            self.in_doubt |= (
                numbers(self.disk.copied_ends & self.disk.copied_keys) | self.disk.in_doubt()
            )
            self.start()
        else:
            if self.mover is not None:
                self.mover.on_connection_lost()
        self.queue.miss(connection.number)

    def start(self) -> None:
        """The next process, from what is on the disk."""
        kept = self.disk.after_a_kill()
        if self.mover is None:
            self.copier = Copier(
                self.disk, self.disk.copied_keys, told=pytest.fail, gone=len(self.disk.gone_keys)
            )
        else:
            self.cut_over(kept)

    def cut_over(self, kept=()) -> None:
        self.mover = Mover(
            self.disk,
            kept,
            told=pytest.fail,
            copied=self.disk.copied_keys,
            copied_ends=self.disk.copied_ends,
        )

    def others_act(self) -> None:
        queue = self.queue
        if self.rng.random() < 0.6:
            self.rng.choice((queue.put, queue.steal, queue.steal, queue.hold, queue.miss))()

    def judge(self) -> tuple[int, int]:
        queue, disk = self.queue, self.disk
        assert len(disk.rows) == len(set(disk.rows)), "a message is two rows"
        given = set(disk.rows) - numbers(disk.gone_keys)
        stolen = set(queue.stolen)
        assert given | stolen == set(range(1, queue.sequence + 1)), "lost"
        assert set(queue.taken_by_us) <= given, "removed there, and given to nobody"
        both = given & stolen
        assert both <= queue.unanswered_ends | self.in_doubt, f"doubled: {both}"
        assert not numbers(disk.gone_keys) - stolen
        return len(numbers(disk.gone_keys)), len(both)


async def cut_over_run(seed: int) -> tuple[int, int]:
    world = World(seed)
    for _ in range(world.rng.randrange(1, 12)):
        await world.turn()
        world.others_act()
    world.cut_over()
    for _ in range(world.rng.randrange(0, 25)):
        await world.turn()
        world.others_act()
    for _ in range(8):
        await world.turn(calm=True)
    assert world.mover is not None
    assert not world.mover.settling, "every copied message is decided"
    assert not world.queue.messages
    return world.judge()


def test_each_copied_message_is_given_here_or_was_received_there():
    received, both = 0, 0
    for seed in range(RUNS):
        try:
            one, other = asyncio.run(cut_over_run(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        received, both = received + one, both + other
    assert received > RUNS, "the other readers received copied messages"
    assert both < received / 4


@pytest.mark.parametrize("mistake", ["gone is ours", "gone is theirs", "sent is forgotten"])
def test_the_runs_find_mistakes(monkeypatch: pytest.MonkeyPatch, mistake: str):
    states, events = CopiedState, CopiedEvent
    table = dict(TRANSITIONS)
    if mistake == "gone is ours":
        table[states.THERE, events.GONE] = states.MOVED
    elif mistake == "gone is theirs":
        table[states.UNANSWERED, events.GONE] = states.RECEIVED_THERE
    else:
        table[states.ENDING, events.END_UNCLEAR] = states.THERE
    monkeypatch.setattr(
        "srmp_spark.queue_manager.puller.moving_and_copying.settling.TRANSITIONS", table
    )

    def all_runs() -> None:
        for seed in range(max(RUNS, 300)):
            asyncio.run(cut_over_run(seed))

    with pytest.raises((AssertionError, LocalProtocolError)):
        all_runs()


def test_a_message_that_its_reader_puts_back_makes_no_second_row():
    """A server that removes a message at its receive, and shows it again after a rollback."""
    world = World(1)
    world.disk._killed = lambda: None  # type: ignore[method-assign]

    async def run() -> None:
        await world.turn(calm=True)
        before = list(world.disk.rows)
        lookup_id, what = world.queue.messages.popitem()
        await world.turn(calm=True)
        assert (world.copier.received_there, len(world.disk.gone_keys)) == (1, 1)
        world.queue.messages[lookup_id] = what
        await world.turn(calm=True)
        assert (world.copier.received_there, world.disk.gone_keys) == (0, set())
        assert world.disk.rows == before
        assert PulledKey(lookup_id, f"{{{GUID}}}\\{what[0]}") in world.copier.seen

    asyncio.run(run())


def test_a_walk_tells_what_it_compared():
    world = World(2)
    world.disk._killed = lambda: None  # type: ignore[method-assign]

    async def run() -> None:
        await world.turn(calm=True)
        count = len(world.queue.messages)
        assert world.copier.last_walk is not None
        assert world.copier.last_walk[:3] == (1, count, 0)
        world.queue.locks[min(world.queue.messages)] = -7, 0
        await world.turn(calm=True)
        assert world.copier.last_walk[:3] == (2, count - 1, 1), "one is locked, and not gone"

    asyncio.run(run())


def test_the_table_decides_by_two_proofs_alone():
    moved = {key for key, to in TRANSITIONS.items() if to is CopiedState.MOVED}
    there = {key for key, to in TRANSITIONS.items() if to is CopiedState.RECEIVED_THERE}
    assert moved == {
        (CopiedState.ENDING, CopiedEvent.END_OK),
        (CopiedState.UNANSWERED, CopiedEvent.GONE),
    }
    assert there == {(CopiedState.THERE, CopiedEvent.GONE)}
    assert set(TRANSITIONS.values()) == set(CopiedState)
    assert {event for _, event in TRANSITIONS} == set(CopiedEvent)


def test_nothing_is_decided_twice_when_a_lock_ends_early():
    """The End is answered INVALID_HANDLE: the message is met again, and ended again."""
    world = World(3)
    world.disk._killed = lambda: None  # type: ignore[method-assign]

    async def run() -> None:
        await world.turn(calm=True)
        world.cut_over()
        assert isinstance(world.mover, Mover)
        connection = Connection(world.queue, None)
        carry_out, refused = connection.carry_out, []

        def once(opnum: int, asked: object) -> object:
            if opnum == 9 and not refused:
                refused.append(asked)
                world.queue.locks.clear()
            return carry_out(opnum, asked)

        connection.carry_out = once  # type: ignore[method-assign]
        remote = await GatewayQueue.open(connection, FORMAT, receive=True)
        for _ in range(4):
            await world.mover.batch(remote, 0.0)
            await world.mover.settling.look_up(remote)
        assert isinstance(world.mover.settling, Settling)
        assert len(world.mover.settling) == 0

    asyncio.run(run())
    assert sorted(world.disk.rows) == sorted(world.queue.taken_by_us)
    assert not world.disk.gone_keys


def test_a_server_that_denies_a_message_and_shows_it_again_makes_it_count_once():
    """It lied while it settled: the copy is marked, and the message comes as a new row."""
    world = World(4)
    world.disk._killed = lambda: None  # type: ignore[method-assign]

    async def run() -> None:
        await world.turn(calm=True)
        world.cut_over()
        lookup_id, what = world.queue.messages.popitem()
        await world.turn(calm=True)
        assert numbers(world.disk.gone_keys) == {what[0]}
        world.queue.messages[lookup_id] = what
        await world.turn(calm=True)
        assert world.disk.rows.count(what[0]) == 2, "the copy, which is marked, and the new row"
        assert what[0] in world.queue.taken_by_us

    asyncio.run(run())


# --- what is told ---------------------------------------------------------------------------------

COPYING = CutoverNumbers(Phase.COPYING, ("default",), still_there=6, received_there=4)


@pytest.mark.parametrize(
    ("error", "blocks"),
    [
        (None, []),
        (RemoteReadError("no", Status.MQ_ERROR_SHARING_VIOLATION), ["reader-there"]),
        (RemoteReadError("no", Status.MQ_ERROR_ACCESS_DENIED), ["may-not-receive"]),
        (RemoteLostError("away"), ["not-read"]),
        (asyncio.TimeoutError(), ["not-read"]),
    ],
)
def test_the_open_that_shows_readers_there(error: Exception | None, blocks: list[str]):
    async def open_alone() -> None:
        if error is not None:
            raise error

    puller: Any = SimpleNamespace(open_alone=open_alone)
    numbers = asyncio.run(checking._with_open(puller, COPYING))
    subscription = parse_subscription("here", {"host": "127.0.0.1", "queue": "q", "mode": "copy"})
    found = findings_of(numbers, subscription)
    assert [each["code"] for each in found if each["blocks"]] == blocks
    assert found[-1]["code"] == "received-there"


def test_every_finding_is_on_the_page():
    root = Path(findings.__file__).parents[4]
    page = (root / "docs" / "remote-queues.md").read_text()
    codes = re.findall(r'_finding\(\s*"([a-z-]+)"', Path(findings.__file__).read_text())
    assert codes
    told = {"nothing-copied"}
    assert [each for each in codes if f"`{each}`" not in page and each not in told] == []
