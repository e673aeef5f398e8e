"""Tests that the processes of ``make test`` collect the same tests.

If they do not, pytest-xdist runs none of them.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
COLLECT_SECONDS = 200.0
"""Most seconds for a collection, which takes ten seconds on a quiet machine."""


def test_names_of_tests_depend_on_nothing_but_the_files(request: pytest.FixtureRequest) -> None:
    """The names do not depend on the order of a set, a random number or the time.

    Another process, with other hashes and some time after this one, collects the files that this
    process has collected. Parameters of tests must be values that are the same in every process.
    """
    items = request.session.items
    ours = {name_of(item) for item in items}
    files = sorted({str(item.path) for item in items})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *files,
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        cwd=request.config.rootpath,
        env={**environment, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        timeout=COLLECT_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    theirs = set(done.stdout.splitlines())
    assert sorted(ours - theirs)[:10] == [], (
        "only this process has these names: see the parameters of the tests"
    )


def name_of(item: pytest.Item) -> str:
    """Return the name of a test without the group, which pytest-xdist appends."""
    group = item.get_closest_marker("xdist_group")
    return item.nodeid if group is None else item.nodeid.removesuffix(f"@{group.args[0]}")


def test_tests_of_a_group_stay_together(request: pytest.FixtureRequest) -> None:
    """pytest-xdist appends the group to the name of each test, and the controller reads it there.

    With a version of pytest whose names it cannot change, every process would silently start every
    queue manager and Spark session for itself.
    """
    # ``make test`` uses groups; a single process has none.
    in_groups = request.config.getoption("loadgroup", default=False)
    assert request.node.nodeid.endswith(
        "_stay_together@test_collection.py" if in_groups else "_stay_together"
    )


def test_the_groups_that_take_longest_are_of_modules_that_exist() -> None:
    """If a module is renamed and its old name stays in the list, the module begins last."""
    spec = importlib.util.spec_from_file_location("tests_conftest", TESTS / "conftest.py")
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    modules = {conftest.group_of(path) for path in TESTS.rglob("test_*.py")}
    assert [name for name in conftest.LONGEST if name not in modules] == []
    assert [name for name in conftest.TABLES if not (TESTS / name).is_file()] == []
