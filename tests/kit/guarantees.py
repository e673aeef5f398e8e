"""The tests behind each promise of ``docs/GUARANTEES.md``, and the page that lists them.

The promises themselves are written by hand, for people. Their tests stand in ``docs/guarantees``:

- ``promises.toml``: one table for each promise, named by its number::

      ["8b"]
      name = "A restored row is a row"
      tests = ["tests/restore/test_restored_messages.py::test_…"]
      of_its_limits = []      # optional: tests of what breaks the promise
      note = "…"              # optional: one sentence about the tests

- ``acceptance.toml``: the acceptance tests T1 to T20, with ``seen``, the figures of their runs so
  far.
- ``not-promised.toml``: tests of what the page does not promise, by the words in bold there.

``make docs-guarantees`` writes ``docs/GUARANTEES_TESTS.md`` from these tables.
``tests/docs/test_guarantees.py`` compares page, tables and tests.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srmp_spark.errors import ConfigurationError
from tests.kit.musts import unknown_tests

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "docs" / "guarantees"
PROMISES = ROOT / "docs" / "GUARANTEES.md"
PAGE = ROOT / "docs" / "GUARANTEES_TESTS.md"
PARTS = ("Promise", "Condition", "What breaks it")
"""The three parts of each promise's section, in this order."""

_KEYS = {
    "promises": frozenset({"name", "tests", "of_its_limits", "note"}),
    "acceptance": frozenset({"tests", "note", "seen"}),
    "not-promised": frozenset({"tests"}),
}
_HEADING = re.compile(r"^### (\d+[a-z]?)\. (.+)$", re.MULTILINE)
_PART = re.compile(r"^\*\*(.+?)\.\*\* *(.*?)(?=^\*\*|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A promise, an acceptance test or a limit, and the tests that show it.

    ``of_its_limits`` are tests of what breaks the promise. ``seen`` has the figures of earlier
    runs.
    """

    id: str
    """``8b`` (a promise), ``T3`` (an acceptance test), or the words in bold of a limit."""
    name: str
    tests: tuple[str, ...]
    of_its_limits: tuple[str, ...]
    note: str
    seen: str

    @property
    def heading(self) -> str:
        """Return the heading of this entry, identical in both pages."""
        return f"{self.id}. {self.name}" if self.name else self.id

    @property
    def named(self) -> tuple[str, ...]:
        """Return the names of all tests of this entry."""
        return self.tests + self.of_its_limits


def load(table: str, folder: Path = TABLES) -> tuple[Shown, ...]:
    """Read ``table`` (``promises``, ``acceptance`` or ``not-promised``) from ``folder``.

    Raises :class:`ConfigurationError` if the file is no valid TOML, a key is unknown, an entry
    names no test, or a promise has no name.
    """
    path = folder / f"{table}.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path.name}: {error}") from None
    return tuple(_shown(table, each, entry) for each, entry in content.items())


def _shown(table: str, each: str, entry: Mapping[str, Any]) -> Shown:
    unknown = entry.keys() - _KEYS[table]
    if unknown:
        known = ", ".join(sorted(_KEYS[table]))
        raise ConfigurationError(f"{each}: unknown {', '.join(sorted(unknown))}; known: {known}")
    if not entry.get("tests"):
        raise ConfigurationError(f"{each} names no test: name one that fails when it is broken")
    if table == "promises" and not entry.get("name"):
        raise ConfigurationError(f"{each} has no name: use the one of its heading in GUARANTEES.md")
    return Shown(
        id=each,
        name=entry.get("name", ""),
        tests=tuple(entry["tests"]),
        of_its_limits=tuple(entry.get("of_its_limits", ())),
        note=entry.get("note", ""),
        seen=entry.get("seen", ""),
    )


def sections(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the heading of each promise of the page ``text``, and its parts by their names."""
    headings = list(_HEADING.finditer(text))
    for match in headings:
        rest = re.split(r"^#{2,3} ", text[match.end() :], maxsplit=1, flags=re.MULTILINE)[0]
        parts = {part[1]: part[2].strip() for part in _PART.finditer(rest)}
        yield f"{match[1]}. {match[2]}", parts


def missing_tests(shown: Sequence[Shown]) -> list[str]:
    """Return a fault, as text, for each named test that does not exist.

    Only a limit may name a whole file.
    """
    found = []
    for entry in shown:
        of_files = (
            () if entry.name or entry.seen else tuple(t for t in entry.tests if "::" not in t)
        )
        found += [f"{entry.id}: no file {name}" for name in of_files if not (ROOT / name).is_file()]
        found += [
            f"{entry.id}: {fault}"
            for fault in unknown_tests(test for test in entry.named if test not in of_files)
        ]
    return found


_HEAD = """# The tests behind the guarantees

Generated by `make docs-guarantees` from [docs/guarantees](guarantees): change the tables, not this
page. [Guarantees](GUARANTEES.md) has the promises under the same numbers. A test fails when its
promise is broken. Each promise has a test that runs with `make test`.
"""


def page(
    promises: Sequence[Shown], acceptance: Sequence[Shown], not_promised: Sequence[Shown]
) -> str:
    """Return the text of ``docs/GUARANTEES_TESTS.md`` for the three tables."""
    named = {test for entry in (*promises, *acceptance, *not_promised) for test in entry.named}
    lines = [_HEAD, f"**{len(promises)} promises, {len(named)} tests.**", "", "## Promises", ""]
    for entry in promises:
        lines += [f"### {entry.heading}", "", *_items(entry.tests)]
        if entry.of_its_limits:
            lines += ["", "Of what breaks it:", "", *_items(entry.of_its_limits)]
        lines += ["", *([entry.note, ""] if entry.note else [])]
    lines += ["## Acceptance tests", ""]
    for entry in acceptance:
        lines += [f"### {entry.id}", "", *_items(entry.tests), ""]
        lines += [*([entry.note, ""] if entry.note else []), f"Seen so far: {entry.seen}", ""]
    lines += ["## What is not promised", ""]
    for entry in not_promised:
        lines += [f"### {entry.id}", "", *_items(entry.tests), ""]
    return "\n".join(lines).rstrip() + "\n"


def _items(tests: Sequence[str]) -> list[str]:
    return [f"- `{test}`" for test in tests]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or with ``--check`` compare it with the tables.

    Return 0, or 1 if a named test does not exist or the page is not up to date.
    """
    parser = argparse.ArgumentParser(description="write docs/GUARANTEES_TESTS.md")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 if it is not up to date"
    )
    check = parser.parse_args(arguments).check
    tables = load("promises"), load("acceptance"), load("not-promised")
    faults = missing_tests([entry for table in tables for entry in table])
    if faults:
        sys.stderr.write("\n".join(faults) + "\n")
        return 1
    text, where = page(*tables), PAGE.relative_to(ROOT).as_posix()
    if not check:
        PAGE.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{where}: {len(tables[0])} promises\n")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{where} is not up to date: run make docs-guarantees and commit it\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
