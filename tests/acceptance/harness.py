"""How the acceptance tests run the real thing: ``srmp-spark serve`` as a process, the commands, and nothing from inside."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kit.foreign.ledger import Landed, digest

COMMAND = [sys.executable, "-m", "srmp_spark.cli"]
COMMAND_TIMEOUT = 60
"""Seconds; a command that needs longer hangs."""
PEEK_MAX = 1_000_000


def command(*arguments: str, api: str) -> list[dict[str, Any]]:
    """Run ``srmp-spark …`` and return its JSON lines; a failing command fails the test with its stderr."""
    done = subprocess.run(
        [*COMMAND, *arguments, "--api", api],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT,
    )
    assert done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def peek(queue: str, *, api: str, after: int = 0, body: str = "base64") -> list[dict[str, Any]]:
    """The rows of a queue."""
    return command(
        "peek",
        "--queue",
        queue,
        "--after",
        str(after),
        "--max",
        str(PEEK_MAX),
        "--body",
        body,
        api=api,
    )


def landed(rows: list[dict[str, Any]]) -> list[Landed]:
    """Rows of ``peek --body base64`` as the judgement wants them."""
    return [
        Landed(
            queue=row["queue"],
            epoch=row["epoch"],
            sequence=row["sequence"],
            lineage=row["lineage"],
            uniquifier=row["uniquifier"],
            body=digest(base64.b64decode(row["body"] or "")),
            stream_id=row["stream_id"],
            stream_sequence=row["stream_sequence"],
        )
        for row in rows
    ]


def stderr_of(path: Path) -> str:
    """What a process wrote to its log so far."""
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
