"""Make the fixture of the scale: a data directory as months of traffic leave it, in minutes.

The store's own code fills it. Identifiers are stored as runs for each lineage. Ten million
identifiers of one sender, in order, would be a single run, which measures nothing. Two things make
identifiers expensive. One is *gaps*: a sender with several destinations shows us every second or
third number, so a run holds two or three. The other is *many senders*: each message then touches
another page of the table and another array in memory. :data:`SHAPES` has both separately and
together. :data:`WORST` is both at their limits: 72,000 senders (of 80,000) with 24 to 72 runs each,
3,456,000 runs (of 3,500,000), and messages from all senders by turns, every one a new run. The
measurement itself passes the limit of runs, so that forgetting old runs is measured too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from benchmarks.common import QUEUE
from benchmarks.scale.messages import HEAD, lineage, post
from srmp_spark.message import Arrival
from srmp_spark.rows.group import Record
from srmp_spark.srmp.receiving.effects import Changes
from srmp_spark.srmp.receiving.history import HistoryChanges, HistoryRun
from srmp_spark.store.database import sweeper
from srmp_spark.store.directory import DATABASE_FILE, DataDirectory
from srmp_spark.store.journal import Insert, Journal
from srmp_spark.store.stored_rows import sealing
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.tables import queues

RUNS_PER_COMMIT = 50_000
FIRST_NUMBER = 1_000_000
"""First number of the prefilled identifiers of each sender."""
GAP = 5
"""Least numbers between two runs. They stand for messages to other destinations."""
FIRST_WAITING = 500_000_000
"""First number of the waiting rows."""
DAY_US = 86_400_000_000
DAYS = 20
"""Days over which the identifiers arrived. None is old enough to be forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Describes how identifiers lie in the history."""

    name: str
    lineages: int
    runs: int
    """Runs of a lineage, on average."""
    identifiers: int
    """Identifiers in all runs together, about."""

    @property
    def all_runs(self) -> int:
        """Return the number of rows of the table ``history``."""
        return sum(map(self.runs_of, range(self.lineages)))

    def runs_of(self, number: int) -> int:
        """Return the runs of sender ``number``.

        The result is from half of ``runs`` to one and a half times ``runs``, because no fleet is in
        step.
        """
        if self.lineages == 1 or self.runs == 1:
            return self.runs
        return self.runs // 2 + number * 7919 % (self.runs + 1)

    def scaled(self, identifiers: int) -> Shape:
        """Return the same traffic with fewer senders, or with fewer runs of the only sender."""
        if self.lineages > 1:
            lineages = max(1, self.lineages * identifiers // self.identifiers)
            return replace(self, lineages=lineages, identifiers=identifiers)
        return replace(
            self, runs=max(1, self.runs * identifiers // self.identifiers), identifiers=identifiers
        )

    def rows(self, newest: int) -> Iterator[HistoryRun]:
        """Yield the runs in the order of their key.

        The last run of each lineage arrived at ``newest`` (microseconds since 1970).
        """
        left, runs_left = self.identifiers, self.all_runs
        stride = -(-left // runs_left) + GAP
        for name, number in sorted((lineage(number), number) for number in range(self.lineages)):
            runs = self.runs_of(number)
            pause = DAYS * DAY_US // runs
            for run in range(runs):
                length = -(-left // runs_left)
                first = FIRST_NUMBER + run * stride
                yield HistoryRun(name, first, first + length - 1, newest - (runs - 1 - run) * pause)
                left, runs_left = left - length, runs_left - 1


IDENTIFIERS = 10_000_000
WORST = Shape(name="worst", lineages=72_000, runs=48, identifiers=IDENTIFIERS)
SHAPES = {
    shape.name: shape
    for shape in (
        Shape(name="one_run", lineages=1, runs=1, identifiers=IDENTIFIERS),
        Shape(name="gaps", lineages=1, runs=3_465_000, identifiers=IDENTIFIERS),
        Shape(name="senders", lineages=72_000, runs=1, identifiers=IDENTIFIERS),
        WORST,
    )
}


def prefill(folder: Path, shape: Shape, waiting: int) -> None:
    """Make a data directory with the identifiers of ``shape`` and ``waiting`` rows in one queue.

    The rows are sealed as far as the queue manager would seal them.
    """
    asyncio.run(_fill(folder, shape, waiting))


async def _fill(folder: Path, shape: Shape, waiting: int) -> None:
    now = time.time_ns() // 1000
    directory = DataDirectory.open(folder, now=now)
    try:
        changes: list[Changes] = []
        nothing = Changes([], HistoryChanges([], []), [], 0)
        journal = Journal(
            directory,
            asyncio.get_running_loop(),
            changes=lambda: changes.pop() if changes else nothing,
        )
        try:
            await journal.transact(lambda t: queues.create(t, QUEUE, transactional=False))
            rows = shape.rows(now - DAY_US)
            while part := list(islice(rows, RUNS_PER_COMMIT)):
                changes.append(Changes([], HistoryChanges(part, []), [], 0))
                await journal.transact(lambda t: None)
            with Log(folder / DATABASE_FILE, directory.segments) as log:
                for first in range(1, waiting + 1, sealing.SEAL_ROWS_MAX):
                    await _add_rows(
                        journal, first, min(waiting, first + sealing.SEAL_ROWS_MAX - 1), shape, now
                    )
                    if first > sealing.SEAL_ROWS_MAX:
                        await _seal(journal, log, directory, now)
                await _seal(journal, log, directory, now)
        finally:
            await journal.drain()
            journal.close()
    finally:
        directory.close()


async def _add_rows(journal: Journal, first: int, last: int, shape: Shape, now: int) -> None:
    arrival = Arrival(now, "http", "192.0.2.1:4711", None)
    for sequence in range(first, last + 1):
        sender = lineage(sequence % shape.lineages).encode()
        journal.submit(
            Insert(
                QUEUE, sequence, Record(arrival, post(sender, FIRST_WAITING + sequence), len(HEAD))
            ),
            None,
        )
    await journal.transact(lambda t: None)


async def _seal(journal: Journal, log: Log, directory: DataDirectory, now: int) -> None:
    while (plan := sealing.plan(log, QUEUE, now)) is not None:
        sealed = sealing.write_segment(log, plan, directory.segments)
        if not await journal.transact(
            lambda t, sealed=sealed: sealing.commit_segment(t, sealed, directory.segments)
        ):  # type: ignore[misc]
            raise RuntimeError(f"segment {sealed.file} was not taken")
        while await journal.transact(sweeper.sweep):
            pass
