"""Repeat what failed in the run before, alone: a failure that does not repeat is told and ends nothing.

``.ci/run`` calls this after a red ``make test`` or ``make test-long``. Its machine has two cores that others use too, and
3 or 4 test processes wait for servers, JVMs and kills there: a limit of time that was exceeded once in 8,000 tests says
something of the machine. A failure of the code repeats, so a test that fails again fails the run. So do failures in more
than :data:`MOST_MODULES` modules, a sentence of docs/MUSTS.md that lost its proof for another reason, and a run that ended
before its tests did. What passed only the second time is printed as ``FLAKY`` with the name of the test: several of those
hid a fault of the code, so somebody has to look at each; the first run's text is above it in the log.

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
"""pytest's list in the cache: a test stays in it until it passes in a run that writes it."""
MOST_MODULES = 4
"""Modules with failures of one run that may be the machine's (their tests share what they start, and its failure); more say
something of the code, or that the machine is of no use today."""


class NotRepeatableError(Exception):
    """Nothing to repeat, or too much."""


def to_repeat(cache: Path) -> list[str]:
    """The tests that failed in the run before. Raises :class:`NotRepeatableError` when a second run would prove nothing."""
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
    """pytest-xdist adds ``@GROUP`` behind the parameters, in which an ``@`` may stand too."""
    name, bracket, group = test.rpartition("]")
    return name + bracket if bracket else group.partition("@")[0]


def main(arguments: list[str]) -> int:
    """0 when each failure of the run before passes alone, else 1."""
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
    (CACHE / LAST_FAILED).write_text("{}")  # the next run may be of other tests
    for test in tests:
        print(
            f"FLAKY: {test} failed once and passed alone: read its first failure, it may "
            "be a fault of the code",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
