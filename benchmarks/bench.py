"""Run ``python -m benchmarks``: a table on stdout, its last line one JSON object.

    {name: {"value", "unit", "reference", "ratio", "target", "ok"}}

Progress is on stderr. Figures are medians of five rounds, with both sides in one run. Where a
program for comparison is missing (no wrk, no Kafka), our side runs alone: ``ok`` is null, and a
note names the missing program. The exit code is 1 if a figure misses its target, so that a series
can continue. ``--quick`` shows that everything runs: no figure is judged, and 1 means that a
benchmark failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import traceback
from collections.abc import Collection, Iterator
from dataclasses import replace

from benchmarks.common import Figure, NotHere, Plan, load, say
from benchmarks.record import Record, Run, number
from benchmarks.registry import ALL, BENCHES, SCALE
from benchmarks.spark_session import end_session

NO_FIGURE = "the benchmark ended without this figure"


def main(default: Collection[str] = BENCHES, program: str = "python -m benchmarks") -> int:
    """Run the benchmarks that ``--only`` names, or those of ``default``."""
    arguments = _arguments(default, program)
    # Queue managers are process groups of their own, and only an orderly end stops them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan = Plan(
        rounds=1 if arguments.quick else arguments.rounds,
        quick=arguments.quick,
        with_peers=not arguments.no_peers,
        with_spark=not arguments.no_spark,
    )
    names = arguments.only or [
        *default,
        *(SCALE if arguments.scale and default is not SCALE else ()),
    ]
    figures: list[Figure] = []
    record, run = None, None
    if arguments.write:
        try:
            record, run = Record.read(), Run.begin(plan.rounds)
        except NotHere as why:
            say(f"benchmarks: {why}")
            return 2
    try:
        for name in names:
            found = list(_run(name, plan))
            figures += found
            # Written after each benchmark, because a whole run takes half an hour.
            if record is not None and run is not None:
                run = run.seen()
                record.put(found, run)
                record.write()
    finally:
        end_session()
    show(figures, f"medians of {plan.rounds}")
    return 1 if any(figure.ok is False for figure in figures) else 0


def _arguments(default: Collection[str], program: str) -> argparse.Namespace:
    listed = "\n".join(f"  {name:14s} {benchmark.words}" for name, benchmark in ALL.items())
    parser = argparse.ArgumentParser(
        prog=program,
        description="Compares srmp-spark with what a user would pick instead.\nPrepare "
        "once: benchmarks/peers/setup.sh",
        epilog=f"benchmarks (without --only: {', '.join(default)}):\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=sorted(ALL),
        metavar="NAME",
        help="one benchmark; may be repeated",
    )
    parser.add_argument(
        "--scale", action="store_true", help="also those of python -m benchmarks.scale"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="rounds of each (default 5; figures are their medians)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round, small sizes: shows that it runs, judges no figure",
    )
    parser.add_argument("--no-peers", action="store_true", help="run our own side alone")
    parser.add_argument("--no-spark", action="store_true", help="leave out what needs Spark")
    parser.add_argument(
        "--write",
        action="store_true",
        help="put the figures, their commit, day and machine into benchmarks/README.md",
    )
    arguments = parser.parse_args()
    if arguments.write and (arguments.quick or arguments.no_peers):
        parser.error(
            "--write records figures: it goes neither with --quick nor with --no-peers, "
            "which judge none"
        )
    return arguments


def _run(name: str, plan: Plan) -> Iterator[Figure]:
    """Yield the figures of one benchmark. A figure that was not measured has a note instead."""
    benchmark = ALL[name]
    left = list(benchmark.figures)
    try:
        for figure in benchmark.run(plan):
            left.remove(figure.name)
            yield replace(figure, ok=None) if plan.quick and figure.value is not None else figure
        yield from (
            Figure(name=each, value=None, unit="", ok=False, note=NO_FIGURE) for each in left
        )
    except NotHere as reason:
        say(f"{name}: {reason}")
        yield from (Figure(name=each, value=None, unit="", note=str(reason)) for each in left)
    # One broken benchmark must not cost the figures of the others.
    except Exception as error:
        traceback.print_exc()
        note = f"{type(error).__name__}: {error}"
        yield from (
            Figure(name=each, value=None, unit="", ok=False, note=note)
            for each in left or benchmark.figures[:1]
        )


def show(figures: list[Figure], how: str) -> None:
    """Print the table, the notes, and the last line, one JSON object.

    ``how`` says how the figures were measured.
    """
    head = ("figure", "value", "unit", "beside", "reference", "ratio", "target", "ok")
    rows = [
        (
            f.name,
            number(f.value),
            f.unit,
            f.reference_name,
            number(f.reference),
            number(f.ratio),
            f.target,
            ("not run here" if f.value is None else "")
            if f.ok is None
            else "yes"
            if f.ok
            else "NO",
        )
        for f in figures
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    for figure in figures:
        if figure.note:
            print(f"{figure.name}: {figure.note}")
    print(f"{how}; {os.cpu_count()} cores, load {load()}, Python {sys.version.split()[0]}")
    print(json.dumps({figure.name: figure.as_json() for figure in figures}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
