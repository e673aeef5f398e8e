"""How a queue is taken over when a remote reader opens it: in slices, whatever its messages are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from srmp_spark.mqrr.server.positions import ArrivedRun, Positions
from srmp_spark.queue_manager.queues.catalogue import QueueEpoch
from srmp_spark.queue_manager.reader.crossing import ReadPriorities
from srmp_spark.queue_manager.reader.frames import RUN
from srmp_spark.queue_manager.remote_read.queue import SLICE_RUNS, ServedQueue, ServedView
from srmp_spark.sequences.sequence_set import SequenceSet

ROWS = 5 * SLICE_RUNS + 7


class Turns:
    """Counts the turns of the loop, and the runs that are taken over in each."""

    def __init__(self) -> None:
        self.now = 0
        self.runs: dict[int, int] = {}
        self.taken: list[ArrivedRun] = []
        self._go_on()

    def _go_on(self) -> None:
        self.now += 1
        asyncio.get_running_loop().call_soon(self._go_on)

    def took(self, runs: list[ArrivedRun]) -> None:
        self.runs[self.now] = self.runs.get(self.now, 0) + len(runs)
        self.taken += runs


class Reader:
    """The reader process: where priorities alternate each row is a run."""

    async def open(self, command: ReadPriorities) -> AsyncIterator[bytes]:
        async def pieces() -> AsyncIterator[bytes]:
            for n in range(command.after + 1, command.to + 1):
                yield RUN.pack(n % 8, n, n)

        return pieces()


def served(turns: Turns, turn: asyncio.Lock, **state: Any) -> ServedQueue:
    queue: Any = SimpleNamespace(
        name="q", log_name="q", end=ROWS, trimmed_to=0, epochs=[QueueEpoch("e", 1)], consumers={},
        state=SimpleNamespace(transactional=False), waiting=SimpleNamespace(holes=[]),
    )  # fmt: skip
    vars(queue).update(state)
    manager: Any = SimpleNamespace(reader=Reader(), catalogue=SimpleNamespace(get=lambda _: queue))

    def came(view: ServedView, runs: list[ArrivedRun]) -> None:
        assert view.is_behind() == (len(turns.taken) + len(runs) < ROWS), (
            "until the last is told more is to come"
        )
        turns.took(runs)

    return ServedQueue(manager, queue, turn=turn, came=came, deleted=lambda _: None)


def test_queues_that_are_opened_at_once_are_taken_over_a_slice_in_a_turn(monkeypatch):
    async def main() -> None:
        turns, turn = Turns(), asyncio.Lock()
        add = Positions.add

        def counted(self: Positions, runs: list[ArrivedRun]) -> None:
            turns.took(runs)
            add(self, runs)

        monkeypatch.setattr(Positions, "add", counted)
        loaded = await asyncio.gather(*(served(turns, turn).load() for _ in range(3)))
        assert [len(each) for each in loaded] == [ROWS] * 3
        assert max(turns.runs.values()) <= SLICE_RUNS

    asyncio.run(main())


def test_what_comes_is_told_a_slice_in_a_turn():
    async def main() -> None:
        turns = Turns()
        it = served(turns, asyncio.Lock())
        assert await it._report_next()
        assert turns.taken == [ArrivedRun(n % 8, n, n) for n in range(1, ROWS + 1)]
        assert max(turns.runs.values()) <= SLICE_RUNS
        assert it.view.known == ROWS

    asyncio.run(main())


def test_holes_of_a_transactional_queue_are_no_messages():
    """After a restore a million of them would be passed by in one turn of the loop, which accepts nothing meanwhile."""

    async def main() -> None:
        holes = SequenceSet([(ROWS + 1, ROWS + 1_000_000), *((n, n) for n in range(2, ROWS, 2))])
        transactional, end = SimpleNamespace(transactional=True), ROWS + 1_000_003
        turns = Turns()
        it = served(
            turns,
            asyncio.Lock(),
            end=end,
            state=transactional,
            waiting=SimpleNamespace(holes=holes),
        )
        it._on_arrived = lambda view, runs: turns.took(runs)
        assert await it._report_next()
        assert [(each.first, each.last) for each in turns.taken] == list(holes.gaps(1, end))
        assert {each.priority for each in turns.taken} == {0}
        assert max(turns.runs.values()) <= SLICE_RUNS
        assert it.view.known == end
        holes.add(end - 1, end)
        turns.taken.clear()
        it.view.known = end - 2
        assert await it._report_next()
        assert (turns.taken, it.view.known) == ([], end)

    asyncio.run(main())
