"""Each MUST, SHOULD and MAY of Microsoft's documents, with the tests that check it.

The tests of a sentence fail when the sentence is broken. The sentences are those of chapters 2 and
3. Each document has a table: ``docs/musts/*.toml``, ``docs/musts/mqrr/*.toml`` or
``docs/musts/wsrvcrm/*.toml``. There is one file per chapter, and one TOML table per sentence::

    ["3.1.5.1.6.3-4"]
    level = "MUST"
    quote = "MUST set Stream.IncomingSequenceNumber to the <current> value"
    status = "implemented"
    tests = ["tests/mc_mqsrm/test_3_1_5_1_6_3_….py::test_second_criterion_…"]

An id is the section and the number of the sentence within the section. The quotation is a few words
by which a reader finds the sentence. Microsoft's text is not copied:
https://learn.microsoft.com/openspecs/windows_protocols/mc-mqsrm, …/ms-mqrr, …/ms-wsrvcrm.

:mod:`.musts_pages` writes ``docs/MUSTS.md``, ``docs/MUSTS_MQRR.md`` and ``docs/MUSTS_WSRVCRM.md``
from the tables. ``tests/docs/test_musts.py`` checks that each named test exists.
``tests/musts_gate.py`` checks at the end of a run of the whole suite that each named test *passed*.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.errors import ConfigurationError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
QUOTE_MAX = 120
"""Most characters of a quotation: enough to find the sentence, and no copy of the document."""
LEVELS = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY")
KEYS = frozenset({"level", "quote", "status", "tests", "reason", "may_skip"})


class Document(NamedTuple):
    """One of Microsoft's documents, with the paths of its table and of its page."""

    name: str
    """The name by which this project refers to the document."""
    table: Path
    page: Path
    sentences: int
    """Number of sentences in the revision that this project uses; other revisions differ."""

    @property
    def mutants(self) -> Path:
        """Return the folder of the edits that break the sentences (:mod:`tests.kit.mutants`)."""
        return ROOT / "docs" / "musts" / "mutants" / self.name.lower().partition("-")[2]

    @property
    def record(self) -> Path:
        """Return the file with the verdicts of the last runs of these edits."""
        return self.mutants.with_suffix(".json")


MC_MQSRM = Document("MC-MQSRM", ROOT / "docs" / "musts", ROOT / "docs" / "MUSTS.md", 759)
MS_MQRR = Document(
    "MS-MQRR", ROOT / "docs" / "musts" / "mqrr", ROOT / "docs" / "MUSTS_MQRR.md", 407
)
MS_WSRVCRM = Document(
    "MS-WSRVCRM", ROOT / "docs" / "musts" / "wsrvcrm", ROOT / "docs" / "MUSTS_WSRVCRM.md", 44
)
DOCUMENTS = (MC_MQSRM, MS_MQRR, MS_WSRVCRM)


class Status(Enum):
    """Whether and how this project implements a sentence; the values are those in the tables."""

    IMPLEMENTED = "implemented"
    PARTLY = "partly"
    """A part of the sentence is implemented; ``reason`` says what is missing."""
    DEVIATION = "deviation"
    """The product differs on purpose; ``reason`` says how and why, and the tests check it."""
    NOT_IMPLEMENTED = "not-implemented"
    """The sentence is not implemented.

    ``reason`` begins with "not yet" or "never" and says what the product does instead.
    """
    DEFINITION = "definition"
    """The sentence describes nothing observable, and ``reason`` says what it is.

    Examples are a name, a heading of steps, and an argument of an abstract event.
    """


TESTED = frozenset({Status.IMPLEMENTED, Status.PARTLY, Status.DEVIATION})
"""The statuses for which a sentence needs at least one test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One sentence of the specification, as its table has it.

    ``reason`` is empty only if the sentence is implemented.
    """

    id: str
    """Section and number, such as ``3.1.5.1.6.3-4``."""
    level: str
    quote: str
    status: Status
    tests: tuple[str, ...]
    """Node ids of pytest without parameters; all cases of each test must pass."""
    reason: str
    may_skip: str
    """The part of a skip reason that excuses skipped tests, for example without IPv6.

    If the text is empty, the tests must never be skipped.
    """

    @property
    def section(self) -> str:
        """Return the number of the section that holds the sentence."""
        return self.id.partition("-")[0]

    def faults(self) -> list[str]:
        """Return the faults of this entry by itself, one text each; a text says what to do."""
        found = []
        if self.level not in LEVELS:
            found.append(f"{self.id}: level {self.level!r} is none of {', '.join(LEVELS)}")
        if not self.quote or len(self.quote) > QUOTE_MAX:
            found.append(
                f"{self.id}: quote 1 to {QUOTE_MAX} characters of the sentence, these are "
                f"{len(self.quote)}"
            )
        if self.status in TESTED and not self.tests:
            found.append(
                f"{self.id} is {self.status.value} and names no test: name one that fails "
                "when it is broken"
            )
        if self.status not in TESTED and self.tests:
            found.append(
                f"{self.id} is {self.status.value} and names tests: is it not 'partly' at least?"
            )
        if self.status is not Status.IMPLEMENTED and not self.reason:
            found.append(f"{self.id} is {self.status.value} and gives no reason")
        if self.status is Status.NOT_IMPLEMENTED and not self.reason.startswith(
            ("not yet", "never")
        ):
            found.append(
                f'{self.id}: the reason begins with "not yet" or "never", and says what '
                "stands in its place"
            )
        if len(set(self.tests)) < len(self.tests):
            found.append(f"{self.id} names a test twice")
        return found


