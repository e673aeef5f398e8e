"""The verdicts of the last runs, for the pages: ``docs/musts/mutants/DOCUMENT.json``.

A run of the whole document replaces the file, and a run of a part changes its own rows. The file
keeps the commit of the last whole run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.kit.musts import Document, order_of


@dataclass(slots=True)
class Record:
    """The verdicts about the rows of one document."""

    commit: str = ""
    """The commit on which the whole document was run last; empty if it never was."""
    killed: set[str] = field(default_factory=set)
    """The rows all of whose mutants were killed when they were run last."""
    survived: set[str] = field(default_factory=set)

    def word(self, row: str) -> str:
        """Return the word of the page for a row: "killed", "survived" or "not run"."""
        return "survived" if row in self.survived else "killed" if row in self.killed else "not run"

    def update(self, killed: Iterable[str], survived: Iterable[str]) -> None:
        """Take over the verdicts of a run; a row that has one of each has survived."""
        bad = set(survived)
        good = set(killed) - bad
        self.survived = (self.survived - good) | bad
        self.killed = (self.killed - bad) | good


def load(document: Document) -> Record:
    """Read the record of a document; the record is empty if there is no file."""
    if not document.record.exists():
        return Record()
    content = json.loads(document.record.read_text(encoding="utf-8"))
    return Record(content["commit"], set(content["killed"]), set(content["survived"]))


def save(document: Document, record: Record) -> None:
    """Write the record of a document, rows in the order of the document."""
    content = {
        "commit": record.commit,
        "survived": sorted(record.survived, key=order_of),
        "killed": sorted(record.killed, key=order_of),
    }
    document.record.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
