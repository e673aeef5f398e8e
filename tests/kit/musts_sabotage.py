"""Does a test that ``docs/musts`` names for a sentence fail when that sentence is broken? One bug at a time is planted to see.

``docs/musts/sabotage/*.toml`` has the bugs: for the id of a sentence the file below ``srmp_spark``, a piece of it that stands
there once, and what stands there instead::

    [["3.1.6.3-7"]]
    file = "srmp/receiving/incoming_streams.py"
    old = "self.send_receipts_to, last_ordinal, "
    new = "self.send_receipts_to, self.sequence_number, "

``make musts-sabotage`` copies the project, plants each bug in the copy and runs only the tests that the sentence names: they
must fail, and without a bug pass. A bug that nobody sees is a row that lies. Fault injection like :mod:`.planted_bugs`, but of
the text of the program: what it breaks need not be a class of the simulation. That each piece is still found is asked by
``tests/docs``.
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
"""What tests need of the project; everything else may be large."""
TESTS_SECONDS = 600
"""For the tests of one sentence: a bug may make one wait until its own deadline."""
FAILED = 1
"""pytest's exit code when a test failed; every other one but 0 says that it could not be run."""


@dataclass(frozen=True, slots=True)
class Bug:
    """One sentence, broken."""

    id: str
    """Of the sentence."""
    file: str
    """Below the package."""
    old: str
    new: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return what finds ``old``, however the formatter has broken its lines."""
        core = self.old.strip()
        before, _, after = self.old.partition(core)
        pieces = [
            rf",?\s*{re.escape(piece)}" if piece in ")]}" else re.escape(piece)
            for piece in re.findall(r"\w+|[^\w\s]", core)
        ]
        return re.compile(re.escape(before) + r"\s*".join(pieces) + re.escape(after))

    def planted_in(self, text: str) -> str:
        """Return ``text`` with ``new`` in the place of ``old``."""
        return self.pattern.sub(lambda _: self.new, text)

    def faults(self, package: Path = ROOT / PACKAGE) -> list[str]:
        """What is wrong with it before anything runs, in words that say what to do."""
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
    """All of them, in the order of the document. Raises :class:`ConfigurationError` for what is no bug."""
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
    """The project in which bugs may be planted: never the one that somebody works in."""
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, to / name)


def run_tests(project: Path, tests: Sequence[str]) -> tuple[int, str]:
    """pytest's exit code and its last words."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(project),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # no stale code of another bug
    # The project may be a copy without the plugin that our distribution has for pytest.
    plugins = ["-p", "no:cacheprovider", "-p", "no:srmp_spark"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", *plugins, *tests]
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter and our own tests
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
    """Plant ``bug`` in the copy, run ``tests``, and take it out again."""
    path = project / PACKAGE / bug.file
    text = path.read_text(encoding="utf-8")
    path.write_text(bug.planted_in(text), encoding="utf-8")
    try:
        return run_tests(project, tests)
    finally:
        path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant all, or those of the given sentences: 0 if each is seen, 1 if one is not, 2 if one cannot be planted."""
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
