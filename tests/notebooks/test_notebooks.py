"""The notebooks run from top to bottom in a fresh kernel, draw their pictures and come to the right numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CELL_TIMEOUT = 180
"""Seconds; the first cell with Spark starts a JVM and may have to fetch jars."""


def run(name: str) -> nbformat.NotebookNode:
    """Execute a notebook with this interpreter and return it with its outputs."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    where = {"metadata": {"path": str(NOTEBOOKS)}}
    NotebookClient(notebook, timeout=CELL_TIMEOUT, kernel_name="python3", resources=where).execute()
    return notebook


def printed(notebook: nbformat.NotebookNode) -> str:
    outputs = (
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    )
    return "".join(
        output.text
        for output in outputs
        if output.output_type == "stream" and output.name == "stdout"
    )


def pictures(notebook: nbformat.NotebookNode) -> int:
    outputs = (
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    )
    return sum("image/png" in output.get("data", {}) for output in outputs)


def in_the_jvm(monkeypatch: pytest.MonkeyPatch, jvm: dict[str, str]) -> None:
    """What a kernel inherits."""
    for name, value in {"PYSPARK_PYTHON": sys.executable, **jvm}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.spark
def test_01_ingest(monkeypatch: pytest.MonkeyPatch, jvm: dict[str, str]) -> None:
    in_the_jvm(monkeypatch, jvm)
    notebook = run("01_ingest.ipynb")
    assert pictures(notebook) == 3
    text = printed(notebook)
    assert "doubled 0, payments in order: True" in text
    assert "rows 1400, acknowledged 1400" in text


@pytest.mark.long
@pytest.mark.spark
def test_02_replay(monkeypatch: pytest.MonkeyPatch, jvm: dict[str, str]) -> None:
    in_the_jvm(monkeypatch, jvm)
    notebook = run("02_replay.ipynb")
    assert pictures(notebook) == 2
    text = printed(notebook)
    assert "in order: True" in text
    assert "again: 0 new" in text
    assert "without notes: 0 new" in text


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_committed_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
