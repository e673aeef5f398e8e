"""Fuzzes all parsers for minutes on all cores, with random mutants and led by coverage.

Each finding is saved as a file of the corpus.

    make fuzz MINUTES=60
    python -m tests.kit.fuzz --target envelope --number 4711     # judge one mutant of the list
    python -m tests.kit.fuzz --target envelope --file FILE       # judge a saved finding again
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from pathlib import Path

from tests.kit.fuzz.curated import mutant
from tests.kit.fuzz.judge import judge
from tests.kit.fuzz.long_run import fuzz
from tests.kit.fuzz.targets import all_targets

SAMPLES = Path("tests/data/srmp")
CORPUS = Path("tests/fuzz/corpus")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Return 1 if there was a finding, otherwise 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.kit.fuzz", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--minutes", type=float, default=1.0, metavar="N", help="how long (default: 1)"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes (default: one for each core)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        metavar="K",
        help="of the random changes (default: another each time)",
    )
    parser.add_argument("--target", metavar="NAME", help="only this parser")
    parser.add_argument(
        "--number",
        type=int,
        metavar="K",
        help="with --target: only this mutant of the curated list",
    )
    parser.add_argument("--file", type=Path, metavar="FILE", help="with --target: only this input")
    parser.add_argument(
        "--samples",
        type=Path,
        default=SAMPLES,
        metavar="DIR",
        help=f"good inputs (default: {SAMPLES})",
    )
    parser.add_argument(
        "--corpus",
        type=Path,
        default=CORPUS,
        metavar="DIR",
        help=f"where findings go (default: {CORPUS})",
    )
    options = parser.parse_args(arguments)
    if not options.samples.is_dir():
        parser.error(
            f"{options.samples} is no directory: run this in the project's root, or give --samples"
        )
    targets = {target.name: target for target in all_targets(options.samples)}
    if options.target is not None and options.target not in targets:
        parser.error(f"--target is one of {', '.join(targets)}")
    if options.number is not None or options.file is not None:
        if options.target is None:
            parser.error("--number and --file need --target")
        target = targets[options.target]
        data = (
            options.file.read_bytes()
            if options.file is not None
            else mutant(target, options.number)
        )
        outcome, finding = judge(target, data, memory=True)
        sys.stdout.write(f"{data!r}\n{finding if finding is not None else outcome}\n")
        return 1 if finding is not None else 0
    if options.minutes <= 0 or options.jobs < 1:
        parser.error("--minutes is above 0 and --jobs at least 1")
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    chosen = [options.target] if options.target is not None else list(targets)
    return fuzz(
        chosen,
        options.samples,
        options.corpus,
        minutes=options.minutes,
        jobs=options.jobs,
        seed=seed,
    )


if __name__ == "__main__":
    # Each process must create its own event loops, so it must not be forked.
    multiprocessing.set_start_method("spawn")
    sys.exit(main())
