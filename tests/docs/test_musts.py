"""The table of MUSTs keeps its word: ids, tests that exist, a page that is up to date, and a gate that shuts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from srmp_spark.errors import ConfigurationError
from tests.kit import musts, musts_pages
from tests.kit.musts import Status, Table
from tests.kit.mutants import mutant, record
from tests.musts_gate import MustsGate

TESTS = Path(__file__).resolve().parents[1]
TABLES = {document.name: musts.load(document) for document in musts.DOCUMENTS}
EACH = pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))


def whole_page(table: Table) -> str:
    """Return the page of a table as `make docs-musts` writes it."""
    entries, verdicts = mutant.load(table.document), record.load(table.document)
    column = musts_pages.column(entries, verdicts)
    return musts_pages.page(table, column, musts_pages.whole_run(verdicts))


GOOD = """[titles]
"2.1" = "Transport"

["2.1-1"]
level = "MUST"
quote = "x MUST y"
status = "implemented"
tests = ["tests/test_x.py::test_y"]
"""


# --- the table ----------------------------------------------------------------------------------------------------------


@EACH
def test_no_entry_has_a_fault(table: Table) -> None:
    assert [fault for sentence in table.sentences for fault in sentence.faults()] == []


@EACH
def test_each_named_test_exists(table: Table) -> None:
    assert musts.unknown_tests(table.tests()) == []


@EACH
def test_every_section_that_has_sentences_has_all_of_them(table: Table) -> None:
    """Ids count from 1 without holes: a sentence that was taken out would leave one."""
    numbers: dict[str, list[int]] = {}
    for sentence in table.sentences:
        numbers.setdefault(sentence.section, []).append(int(sentence.id.rpartition("-")[2]))
    assert {
        section: found
        for section, found in numbers.items()
        if found != list(range(1, len(found) + 1))
    } == {}
    assert table.titles.keys() == numbers.keys()
    assert len(table.sentences) == table.document.sentences


@EACH
def test_the_page_is_up_to_date(table: Table) -> None:
    page = table.document.page
    assert page.read_text(encoding="utf-8") == whole_page(table), (
        f"run make docs-musts and commit {page.name}"
    )


@EACH
def test_the_page_counts_what_it_shows(table: Table) -> None:
    page = whole_page(table)
    rows = re.findall(
        r"^\| [\d.]+-\d+ \| .* \| ([a-z-]+)(?:: .*)? \| (.*) \| .* ?\|$", page, re.MULTILINE
    )
    assert len(rows) == len(table.sentences)
    total = next(line for line in page.splitlines() if line.startswith("| all |"))
    counted = [sum(status == each.value for status, _ in rows) for each in Status]
    assert [int(number) for number in re.findall(r"\d+", total)] == [*counted, len(rows)]
    assert all(tests for status, tests in rows if Status(status) in musts.TESTED)


def test_make_docs_musts_says_which_page_is_old(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert musts_pages.main(["--check"]) == 0
    monkeypatch.setattr(musts_pages, "_HEAD", musts_pages._HEAD + "more")
    assert musts_pages.main(["--check"]) == 1
    assert "docs/MUSTS.md is not up to date" in (said := capsys.readouterr().err)
    assert "docs/MUSTS_MQRR.md is not up to date" in said
    assert "docs/MUSTS_WSRVCRM.md is not up to date" in said


def load_of(folder: Path, **files: str) -> musts.Table:
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
    return musts.load(musts.MC_MQSRM._replace(table=folder))


def test_an_id_stands_once(tmp_path: Path) -> None:
    assert [sentence.id for sentence in load_of(tmp_path, a=GOOD).sentences] == ["2.1-1"]
    with pytest.raises(ConfigurationError, match="stands in another file"):
        load_of(tmp_path, b=GOOD)
    (tmp_path / "b.toml").unlink()
    with pytest.raises(ConfigurationError, match=r"a\.toml"):
        load_of(tmp_path, a=GOOD + GOOD.partition("\n\n")[2])


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("2.1-1", "2.1", "no id of a sentence"),
        ("2.1-1", "two-1", "no id of a sentence"),
        ('"implemented"', '"done"', "status 'done' is none of"),
        ("quote", "quotation", "unknown quotation"),
        ('"2.1" =', '"2.2" =', "no title for 2.1"),
    ],
)
def test_what_is_no_table(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load_of(tmp_path, a=GOOD.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"MUST"', '"WILL"', "level"),
        ("x MUST y", "", "quote"),
        ("x MUST y", "x" * 121, "quote"),
        ('["tests/test_x.py::test_y"]', "[]", "names no test"),
        ('["tests/test_x.py::test_y"]', '["a::b", "a::b"]', "twice"),
        ('"implemented"', '"deviation"', "gives no reason"),
        ('"implemented"', '"definition"\nreason = "a name"', "and names tests"),
        (
            '"implemented"\ntests = ["tests/test_x.py::test_y"]',
            '"not-implemented"\nreason = "later"',
            "begins with",
        ),
    ],
)
def test_an_entry_that_proves_nothing(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    (sentence,) = load_of(tmp_path, a=GOOD.replace(old, new)).sentences
    assert complaint in " ".join(sentence.faults())


def test_a_name_is_looked_up_in_its_file(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "def test_y(): ...\nclass TestZ:\n    def test_y(self): ...\n\ndef helper(): ...\n"
    )
    assert musts.unknown_tests(["test_x.py::test_y", "test_x.py::TestZ::test_y"], tmp_path) == []
    wrong = [
        "test_x.py::test_z",
        "test_x.py::helper",
        "test_x.py::test_y[1]",
        "test_w.py::test_y",
        "test_x.py",
    ]
    assert len(musts.unknown_tests(wrong, tmp_path)) == len(wrong)


# --- the gate -----------------------------------------------------------------------------------------------------------

CONFTEST = """
from pathlib import Path
import pytest
from tests.musts_gate import MustsGate
from tests.kit import musts
ROOT = Path(__file__).resolve().parent
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(MustsGate(musts.load(musts.MC_MQSRM._replace(table=ROOT.parent)), ROOT))
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group("one"))
"""
PASSES = (
    "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_y(n): ...\ndef "
    "test_other(): ...\n"
)
PASSES_NOT = """
import pytest
@pytest.mark.parametrize("n", [])
def test_never(n): ...
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.skip("no IPv6 here"))])
def test_sometimes(n): ...
@pytest.mark.parametrize("n", [1, 2])
def test_fails(n): assert n == 1
@pytest.mark.xfail
def test_expected_to_fail(): assert False
"""
ALONE = ("-p", "xdist.plugin")
TWO = (*ALONE, "-n", "2", "--dist", "loadgroup")


def run(folder: Path, module: str, *arguments: str, table: str = GOOD) -> tuple[int, str]:
    """pytest in a project of its own: exit code and what it wrote."""
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "table.toml").write_text(table)
    (folder / "pytest.ini").write_text(
        "[pytest]\ntestpaths = tests\nmarkers =\n    long: left out of make test\n"
    )
    (folder / "tests" / "conftest.py").write_text(CONFTEST)
    (folder / "tests" / "test_x.py").write_text(module)
    path = os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [ALONE, TWO])
def test_a_run_in_which_all_of_them_passed_is_good(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    code, written = run(tmp_path, PASSES, *arguments)
    assert (code, "without proof" in written) == (0, False), written


@pytest.mark.parametrize("arguments", [ALONE, TWO])
def test_a_run_in_which_one_did_not_pass_says_which_and_why(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    names = ("renamed", "never", "sometimes", "fails", "expected_to_fail")
    entries = [f"tests/test_x.py::test_{name}" for name in names]
    table = GOOD.replace('["tests/test_x.py::test_y"]', str(entries).replace("'", '"'))
    code, written = run(tmp_path, PASSES_NOT, *arguments, table=table)
    assert code == 1, written
    said = [
        line.removeprefix("tests/test_x.py::test_")
        for line in written.splitlines()
        if line.endswith("(2.1-1)")
    ]
    assert [re.sub(r"(got empty parameter set).*( \()", r"\1\2", line) for line in said] == [
        "renamed did not run (2.1-1)",
        "never was skipped, Skipped: got empty parameter set (2.1-1)",
        "sometimes was skipped, Skipped: no IPv6 here (2.1-1)",
        "fails failed (2.1-1)",
        "expected_to_fail was skipped, an expected failure (2.1-1)",
    ]


def test_that_alone_makes_the_exit_code_1_but_not_in_a_part_of_the_suite(tmp_path: Path) -> None:
    module = PASSES.replace("test_y", "test_renamed")
    assert run(tmp_path, module)[0] == 1
    assert run(tmp_path, module, "-k", "other")[0] == 0


@pytest.mark.parametrize("arguments", [ALONE, TWO])
def test_without_its_long_tests_the_suite_is_whole_and_a_sentence_needs_another_one(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    short = (*arguments, "-m", "not long")
    code, written = run(
        tmp_path, PASSES.replace("[1, 2]", "[1, pytest.param(2, marks=pytest.mark.long)]"), *short
    )
    assert code == 0, written
    code, written = run(
        tmp_path, PASSES.replace("def test_y", "@pytest.mark.long\ndef test_y"), *short
    )
    assert (code, "test_y did not run" in written) == (1, True), written


def test_a_reason_to_skip_that_the_table_allows(tmp_path: Path) -> None:
    table = GOOD.replace("test_y", "test_sometimes")
    module = PASSES_NOT.replace("assert n == 1", "...")
    assert run(tmp_path, module, table=table + 'may_skip = "no IPv6"\n')[0] == 0
    assert run(tmp_path, module, table=table + 'may_skip = "no Java"\n')[0] == 1


@pytest.mark.parametrize(
    ("arguments", "options", "whole"),
    [
        (["tests"], {}, True),
        (["."], {}, True),
        (["/p/tests"], {"verbose": 2}, True),
        (["tests/docs"], {}, False),
        (["tests/test_x.py::test_y"], {}, False),
        (["tests"], {"keyword": "other"}, False),
        (["tests"], {"markexpr": "not long"}, True),
        (["tests"], {"markexpr": "long"}, False),
        (["tests"], {"markexpr": "not spark"}, False),
        (["tests"], {"ignore": ["tests/spark"]}, False),
        (["tests"], {"deselect": ["tests/test_x.py::test_y"]}, False),
        (["tests"], {"lf": True}, False),
        (["tests"], {"collectonly": True}, False),
    ],
)
def test_what_the_whole_suite_is(
    arguments: list[str], options: dict[str, object], whole: bool
) -> None:
    where = SimpleNamespace(dir=Path("/p"))
    config = SimpleNamespace(
        args=arguments, option=SimpleNamespace(**options), invocation_params=where
    )
    session = SimpleNamespace(config=config, shouldstop=False, shouldfail=False)
    assert MustsGate(TABLES["MC-MQSRM"], Path("/p/tests")).is_whole(session) is whole  # type: ignore[arg-type]  # all it reads
    session.shouldfail = "stopping after 1 failures"
    assert not MustsGate(TABLES["MC-MQSRM"], Path("/p/tests")).is_whole(session)  # type: ignore[arg-type]  # all it reads
