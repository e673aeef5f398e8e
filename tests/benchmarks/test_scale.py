"""The short version of ``make scale``: a hundredth of its identifiers and waiting rows, the same worst shape. Memory and
correctness are asserted; times are not, a shared machine has its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.common import QUEUE, QueueManager
from benchmarks.memory import Memory, members
from benchmarks.scale.flat import MEMORY_MB_MAX
from benchmarks.scale.prefill import FIRST_NUMBER, FIRST_WAITING, SHAPES, WORST, Shape, prefill
from benchmarks.scale.senders import Ledger, senders
from srmp_spark.client.api import QueueManagerClient

NEW = 2_000_000_000
WAITING = 10_000
MESSAGES = 2_000


@contextmanager
def serving(folder: Path) -> Iterator[tuple[QueueManager, Memory]]:
    """Its memory is watched from before it has loaded anything."""
    with ExitStack() as stack:
        watched: list[Memory] = []
        server = QueueManager(
            folder,
            core=None,
            started=lambda group: watched.append(stack.enter_context(Memory(group))),
        )
        stack.callback(server.close)
        yield server, watched[0]


def sent(server: QueueManager, folder: Path, shape: Shape, first: int, count: int) -> Ledger:
    with senders(
        server.url, folder / "ledger", lineages=shape.lineages, first=first, count=count, core=None
    ) as fleet:
        return fleet.finish()


def numbers(server: QueueManager) -> list[int]:
    """Of all rows, in the order of the log."""
    client = QueueManagerClient(server.api)
    what = client.range(QUEUE, after=0)
    with pa.ipc.open_stream(client.rows(QUEUE, epoch=what.epoch, after=0, to=what.end)) as rows:
        return [number for batch in rows for number in batch["uniquifier"].to_pylist()]


def test_a_full_history_and_a_backlog_lose_and_double_nothing(tmp_path: Path) -> None:
    shape = WORST.scaled(100_000)
    prefill(tmp_path / "data", shape, WAITING)
    with serving(tmp_path) as (server, memory):
        ledger = sent(server, tmp_path, shape, NEW, MESSAGES)
        assert sorted(ledger.numbers) == list(range(NEW, NEW + MESSAGES))
        assert memory.peak_mb <= MEMORY_MB_MAX
    with serving(tmp_path) as (
        server,
        memory,
    ):  # what it wrote beside 40,000 other runs is what it reads
        sent(server, tmp_path, shape, NEW, MESSAGES)
        sent(server, tmp_path, shape, FIRST_NUMBER, 2)
        found = numbers(server)
        assert found[:WAITING] == list(range(FIRST_WAITING + 1, FIRST_WAITING + WAITING + 1))
        assert sorted(found[WAITING:]) == sorted(ledger.numbers), (
            "every repeat is known, and every row is there once"
        )
        assert memory.peak_mb <= MEMORY_MB_MAX
        maps = [(folder / "maps").read_text() for folder in members(server.process.pid)]
        assert sum("libarrow" in each for each in maps) >= 1
        assert not any("/pandas/" in each for each in maps), (
            "30 MB that no process of the queue manager needs"
        )


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_as_many_identifiers_and_runs_as_it_says(name: str) -> None:
    shape = SHAPES[name].scaled(10_000)
    runs = list(shape.rows(10**15))
    assert len(runs) == shape.all_runs
    assert sum(run.last - run.first + 1 for run in runs) == shape.identifiers == 10_000
    assert len({run.lineage for run in runs}) == shape.lineages
    assert sorted(runs) == runs
    for before, after in pairwise(runs):
        assert before.lineage < after.lineage or before.last + 1 < after.first, (
            "runs that touch would be one"
        )
