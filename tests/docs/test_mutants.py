"""The mutants that `make musts-sabotage` plants can be planted, and a test that sees one is told from one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from srmp_spark.errors import ConfigurationError
from tests.kit import musts, musts_pages
from tests.kit.musts import DOCUMENTS, MC_MQSRM, Document, Table
from tests.kit.mutants import __main__ as command
from tests.kit.mutants import mutant, record
from tests.kit.mutants.mutant import PACKAGE, Mutant
from tests.kit.mutants.record import Record
from tests.kit.mutants.workshop import Copy, Verdict, verdict

EACH = pytest.mark.parametrize("document", DOCUMENTS, ids=[each.name for each in DOCUMENTS])
BUG = Mutant(("2.1-1",), "code.py", '"start"', '"stop"')


@EACH
def test_each_entry_fits_the_product_and_the_table_as_they_are(document: Document) -> None:
    """Whoever changes such a line gives the piece anew: docs/musts/mutants."""
    assert mutant.load(document).faults(musts.load(document)) == []


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        (Mutant(("1-1",), "gone.py", "a", "b"), "there is no gone.py any more"),
        (Mutant(("1-1",), "errors.py", "no such text", "b"), "0 times"),
        (Mutant(("1-1",), "errors.py", "class ", "b"), "give a piece found once"),
        (Mutant(("1-1",), "errors.py", "class ConfigurationError", "class ("), "is no Python"),
        (
            Mutant(("1-1",), "errors.py", "class ConfigurationError", "class ConfigurationError"),
            "are the same",
        ),
    ],
)
def test_what_cannot_be_planted_is_said(bug: Mutant, said: str) -> None:
    (fault,) = bug.faults()
    assert said in fault


# --- the files of entries ---------------------------------------------------------------------------

MUTANT = '[[mutant]]\nrows = ["2.1-1"]\nfile = "a.py"\nold = "x"\nnew = "y"\n'
NONE = '[[none]]\nrows = ["2.1-1"]\nwhy = "the sentence allows the receiver to do either"\n'


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Document:
    """A document whose entries are in an empty folder."""
    monkeypatch.setattr(Document, "mutants", property(lambda self: tmp_path / "x"))
    (tmp_path / "x").mkdir()
    return MC_MQSRM


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (MUTANT.replace('new = "y"\n', ""), "needs exactly file, new, old, rows"),
        (MUTANT.replace('["2.1-1"]', "[]"), "at least one row"),
        (MUTANT.replace("2.1-1", "two"), "no id of a sentence"),
        (MUTANT.replace("[[mutant]]", "[[bug]]"), r"none of \[\[mutant\]\] and \[\[none\]\]"),
        (NONE + NONE, "has two reasons"),
        (NONE.replace("the sentence allows the receiver to do either", "no"), "say why"),
        ("[[mutant]", "x.toml"),
    ],
)
def test_what_is_no_file_of_entries(document: Document, text: str, complaint: str) -> None:
    (document.mutants / "x.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=complaint):
        mutant.load(document)


def table_of(folder: Path, *rows: str) -> Table:
    """Return a table of implemented rows, each with one test, but for ids that end with ``?``."""
    texts = [
        f'["{row.rstrip("?")}"]\nlevel = "MUST"\nquote = "x"\n'
        + (
            'status = "definition"\nreason = "a name"\n'
            if row.endswith("?")
            else 'status = "implemented"\ntests = ["tests/test_x.py::test_looks"]\n'
        )
        for row in rows
    ]
    (folder / "t.toml").write_text('[titles]\n"2.1" = "T"\n' + "\n".join(texts))
    return musts.load(MC_MQSRM._replace(table=folder))


def test_every_implemented_row_has_a_mutant_or_a_reason(document: Document, tmp_path: Path) -> None:
    (document.mutants / "x.toml").write_text(MUTANT + NONE.replace("2.1-1", "2.1-2"))
    entries = mutant.load(document)
    assert entries.missing(table_of(tmp_path, "2.1-1", "2.1-2", "2.1-3", "2.1-4?")) == ["2.1-3"]


def test_entries_that_do_not_fit_their_table(document: Document, tmp_path: Path) -> None:
    good = MUTANT.replace('"a.py"', '"errors.py"').replace('"x"', '"class ConfigurationError"')
    for text, row, fault in (
        (good, "2.1-2", "2.1-1: the document has no such sentence"),
        (good + NONE, "2.1-1", "2.1-1: has a mutant, and a reason why it has none: keep one"),
        (good, "2.1-1?", "2.1-1: has a mutant and names no test that could see it"),
    ):
        (document.mutants / "x.toml").write_text(text)
        # The replacement "y" is no class, which is the first fault.
        assert mutant.load(document).faults(table_of(tmp_path, row))[1:] == [fault]


# --- a run ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """A copy of a project with one module and three tests."""
    root, place = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("copy")
    (root / PACKAGE).mkdir()
    (root / PACKAGE / "__init__.py").write_text("")
    (root / PACKAGE / "code.py").write_text('MUST = "start"\n')
    (root / "tests").mkdir()
    (root / "tests" / "test_x.py").write_text(
        "import time\n\nfrom srmp_spark.code import MUST\n\n"
        "def test_looks():\n    assert MUST == 'start'\n\n"
        "def test_blind():\n    assert MUST\n\n"
        "def test_waits():\n    time.sleep(0 if MUST == 'start' else 60)\n"
    )
    with Copy(place, root) as made:
        yield made


def words(copy: Copy, bug: Mutant, *tests: str) -> list[Verdict]:
    """Return the verdicts of tests of the small project, the same tests for each row."""
    named = {row: [f"tests/test_x.py::{test}" for test in tests] for row in bug.rows}
    return [outcome.verdict for outcome in copy.judged(bug, named, {})]


def test_a_test_that_looks_kills_and_one_that_does_not_look_lets_it_survive(copy: Copy) -> None:
    assert BUG.faults(copy.folder / PACKAGE) == []
    assert words(copy, BUG, "test_looks") == [Verdict.KILLED]
    assert words(copy, BUG, "test_blind") == [Verdict.SURVIVED]
    assert words(copy, BUG, "test_blind", "test_looks") == [Verdict.KILLED]
    assert words(copy, BUG, "test_gone") == [Verdict.NOT_RUN], "that a test is missing is no proof"
    assert (copy.folder / PACKAGE / "code.py").read_text() == 'MUST = "start"\n', "removed again"
    assert copy.tests(["tests/test_x.py"], 60)["code"] == 0, "and the old text runs again"


def test_a_mutant_of_two_rows_is_judged_for_each_by_its_own_tests(copy: Copy) -> None:
    both = Mutant(("2.1-1", "2.1-2"), BUG.file, BUG.old, BUG.new)
    named = {"2.1-1": ["tests/test_x.py::test_looks"], "2.1-2": ["tests/test_x.py::test_blind"]}
    verdicts = [(outcome.row, outcome.verdict) for outcome in copy.judged(both, named, {})]
    assert verdicts == [("2.1-1", Verdict.KILLED), ("2.1-2", Verdict.SURVIVED)]


def test_a_mutant_that_makes_a_test_hang_is_killed(copy: Copy) -> None:
    path = copy.folder / PACKAGE / "code.py"
    path.write_text('MUST = "stop"\n')
    try:
        answer = copy.tests(["tests/test_x.py::test_waits"], 1.0)
    finally:
        path.write_text('MUST = "start"\n')
    assert verdict(answer) is Verdict.KILLED
    assert answer["words"] == "not over after 1.0 s"


def test_a_mutant_that_no_module_of_tests_can_import_is_killed(copy: Copy) -> None:
    assert words(copy, Mutant(("2.1-1",), "code.py", "MUST", "OTHER"), "test_blind") == [
        Verdict.KILLED
    ]


def test_an_unknown_row_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["9.9-9"]) == command.UNUSABLE
    assert "9.9-9: no mutant is written down for it" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["3", "0/0", "x/10"])
def test_a_part_is_a_number_of_a_number(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--part", text])
    assert "K/N, as in 3/10" in capsys.readouterr().err


# --- the record -------------------------------------------------------------------------------------


def test_the_record_keeps_the_worse_verdict_of_a_row_and_forgets_older_ones(
    document: Document,
) -> None:
    known = Record()
    known.update(killed=["2.1-1", "2.1-2", "2.10-1"], survived=["2.1-2"])
    assert [known.word(row) for row in ("2.1-1", "2.1-2", "2.1-3")] == [
        "killed",
        "survived",
        "not run",
    ]
    known.update(killed=["2.1-2"], survived=["2.1-1"])
    assert (known.word("2.1-1"), known.word("2.1-2")) == ("survived", "killed")
    record.save(document, known)
    assert record.load(document) == known
    assert musts_pages.whole_run(known) == "The whole was not run yet."
