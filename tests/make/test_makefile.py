"""The targets of INTERFACE.md section 6, and the one line that somebody without Java reads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = (
    "setup",
    "demo",
    "test",
    "check",
    "bench",
    "scale",
    "sim",
    "attack",
    "fuzz",
    "slow",
    "crash",
    "powerloss",
)
TARGETS += ("restarts", "rollback", "clocks", "proof", "long")


def test_make_alone_lists_every_target() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    listed = re.findall(r"^  make (\S+)\s+\S", done.stdout, re.MULTILINE)
    assert set(TARGETS) < set(listed)


@pytest.mark.parametrize("target", TARGETS[1:])
def test_every_target_sets_itself_up(target: str) -> None:
    rule = re.search(rf"^{target}:(.*?)##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule is not None
    assert "setup" in rule[1].split()


def check_java(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [shutil.which("bash"), str(ROOT / "conf" / "check-java.sh")]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )


def java_that_says(version: str, home: Path) -> str:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    binary.chmod(0o755)
    return str(home)


def test_a_missing_java_is_one_clear_line(tmp_path: Path) -> None:
    done = check_java(JAVA_HOME=str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "Java is missing" in done.stderr
    assert "apt-get install openjdk-17-jre-headless" in done.stderr


def test_an_old_java_is_told_so_and_17_and_later_are_taken(tmp_path: Path) -> None:
    old = check_java(JAVA_HOME=java_that_says("11.0.2", tmp_path / "old"))
    assert (old.returncode, old.stderr.count("\n")) == (2, 1)
    assert old.stderr.startswith("Java 11 is too old")
    for version in ("17", "17.0.15", "21.0.1"):
        assert check_java(JAVA_HOME=java_that_says(version, tmp_path / version)).returncode == 0


FAKE_PYTHON = """#!/bin/sh
case "$1 $2" in
"-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip")
    echo "Collecting pyspark==4.2.0"
    echo "  Downloading pyspark-4.2.0.tar.gz (434.2 MB)"
    echo "  Downloading idna-3.1-py3-none-any.whl (68 kB)"
    echo "  Building wheel for pyspark (pyproject.toml): started"
    [ -z "$PIP_FAILS" ] || { echo "ERROR: no such package" >&2; exit 1; }
    echo "Installing collected packages: py4j, pyspark" ;;
esac
"""
"""Stands in for Python: all that ``make setup`` has it do, without a network."""


def setup(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    python = tmp_path / "python3"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    command = [
        "make",
        "--no-print-directory",
        "-C",
        str(ROOT),
        "setup",
        f"VENV={tmp_path}/venv",
        f"PYTHON_BIN={python}",
    ]
    java = java_that_says("17.0.15", tmp_path / "java")
    more = {**os.environ, "JAVA_HOME": java, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=more)


def test_setup_says_each_step_and_what_takes_long_in_it(tmp_path: Path) -> None:
    done = setup(tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    steps = [line.partition(":")[0] for line in said if line.startswith("setup")]
    assert steps == ["setup 1/3", "setup 2/3", "setup 3/3", "setup"]
    assert [line for line in said if not line.startswith("setup")] == [
        "  Downloading pyspark-4.2.0.tar.gz (434.2 MB)",
        "  Building wheel for pyspark (pyproject.toml): started",
        "  Installing collected packages",
    ]


def test_setup_ends_where_pip_fails(tmp_path: Path) -> None:
    done = setup(tmp_path, PIP_FAILS="1")
    assert done.returncode != 0
    assert "ERROR: no such package" in done.stderr
    assert "setup 3/3" not in done.stdout
    assert not (tmp_path / "venv" / ".srmp-spark-setup").exists()
