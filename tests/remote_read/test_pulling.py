"""A remote queue is read into ours: nothing lost, nothing doubled, whatever is killed or lost in between."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from unittest import mock

import pytest

from srmp_spark.errors import LocalProtocolError, RemoteLostError, RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.pulled_states import DOUBTFUL, TRANSITIONS, PulledEvent, PulledState
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side.answers import UnreadableMessage
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, PulledKey
from srmp_spark.queue_manager.puller.gateway_side.pulled import PulledState as State
from srmp_spark.queue_manager.puller.gateway_side.remote import GatewayQueue
from srmp_spark.queue_manager.puller.moving_and_copying import locks
from srmp_spark.queue_manager.puller.moving_and_copying.copying import Copier
from srmp_spark.queue_manager.puller.moving_and_copying.moving import Mover
from tests.kit.remote.queue import Connection, ForeignQueue, KilledError, a_while

RUNS = int(os.environ.get("SRMP_SPARK_PULLS", "80"))
FORMAT = queue_format_for("host", "q")


class Disk:
    """What a commit leaves; a kill takes everything else. A commit may be the last thing that happens."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.kept: dict[PulledKey, Pulled] = {}
        self.rows: list[int] = []
        self.copied_keys: set[PulledKey] = set()
        self.gone_keys: set[PulledKey] = set()
        self.copied_ends: set[PulledKey] = set()
        self.sent: set[PulledKey] = set()
        self.full = False
        self.dead = False

    def _killed(self) -> None:
        self.dead = self.dead or self.rng.random() < 0.03
        if self.dead:
            raise KilledError

    async def keep(self, messages: Sequence[Pulled]) -> None:
        await a_while(self.rng)
        self._killed()
        for each in messages:
            assert each.key not in self.kept, "kept twice"
            self.kept[each.key] = each
        self._killed()

    async def drop(self, keys: Sequence[PulledKey]) -> None:
        self._killed()
        for key in keys:
            del self.kept[key]
        self._killed()

    async def publish(self, messages: Sequence[Pulled]) -> tuple[int, str | None]:
        await a_while(self.rng)
        self._killed()
        if self.full:
            return 0, "full"
        for each in messages:
            del self.kept[each.key]
            self.rows.append(each.message.uniquifier)
        self._killed()
        return len(messages), None

    async def copied(self, messages: Sequence[Pulled]) -> tuple[int, str | None]:
        self._killed()
        self.rows += [each.message.uniquifier for each in messages]
        self.copied_keys |= {each.key for each in messages}
        self._killed()
        return len(messages), None

    async def sending_copied_ends(self, keys) -> None:
        self._killed()
        self.copied_ends |= set(keys)
        self._killed()

    async def copied_ends_answered(self, moved, not_removed) -> None:
        self._killed()
        self.copied_keys -= set(moved)
        self.copied_ends -= {*moved, *not_removed}
        self._killed()

    async def received_there(self, keys) -> None:
        self._killed()
        self.copied_keys -= set(keys)
        self.gone_keys |= set(keys)
        self._killed()

    async def taken_back(self, keys) -> set[PulledKey]:
        self._killed()
        back = self.gone_keys & set(keys)
        self.gone_keys -= back
        self.copied_keys |= back
        self._killed()
        return back

    def sending_end(self, keys) -> None:
        if self.dead:
            raise KilledError
        self.sent |= set(keys)

    def nothing_is_kept(self) -> None:
        self.sent.clear()

    def refuses(self) -> str | None:
        return None

    def after_a_kill(self) -> list[Pulled]:
        """As they are read back by the next process."""
        self.dead = False
        return [
            Pulled(
                each.key,
                each.raw,
                each.message,
                State.UNANSWERED if each.key in self.sent else State.UNSENT,
            )
            for each in self.kept.values()
        ]

    def in_doubt(self) -> set[int]:
        """Messages of which an End was on its way when the process was killed."""
        return {each.message.uniquifier for each in self.kept.values() if each.key in self.sent}


