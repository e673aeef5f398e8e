"""Run schedules, judge each of them, and shorten a schedule that fails.

python -m tests.kit.queries --schedules 10000
python -m tests.kit.queries --seed 4711
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from tests.kit.queries.planted import PLANTS, planted
from tests.kit.queries.query import Query
from tests.kit.queries.schedule import schedule
from tests.kit.queries.steps import Step
from tests.kit.queries.truth import BrokenPromiseError
from tests.kit.queries.world import Managers, Stores, World, heard

SCHEDULES_PER_REPORT = 250


@dataclass(frozen=True)
class Finding:
    """A schedule that broke a promise.

    ``broken`` names the promise, ``steps`` are the shortened schedule, ``story`` its lines.
    """

    seed: int
    broken: str
    steps: tuple[Step, ...]
    story: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(
            (f"seed {self.seed}: {self.broken}", *(f"  {line}" for line in self.story))
        )


def run(
    stores: Managers,
    steps: Sequence[Step],
    note: Callable[[str], object] = lambda line: None,
    make_query: Callable[[World, str], Query] = Query,
) -> str | None:
    """Take the steps, settle and judge, with a new world.

    Return a text that says which promise was broken, or ``None``. Any other exception is returned
    as a text too. ``note`` gets each line of the story. ``make_query`` makes a query of a
    checkpoint.
    """
    world = World(stores, note, make_query)
    with heard(world):
        try:
            for step in steps:
                note(f"- {step}")
                step.do(world)
            world.settle()
        except BrokenPromiseError as error:
            return str(error)
        # No exception of any type is promised.
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            world.remove_queues()
    return None


def minimised(stores: Stores, steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps without those that are not needed to break a promise.

    Steps are left out in groups, at last one by one, as long as a promise is still broken.
    """
    left = tuple(steps)
    size = max(1, len(left) // 2)
    while True:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            if run(stores, fewer) is not None:
                left = fewer
            else:
                at += size
        if size == 1:
            break
        size = max(1, size // 2)
    return left


def find(stores: Stores, seeds: Iterable[int]) -> tuple[int, Finding | None]:
    """Run the schedules of ``seeds`` up to the first that breaks a promise.

    Return the number of schedules that were run, and the finding or ``None``.
    """
    count = 0
    for seed in seeds:
        count += 1
        if run(stores, schedule(seed)) is not None:
            return count, explained(stores, seed)
    return count, None


def explained(stores: Stores, seed: int) -> Finding | None:
    """Return the finding of a seed's schedule with its steps shortened.

    Return ``None`` if the schedule breaks no promise.
    """
    if run(stores, schedule(seed)) is None:
        return None
    steps = minimised(stores, schedule(seed))
    story: list[str] = []
    broken = run(stores, steps, story.append)
    return Finding(seed, broken or "it was broken once and is no longer", steps, tuple(story))


def find_in_process(seeds: range, plant: str | None) -> tuple[int, Finding | None, Counter[str]]:
    """Call :func:`find` with new stores and the bug ``plant``.

    Return its two results and a count of the events. ``None`` plants nothing.
    """
    stores = Stores()
    try:
        with stores.inside(), planted(plant):
            return (*find(stores, seeds), stores.happened)
    finally:
        stores.close()


def simulate(first: int, count: int, jobs: int, plant: str | None) -> int:
    """Run the schedules of ``count`` seeds from ``first`` in ``jobs`` processes.

    Return the exit code: 1 if a schedule breaks a promise, else 0. The function stops at the first
    such schedule and prints it.
    """
    began = time.monotonic()
    end = first + count
    chunks = [
        range(at, min(at + SCHEDULES_PER_REPORT, end))
        for at in range(first, end, SCHEDULES_PER_REPORT)
    ]
    done = 0
    happened: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs) as pool:
        for number, finding, more in pool.map(partial(find_in_process, plant=plant), chunks):
            done += number
            happened.update(more)
            _say(
                f"{done} of {count} schedules, {done / (time.monotonic() - began):.0f} in a second"
            )
            if finding is not None:
                pool.shutdown(wait=False, cancel_futures=True)
                _say(f"{finding}\nrepeat it: python -m tests.kit.queries --seed {finding.seed}")
                return 1
    _say(f"no promise was broken in {done} schedules; what happened how often:")
    for name, times in sorted(happened.items()):
        _say(f"  {name:42} {times}")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code: 1 if a promise is broken, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.kit.queries")
    parser.add_argument(
        "--schedules", type=int, default=1500, metavar="N", help="how many (default: 1500)"
    )
    parser.add_argument(
        "--first", type=int, default=0, metavar="K", help="the seed of the first (default: 0)"
    )
    parser.add_argument("--seed", type=int, metavar="K", help="only the schedule of this seed")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes"
    )
    parser.add_argument(
        "--plant", choices=sorted(PLANTS), help="take a repair out, to see that the model finds it"
    )
    options = parser.parse_args(arguments)
    if options.seed is None:
        return simulate(options.first, options.schedules, options.jobs, options.plant)
    _, finding, _ = find_in_process(range(options.seed, options.seed + 1), options.plant)
    _say("no promise is broken" if finding is None else str(finding))
    return 0 if finding is None else 1
