"""Run the seeds of a simulation and report the first seed that fails.

A simulation is a module with ``run(seed, log=…)`` and ``run_many(seeds)``, which calls
:func:`run_many` of this module. One seed is one repeatable run. Seeds are run in chunks, in one
process or in several.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

Log = Callable[[str], Any]


class SeedOutcome(Protocol):
    """The result of one seed."""

    @property
    def seed(self) -> int:
        """Return the seed."""
        ...

    @property
    def steps(self) -> int:
        """Return the number of steps of the run."""
        ...

    @property
    def marks(self) -> Counter[str]:
        """Return how often each event happened."""
        ...

    @property
    def clean(self) -> bool:
        """Return whether no fault was found."""
        ...


OutcomeT = TypeVar("OutcomeT", bound=SeedOutcome)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one seed: problems, number of steps, and how often each event happened.

    ``digest`` is the SHA-256 of the log, or empty.
    """

    seed: int
    problems: list[str] = field(default_factory=list)
    steps: int = 0
    marks: Counter[str] = field(default_factory=Counter)
    digest: str = ""

    @property
    def clean(self) -> bool:
        """Return whether the run has no problem."""
        return not self.problems

    def __str__(self) -> str:
        return f"seed {self.seed}: {len(self.problems)} problems" + "".join(
            f"\n  {each}" for each in self.problems[:5]
        )


class Many(NamedTuple):
    """The result of several seeds."""

    runs: int
    marks: Counter[str]
    steps: int
    failed: list[Any]
    """The first outcome that is not clean, or nothing."""


class Simulated(NamedTuple):
    """A simulation as the command line needs it."""

    module: str
    """Name of its module, for ``python -m``."""
    description: str | None
    run: Callable[..., SeedOutcome]
    run_many: Callable[[Iterable[int]], Many]
    """A function of its module, so that other processes can import it."""
    seeds_per_report: int
    """Seeds of one chunk. Progress is reported after each chunk."""


def digested(run: Callable[[Log | None], OutcomeT], log: Log | None, *, digest: bool) -> OutcomeT:
    """Return the outcome of ``run(log)``.

    With ``digest`` the outcome has the SHA-256 of the log, which must depend on the seed alone.
    """
    if not digest:
        return run(log)
    sha = hashlib.sha256()
    return replace(run(lambda line: sha.update(line.encode())), digest=sha.hexdigest())  # type: ignore[type-var]  # each outcome is a dataclass


def run_many(run: Callable[[int], OutcomeT], seeds: Iterable[int]) -> Many:
    """Run ``seeds`` until one fails."""
    marks: Counter[str] = Counter()
    runs = steps = 0
    for seed in seeds:
        outcome = run(seed)
        runs += 1
        steps += outcome.steps
        marks.update(outcome.marks)
        if not outcome.clean:
            return Many(runs, marks, steps, [outcome])
    return Many(runs, marks, steps, [])


def _results(simulated: Simulated, first: int, count: int, jobs: int) -> Iterator[Many]:
    end, step = first + count, simulated.seeds_per_report
    chunks = [range(at, min(at + step, end)) for at in range(first, end, step)]
    if jobs == 1:
        yield from map(simulated.run_many, chunks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(simulated.run_many, chunks)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def _simulate(simulated: Simulated, first: int, count: int, jobs: int) -> int:
    """Run ``count`` seeds from ``first``, and return the exit code.

    The code is 1 at the first seed that fails, and the command that repeats this seed is printed.
    """
    begin = time.perf_counter()
    marks: Counter[str] = Counter()
    runs = steps = 0
    for chunk in _results(simulated, first, count, jobs):
        runs += chunk.runs
        steps += chunk.steps
        marks.update(chunk.marks)
        rate = runs / (time.perf_counter() - begin)
        progress = f"{runs}/{count} seeds, {rate:.0f} schedules/s"
        _say(
            f"\r{progress}" if sys.stdout.isatty() else progress,
            end="" if sys.stdout.isatty() else "\n",
        )
        for failed in chunk.failed:
            _say(f"\n{failed}")
            _say(f"repeat it: python -m {simulated.module} --seed {failed.seed} --trace")
            return 1
    _say(
        f"\n0 violations in {runs} seeds ({steps} steps, {rate:.0f} schedules/s); what "
        "happened how often:"
    )
    for name, times in sorted(marks.items()):
        _say(f"  {name:42} {times}")
    return 0


def main(simulated: Simulated, arguments: list[str] | None) -> int:
    """Run the command line of a simulation; return the exit code 0 if no seed failed, else 1."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {simulated.module}",
        description=(simulated.description or "").partition("\n")[0],
    )
    parser.add_argument(
        "--seeds", type=int, default=1000, metavar="N", help="how many seeds to run (default: 1000)"
    )
    parser.add_argument(
        "--first", type=int, default=0, metavar="K", help="the first of them (default: 0)"
    )
    parser.add_argument("--seed", type=int, metavar="K", help="run only this seed")
    parser.add_argument(
        "--trace", action="store_true", help="with --seed: print everything that happens"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    options = parser.parse_args(arguments)
    if options.seed is None:
        if options.seeds < 1 or options.jobs < 1 or options.trace:
            parser.error("--seeds and --jobs are at least 1; --trace needs --seed")
        return _simulate(simulated, options.first, options.seeds, options.jobs)
    outcome = simulated.run(options.seed, log=_say if options.trace else None)
    _say(str(outcome))
    return 0 if outcome.clean else 1