async def pull(seed: int) -> tuple[int, int]:
    """One run of moving; messages that became rows, and those of them that another reader has too."""
    rng = random.Random(seed)
    queue, disk = ForeignQueue(rng), Disk(rng)
    for _ in range(rng.randrange(5, 60)):
        queue.put()
    troubles: list[str] = []
    mover = Mover(disk, [], told=troubles.append)
    batch_messages = rng.choice((2, 5, locks.BATCH_MESSAGES))
    for turn in range(400):
        calm = turn > 250
        if calm:
            disk.rng = random.Random(1_000_000)  # nobody is killed any more
            disk._killed = lambda: None  # type: ignore[method-assign]
            queue.miss()
        connection = Connection(queue, None if calm else rng.choice((0.0, 0.02, 0.1, 0.3)))
        connection.is_dead = lambda: disk.dead  # type: ignore[method-assign]
        disk.full = not calm and rng.random() < 0.1
        try:
            remote = await GatewayQueue.open(connection, FORMAT, receive=True)
            for _ in range(rng.randrange(1, 6)):
                await mover.look_up(remote)
                with mock.patch.object(locks, "BATCH_MESSAGES", batch_messages):
                    await mover.batches(remote, 1.0, goes_on=lambda: rng.random() < 0.8)
                check(queue, disk)
        except (RemoteLostError, RemoteReadError):
            mover.on_connection_lost()
        except KilledError:
            queue.unanswered_ends |= disk.in_doubt()
            mover = Mover(disk, disk.after_a_kill(), told=troubles.append)
        else:
            mover.on_connection_lost()
        for number in range(1, queue.connections + (1 if calm else 0)):
            if calm or rng.random() < 0.3:
                queue.miss(
                    number
                )  # the remote side notices that the connection is gone, sooner or later
        if not calm and rng.random() < 0.2:
            rng.choice((queue.put, queue.steal, queue.hold, queue.miss))()
        if calm and not queue.messages and not mover.kept:
            break
    assert not queue.messages, f"seed {seed}: never read"
    assert not mover.kept, f"seed {seed}: kept for ever"
    assert not disk.kept
    assert not troubles
    check(queue, disk)
    everything = set(disk.rows) | set(queue.stolen)
    assert everything == set(range(1, queue.sequence + 1)), (
        f"seed {seed}: lost {set(range(1, queue.sequence + 1)) - everything}"
    )
    return len(disk.rows), len(set(disk.rows) & set(queue.stolen))


def check(queue: ForeignQueue, disk: Disk) -> None:
    assert len(disk.rows) == len(set(disk.rows)), f"doubled: {sorted(disk.rows)}"
    there = {number for number, _ in queue.messages.values()}
    assert not there & set(disk.rows), "a row of a message that is still there"
    both = set(disk.rows) & set(queue.stolen)
    assert both <= queue.unanswered_ends, (
        f"rows that another reader has, and no End was in doubt: {both - queue.unanswered_ends}"
    )


def test_every_message_becomes_one_row_or_is_another_readers():
    """T13 to T17, T34: thieves, locks of others and of our own lost connections, Ends without answers, kills, a full queue."""
    rows = both = 0
    for seed in range(RUNS):
        counted = asyncio.run(pull(seed))
        rows, both = rows + counted[0], both + counted[1]
    assert rows > 10 * RUNS
    assert both < rows / 20, "overlaps are the rare case"


