"""The guarantees keep their word: a section for each promise, tests that exist, a page that is up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_docs import ROOT, long_ones_of, text_of

from srmp_spark.errors import ConfigurationError
from tests.kit import guarantees
from tests.kit.guarantees import PARTS, PROMISES, Shown

SHOWN = guarantees.load("promises")
ACCEPTANCE = guarantees.load("acceptance")
NOT_PROMISED = guarantees.load("not-promised")
SECTIONS = dict(guarantees.sections(text_of(PROMISES)))


def test_each_promise_has_a_section_under_its_number_and_name() -> None:
    assert list(SECTIONS) == [entry.heading for entry in SHOWN]
    assert len(SHOWN) >= 58, "a promise that was taken out would leave a hole in the tables"


@pytest.mark.parametrize("heading", SECTIONS)
def test_each_section_says_what_is_promised_when_and_what_breaks_it(heading: str) -> None:
    assert tuple(SECTIONS[heading]) == PARTS
    assert [part for part, text in SECTIONS[heading].items() if len(text) < len("Always.")] == []


def test_each_named_test_exists() -> None:
    assert guarantees.missing_tests((*SHOWN, *ACCEPTANCE, *NOT_PROMISED)) == []


@pytest.mark.parametrize("entry", SHOWN, ids=lambda entry: entry.id)
def test_a_promise_does_not_hang_on_long_tests_alone(entry: Shown) -> None:
    assert all("::test_" in test for test in entry.tests), "a file alone proves nothing"
    short = [
        test
        for test in entry.tests
        if test.rpartition("::")[2] not in long_ones_of(ROOT / test.partition("::")[0])
    ]
    assert short, "make test-long alone would see it broken"


def test_each_acceptance_test_is_in_the_table_and_its_targets_are_in_the_makefile() -> None:
    text = text_of(PROMISES)
    numbers = [f"T{number}" for number in range(1, 21)]
    assert re.findall(r"^\| (T\d+) \|.*$", text, re.MULTILINE) == numbers
    assert [entry.id for entry in ACCEPTANCE] == numbers
    assert all(entry.seen for entry in ACCEPTANCE)
    named = set(re.findall(r"`make ([a-z-]+)", text + text_of(guarantees.PAGE)))
    assert named <= set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))


def test_each_limit_with_tests_is_a_heading_of_what_is_not_promised() -> None:
    _, _, rest = text_of(PROMISES).partition("\n## Not promised\n")
    headings = re.findall(r"^### (.+)$", rest.partition("\n## ")[0], re.MULTILINE)
    assert {entry.id for entry in NOT_PROMISED} - set(headings) == set()


def test_the_page_is_up_to_date() -> None:
    text = guarantees.page(SHOWN, ACCEPTANCE, NOT_PROMISED)
    assert text_of(guarantees.PAGE) == text, "run make docs-guarantees and commit it"
    assert guarantees.main(["--check"]) == 0


# --- the tool itself ----------------------------------------------------------------------------------------------------

GOOD = '["1"]\nname = "X"\ntests = ["tests/docs/test_guarantees.py::test_a_table_is_read"]\n'


def load(text: str, folder: Path) -> tuple[Shown, ...]:
    (folder / "promises.toml").write_text(text)
    return guarantees.load("promises", folder)


def test_a_table_is_read(tmp_path: Path) -> None:
    (entry,) = load(GOOD, tmp_path)
    assert entry.heading == "1. X"
    assert guarantees.missing_tests([entry]) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "promises.toml"),
        (GOOD + 'reason = "y"\n', "1: unknown reason; known: name, note"),
        ('["1"]\nname = "X"\ntests = []\n', "1 names no test"),
        ('["1"]\ntests = ["tests/x.py::test_y"]\n', "1 has no name"),
    ],
)
def test_a_table_with_a_fault_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        load(text, tmp_path)


@pytest.mark.parametrize(
    ("test", "fault"),
    [
        ("tests/docs/test_guarantees.py::test_gone", "the file has no such test"),
        ("tests/docs/test_gone.py::test_x", "there is no such file"),
        ("tests/docs/test_guarantees.py", "a test is FILE::NAME"),
    ],
)
def test_a_test_that_is_gone_is_found(test: str, fault: str, tmp_path: Path) -> None:
    (found,) = guarantees.missing_tests(load(f'["1"]\nname = "X"\ntests = ["{test}"]\n', tmp_path))
    assert fault in found


def test_a_section_without_a_part_is_seen() -> None:
    page = "### 1. X\n\n**Promise.** It holds.\n\n**What breaks it.** Rot.\n\n## More\n\n**Condition.** No.\n"
    assert dict(guarantees.sections(page)) == {
        "1. X": {"Promise": "It holds.", "What breaks it": "Rot."}
    }
