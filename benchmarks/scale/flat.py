"""What must not grow: the time of an acceptance and of a batch with ten million identifiers and a million waiting rows, beside
the same queue manager with ten thousand of each. Both run at once and are measured by turns, in slices of a second, so that a
busy machine spoils both alike; the small one is made anew for every round, because what is measured makes it grow.

Messages come from all senders of the history by turns, each a new run: what a run costs in memory, in the table and in
the log of the database is paid by each. The batches are Spark's, each of as many rows, received and marked.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import QUEUE, Figure, QueueManager, cpu_seconds, load, median, say
from benchmarks.memory import Memory
from benchmarks.scale.prefill import Shape, prefill
from benchmarks.scale.senders import p, senders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATIO_MAX = 1.2
MEMORY_MB_MAX = 300
SLICES = 3
"""Of each kind in a round, by turns."""
ALONE = 1_500
"""Messages of a slice over one connection …"""
TOGETHER = 6_000
"""… and over CONNECTIONS."""
CONNECTIONS = 32
BATCH_ROWS = 1_000
BATCHES = 8
"""Measured of each query; the first two are warming up and not counted. A small store has rows for no more."""
FIRST_NUMBER = 1_000_000_000
"""Above all prefilled ones."""

_numbers = count(FIRST_NUMBER, 10_000_000)


@dataclass(slots=True)
class Side:
    """A queue manager and what was measured of it in this round."""

    name: str
    shape: Shape
    server: QueueManager
    folder: Path
    alone_ms: list[float] = field(default_factory=list)
    together_ms: list[float] = field(default_factory=list)
    tail_ms: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    batch_ms: list[float] = field(default_factory=list)
    acknowledged: int = 0

    def accept(self, connections: int, messages: int) -> None:
        """A slice of messages; every one must be a row."""
        before, cpu = self.server.end_of(), cpu_seconds(self.server.process.pid)
        with senders(self.server.url, self.folder / "ledger", lineages=self.shape.lineages, first=next(_numbers),
                     connections=connections, count=messages) as fleet:  # fmt: skip
            ledger = fleet.finish()
        took = list(ledger.took)
        if self.server.end_of() - before != len(took) or len(took) != messages:
            came = self.server.end_of() - before
            raise RuntimeError(f"{self.name}: {len(took)} acknowledged of {messages}, {came} rows more")
        self.acknowledged += len(took)
        if connections == 1:
            self.alone_ms.append(p(took, 0.5))
            return
        self.together_ms.append(p(took, 0.5))
        self.tail_ms.append(p(took, 0.99))
        self.cpu_us.append((cpu_seconds(self.server.process.pid) - cpu) / len(took) * 1e6)

    def batches(self, spark: SparkSession, checkpoint: Path) -> None:
        """A query that receives batch by batch."""
        reader = spark.readStream.format("srmp").option("queueManager", self.server.api).option("queue", QUEUE)
        frame = reader.option("maxOffsetsPerTrigger", BATCH_ROWS).load()
        query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
        deadline = time.monotonic() + 120
        try:
            while len(done := [each for each in query.recentProgress if each["numInputRows"] == BATCH_ROWS]) < BATCHES:
                if not query.isActive or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name}: {len(done)} batches, then {query.exception() or query.status}")
                time.sleep(0.02)
        finally:
            query.stop()
        self.batch_ms.append(median([float(each["durationMs"]["triggerExecution"]) for each in done[2:BATCHES]]))


def run(shape: Shape, waiting: int, rounds: int, folder: Path, spark: SparkSession | None) -> Iterator[Figure]:
    """The figures of one shape. Without ``spark`` no batch is measured."""
    small_shape, small_waiting = shape.scaled(shape.identifiers // 1000), waiting // 100
    big_folder = _filled(folder / f"{shape.name}-big", shape, waiting)
    ratios: dict[str, list[float]] = {}
    values: dict[str, list[tuple[float, float]]] = {}
    smalls: list[float] = []
    with _serving("big", shape, big_folder) as (big, big_memory):
        say(f"{shape.name}: big has {big_memory.by_process()}")
        for number in range(rounds):
            small_folder = _filled(folder / f"{shape.name}-small-{number}", small_shape, small_waiting)
            with _serving("small", small_shape, small_folder) as (small, small_memory):
                _round(big, small, spark, folder / f"checkpoint-{shape.name}-{number}", number)
                smalls.append(small_memory.peak_mb)
            shutil.rmtree(small_folder)
            for name in ("alone_ms", "together_ms", "tail_ms", "cpu_us", "batch_ms"):
                ours, theirs = getattr(big, name), getattr(small, name)
                if ours:
                    values.setdefault(name, []).append((median(ours), median(theirs)))
                    ratios.setdefault(name, []).append(median(ours) / median(theirs))
                    ours.clear()
            say(
                f"{shape.name} round {number + 1}: "
                + ", ".join(f"{name} {each[-1][0]:.3g} / {each[-1][1]:.3g}" for name, each in values.items())
                + f", load {load()}"
            )
        say(f"{shape.name}: big ends with {big_memory.by_process()}, {big.acknowledged:,} messages later")
        peak = big_memory.peak_mb
    shutil.rmtree(big_folder)
    for name, figure, unit in (
        ("alone_ms", "accept_p50_1", "ms"),
        ("together_ms", "accept_p50_32", "ms"),
        ("batch_ms", "batch", "ms"),
    ):
        if name in ratios:
            ratio = median(ratios[name])
            yield Figure(
                name=f"{shape.name}_{figure}", value=median([v for v, _ in values[name]]), unit=unit,
                reference=median([v for _, v in values[name]]), reference_name="small", ratio=ratio,
                target=f"ratio <= {RATIO_MAX:g}", ok=ratio <= RATIO_MAX,
            )  # fmt: skip
    for name, figure, unit in (("tail_ms", "accept_p99_32", "ms"), ("cpu_us", "accept_cpu_32", "us CPU/message")):
        yield Figure(
            name=f"{shape.name}_{figure}", value=median([v for v, _ in values[name]]), unit=unit,
            reference=median([v for _, v in values[name]]), reference_name="small", ratio=median(ratios[name]),
            target="told beside",
        )  # fmt: skip
    yield Figure(
        name=f"{shape.name}_memory", value=peak, unit="MB", reference=median(smalls), reference_name="small",
        target=f"value <= {MEMORY_MB_MAX}", ok=peak <= MEMORY_MB_MAX,
    )  # fmt: skip


def _round(big: Side, small: Side, spark: SparkSession | None, checkpoint: Path, number: int) -> None:
    sides = (big, small) if number % 2 else (small, big)
    for side in sides:  # warm: the first messages of a connection teach it the layout
        side.accept(CONNECTIONS, ALONE)
        side.together_ms.clear()
        side.tail_ms.clear()
        side.cpu_us.clear()
    for _ in range(SLICES):
        for side in sides:
            side.accept(1, ALONE)
        for side in sides:
            side.accept(CONNECTIONS, TOGETHER)
    if spark is not None:
        for side in sides:
            side.batches(spark, checkpoint / side.name)


def _filled(folder: Path, shape: Shape, waiting: int) -> Path:
    began = time.monotonic()
    prefill(folder / "data", shape, waiting)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    say(
        f"{folder.name}: {shape.identifiers:,} identifiers in {shape.all_runs:,} runs of {shape.lineages:,} senders, "
        f"{waiting:,} rows waiting, {size:,.0f} MB, filled in {time.monotonic() - began:.0f} s"
    )
    return folder


@contextlib.contextmanager
def _serving(name: str, shape: Shape, folder: Path) -> Iterator[tuple[Side, Memory]]:
    """The queue manager on a filled directory; its memory is watched from before it has loaded anything."""
    with contextlib.ExitStack() as stack:
        watched: list[Memory] = []
        began = time.monotonic()
        server = QueueManager(folder, started=lambda group: watched.append(stack.enter_context(Memory(group))))
        stack.callback(server.close)
        if name == "big":
            say(f"{folder.name}: ready after {time.monotonic() - began:.1f} s, at most {watched[0].peak_mb:.0f} MB until then")
        yield Side(name, replace(shape), server, folder), watched[0]
