"""The targets of INTERFACE.md section 6, and the one line that somebody without Java reads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = ("setup", "demo", "test", "check", "bench", "sim", "fuzz", "slow", "crash", "powerloss")


def test_make_alone_lists_every_target() -> None:
    done = subprocess.run(["make", "--no-print-directory", "-C", str(ROOT)], capture_output=True, text=True, timeout=60)
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
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})


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
