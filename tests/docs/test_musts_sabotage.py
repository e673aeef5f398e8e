"""The bugs that `make musts-sabotage` plants can be planted, and it tells a test that sees one from one that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from srmp_spark.errors import ConfigurationError
from tests.kit import musts, musts_sabotage
from tests.kit.musts_sabotage import FAILED, PACKAGE, Bug, bugs, sabotage

GOOD = 'MUST = "start"\n'


def test_each_bug_fits_the_text_of_the_program_as_it_is() -> None:
    """Whoever changes such a line gives the piece anew: docs/musts/sabotage."""
    assert [fault for bug in bugs() for fault in bug.faults()] == []


def test_each_bug_is_still_a_program_and_of_a_sentence_that_names_tests() -> None:
    tests = {sentence.id: sentence.tests for sentence in musts.load().sentences}
    for bug in bugs():
        assert tests[bug.id], bug.id
        text = (musts.ROOT / PACKAGE / bug.file).read_text(encoding="utf-8")
        compile(bug.planted_in(text), bug.file, "exec")


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        (Bug("1-1", "gone.py", "a", "b"), "there is no gone.py any more"),
        (Bug("1-1", "errors.py", "no such text", "b"), "0 times, not once"),
        (Bug("1-1", "errors.py", "class ", "b"), "times, not once"),
        (
            Bug("1-1", "errors.py", "class ConfigurationError", "class ConfigurationError"),
            "are the same",
        ),
    ],
)
def test_what_cannot_be_planted_is_said(bug: Bug, said: str) -> None:
    (fault,) = bug.faults()
    assert said in fault


def test_a_bug_has_exactly_three_keys(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[["2.1-1"]]\nfile = "a.py"\nold = "x"\n')
    with pytest.raises(ConfigurationError, match="needs exactly file, old and new"):
        bugs(tmp_path)


def test_a_test_that_looks_fails_and_one_that_does_not_look_passes(tmp_path: Path) -> None:
    (tmp_path / PACKAGE).mkdir()
    (tmp_path / PACKAGE / "__init__.py").write_text("")
    (tmp_path / PACKAGE / "code.py").write_text(GOOD)
    (tmp_path / "test_x.py").write_text(
        "from srmp_spark.code import MUST\n\ndef test_looks():\n    assert MUST == 'start'\n\n"
        "def test_blind():\n    assert MUST\n"
    )
    bug = Bug("2.1-1", "code.py", '"start"', '"stop"')
    assert bug.faults(tmp_path / PACKAGE) == []
    assert sabotage(bug, ["test_x.py::test_looks"], tmp_path)[0] == FAILED
    assert sabotage(bug, ["test_x.py::test_blind"], tmp_path)[0] == 0
    assert sabotage(bug, ["test_x.py::test_gone"], tmp_path)[0] not in (0, FAILED), (
        "that a test is not there is no proof"
    )
    assert (tmp_path / PACKAGE / "code.py").read_text() == GOOD, "taken out again"


def test_an_unknown_sentence_and_a_suite_that_fails_anyway_are_no_proof(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert musts_sabotage.main(["9.9-9"]) == 2
    assert "9.9-9: no bug is written down for it" in capsys.readouterr().err
    monkeypatch.setattr(musts_sabotage, "copy_project", lambda to: None)
    monkeypatch.setattr(musts_sabotage, "run_tests", lambda project, tests: (FAILED, "1 failed"))
    assert musts_sabotage.main([bugs()[0].id]) == 2
    assert "without a bug the tests must pass: 1 failed" in capsys.readouterr().err
