"""The pictures of the pages: files that are up to date, texts that fit, states and steps that the code has."""

from __future__ import annotations

import importlib
import re
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from test_docs import ROOT, text_of

from srmp_spark.srmp.receiving import incoming_streams
from srmp_spark.srmp.sending import outgoing_states

ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"


def module(name: str) -> ModuleType:
    """A module of ``docs/site``, which is no package."""
    folder = str(ROOT / "docs" / "site")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


SVG = module("svg")
PICTURES = module("pictures")
NAMES = tuple(PICTURES.pictures())


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_up_to_date(name: str) -> None:
    path = PICTURES.FOLDER / name
    assert path.is_file(), "run make docs-pictures and commit it"
    assert text_of(path) == PICTURES.pictures()[name], "run make docs-pictures and commit it"


def test_each_picture_is_shown_on_a_page_and_no_other_one_lies_there() -> None:
    assert {path.name for path in PICTURES.FOLDER.iterdir()} == set(NAMES)
    pages = "".join(text_of(path) for path in (ROOT / "docs").glob("*.md"))
    assert [name for name in NAMES if f"](pictures/{name})" not in pages] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_needs_no_other_host(name: str) -> None:
    text = text_of(PICTURES.FOLDER / name)
    ElementTree.fromstring(text)
    assert re.findall(r"href|url\(|@import|<script", text) == []
    assert set(re.findall(r"https?://[^\"]+", text)) == {"http://www.w3.org/2000/svg"}


def edges(arrows: tuple[object, ...]) -> set[tuple[str, str]]:
    return {
        (arrow.start.partition(":")[0], arrow.end.partition(":")[0])  # type: ignore[attr-defined]
        for arrow in arrows
    }


@pytest.mark.parametrize(
    ("states", "boxes", "arrows", "transitions"),
    [
        (
            outgoing_states.OutgoingState,
            PICTURES.SENDING,
            PICTURES.SENDING_ARROWS,
            outgoing_states.TRANSITIONS,
        ),
        (
            incoming_streams.ReceiptState,
            PICTURES.RECEIPT,
            PICTURES.RECEIPT_ARROWS,
            incoming_streams.TRANSITIONS,
        ),
    ],
)
def test_the_states_are_those_of_the_code(
    states: type[Enum],
    boxes: tuple[object, ...],
    arrows: tuple[object, ...],
    transitions: dict[tuple[Enum, Enum], Enum],
) -> None:
    shown = {box.name for box in boxes if box.kind == "state"}  # type: ignore[attr-defined]
    assert shown == {state.name for state in states}
    moves = {(before.name, after.name) for (before, _), after in transitions.items()}
    assert edges(arrows) <= moves
    assert {start for start, _ in edges(arrows)} == shown, "each state is left"


@pytest.mark.parametrize(
    ("heading", "boxes"),
    [
        ("One message, from POST to Delta row", PICTURES.WAY_IN),
        ("One row, from a sink to a peer", PICTURES.WAY_OUT),
    ],
)
def test_the_numbers_of_a_path_are_those_of_its_story(
    heading: str, boxes: tuple[object, ...]
) -> None:
    _, _, story = text_of(ARCHITECTURE).partition(f"\n## {heading}\n")
    steps = re.findall(r"^(\d+)\. \*\*", story.partition("\n## ")[0], re.MULTILINE)
    assert steps == [str(number) for number in range(1, 11)]
    numbered = "\n".join(box.text for box in boxes)  # type: ignore[attr-defined]
    assert set(re.findall(r"^(\d+) ", numbered, re.MULTILINE)) == set(steps)


# --- the writer ---------------------------------------------------------------------------------------------------------


def box(name: str, x: float, text: str = "x") -> object:
    return SVG.Box(name, x, 20, 100, text)


@pytest.mark.parametrize(
    ("boxes", "arrows", "said"),
    [
        ((box("a", 20, "a text that is too long"),), (), "box a is too narrow"),
        ((box("a", 20), box("b", 110)), (), "a covers b"),
        (
            (box("a", 20), box("b", 140), box("c", 260)),
            (SVG.Arrow("a:right", "c:left"),),
            "the line a:right c:left crosses b",
        ),
        (
            (box("a", 20), box("b", 140)),
            (SVG.Arrow("a:right", "b:left", "long label"),),
            "the label 'long label'",
        ),
    ],
)
def test_a_picture_with_a_fault_is_refused(
    boxes: tuple[object, ...], arrows: tuple[object, ...], said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        SVG.drawing("x", boxes, arrows)


def test_a_picture_without_a_fault_is_written(tmp_path: Path) -> None:
    text = SVG.drawing("<x>", (box("a", 20), box("b", 180)), (SVG.Arrow("a:right", "b:left", "y"),))
    (tmp_path / "x.svg").write_text(text)
    root = ElementTree.parse(tmp_path / "x.svg").getroot()
    assert root.find("{*}title").text == "<x>"  # type: ignore[union-attr]
    assert len(root.findall("{*}polyline")) == 1
