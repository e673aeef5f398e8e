"""The long run of the fuzzer: one process for each core, and a growing pool of inputs.

Each parser has a pool. An input that makes the parser take new steps (:mod:`.coverage`) joins the
pool, and later mutants are made of it.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import multiprocessing
import queue
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

from tests.kit.fuzz.coverage import Coverage
from tests.kit.fuzz.curated import mutator_of, saved
from tests.kit.fuzz.judge import Finding, HangError, Target, judge
from tests.kit.fuzz.mutators import LENGTH_MAX
from tests.kit.fuzz.targets import all_targets

HANG_SECONDS = 10.0
"""Most seconds for one input with all its checks.

After that time an alarm ends it with a finding of kind ``hang``.
"""
TURN_SECONDS = 2.0
"""Seconds that a process spends on one parser before it turns to the next."""
REPORT_SECONDS = 10.0
POOL_MAX = 2_000
"""Most inputs in the pool of each parser.

At the limit a random input that is no seed is removed.
"""
MEMORY_EVERY = 64
"""Number of inputs of which one has its peak of memory measured.

Tracing the allocations of every input would cost most of the speed.
"""
GROWTH_MAX = 64 * 1024 * 1024
"""Most bytes by which a process may grow after its first turns through all parsers.

More is a leak and fails the run.
"""
SHRINK_SECONDS = 5.0
FINDINGS_MAX = 20
"""Most findings of one kind that are saved for one parser. Further ones are only counted."""


@dataclass(slots=True)
class _Message:
    """The report of a worker process after one turn.

    ``runs`` counts the inputs and ``steps`` the steps seen so far, by target. ``pool`` is the
    number of inputs in all pools of the worker, ``resident`` its memory in bytes.
    """

    worker: int
    runs: Counter[str] = field(default_factory=Counter)
    steps: dict[str, int] = field(default_factory=dict)
    pool: int = 0
    resident: int = 0
    findings: list[Finding] = field(default_factory=list)


def _resident() -> int:
    """Return the resident memory of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def _ring(_number: int, _frame: object) -> None:
    raise HangError


class _Worker:
    """Fuzzes all chosen parsers in turn, in one process."""

    def __init__(
        self,
        number: int,
        names: Sequence[str],
        samples: Path,
        corpus: Path,
        seed: int,
        current: Any,  # noqa: ANN401  # a shared array
    ) -> None:
        self._number = number
        self._rng = Random(f"{seed} {number}")
        self._targets = [target for target in all_targets(samples) if target.name in names]
        self._coverage = {target.name: Coverage(target.files) for target in self._targets}
        self._pools = {
            t.name: [*t.seeds, *(path.read_bytes() for path in saved(corpus, t))]
            for t in self._targets
        }
        self._current = current
        self._findings: list[Finding] = []

    def run(self, end: float, out: Any) -> None:  # noqa: ANN401  # a queue
        """Fuzz until ``end``, a value of ``time.time``.

        A turn fuzzes one parser for :data:`TURN_SECONDS`. After each turn a :class:`_Message` is
        put into ``out``.
        """
        signal.signal(signal.SIGALRM, _ring)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        turn = self._number
        while time.time() < end:
            target = self._targets[turn % len(self._targets)]
            turn += 1
            message = _Message(self._number)
            message.runs[target.name] = self._turn(target, min(end, time.time() + TURN_SECONDS))
            gc.collect()
            message.steps[target.name] = len(self._coverage[target.name].seen)
            message.pool = sum(len(pool) for pool in self._pools.values())
            message.resident = _resident()
            message.findings, self._findings = self._findings, []
            out.put(message)

    def _turn(self, target: Target, end: float) -> int:
        rng, pool, coverage = self._rng, self._pools[target.name], self._coverage[target.name]
        mutator = mutator_of(target)
        runs = 0
        while time.time() < end:
            data = mutator.mutate(rng.choice(pool), rng)
            runs += 1
            self._note(target.name, data)
            finding = self._judge(target, data, coverage, memory=runs % MEMORY_EVERY == 0)
            if finding is not None:
                self._findings.append(self._shrunk(target, finding))
            elif coverage.is_new():
                pool.append(data)
                if len(pool) > POOL_MAX:
                    del pool[rng.randrange(len(target.seeds), len(pool))]
        self._note("", b"")
        return runs

    def _judge(
        self, target: Target, data: bytes, coverage: Coverage | None, *, memory: bool
    ) -> Finding | None:
        signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
        try:
            watched = coverage.watch if coverage is not None else None
            return judge(target, data, memory=memory, watched=watched)[1]
        # The alarm rang after ``judge`` had left its own handler.
        except HangError:
            return Finding(target.name, "hang", data, "the alarm rang")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _shrunk(self, target: Target, finding: Finding) -> Finding:
        """Return a finding of the same kind with fewer bytes.

        The search ends after :data:`SHRINK_SECONDS`. A finding of kind ``hang`` is returned as it
        is.
        """
        end = time.time() + SHRINK_SECONDS
        size = len(finding.data) // 2
        while size and time.time() < end and finding.kind != "hang":
            at = 0
            while at < len(finding.data) and time.time() < end:
                data = finding.data[:at] + finding.data[at + size :]
                smaller = self._judge(target, data, None, memory=finding.kind == "memory")
                if smaller is not None and smaller.kind == finding.kind:
                    finding = smaller
                else:
                    at += size
            size //= 2
        return finding

    def _note(self, name: str, data: bytes) -> None:
        """Store the current input in shared memory for the parent.

        If this process dies, the parent reports that input as a finding.
        """
        text = f"{name}\n".encode() + data[:LENGTH_MAX]
        self._current[: 8 + len(text)] = len(text).to_bytes(8, "big") + text


