"""Plants bugs one by one, to see that the tests which ``docs/musts`` names fail.

``docs/musts/sabotage/*.toml`` holds the bugs. For the id of a sentence an entry names a file below
``srmp_spark``, a piece of text that occurs once in the file, and the text that replaces the piece::

    [["3.1.6.3-7"]]
    file = "srmp/receiving/incoming_streams.py"
    old = "self.send_receipts_to, last_ordinal, "
    new = "self.send_receipts_to, self.sequence_number, "

``make musts-sabotage`` copies the project, plants each bug in the copy, and runs only the tests
that the sentence names. These tests must fail with the bug and pass without it. If no test fails,
the row in the table is wrong.

This is fault injection like :mod:`.planted_bugs`, but it changes the text of the program. Therefore
it can also break code outside the classes of the simulation. ``tests/docs`` checks that each piece
of text is still found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from srmp_spark.errors import ConfigurationError
from tests.kit.musts import MC_MQSRM, ROOT, load, order_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BUGS = MC_MQSRM.table / "sabotage"
PACKAGE = "srmp_spark"
COPIED = (
    PACKAGE,
    "tests",
    "docs",
    "conf",
    "jobs",
    "benchmarks",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
)
"""The files and folders of the project that the tests need. Everything else may be large."""
TESTS_SECONDS = 600
"""Longest run of the tests of one sentence, in seconds; a longer run counts as failed.

The limit is high because a bug may make a test wait until the test's own deadline.
"""
FAILED = 1
"""The exit code of pytest when a test failed.

