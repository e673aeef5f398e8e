"""The command line ``python -m tests.kit.wayout``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.kit.wayout.day import Traffic, compare
from tests.kit.wayout.letters import LettersLife
from tests.kit.wayout.life import Life

RATIO_MAX = 1.1
"""Largest allowed ratio of delivery times to good destinations.

The mean, the median and the 99th percentile with other destinations in trouble are divided by those
without.
"""
JUDGED = ("mean", "p50", "p99")
SEEDS_AT_ONCE = 50


def live(seeds: range) -> tuple[Counter[str], list[str]]:
    """Simulate these seeds, with messages and with dead letters.

    Return the number of each event, and the problems, one text each.
    """
    marks: Counter[str] = Counter()
    wrong = []
    for seed in seeds:
        for life in (Life(seed).run(), LettersLife(seed).run()):
            marks += life.marks
            wrong += [f"seed {seed}: {problem}" for problem in life.problems]
    return marks, wrong


def _seeds(first: int, count: int, jobs: int) -> int:
    begun = time.monotonic()
    parts = [
        range(at, min(at + SEEDS_AT_ONCE, first + count))
        for at in range(first, first + count, SEEDS_AT_ONCE)
    ]
    marks: Counter[str] = Counter()
    wrong: list[str] = []
    with ProcessPoolExecutor(jobs) as pool:
        for found, problems in pool.map(live, parts):
            marks += found
            wrong += problems
    for problem in wrong[:20]:
        print(problem)
    for name, times in sorted(marks.items()):
        print(f"  {name:42} {times}")
    print(
        f"{len(wrong)} violations in {count} seeds, "
        f"{count / (time.monotonic() - begun):.0f} seeds/s"
    )
    return 1 if wrong else 0


def _day(traffic: Traffic) -> int:
    alone, together = compare(traffic)
    ratios = together.ratios(alone)
    print(f"alone:    {alone}\ntogether: {together}")
    print("together / alone: " + ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items()))
    return 0 if all(ratios[name] <= RATIO_MAX for name in JUDGED) else 1


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds, or the day of traffic. Return 1 if a rule is broken, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.kit.wayout", description="the way out in virtual time"
    )
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--day", action="store_true", help="the day of traffic instead of seeds")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--destinations", type=int, default=1_000)
    parser.add_argument(
        "--pause",
        type=float,
        default=600.0,
        help="mean seconds between two batches for one destination",
    )
    args = parser.parse_args(arguments)
    if args.day:
        traffic = Traffic(
            destinations=args.destinations,
            seconds=args.hours * 3_600,
            pause_s=args.pause,
            connections=args.destinations,
        )
        return _day(traffic)
    return _seeds(args.first, args.seeds, args.jobs)


if __name__ == "__main__":
    sys.exit(main())
