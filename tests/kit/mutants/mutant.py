"""The entries of ``docs/musts/mutants``: which edit breaks which sentences of a document.

An entry names the rows (the ids of sentences), a file below ``srmp_spark``, a piece of text that
occurs once in the file, and the text that replaces the piece::

    [[mutant]]
    rows = ["3.1.6.3-7"]
    file = "srmp/receiving/incoming_streams.py"
    old = "self.send_receipts_to, last_ordinal, "
    new = "self.send_receipts_to, self.sequence_number, "

A row that no edit of the product can break says why::

    [[none]]
    rows = ["3.1.1.2-1"]
    why = "the sentence allows the receiver to do either"

``tests/docs`` checks that each piece of text is still found, and that each implemented row has a
mutant or a reason.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srmp_spark.errors import ConfigurationError
from tests.kit.musts import ROOT, Document, Status, Table, order_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = "srmp_spark"
WHY_MIN = 20
"""Fewest characters of a reason for a row without a mutant; a shorter text explains nothing."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One replacement in the product's text that breaks one or more sentences."""

    rows: tuple[str, ...]
    """The ids of the sentences that the replacement breaks."""
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

        An entry is wrong if ``old`` is not once in the file, if it equals ``new``, or if the file
        with ``new`` is no Python. No test is run.
        """
        rows, path = ", ".join(self.rows), package / self.file
        if not path.is_file():
            return [f"{rows}: there is no {self.file} any more: name the module that keeps it now"]
        text = path.read_text(encoding="utf-8")
        found = len(self.pattern.findall(text))
        if found != 1:
            return [f"{rows}: {self.file} has {self.old!r} {found} times: give a piece found once"]
        if self.old == self.new:
            return [f"{rows}: old and new are the same"]
        try:
            compile(self.planted_in(text), self.file, "exec")
        except SyntaxError as error:
            return [f"{rows}: {self.file} with the mutant is no Python: {error}"]
        return []


@dataclass(frozen=True, slots=True)
class Mutants:
    """All entries of one document."""

    document: Document
    mutants: tuple[Mutant, ...]
    none: Mapping[str, str]
    """Maps the id of a row that no edit can break to the reason."""

    def rows(self) -> frozenset[str]:
        """Return the ids of the rows that a mutant breaks."""
        return frozenset(row for mutant in self.mutants for row in mutant.rows)

    def faults(self, table: Table) -> list[str]:
        """Return what does not fit ``table``, the document's table, one text each."""
        named = {sentence.id: sentence for sentence in table.sentences}
        found = [fault for mutant in self.mutants for fault in mutant.faults()]
        for row in sorted(self.rows() | self.none.keys(), key=order_of):
            if row not in named:
                found.append(f"{row}: the document has no such sentence")
            elif row in self.none and row in self.rows():
                found.append(f"{row}: has a mutant, and a reason why it has none: keep one")
            elif row not in self.none and not named[row].tests:
                found.append(f"{row}: has a mutant and names no test that could see it")
        return found

    def missing(self, table: Table) -> list[str]:
        """Return the implemented rows of ``table`` that have neither a mutant nor a reason."""
        known = self.rows() | self.none.keys()
        return [
            sentence.id
            for sentence in table.sentences
            if sentence.status is Status.IMPLEMENTED and sentence.id not in known
        ]


def load(document: Document) -> Mutants:
    """Read the entries of a document; the mutants are in the order of their first rows.

    Raises :class:`ConfigurationError` if a file is no valid TOML, an entry has other keys than the
    module shows, or a reason is too short or given twice.
    """
    mutants: list[Mutant] = []
    none: dict[str, str] = {}
    for path in sorted(document.mutants.glob("*.toml")):
        for kind, entry in _entries(path):
            rows = tuple(entry["rows"])
            for row in rows:
                order_of(row)
            if kind == "mutant":
                mutants.append(Mutant(rows, entry["file"], entry["old"], entry["new"]))
                continue
            if len(entry["why"]) < WHY_MIN:
                raise ConfigurationError(f"{path.name}: {', '.join(rows)}: say why in a sentence")
            if known := none.keys() & set(rows):
                raise ConfigurationError(f"{path.name}: {', '.join(sorted(known))} has two reasons")
            none |= dict.fromkeys(rows, entry["why"])
    mutants.sort(key=lambda mutant: order_of(mutant.rows[0]))
    return Mutants(document, tuple(mutants), none)


KEYS = {"mutant": {"rows", "file", "old", "new"}, "none": {"rows", "why"}}


def _entries(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the entries of a file with their kinds; raises :class:`ConfigurationError`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path.name}: {error}") from None
    for kind, entries in content.items():
        if kind not in KEYS:
            raise ConfigurationError(f"{path.name}: [[{kind}]] is none of [[mutant]] and [[none]]")
        for entry in entries:
            if entry.keys() != KEYS[kind] or not entry["rows"]:
                raise ConfigurationError(
                    f"{path.name}: [[{kind}]] {entry.get('rows')} needs exactly "
                    f"{', '.join(sorted(KEYS[kind]))}, and at least one row"
                )
            yield kind, entry