@dataclass(frozen=True, slots=True)
class Table:
    """All sentences of one document."""

    document: Document
    titles: Mapping[str, str]
    """Maps the number of a section to its title."""
    sentences: tuple[Sentence, ...]
    """The sentences in the order of the document."""

    def tests(self) -> dict[str, list[Sentence]]:
        """Return each named test with the sentences that name it."""
        named: dict[str, list[Sentence]] = {}
        for sentence in self.sentences:
            for test in sentence.tests:
                named.setdefault(test, []).append(sentence)
        return named


def order_of(sentence_id: str) -> tuple[tuple[int, ...], int]:
    """Return the sort key of an id, so that ``2.10-3`` follows ``2.9-1``.

    Raises :class:`ConfigurationError` if the text is no id.
    """
    section, dash, number = sentence_id.partition("-")
    try:
        return tuple(map(int, section.split("."))), int(number if dash else "")
    except ValueError:
        raise ConfigurationError(
            f"{sentence_id!r} is no id of a sentence: section-number, as in 3.1.5.1.6.3-4"
        ) from None


def load(document: Document = MC_MQSRM) -> Table:
    """Read the table of ``document``.

    Raises :class:`ConfigurationError` if a file is no valid TOML (an id that occurs twice in one
    file makes the file invalid), if a key or status is unknown, if an id is in two files, or if a
    section has no title.
    """
    titles: dict[str, str] = {}
    sentences: dict[str, Sentence] = {}
    for path in sorted(document.table.glob("*.toml")):
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"{path.name}: {error}") from None
        titles |= content.pop("titles", {})
        for sentence_id, entry in content.items():
            if sentence_id in sentences:
                raise ConfigurationError(f"{path.name}: {sentence_id} stands in another file, too")
            sentences[sentence_id] = _sentence(sentence_id, entry)
    untitled = {sentence.section for sentence in sentences.values()} - titles.keys()
    if untitled:
        raise ConfigurationError(f"no title for {', '.join(sorted(untitled))}: add it to [titles]")
    return Table(
        document,
        titles,
        tuple(sorted(sentences.values(), key=lambda sentence: order_of(sentence.id))),
    )


def _sentence(sentence_id: str, entry: Mapping[str, Any]) -> Sentence:
    order_of(sentence_id)
    unknown = entry.keys() - KEYS
    if unknown:
        raise ConfigurationError(
            f"{sentence_id}: unknown {', '.join(sorted(unknown))}; known: {', '.join(sorted(KEYS))}"
        )
    try:
        status = Status(entry.get("status"))
    except ValueError:
        known = ", ".join(status.value for status in Status)
        raise ConfigurationError(
            f"{sentence_id}: status {entry.get('status')!r} is none of {known}"
        ) from None
    return Sentence(
        id=sentence_id,
        level=entry.get("level", ""),
        quote=entry.get("quote", ""),
        status=status,
        tests=tuple(entry.get("tests", ())),
        reason=entry.get("reason", ""),
        may_skip=entry.get("may_skip", ""),
    )


# --- existence of tests ---------------------------------------------------------------------------


@cache
def _tests_in(path: Path) -> frozenset[str]:
    """Return ``test_x`` and ``TestY::test_x`` for each test of a module.

    The function reads the module without running it.
    """
    body = ast.parse(path.read_text(encoding="utf-8")).body
    in_classes = {
        f"{node.name}::{name}"
        for node in body
        if isinstance(node, ast.ClassDef)
        for name in _functions(node.body)
    }
    return frozenset(in_classes | set(_functions(body)))


def _functions(body: Sequence[ast.stmt]) -> Iterable[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            yield node.name


def unknown_tests(tests: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return a fault for each test that no module below ``root`` contains."""
    found = []
    for test in tests:
        module, separator, name = test.partition("::")
        path = root / module
        if not separator or "[" in name:
            found.append(f"{test}: a test is FILE::NAME, without parameters")
        elif not path.is_file():
            found.append(f"{test}: there is no such file")
        elif name not in _tests_in(path):
            found.append(f"{test}: the file has no such test")
    return found
