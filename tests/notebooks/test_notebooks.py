"""The notebooks run from top to bottom in a fresh kernel, and their stored outputs are those of a run."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.kit import notebooks
from tests.kit.notebooks import FINGERPRINT, NOTEBOOKS, PICTURE_BYTES_MAX, pictures, printed

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
OF_A_MACHINE = re.compile(
    r"(?<![\w.])/(?:home|root|tmp|usr|var|work|opt|mnt)/"  # a path
    r"|(?:127\.0\.0\.1|localhost|\[::1\]):\d"  # an address
    r"|\b20\d\d-\d\d-\d\d\b"  # a day
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-",  # an identifier that is new with each run
    re.IGNORECASE,
)


def run(name: str, monkeypatch: pytest.MonkeyPatch, jvm: dict[str, str]) -> Any:
    # Restored at the end of the test: what a kernel inherits is in the environment of this process.
    for variable in ("PYSPARK_PYTHON", *jvm):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    return notebooks.execute(NOTEBOOKS / name, jvm)


def check_stored(name: str, notebook: Any) -> None:
    """Two runs print the same, so what is stored is compared letter for letter. Pictures show speeds."""
    stored = notebooks.read(NOTEBOOKS / name)
    assert printed(stored) == printed(notebook), "make notebooks"
    assert len(pictures(stored)) == len(pictures(notebook)), "make notebooks"


@pytest.mark.spark
def test_01_ingest(monkeypatch: pytest.MonkeyPatch, jvm: dict[str, str]) -> None:
    notebook = run("01_ingest.ipynb", monkeypatch, jvm)
    assert len(pictures(notebook)) == 3
    text = printed(notebook)
    assert "doubled 0, payments in order: True" in text
    assert "rows 1400, acknowledged 1400" in text
    check_stored("01_ingest.ipynb", notebook)


@pytest.mark.long
@pytest.mark.spark
def test_02_replay(monkeypatch: pytest.MonkeyPatch, jvm: dict[str, str]) -> None:
    notebook = run("02_replay.ipynb", monkeypatch, jvm)
    assert len(pictures(notebook)) == 2
    text = printed(notebook)
    assert "in order: True" in text
    assert "again: 0 new" in text
    assert "without notes: 0 new" in text
    check_stored("02_replay.ipynb", notebook)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_the_stored_outputs_are_those_of_the_sources(path: Path) -> None:
    """`make notebooks` stores them again."""
    notebook = notebooks.read(path)
    assert notebook.metadata.get(FINGERPRINT) == notebooks.fingerprint(notebook), "make notebooks"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert len(pictures(notebook)) >= 2
    assert not any(output.output_type == "error" for output in notebooks.outputs(notebook))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_stored_notebook_tells_nothing_of_the_machine(path: Path) -> None:
    notebook = notebooks.read(path)
    shown = "".join(
        str({**output, "data": {**output.get("data", {}), "image/png": ""}})
        for output in notebooks.outputs(notebook)
    )
    assert OF_A_MACHINE.findall(shown) == []
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", shown)
    assert "stderr" not in shown
    assert {*notebook.metadata} == {"kernelspec", "language_info", FINGERPRINT}
    assert [cell.metadata for cell in notebook.cells] == [{}] * len(notebook.cells)
    assert all(len(picture) <= PICTURE_BYTES_MAX for picture in pictures(notebook))


def test_a_changed_source_is_found() -> None:
    notebook = notebooks.read(PATHS[0])
    notebook.cells[-1].source += "\nprint(1)"
    assert notebook.metadata[FINGERPRINT] != notebooks.fingerprint(notebook)


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("rows 1400, 3/4 of them", False),
        ("jar:file:/home/me/.venv/x.jar", True),
        ("senders post to http://127.0.0.1:40211", True),
        ("at 2026-11-27", True),
    ],
)
def test_what_tells_of_a_machine(text: str, tells: bool) -> None:
    assert bool(OF_A_MACHINE.search(text)) is tells
