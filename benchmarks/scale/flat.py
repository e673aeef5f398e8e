"""Measure what must not grow: the time of an acceptance and of a batch.

A queue manager with ten million identifiers and a million waiting rows is compared with one that
has ten thousand of each. Both run at once and are measured by turns, in slices of a second, so that
a busy machine affects both equally. The small one is made anew for every round, because the
measurement makes it grow.

Messages come from all senders of the history by turns, each a new run. So each message pays the
cost of a run in memory, in the table and in the log of the database. The batches are Spark's, with
equally many rows, received and marked.
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

from benchmarks.common import (
    QUEUE,
    Figure,
    NotHere,
    Plan,
    QueueManager,
    cpu_seconds,
    load,
    median,
    say,
    scratch,
)
from benchmarks.memory import Memory
from benchmarks.scale.prefill import SHAPES, WORST, Shape, prefill
from benchmarks.scale.senders import p, senders
from benchmarks.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATIO_MAX = 1.2
MEMORY_MB_MAX = 300
WAITING = 1_000_000
SMALLER = 100
"""Factor by which the small side has fewer waiting rows."""
CONNECTIONS = 32
FIRST_NUMBER = 1_000_000_000
"""First number of the measured messages, above all prefilled ones."""

_numbers = count(FIRST_NUMBER, 10_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The amount of work in one round."""

    divisor: int
    """Divisor of identifiers and waiting rows."""
    smaller: int
    """Factor by which the small side has fewer identifiers.

    It is large enough for one run a sender.
    """
    warms: bool
    slices: int
    """Slices of each kind in a round, by turns."""
    alone: int
    """Messages of a slice over one connection."""
    together: int
    """Messages of a slice over CONNECTIONS connections."""
    batch_rows: int
    batches: int
    """Batches that are measured of each query.

    The first two warm up and are not counted. A small store has no rows for more.
    """


FULL = Sizes(
    divisor=1,
    smaller=1_000,
    warms=True,
    slices=3,
    alone=1_500,
    together=6_000,
    batch_rows=1_000,
    batches=8,
)
QUICK = Sizes(
    divisor=1_000,
    smaller=10,
    warms=False,
    slices=1,
    alone=50,
    together=200,
    batch_rows=50,
    batches=3,
)


@dataclass(slots=True)
class Side:
    """A queue manager and its values of this round."""

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
        """Send a slice of messages. Raises :class:`RuntimeError` unless every one is a row."""
        before, cpu = self.server.end_of(), cpu_seconds(self.server.process.pid)
        with senders(
            self.server.url,
            self.folder / "ledger",
            lineages=self.shape.lineages,
            first=next(_numbers),
            connections=connections,
            count=messages,
        ) as fleet:
            ledger = fleet.finish()
        took = list(ledger.took)
        if self.server.end_of() - before != len(took) or len(took) != messages:
            came = self.server.end_of() - before
            raise RuntimeError(
                f"{self.name}: {len(took)} acknowledged of {messages}, {came} rows more"
            )
        self.acknowledged += len(took)
        if connections == 1:
            self.alone_ms.append(p(took, 0.5))
            return
        self.together_ms.append(p(took, 0.5))
        self.tail_ms.append(p(took, 0.99))
        self.cpu_us.append((cpu_seconds(self.server.process.pid) - cpu) / len(took) * 1e6)

    def batches(self, spark: SparkSession, checkpoint: Path, sizes: Sizes) -> None:
        """Run a query that receives batch by batch, and record the time of a batch."""
        reader = (
            spark.readStream.format("srmp")
            .option("queueManager", self.server.api)
            .option("queue", QUEUE)
        )
        frame = reader.option("maxOffsetsPerTrigger", sizes.batch_rows).load()
        query = (
            frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
        )
        deadline = time.monotonic() + 120
        try:
            while (
                len(
                    done := [
                        each
                        for each in query.recentProgress
                        if each["numInputRows"] == sizes.batch_rows
                    ]
                )
                < sizes.batches
            ):
                if not query.isActive or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"{self.name}: {len(done)} batches, then "
                        f"{query.exception() or query.status}"
                    )
                time.sleep(0.02)
        finally:
            query.stop()
        self.batch_ms.append(
            median(
                [float(each["durationMs"]["triggerExecution"]) for each in done[2 : sizes.batches]]
            )
        )


