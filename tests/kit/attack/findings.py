"""Saves findings as files with their walks, so that the tests can play the walks again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.attack.judge import Finding
from tests.kit.attack.steps import Walk


def save(folder: Path, finding: Finding, walks: Sequence[Walk]) -> Path:
    """Write a finding and its walks to a JSON file in ``folder``, and return the path.

    The folder is made if needed. The name follows from the content, so a second save changes
    nothing.
    """
    text = json.dumps(
        {
            "kind": finding.kind,
            "detail": finding.detail,
            "walks": [walk.as_json() for walk in walks],
        },
        indent=1,
    )
    folder.mkdir(parents=True, exist_ok=True)
    ports = "-".join(sorted({walk.port for walk in walks})) or "none"
    path = folder / f"{finding.kind}-{ports}-{hashlib.sha256(text.encode()).hexdigest()[:10]}.json"
    path.write_text(text + "\n")
    return path


def load(path: Path) -> list[Walk]:
    """Read the walks of a finding's file.

    Raises :class:`OSError` if the file cannot be read, and :class:`ValueError`, :class:`KeyError`
    or :class:`TypeError` if it holds no finding.
    """
    value: dict[str, Any] = json.loads(path.read_text())
    return [Walk.of_json(walk) for walk in value["walks"]]
