"""As ``python -m benchmarks``: a table on stdout, its last line JSON; exit code 1: a target is missed."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import traceback
from collections.abc import Iterator

from benchmarks.bench import show
from benchmarks.common import Figure, NotHere, say, scratch
from benchmarks.scale import flat, many, spark_down
from benchmarks.scale.prefill import SHAPES, WORST
from benchmarks.spark_bench import spark_session

WAITING = 1_000_000
QUICK = 100
"""``--quick`` divides all sizes by this."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description="What must not grow with the store, and a million messages while Spark is away.",
        epilog=f"parts: many (queues and streams), spark_down, and one for each shape of the history: {', '.join(SHAPES)}",
    )
    parts = ("many", *SHAPES, "spark_down")
    parser.add_argument("--only", action="append", choices=parts, metavar="PART", help="one part; may be repeated")
    parser.add_argument("--rounds", type=int, default=5, help=f"of the shape {WORST.name} (default 5); the others take one")
    parser.add_argument("--no-spark", action="store_true", help="leave out batches and spark_down")
    parser.add_argument("--quick", action="store_true", help="one round, a hundredth of everything: proves no figure")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # queue managers are process groups of their own
    figures: list[Figure] = []
    for part in arguments.only or parts:
        try:
            figures += _part(part, arguments)
        except NotHere as reason:  # noqa: PERF203  # a part takes minutes
            say(f"{part}: {reason}")
            figures.append(Figure(name=part, value=None, unit="", note=str(reason)))
        except Exception as error:  # one broken part must not cost the figures of the others
            traceback.print_exc()
            figures.append(Figure(name=part, value=None, unit="", ok=False, note=f"{type(error).__name__}: {error}"))
    rounds = 1 if arguments.quick else arguments.rounds
    show(figures, f"{WORST.name}: medians of {rounds}, other shapes: one round")
    return 1 if any(figure.ok is False for figure in figures) else 0


def _part(part: str, arguments: argparse.Namespace) -> Iterator[Figure]:
    factor = QUICK if arguments.quick else 1
    if part == "many":
        with scratch("many") as folder:
            yield from many.run(folder, many.QUEUES // factor)
        return
    if part == "spark_down":
        if not arguments.no_spark:
            yield from spark_down.run(WAITING // factor)
        return
    shape = SHAPES[part]
    rounds = arguments.rounds if shape is WORST and not arguments.quick else 1
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch("scale"))
        spark = None if arguments.no_spark else stack.enter_context(spark_session(kafka=False))
        sized = shape if factor == 1 else shape.scaled(shape.identifiers // factor)
        yield from flat.run(sized, WAITING // factor, rounds, folder, spark)


if __name__ == "__main__":
    sys.exit(main())