def run(plan: Plan, name: str) -> Iterator[Figure]:
    """Yield the figures of one shape.

    The shape :data:`WORST` has the rounds of the plan, the others have one.
    """
    sizes, rounds = (QUICK, 1) if plan.quick else (FULL, plan.rounds if name == WORST.name else 1)
    spark: SparkSession | NotHere
    try:
        spark = (
            spark_session(plan)
            if name == WORST.name or not plan.quick
            else NotHere("left out (--quick)")
        )
    except NotHere as why:
        spark = why
    full = SHAPES[name]
    shape = full.scaled(full.identifiers // sizes.divisor)
    with scratch("scale") as folder:
        found = _measured(
            shape,
            WAITING // sizes.divisor,
            rounds,
            folder,
            None if isinstance(spark, NotHere) else spark,
            sizes,
        )
    yield from _figures(name, found)
    if isinstance(spark, NotHere):
        yield Figure(
            name=f"{name}_batch", value=None, unit="ms", reference_name="small", note=str(spark)
        )


@dataclass(slots=True)
class Found:
    """The values of both sides: pairs (big, small) of each round."""

    values: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    smalls_mb: list[float] = field(default_factory=list)
    peak_mb: float = 0.0


def _measured(
    shape: Shape, waiting: int, rounds: int, folder: Path, spark: SparkSession | None, sizes: Sizes
) -> Found:
    small_shape, small_waiting = (
        shape.scaled(shape.identifiers // sizes.smaller),
        waiting // SMALLER,
    )
    found = Found()
    big_folder = _filled(folder / f"{shape.name}-big", shape, waiting)
    with _serving("big", shape, big_folder) as (big, big_memory):
        say(f"{shape.name}: big has {big_memory.by_process()}")
        for number in range(rounds):
            small_folder = _filled(
                folder / f"{shape.name}-small-{number}", small_shape, small_waiting
            )
            with _serving("small", small_shape, small_folder) as (small, small_memory):
                _round(
                    big, small, spark, folder / f"checkpoint-{shape.name}-{number}", number, sizes
                )
                found.smalls_mb.append(small_memory.peak_mb)
            shutil.rmtree(small_folder)
            for name in ("alone_ms", "together_ms", "tail_ms", "cpu_us", "batch_ms"):
                ours, theirs = getattr(big, name), getattr(small, name)
                if ours:
                    found.values.setdefault(name, []).append((median(ours), median(theirs)))
                    ours.clear()
            say(
                f"{shape.name} round {number + 1}: "
                + ", ".join(
                    f"{name} {each[-1][0]:.3g} / {each[-1][1]:.3g}"
                    for name, each in found.values.items()
                )
                + f", load {load()}"
            )
        say(
            f"{shape.name}: big ends with {big_memory.by_process()}, {big.acknowledged:,} "
            "messages later"
        )
        found.peak_mb = big_memory.peak_mb
    return found


def _figures(shape: str, found: Found) -> Iterator[Figure]:
    for name, figure, unit, judged in (
        ("alone_ms", "accept_p50_1", "ms", True),
        ("together_ms", "accept_p50_32", "ms", True),
        ("batch_ms", "batch", "ms", True),
        ("tail_ms", "accept_p99_32", "ms", False),
        ("cpu_us", "accept_cpu_32", "us CPU/message", False),
    ):
        if name not in found.values:
            continue
        pairs = found.values[name]
        ratio = median([big / small for big, small in pairs])
        yield Figure(
            name=f"{shape}_{figure}",
            value=median([big for big, _ in pairs]),
            unit=unit,
            reference=median([small for _, small in pairs]),
            reference_name="small",
            ratio=ratio,
            target=f"ratio <= {RATIO_MAX:g}" if judged else "told beside",
            ok=ratio <= RATIO_MAX if judged else None,
        )
    yield Figure(
        name=f"{shape}_memory",
        value=found.peak_mb,
        unit="MB",
        reference=median(found.smalls_mb),
        reference_name="small",
        target=f"value <= {MEMORY_MB_MAX}",
        ok=found.peak_mb <= MEMORY_MB_MAX,
    )


def _round(
    big: Side, small: Side, spark: SparkSession | None, checkpoint: Path, number: int, sizes: Sizes
) -> None:
    sides = (big, small) if number % 2 else (small, big)
    # The queue manager learns the layout of a sender's messages from the first ones.
    for side in sides if sizes.warms else ():
        side.accept(CONNECTIONS, sizes.alone)
        side.together_ms.clear()
        side.tail_ms.clear()
        side.cpu_us.clear()
    for _ in range(sizes.slices):
        for side in sides:
            side.accept(1, sizes.alone)
        for side in sides:
            side.accept(CONNECTIONS, sizes.together)
    if spark is not None:
        for side in sides:
            side.batches(spark, checkpoint / side.name, sizes)


def _filled(folder: Path, shape: Shape, waiting: int) -> Path:
    began = time.monotonic()
    prefill(folder / "data", shape, waiting)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    say(
        f"{folder.name}: {shape.identifiers:,} identifiers in {shape.all_runs:,} runs of "
        f"{shape.lineages:,} senders, "
        f"{waiting:,} rows waiting, {size:,.0f} MB, filled in {time.monotonic() - began:.0f} s"
    )
    return folder


@contextlib.contextmanager
def _serving(name: str, shape: Shape, folder: Path) -> Iterator[tuple[Side, Memory]]:
    """Provide a queue manager on a filled directory.

    Its memory is watched from the start of the process.
    """
    with contextlib.ExitStack() as stack:
        watched: list[Memory] = []
        began = time.monotonic()
        server = QueueManager(
            folder, started=lambda group: watched.append(stack.enter_context(Memory(group)))
        )
        stack.callback(server.close)
        if name == "big":
            say(
                f"{folder.name}: ready after {time.monotonic() - began:.1f} s, at most "
                f"{watched[0].peak_mb:.0f} MB until then"
            )
        yield Side(name, replace(shape), server, folder), watched[0]
