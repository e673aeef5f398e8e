"""A quick run of benchmarks in a process of its own, and what its last line says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 800
"""Half a minute of CPU, on a machine with ten times its load."""


@dataclass(frozen=True)
class QuickRun:
    """What a run left behind."""

    code: int
    figures: dict[str, dict[str, Any]]
    progress: str

    def without(self, peer: str) -> list[str]:
        """The figures that name ``peer`` as missing."""
        return [
            name
            for name, figure in self.figures.items()
            if f"{peer} is left out" in figure.get("note", "")
        ]


def quick_run(names: Iterable[str], folder: Path, **environment: str) -> QuickRun:
    """``python -m benchmarks --quick --no-peers``: the same on each machine, whatever is installed there."""
    command = [sys.executable, "-m", "benchmarks", "--quick", "--no-peers"]
    for name in names:
        command += ["--only", name]
    variables = {**os.environ, "SRMP_PEERS_CACHE": str(folder), **environment}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=SECONDS_MAX, env=variables
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr[-3000:]
    return QuickRun(done.returncode, json.loads(lines[-1]), done.stderr)


def assert_ours_ran(run: QuickRun, figure: str) -> None:
    """It has a value, or was left out by name."""
    found = run.figures[figure]
    if found["value"] is None:
        assert found["ok"] is None, f"{found.get('note')}\n{run.progress[-3000:]}"
        assert found["note"] in LEFT_OUT, found
    assert found["ok"] is None, "a quick run judges nothing"


LEFT_OUT = ("left out (--quick)",)
"""What a quick run does not take: the batches of three of four shapes."""