def _work(
    number: int,
    names: Sequence[str],
    samples: Path,
    corpus: Path,
    seed: int,
    current: Any,  # noqa: ANN401  # a shared array
    end: float,
    out: Any,  # noqa: ANN401  # a queue
) -> None:
    _Worker(number, names, samples, corpus, seed, current).run(end, out)


def save(corpus: Path, finding: Finding) -> Path:
    """Save a finding as a file that the tests judge again, and return its path."""
    folder = corpus / finding.target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{finding.kind.lower()}-{hashlib.sha256(finding.data).hexdigest()[:16]}.bin"
    path.write_bytes(finding.data)
    return path


class _Run:
    """The parent's side of a run: counts, progress and findings."""

    def __init__(self, corpus: Path) -> None:
        self._corpus = corpus
        self._begin = time.time()
        self.runs: Counter[str] = Counter()
        self.steps: dict[str, int] = {}
        self.kinds: Counter[tuple[str, str]] = Counter()
        self._first: dict[int, int] = {}
        self._turns: Counter[int] = Counter()
        self._pool: dict[int, int] = {}
        self.grown = 0

    def take(self, message: _Message, targets: int) -> None:
        """Add the report of a worker process, and save its findings.

        ``targets`` is the number of parsers, from which follows when a worker's first turns are
        over.
        """
        self.runs.update(message.runs)
        for name, steps in message.steps.items():
            self.steps[name] = max(steps, self.steps.get(name, 0))
        self._pool[message.worker] = message.pool
        self._turns[message.worker] += 1
        if self._turns[message.worker] > 2 * targets:
            first = self._first.setdefault(message.worker, message.resident)
            self.grown = max(self.grown, message.resident - first)
        for finding in message.findings:
            self.found(finding)

    def found(self, finding: Finding) -> None:
        """Count a finding; save and print it unless there are too many of its kind."""
        key = finding.target, finding.kind
        self.kinds[key] += 1
        if self.kinds[key] <= FINDINGS_MAX:
            say(f"\nFOUND {finding}\n  saved as {save(self._corpus, finding)}")

    def progress(self) -> str:
        """Return one line with the progress of the run."""
        seconds = max(time.time() - self._begin, 0.001)
        total = self.runs.total()
        return (
            f"{seconds / 60:.1f} min, {total} inputs, {total / seconds:.0f}/s, "
            f"{sum(self.steps.values())} steps covered, "
            f"{sum(self._pool.values())} inputs in the pools, {self.kinds.total()} findings, "
            f"grown by {self.grown / 2**20:.0f} MiB"
        )


def say(text: str) -> None:
    """Write a line to stdout and flush it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def fuzz(
    names: Sequence[str], samples: Path, corpus: Path, *, minutes: float, jobs: int, seed: int
) -> int:
    """Fuzz the targets ``names`` for ``minutes`` in ``jobs`` processes, and print the progress.

    ``samples`` has the valid inputs. Findings are saved below ``corpus``. Return the exit code: 1
    if something was found or a process grew by more than :data:`GROWTH_MAX`, otherwise 0.
    """
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    end = time.time() + minutes * 60
    run = _Run(corpus)
    workers: list[tuple[BaseProcess, Any]] = []
    process: BaseProcess
    for number in range(jobs):
        current = context.RawArray("c", LENGTH_MAX + 1_000)
        process = context.Process(
            target=_work,
            args=(number, names, samples, corpus, seed, current, end, out),
            daemon=True,
        )
        process.start()
        workers.append((process, current))
    say(f"fuzzing {', '.join(names)} for {minutes:g} min in {jobs} processes, seed {seed}")
    report_at = time.time() + REPORT_SECONDS
    while any(process.is_alive() for process, _ in workers) or not out.empty():
        with contextlib.suppress(queue.Empty):
            run.take(out.get(timeout=0.5), len(names))
        if time.time() > report_at:
            say(run.progress())
            report_at = time.time() + REPORT_SECONDS
    for process, current in workers:
        process.join()
        if process.exitcode:
            run.found(_last_of(process, current.raw))
    if run.grown > GROWTH_MAX:
        say(
            f"a process grew by {run.grown / 2**20:.0f} MiB after its first turns: "
            "something is kept"
        )
    say(run.progress())
    for name in names:
        say(f"  {name:16} {run.runs[name]:10} inputs, {run.steps.get(name, 0):5} steps covered")
    return 1 if run.kinds or run.grown > GROWTH_MAX else 0


def _last_of(process: BaseProcess, raw: bytes) -> Finding:
    length = int.from_bytes(raw[:8], "big")
    name, _, data = raw[8 : 8 + length].partition(b"\n")
    return Finding(
        name.decode() or "none",
        "died",
        data,
        f"the process ended with {process.exitcode} at this input",
    )