@pytest.mark.parametrize(
    "wrong", ["believes NOT_FOUND of a receive", "forgets what it kept", "drops what is locked"]
)
def test_a_puller_that_does_it_wrong_is_found_out(monkeypatch, wrong):
    """The model can tell: each of these loses or doubles messages within the runs."""
    if wrong == "forgets what it kept":
        monkeypatch.setattr(Disk, "after_a_kill", lambda disk: [])
    else:

        async def ask(mover, queue, message):
            action = (
                Action.LOOKUP_RECEIVE_CURRENT
                if wrong.startswith("believes")
                else Action.LOOKUP_PEEK_CURRENT
            )
            found = await queue.read(action, lookup_id=message.key.lookup_id)
            if isinstance(found, Status):
                return PulledEvent.GONE
            if isinstance(found, UnreadableMessage):
                raise TypeError
            if action is Action.LOOKUP_PEEK_CURRENT:
                return await mover._lock_again(queue, message, message.key.lookup_id)
            message.request = found.request
            return PulledEvent.LOCKED_AGAIN

        monkeypatch.setattr(Mover, "_ask", ask)

    def all_runs() -> None:
        for seed in range(max(RUNS, 300)):
            asyncio.run(pull(seed))

    with pytest.raises((AssertionError, LocalProtocolError, KeyError)):
        all_runs()


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_a_backlog_come_in_the_order_of_the_queue(monkeypatch, seed):
    """Three batches are under way at once: each row comes behind those before it all the same."""
    monkeypatch.setattr(locks, "BATCH_MESSAGES", 5)
    rng = random.Random(seed)
    queue, disk = ForeignQueue(rng), Disk(rng)
    disk._killed = lambda: None  # type: ignore[method-assign]
    for _ in range(100):
        queue.put()
    in_order = [queue.messages[each][0] for each in sorted(queue.messages)]
    at_once: list[int] = []

    async def run() -> None:
        connection = Connection(queue, None)
        connection.calls_at_once = 64
        mover = Mover(disk, [], told=pytest.fail)
        remote = await GatewayQueue.open(connection, FORMAT, receive=True)

        def goes_on() -> bool:
            at_once.append(len(queue.locks))
            return True

        assert await mover.batches(remote, 1.0, goes_on=goes_on) == 100

    asyncio.run(run())
    assert disk.rows == in_order
    assert len(at_once) >= 19


async def copy(seed: int) -> int:
    rng = random.Random(seed)
    queue, disk = ForeignQueue(rng), Disk(rng)
    for _ in range(rng.randrange(5, 40)):
        queue.put()
    copier = Copier(disk, [], told=lambda what: pytest.fail(what))
    for turn in range(60):
        calm = turn > 50
        if calm:
            disk._killed = lambda: None  # type: ignore[method-assign]
            queue.miss()
        connection = Connection(queue, None if calm else rng.choice((0.0, 0.05)))
        try:
            await copier.walk(await GatewayQueue.open(connection, FORMAT, receive=False))
        except RemoteLostError:
            pass
        except KilledError:
            disk.dead = False
            copier = Copier(disk, disk.copied_keys, told=lambda what: pytest.fail(what))
        if not calm and rng.random() < 0.5:
            rng.choice((queue.put, queue.put, queue.steal, queue.hold, queue.miss))()
        assert len(disk.rows) == len(set(disk.rows)), f"seed {seed}: doubled"
    there = {number for number, _ in queue.messages.values()}
    assert there <= set(disk.rows), f"seed {seed}: not copied {there - set(disk.rows)}"
    assert {key.lookup_id for key in disk.copied_keys} == set(queue.messages), (
        "what is gone is forgotten, and nothing else"
    )
    return len(disk.rows)


def test_a_copy_has_every_message_once_and_takes_none():
    """T13, T14: "greater than the last one" would miss what comes back or has a higher priority."""
    assert sum(asyncio.run(copy(seed)) for seed in range(max(1, RUNS // 8))) > RUNS // 2


def test_the_table():
    reached = {PulledState.HANDED, PulledState.UNANSWERED}
    while True:
        more = {to for (state, _), to in TRANSITIONS.items() if state in reached} - reached
        if not more:
            break
        reached |= more
    assert reached == set(PulledState)
    assert {event for _, event in TRANSITIONS} == set(PulledEvent)
    into_rows = {
        (state, event) for (state, event), to in TRANSITIONS.items() if to is PulledState.VISIBLE
    }
    assert into_rows == {(PulledState.OURS, PulledEvent.PUBLISHED)}
    into_ours = {
        (state, event) for (state, event), to in TRANSITIONS.items() if to is PulledState.OURS
    }
    assert into_ours == {
        (PulledState.ENDING, PulledEvent.END_OK),
        (PulledState.UNANSWERED, PulledEvent.GONE),
    }
    assert all((state, PulledEvent.HELD_BY_ANOTHER) in TRANSITIONS for state in DOUBTFUL)
