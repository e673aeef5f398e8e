"""Repeats the failed tests of the run before, alone: only a failure that repeats ends the run.

``.ci/run`` calls this program after a failed ``make test`` or ``make test-long``. Its machine has
two cores that other processes use too, and 3 or 4 test processes wait for servers, JVMs and kills
there. If a time limit was exceeded once in 8,000 tests, the cause is the machine. A fault of the
code repeats, so a test that fails again fails the run.

The run also fails without a repetition if tests of more than :data:`MOST_MODULES` modules failed,
if a sentence of docs/MUSTS.md lost its proof for another reason, or if the run ended before its
tests did. A test that passed only the second time is printed as ``FLAKY`` with its name. Several of
these have hidden a fault of the code, so a developer must look at each one. The text of the first
failure is above it in the log.

    python tests/again.py [ARGUMENT OF PYTEST ...]
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".pytest_cache" / "v"
LAST_FAILED = "cache/lastfailed"
"""Key of pytest's list of failed tests in the cache.

A test stays in the list until the test passes in a run that writes the list.
"""
MOST_MODULES = 4
"""Most modules with failures that may be caused by the machine.

The tests of a module share what they start, and its failure. Failures in more modules show a fault
of the code, or a machine that cannot be used today.
"""


class NotRepeatableError(Exception):
    """No test to repeat, or too many, or a fault that no second run can disprove."""


def to_repeat(cache: Path) -> list[str]:
    """Return the tests that failed in the run before.

    Raises :class:`NotRepeatableError` if a second run would prove nothing.
    """
    for file in sorted((cache / "musts").glob("*")):
        faults = json.loads(file.read_text())
        if faults:
            raise NotRepeatableError(f"no second run of a test mends this: {'; '.join(faults)}")
    try:
        failed = json.loads((cache / LAST_FAILED).read_text())
    except FileNotFoundError:
        failed = {}
    tests = sorted({_without_group(test) for test in failed})
    if not tests:
        raise NotRepeatableError("the run before failed, but no test did: read what it printed")
    modules = {test.partition("::")[0] for test in tests}
    if len(modules) > MOST_MODULES:
        raise NotRepeatableError(
            f"tests of {len(modules)} modules failed, more than the {MOST_MODULES} that "
            "may be the machine's"
        )
    if any("::" not in test for test in tests):
        raise NotRepeatableError(f"a module could not be collected: {', '.join(tests)}")
    return tests


def _without_group(test: str) -> str:
    """Return the name of a test without ``@GROUP``, which pytest-xdist appends.

    The parameters of a test, in brackets before the group, may contain an ``@``, too.
    """
    name, bracket, group = test.rpartition("]")
    return name + bracket if bracket else group.partition("@")[0]


def main(arguments: list[str]) -> int:
    """Repeat the failed tests; return 0 if each of them passes alone, otherwise 1."""
    try:
        tests = to_repeat(CACHE)
    except NotRepeatableError as error:
        print(f"again: {error}", file=sys.stderr)
        return 1
    print(
        f"again: {len(tests)} failed, they run once more, a module at a time and nothing beside it",
        flush=True,
    )
    alone = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    for module, of_it in itertools.groupby(tests, key=lambda test: test.partition("::")[0]):
        done = subprocess.run([*alone, *of_it], cwd=ROOT, check=False)
        if done.returncode:
            print(f"again: {module} failed twice", file=sys.stderr)
            return 1
    # The next run may be of other tests, and would not remove these failures from the list.
    (CACHE / LAST_FAILED).write_text("{}")
    for test in tests:
        print(
            f"FLAKY: {test} failed once and passed alone: read its first failure, it may "
            "be a fault of the code",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