Any other code except 0 means that pytest could not run.
"""


@dataclass(frozen=True, slots=True)
class Bug:
    """One replacement in the program's text that breaks one sentence."""

    id: str
    """The id of the sentence that the bug breaks."""
    file: str
    """The path of the changed file below the package."""
    old: str
    new: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return the pattern that finds ``old``, even if the formatter has broken its lines."""
        core = self.old.strip()
        before, _, after = self.old.partition(core)
        pieces = [
            rf",?\s*{re.escape(piece)}" if piece in ")]}" else re.escape(piece)
            for piece in re.findall(r"\w+|[^\w\s]", core)
        ]
        return re.compile(re.escape(before) + r"\s*".join(pieces) + re.escape(after))

    def planted_in(self, text: str) -> str:
        """Return ``text`` with ``new`` in place of each occurrence of ``old``."""
        return self.pattern.sub(lambda _: self.new, text)

    def faults(self, package: Path = ROOT / PACKAGE) -> list[str]:
        """Return the faults of this entry, one text each; a text says what to do.

        An entry is wrong if ``old`` is not once in the file, or equals ``new``. No test is run.
        """
        path = package / self.file
        if not path.is_file():
            return [
                (
                    f"{self.id}: there is no {self.file} any more: name the module in which "
                    "the sentence is kept now"
                )
            ]
        found = len(self.pattern.findall(path.read_text(encoding="utf-8")))
        if found != 1:
            return [
                (
                    f"{self.id}: {self.file} has {self.old!r} {found} times, not once: give "
                    "the piece as it stands there now"
                )
            ]
        return [] if self.old != self.new else [f"{self.id}: old and new are the same"]


def bugs(folder: Path = BUGS) -> tuple[Bug, ...]:
    """Return all bugs of the TOML files in ``folder``, in the order of the document.

    Raises :class:`ConfigurationError` if an entry has other keys than ``file``, ``old`` and
    ``new``.
    """
    found: list[Bug] = []
    for path in sorted(folder.glob("*.toml")):
        content: Mapping[str, Sequence[Mapping[str, str]]] = tomllib.loads(
            path.read_text(encoding="utf-8")
        )
        for sentence_id, planted in content.items():
            order_of(sentence_id)
            for entry in planted:
                if entry.keys() != {"file", "old", "new"}:
                    raise ConfigurationError(
                        f"{path.name}: {sentence_id} needs exactly file, old and new"
                    )
                found.append(Bug(sentence_id, entry["file"], entry["old"], entry["new"]))
    return tuple(sorted(found, key=lambda bug: order_of(bug.id)))


def copy_project(to: Path, root: Path = ROOT) -> None:
    """Copy the project at ``root`` into the folder ``to``; bugs are planted only in the copy."""
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, to / name)


def run_tests(project: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run ``tests`` in ``project`` until one fails; return pytest's exit code and last line.

    A run that is longer than :data:`TESTS_SECONDS` has the code :data:`FAILED`.
    """
    # Without compiled files no code of an earlier bug can run.
    environment = {
        **os.environ,
        "PYTHONPATH": str(project),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # The project may be a copy without the pytest plugin of the distribution.
    plugins = ["-p", "no:cacheprovider", "-p", "no:srmp_spark"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", *plugins, *tests]
    try:
        # The command is this interpreter with tests of this project.
        done = subprocess.run(  # noqa: S603
            command,
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TESTS_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return FAILED, f"not over after {TESTS_SECONDS} s"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return done.returncode, lines[-1] if lines else ""


def sabotage(bug: Bug, tests: Sequence[str], project: Path) -> tuple[int, str]:
    """Plant ``bug`` in the copy ``project``, run ``tests``, and remove the bug again.

    Return pytest's exit code and its last line.
    """
    path = project / PACKAGE / bug.file
    text = path.read_text(encoding="utf-8")
    path.write_text(bug.planted_in(text), encoding="utf-8")
    try:
        return run_tests(project, tests)
    finally:
        path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant all bugs, or those of the given sentences, and print each result.

    Return 0 if a test fails for each bug, 1 if no test fails for some bug, and 2 if a bug cannot be
    planted or the tests cannot be run.
    """
    parser = argparse.ArgumentParser(
        description="plant bugs and see that the tests of docs/musts fail"
    )
    parser.add_argument(
        "ids", nargs="*", metavar="ID", help="sentences (default: all that have a bug)"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2,
        help="copies of the project in which tests run at once (default 2)",
    )
    options = parser.parse_args(arguments)
    tests = {sentence.id: sentence.tests for sentence in load().sentences}
    chosen = [bug for bug in bugs() if not options.ids or bug.id in options.ids]
    faults = [fault for bug in chosen for fault in bug.faults()]
    faults += [
        f"{wanted}: no bug is written down for it"
        for wanted in options.ids
        if all(bug.id != wanted for bug in chosen)
    ]
    if faults:
        sys.stderr.write("\n".join(faults) + "\n")
        return 2
    unseen = odd = 0
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(max(1, options.jobs)):
            copy = Path(folder) / str(number)
            copy.mkdir()
            copy_project(copy)
            copies.put(copy)
        code, words = run_tests(copy, sorted({test for bug in chosen for test in tests[bug.id]}))
        if code:
            sys.stderr.write(f"without a bug the tests must pass: {words}\n")
            return 2

        def plant(bug: Bug) -> tuple[int, str]:
            project = copies.get()
            try:
                return sabotage(bug, tests[bug.id], project)
            finally:
                copies.put(project)

        with ThreadPoolExecutor(max(1, options.jobs)) as pool:
            for bug, (code, words) in zip(chosen, pool.map(plant, chosen), strict=True):
                verdict = (
                    "seen"
                    if code == FAILED
                    else "NOT SEEN"
                    if code == 0
                    else f"not run (pytest {code})"
                )
                unseen += code == 0
                odd += code not in (0, FAILED)
                sys.stdout.write(f"{bug.id} {bug.file}: {verdict} ({words.strip('= ')})\n")
                sys.stdout.flush()
    sys.stdout.write(
        f"{len(chosen)} bugs of {len({bug.id for bug in chosen})} sentences, {unseen} not "
        f"seen, {odd} not run\n"
    )
    return 2 if odd else 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
