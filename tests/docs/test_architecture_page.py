"""The page about the architecture shows the parts and rooms that are there, and files that exist."""

from __future__ import annotations

import re

import pytest
from test_docs import ROOT, text_of

from tests.test_architecture import MAY_IMPORT, NOUNS, PACKAGE

PAGE = text_of(ROOT / "docs" / "ARCHITECTURE.md")
FILE = re.compile(r"`((?:[\w]+/)*[\w]+\.py)`")
READING_ROWS = 12


def table(heading: str) -> dict[str, list[str]]:
    """The rows below a heading: the name of the first cell, and the other cells."""
    _, _, rest = PAGE.partition(f" {heading}\n")
    lines = re.split(r"^#+ ", rest, flags=re.MULTILINE)[0].splitlines()
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if "|" in line
    ]
    return {row[0].strip("`"): row[1:] for row in rows[2:]}


def test_the_parts_are_those_of_the_import_rules() -> None:
    shown = {name: set(cells[1].split(", ")) for name, cells in table("The parts").items()}
    parts = {name: may for name, may in MAY_IMPORT.items() if name not in (NOUNS - {"sequences"})}
    del parts["timers"], parts["transitions"]
    wanted = {
        name: (may - NOUNS | {"nouns"} if may >= NOUNS else may) or {"nothing"}
        for name, may in parts.items()
    }
    assert shown == wanted
    assert {noun for noun in NOUNS if f"`{noun}`" not in PAGE} == set()


@pytest.mark.parametrize("folder", ["queue_manager", "store"])
def test_the_rooms_are_the_folders(folder: str) -> None:
    rooms = {path.name for path in (PACKAGE / folder).iterdir() if (path / "__init__.py").is_file()}
    assert set(table(f"The rooms of the {folder.replace('_', ' ')}")) == rooms


def test_the_page_has_a_reading_guide_of_twelve_rows() -> None:
    assert len(table("Where to begin reading")) == READING_ROWS


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "reading-guide.md"])
def test_each_file_exists(page: str) -> None:
    named = set(FILE.findall(text_of(ROOT / "docs" / page)))
    assert len(named) > READING_ROWS
    outside = ("tests/", "benchmarks/", "docs/")
    missing = {
        name
        for name in named - {"link.py", "crossing.py"}
        if not ((ROOT if name.startswith(outside) else PACKAGE) / name).is_file()
    }
    assert missing == set()
