"""Plant the mutants of the MUST pages, and print which of them the named tests have killed.

The whole takes some minutes for each core. ``--part K/N`` takes every Nth mutant, which CI uses:
the commits count up, so that N runs of CI see all of them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

from tests.kit.musts import DOCUMENTS, ROOT, Document, Table
from tests.kit.musts import load as load_table
from tests.kit.mutants import record
from tests.kit.mutants.mutant import Mutant, Mutants, load
from tests.kit.mutants.workshop import BASELINE_SECONDS, Copy, Outcome, Verdict

UNSEEN, UNUSABLE = 1, 2
"""Exit codes: a mutant survived, or a mutant could not be planted or its tests not be run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen mutants, and return 0, :data:`UNSEEN` or :data:`UNUSABLE`."""
    options = _parser().parse_args(arguments)
    chosen = [doc for doc in DOCUMENTS if options.document in ("all", doc.name)]
    known = frozenset().union(*(load(document).rows() for document in chosen))
    if unknown := [row for row in options.rows if row not in known]:
        sys.stderr.write("".join(f"{row}: no mutant is written down for it\n" for row in unknown))
        return UNUSABLE
    worst = 0
    for document in chosen:
        worst = max(worst, _document(document, options))
    return worst


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kit.mutants",
        description="plant mutants, and see that the tests which docs/musts names kill them",
        epilog="examples: --document MS-MQRR; --part 3/10; 3.1.6.3-7 3.1.6.3-9 --said",
    )
    parser.add_argument("rows", nargs="*", metavar="ID", help="rows (default: all)")
    names = [document.name for document in DOCUMENTS]
    parser.add_argument("--document", choices=["all", *names], default="all")
    parser.add_argument(
        "--part",
        metavar="K/N",
        type=_part,
        help="every Nth mutant from the Kth on; 'commit/N' counts the commits for K",
    )
    parser.add_argument("--jobs", type=int, default=2, help="copies of the project (default 2)")
    parser.add_argument("--record", action="store_true", help="write the verdicts for the pages")
    parser.add_argument("--said", action="store_true", help="print pytest's last line of each row")
    return parser


def _part(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+|commit)/(\d+)", text)
    if found is None or int(found[2]) < 1:
        raise argparse.ArgumentTypeError("K/N, as in 3/10, or commit/10")
    return (_commits() if found[1] == "commit" else int(found[1])) % int(found[2]), int(found[2])


def _git(*arguments: str) -> str:
    # The arguments are literals of this module.
    done = subprocess.run(  # noqa: S603
        ["git", *arguments],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def _commits() -> int:
    """Return the number of commits, or the day where the project is no repository."""
    counted = _git("rev-list", "--count", "HEAD")
    return int(counted) if counted else int(time.time() // 86_400)


def _document(document: Document, options: argparse.Namespace) -> int:
    """Run the mutants of one document that ``options`` choose; return the exit code."""
    table, entries = load_table(document), load(document)
    faults = entries.faults(table)
    if faults:
        sys.stderr.write("\n".join(faults) + "\n")
        return UNUSABLE
    chosen = [
        each for each in entries.mutants if not options.rows or set(options.rows) & set(each.rows)
    ]
    if options.part is not None:
        first, step = options.part
        chosen = chosen[first::step]
    if not chosen:
        return 0
    _say(f"[{document.name}] {len(chosen)} of {len(entries.mutants)} mutants")
    named = {sentence.id: sentence.tests for sentence in table.sentences}
    outcomes = []
    for outcome in _outcomes(chosen, named, max(1, options.jobs)):
        outcomes.append(outcome)
        if outcome.verdict is not Verdict.KILLED or options.said:
            _say(f"{outcome.row} {outcome.mutant.file}: {outcome.verdict.value} ({outcome.words})")
        elif len(outcomes) % 50 == 0:
            _say(f"  {len(outcomes)} rows judged")
    if options.record:
        whole = not options.rows and options.part is None
        _record(document, entries, outcomes, whole=whole)
    return _summary(table, entries, outcomes)


def _outcomes(
    chosen: Sequence[Mutant], named: dict[str, tuple[str, ...]], jobs: int
) -> Iterator[Outcome]:
    """Yield the outcome of each row of each mutant; the order is that in which they end."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        copies: SimpleQueue[Copy] = SimpleQueue()
        made = []
        for number in range(jobs):
            place = Path(folder) / str(number)
            place.mkdir()
            made.append(stack.enter_context(Copy(place)))
        tests = sorted({test for each in chosen for row in each.rows for test in named[row]})
        begun = time.monotonic()
        answer = made[0].tests(tests, BASELINE_SECONDS, stop=False, keep=True)
        if answer["code"] or answer["failed"]:
            raise SystemExit(
                f"without a mutant the tests must pass: {answer['words']}\n{answer['said']}"
            )
        _say(f"  without a mutant {len(tests)} tests pass, {time.monotonic() - begun:.0f} s")
        for each in made[1:]:
            each.tests(tests[:1], BASELINE_SECONDS, keep=True)
        for each in made:
            copies.put(each)

        def judged(mutant: Mutant) -> list[Outcome]:
            copy = copies.get()
            try:
                return copy.judged(mutant, named, answer["durations"])
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(jobs) as pool:
            for done in as_completed([pool.submit(judged, mutant) for mutant in chosen]):
                yield from done.result()


def _record(
    document: Document, entries: Mutants, outcomes: Sequence[Outcome], *, whole: bool
) -> None:
    known = record.Record() if whole else record.load(document)
    if whole:
        known.commit = _git("rev-parse", "--short=8", "HEAD")
    survived = [each.row for each in outcomes if each.verdict is not Verdict.KILLED]
    known.update([each.row for each in outcomes], survived)
    known.killed &= entries.rows()
    known.survived &= entries.rows()
    record.save(document, known)


def _summary(table: Table, entries: Mutants, outcomes: Sequence[Outcome]) -> int:
    counted = Counter(outcome.verdict for outcome in outcomes)
    missing = entries.missing(table)
    _say(
        f"[{table.document.name}] {len({outcome.row for outcome in outcomes})} rows: "
        f"{counted[Verdict.KILLED]} killed, {counted[Verdict.SURVIVED]} survived, "
        f"{counted[Verdict.NOT_RUN]} not run; {len(entries.none)} rows have a reason and no "
        f"mutant, {len(missing)} have neither"
    )
    if counted[Verdict.NOT_RUN]:
        return UNUSABLE
    return UNSEEN if counted[Verdict.SURVIVED] else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
