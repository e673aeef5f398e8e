"""Run the notebooks and store them with their outputs (``make notebooks``).

A reader on the web sees the tables and the pictures without running anything. What is stored holds
the outputs of a run, and a fingerprint of the sources that made them: a notebook whose source was
changed afterwards is found by ``tests/notebooks``. Nothing of the machine is stored: no version of
Python, no times, and of the outputs neither stderr (Spark's launcher prints paths there) nor the
numbers of ports, which are new with each run.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.one_jvm import one_jvm

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CELL_TIMEOUT_SECONDS = 180
"""Longest time of one cell, in seconds. The first cell with Spark starts a JVM."""
FINGERPRINT = "sources_sha256"
"""Name in the metadata of a stored notebook: the fingerprint of the sources that were run."""
_PORT = re.compile(r"(127\.0\.0\.1:)\d+")
PICTURE_BYTES_MAX = 150 * 1024
"""Largest stored picture, in bytes. A clone carries each version of each picture for ever."""


def read(path: Path) -> Any:  # noqa: ANN401  # nbformat's nodes have no types
    """Read a notebook."""
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def execute(path: Path, environment: Mapping[str, str]) -> Any:  # noqa: ANN401  # a node
    """Run a notebook from top to bottom in a fresh kernel, and return it with its outputs.

    ``environment`` is added to this process's environment, which the kernel inherits. Raises the
    error of a cell that fails.
    """
    notebook = read(path)
    os.environ.update({"PYSPARK_PYTHON": sys.executable, **environment})
    NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    return notebook


def fingerprint(notebook: Any) -> str:  # noqa: ANN401  # a node
    """Return a fingerprint of the cells' sources. It does not depend on outputs."""
    sources = [[cell.cell_type, cell.source] for cell in notebook.cells]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def outputs(notebook: Any) -> Iterator[Any]:  # noqa: ANN401  # nodes
    """Yield the outputs that are stored, in their order: all but stderr."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            for output in cell.outputs:
                if output.get("name") != "stderr":
                    yield output


def printed(notebook: Any) -> str:  # noqa: ANN401  # a node
    """Return what the cells have printed, without ports."""
    streams = (output for output in outputs(notebook) if output.output_type == "stream")
    return without_ports("".join(output.text for output in streams))


def without_ports(text: str) -> str:
    """Return ``text`` with a word in the place of each port of the loopback."""
    return _PORT.sub(r"\1PORT", text)


def pictures(notebook: Any) -> list[bytes]:  # noqa: ANN401  # a node
    """Return the pictures that the cells have drawn."""
    found = (output.get("data", {}).get("image/png") for output in outputs(notebook))
    return [base64.b64decode(picture) for picture in found if picture is not None]


def to_store(notebook: Any, before: Any) -> Any:  # noqa: ANN401  # nodes
    """Return ``notebook``, which was run, in the form that is stored.

    ``before`` is the notebook as it was read: its metadata stays.
    """
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
            for output in cell.outputs:
                if output.output_type == "stream":
                    output.text = without_ports(output.text)
    notebook.metadata = before.metadata
    notebook.metadata[FINGERPRINT] = fingerprint(notebook)
    return notebook


def main() -> None:
    """Run the notebooks that are named, or all, and store them."""
    parser = argparse.ArgumentParser(description=main.__doc__, allow_abbrev=False)
    parser.add_argument("notebook", nargs="*", type=Path, default=sorted(NOTEBOOKS.glob("*.ipynb")))
    paths = parser.parse_args().notebook
    with tempfile.TemporaryDirectory() as folder, one_jvm(Path(folder)) as jvm:
        for path in paths:
            notebook = to_store(execute(path, jvm), read(path))
            nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
            sizes = [len(picture) for picture in pictures(notebook)]
            print(f"{path.name}: {len(sizes)} pictures of {sum(sizes):,} bytes", flush=True)


if __name__ == "__main__":
    main()
