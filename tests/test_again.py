"""Tests of tests/again.py: which failures of a run are repeated in a second run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import again
from tests.again import MOST_MODULES, NotRepeatableError, to_repeat


def cache(folder: Path, failed: list[str], musts: list[str] = []) -> Path:  # noqa: B006  # the list is never changed
    for name, content in (
        ("cache/lastfailed", dict.fromkeys(failed, True)),
        ("musts/MC-MQSRM", musts),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder


def test_a_failed_test_is_repeated_by_its_name_without_the_group_of_xdist(tmp_path: Path) -> None:
    failed = [
        "tests/a.py::test_a@spark tables",
        "tests/b.py::test_b[x@y]@tests/b.py",
        "tests/c.py::test_c",
    ]
    assert to_repeat(cache(tmp_path, failed)) == [
        "tests/a.py::test_a",
        "tests/b.py::test_b[x@y]",
        "tests/c.py::test_c",
    ]


def test_the_tests_of_one_module_are_repeated_however_many(tmp_path: Path) -> None:
    failed = [f"tests/a.py::test_{n}" for n in range(10 * MOST_MODULES)]
    assert to_repeat(cache(tmp_path, failed)) == sorted(failed)


@pytest.mark.parametrize(
    ("failed", "musts", "why"),
    [
        ([], [], "no test did"),
        ([f"tests/{n}.py::test_a" for n in range(MOST_MODULES + 1)], [], "more than"),
        (["tests/a.py"], [], "could not be collected"),
        (["tests/a.py::test_a"], ["tests/a.py::test_b did not run (2.1-1)"], "did not run"),
    ],
)
def test_what_a_second_run_would_not_prove_is_refused(
    tmp_path: Path, failed: list[str], musts: list[str], why: str
) -> None:
    with pytest.raises(NotRepeatableError, match=why):
        to_repeat(cache(tmp_path, failed, musts))


def test_a_run_without_a_cache_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotRepeatableError, match="no test did"):
        to_repeat(tmp_path)


@pytest.mark.parametrize(("body", "code"), [("pass", 0), ("assert False", 1)])
def test_a_failure_that_repeats_ends_the_run_and_one_that_does_not_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    body: str,
    code: int,
) -> None:
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {body}\n")
    monkeypatch.setattr(again, "ROOT", tmp_path)
    monkeypatch.setattr(
        again, "CACHE", cache(tmp_path / "cache", ["test_it.py::test_it@test_it.py"])
    )
    assert again.main(["-q"]) == code
    said = capfd.readouterr()
    assert ("FLAKY: test_it.py::test_it" in said.out) == (code == 0)
    assert ("failed twice" in said.err) == (code == 1)
    assert again.main(["-q"]) == 1, "what passed is not repeated once more"
